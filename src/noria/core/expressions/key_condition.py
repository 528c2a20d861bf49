"""The condition that a row has one of some keys.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.expressions.expr import Call, Expr, col, const
from noria.core.types import BOOL, TableDef


def with_keys(table: TableDef, columns: tuple[int, ...], keys: Sequence[tuple[Any, ...]]) -> Expr:
    """The condition of the rows whose values in these columns are one of the keys."""
    def column(c: int) -> Expr:
        return col(c, table.columns[c].type)

    def value(c: int, v: Any) -> Expr:
        return const(v, table.columns[c].type)

    each = [dict.fromkeys(key[n] for key in keys) for n in range(len(columns))]
    terms: list[Expr] = [Call(BOOL, True, "in", (column(c), *(value(c, v) for v in some)))
                         for c, some in zip(columns, each, strict=True)]
    if len(columns) > 1:
        terms.append(_any([_all([Call(BOOL, True, "eq", (column(c), value(c, v)))
                                 for c, v in zip(columns, key, strict=True)]) for key in keys]))
    return _all(terms)


def _all(terms: Sequence[Expr]) -> Expr:
    return terms[0] if len(terms) == 1 else Call(BOOL, True, "and", tuple(terms))


def _any(terms: Sequence[Expr]) -> Expr:
    return terms[0] if len(terms) == 1 else Call(BOOL, True, "or", tuple(terms))
