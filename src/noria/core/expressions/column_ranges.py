"""Finds the values and ranges to which a condition restricts columns, so that rows can be found by key or index.

Keeps true: if the condition holds for a row, each column of `bounded` has one of its values there.  Each column of
`ranges_of` has a code in its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.core.expressions.expr import Call, Col, Const, Expr, conjuncts
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import Kind, SqlType
from noria.core.values import encode

MAX_POINTS = 10_000  # values of an IN list, or combinations of several lists: a longer list is ignored


def bounded(where: Expr | None, types: Sequence[SqlType]) -> dict[int, list[Any]]:
    """Return the columns that the condition restricts by `=` or IN, with the values, which are never NULL."""
    points: dict[int, list[Any]] = {}
    total = 1
    for term in conjuncts(where):
        found = _point(term, types)
        if found is not None and found[0] not in points and total * len(found[1]) <= MAX_POINTS:
            points[found[0]] = found[1]
            total *= max(len(found[1]), 1)
    return points


def ranges_of(where: Expr | None, types: Sequence[SqlType]) -> dict[int, tuple[int, int]]:
    """Return the columns of numbers and times that the condition restricts to a range, with its first and last code."""
    found: dict[int, tuple[int, int]] = {}
    for term in conjuncts(where):
        bound = _bound(term, types)
        if bound is not None:
            column, low, high = bound
            least, most = found.get(column, (MIN_INT, MAX_INT))
            found[column] = max(least, low), min(most, high)
    return found


_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


def _bound(term: Expr, types: Sequence[SqlType]) -> tuple[int, int, int] | None:
    """Return the column of a comparison, and the least and greatest code.  Even < and > include the bound itself."""
    if not isinstance(term, Call) or term.op not in _TURNED:
        return None
    op, (first, second) = term.op, term.args
    if isinstance(first, Const):
        op, first, second = _TURNED[op], second, first
    if not isinstance(first, Col) or not isinstance(second, Const) or second.value is None:
        return None
    t = types[first.index]
    if t.is_text or not _same_codes(t, second.type, second.value):
        return None
    try:
        code = encode(second.value, t, PlainSymbols())
    except (SqlError, ValueError, OverflowError):
        return None
    return (first.index, MIN_INT, code) if op in ("lt", "le") else (first.index, code, MAX_INT)


def _point(term: Expr, types: Sequence[SqlType]) -> tuple[int, list[Any]] | None:
    if not isinstance(term, Call) or term.op not in ("eq", "in"):
        return None
    first, *rest = term.args
    if term.op == "eq" and isinstance(first, Const):
        first, rest = rest[0], [first]
    if not isinstance(first, Col):
        return None
    values = []
    for item in rest:
        if not isinstance(item, Const) or not _same_codes(types[first.index], item.type, item.value):
            return None
        if item.value is not None:
            values.append(item.value)
    return first.index, values


def _same_codes(column: SqlType, other: SqlType, value: Any) -> bool:
    """True if `column = value` compares codes as keys on disk do."""
    if value is None:
        return True
    if column.kind is not other.kind:
        return False
    return column.kind is not Kind.DECIMAL or column.scale == other.scale
