"""Runs the plan after a lookup (`plan/after.py`) on the Python values of few rows.

    SELECT DISTINCT c …   aggregate groups by c   →   one row per folded c, with its least spelling
    SELECT SUM(k) …       aggregate sum(k)        →   one row

`plan.after.run` needs a symbol table and a state of groups.  For few rows these cost more than the rows.

Keeps true: the rows are those of `plan.after.run`, in any order.  The answer is None for other plans, and for sums near
the limit of DECIMAL.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from noria.core.expressions.expr import Col
from noria.core.symbols import fold
from noria.core.types import Field, Kind
from noria.core.values import python_values
from noria.plan.after import LookedUpRows, found_fields
from noria.plan.mir import Agg, Aggregate, Mir, Project

FEW_ROWS = 1_000  # more rows are grouped by kernels
_KEPT_PLANS = 1_024
_MOST_UNSCALED = 10**17  # a larger sum may be error 1690

_Aggregate = tuple[str, int, int]  # function, column of the found rows, scale


class _Grouping(NamedTuple):
    """A plan that groups the found rows by columns, or computes aggregates of all of them.

    folded: the columns with case-insensitive text.  shown: the output, as positions among columns or aggregates."""

    columns: tuple[int, ...]
    folded: tuple[bool, ...]
    aggregates: tuple[_Aggregate, ...]
    shown: tuple[int, ...]


_plans: dict[int, tuple[Mir, _Grouping | None]] = {}  # by the plan's id


def rows_of_few(after: Mir, found: pa.Table) -> list[Any] | None:
    """Run the plan on the rows of a lookup.  None if `plan.after.run` must do it."""
    if found.num_rows > FEW_ROWS:
        return None
    known = _plans.get(id(after))
    if known is None or known[0] is not after:
        if len(_plans) >= _KEPT_PLANS:
            _plans.clear()
        known = _plans[id(after)] = after, _grouping(after)
    plan = known[1]
    if plan is None:
        return None
    return _distinct(plan, found) if plan.columns else _totals(plan, found)


# ---------------------------------------------------------------- the plan
def _grouping(after: Mir) -> _Grouping | None:
    fields, above = found_fields(after), after
    while isinstance(above, Project):
        above = above.input
    if not isinstance(above, Aggregate) or (above.group and above.aggs):
        return None
    place, shown = _copied(above.input, LookedUpRows), _copied(after, Aggregate)
    if place is None or shown is None:
        return None
    columns = tuple(place[c] for c in above.group)
    aggregates = [known for a in above.aggs if (known := _aggregate(a, place, fields)) is not None]
    if len(aggregates) < len(above.aggs) or any(fields[c].type.kind not in (Kind.INT, Kind.TEXT) for c in columns):
        return None
    return _Grouping(columns, tuple(fields[c].type.folds for c in columns), tuple(aggregates), tuple(shown))


def _copied(plan: Mir, leaf: type[Mir]) -> Sequence[int] | None:
    """The leaf's column of which each column is a copy.  None if projections above the leaf do more than copy."""
    if isinstance(plan, leaf):
        return range(plan.width)
    below = _copied(plan.input, leaf) if isinstance(plan, Project) else None
    if below is None or not isinstance(plan, Project):
        return None
    copied = [below[e.index] for e in plan.exprs if isinstance(e, Col)]
    return copied if len(copied) == len(plan.exprs) else None


def _aggregate(a: Agg, place: Sequence[int], fields: Sequence[Field]) -> _Aggregate | None:
    if a.function == "count_star":
        return a.function, 0, 0
    assert a.column is not None
    column = place[a.column]
    type = fields[column].type
    if a.function == "count" or (a.function in ("min", "max") and type.kind is Kind.INT):
        return a.function, column, 0
    exact = type.kind in (Kind.INT, Kind.DECIMAL) and a.type.kind is Kind.DECIMAL
    return (a.function, column, type.scale) if a.function == "sum" and exact and a.type.scale == type.scale else None


# ---------------------------------------------------------------- the rows
def _distinct(plan: _Grouping, found: pa.Table) -> list[Any]:
    """The distinct rows; of spellings that are equal in SQL, each column has the least."""
    columns = [python_values(found.column(c)) for c in plan.columns]
    folds = [[v if v is None else fold(v) for v in column] if folded else column
             for column, folded in zip(columns, plan.folded, strict=True)]
    first = dict(zip(zip(*folds, strict=True), zip(*columns, strict=True), strict=True))
    if any(plan.folded) and len(first) < found.num_rows:
        for key, row in zip(zip(*folds, strict=True), zip(*columns, strict=True), strict=True):
            if (known := first[key]) != row:
                first[key] = tuple(v if v is None else min(v, w) for v, w in zip(row, known, strict=True))
    rows = first.values()
    return [tuple(row[c] for c in plan.shown) for row in rows]


def _totals(plan: _Grouping, found: pa.Table) -> list[Any] | None:
    """The only row of aggregates without GROUP BY."""
    results = []
    for function, column, scale in plan.aggregates:
        values = found.column(column)
        if function == "count_star":
            results.append(found.num_rows)
        elif function == "count":
            results.append(found.num_rows - values.null_count)
        elif function == "sum":
            total = _sum(values)
            if total is not None and abs(total.scaleb(scale)) >= _MOST_UNSCALED:
                return None
            results.append(total)
        else:
            results.append((pc.min if function == "min" else pc.max)(values).as_py())
    return [tuple(results[c] for c in plan.shown)]


def _sum(values: pa.ChunkedArray) -> Decimal | None:
    if pa.types.is_decimal(values.type):
        found: Decimal | None = pc.sum(values).as_py()
        return found
    known = [v for v in values.to_pylist() if v is not None]
    return Decimal(sum(known)) if known else None


__all__ = ["FEW_ROWS", "rows_of_few"]
