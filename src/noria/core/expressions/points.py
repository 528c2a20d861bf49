"""Which values a condition bounds columns to: what a row must have to be found by a key, and where it must be.

Keeps true: a row for which the condition holds has one of these values in each of these columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.expressions.expr import Call, Col, Const, Expr, conjuncts
from noria.core.types import Kind, SqlType

MAX_POINTS = 10_000  # of an IN list, or a product of them: more are no bound


def bounded(where: Expr | None, types: Sequence[SqlType]) -> dict[int, list[Any]]:
    """Columns that the condition bounds to a list of values (never NULL): `=` and IN among its terms."""
    points: dict[int, list[Any]] = {}
    total = 1
    for term in conjuncts(where):
        found = _point(term, types)
        if found is not None and found[0] not in points and total * len(found[1]) <= MAX_POINTS:
            points[found[0]] = found[1]
            total *= max(len(found[1]), 1)
    return points


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
    """Does `column = value` compare codes (of text: folded or not) as keys on disk do?"""
    if value is None:
        return True
    if column.kind is not other.kind:
        return False
    return column.kind is not Kind.DECIMAL or column.scale == other.scale
