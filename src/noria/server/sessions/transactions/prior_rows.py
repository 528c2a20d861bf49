"""Reads a snapshot from a view and from the rows before later commits (`runtime/link/recent_changes.py`).

    the view's rows as of the last commit, without the keys that were changed since the snapshot
      + these keys' rows before the first commit after the snapshot, as the view shows them

It applies to a view of one table by its primary key, of which each row shows a single row of the table.

Keeps true: the rows are those that a one-shot of the snapshot returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from noria.core.expressions.expr import Col
from noria.core.types import Kind, TableDef
from noria.plan.mir import Agg, Aggregate, Base, Mir, Project
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef

Row = Sequence[Any]
_Column = tuple[str, int]  # how a column of the view derives from one of the table: "", or an aggregate of one row
_KEPT_VIEWS = 1_024

_OF_ONE_ROW: dict[str, Callable[[Any], Any]] = {
    "": lambda v: v, "min": lambda v: v, "max": lambda v: v, "count_star": lambda v: 1,
    "count": lambda v: int(v is not None), "sum": lambda v: v if v is None else Decimal(v)}


class ViewOfRows(NamedTuple):
    """A view whose rows show single rows of a table.  columns: the derivation of each of its columns."""

    table: TableDef
    columns: Sequence[_Column]

    def shown(self, row: Row, count: int, through: ReadThrough | None) -> tuple[Any, ...]:
        """The view's row for a row of the table, as far as a lookup shows it.  count: of shown columns."""
        places = range(count) if through is None else through.columns
        return tuple([_OF_ONE_ROW[how](row[at]) for how, at in (self.columns[p] for p in places)])


_views: dict[int, tuple[ViewDef, ViewOfRows | None]] = {}  # by the view's id


def view_of_rows(view: ViewDef) -> ViewOfRows | None:
    """The view's derivation from rows of one table whose primary key is its key; None for other views."""
    known = _views.get(id(view))
    if known is None or known[0] is not view:
        if len(_views) >= _KEPT_VIEWS:
            _views.clear()
        known = _views[id(view)] = view, _view_of_rows(view)
    return known[1]


def _view_of_rows(view: ViewDef) -> ViewOfRows | None:
    derived = _derived(view.plan)
    if derived is None or len(view.key) != 1:
        return None
    table, columns = derived
    own = columns[view.key[0]] == ("", table.primary_key[0])
    return ViewOfRows(table, columns) if own else None


def _derived(plan: Mir) -> tuple[TableDef, list[_Column]] | None:
    """The table below a plan and, for each column, its derivation from a row of the table."""
    if isinstance(plan, Base):
        table = plan.table
        by_number = len(table.primary_key) == 1 and table.columns[table.primary_key[0]].type.kind is Kind.INT
        return (table, [("", c) for c in range(plan.width)]) if by_number else None
    if not isinstance(plan, Project | Aggregate) or (below := _derived(plan.input)) is None:
        return None
    table, columns = below
    if isinstance(plan, Project):
        copied = [columns[e.index] for e in plan.exprs if isinstance(e, Col)]
        return (table, copied) if len(copied) == len(plan.exprs) else None
    group = [columns[c] for c in plan.group]
    aggregates = [found for a in plan.aggs if (found := _of_one_row(a, columns, table)) is not None]
    if ("", table.primary_key[0]) not in group or len(aggregates) < len(plan.aggs):
        return None
    return table, group + aggregates


def _of_one_row(a: Agg, columns: Sequence[_Column], table: TableDef) -> _Column | None:
    if a.function == "count_star":
        return a.function, 0
    assert a.column is not None
    how, at = columns[a.column]
    type = table.columns[at].type
    exact = type.kind in (Kind.INT, Kind.DECIMAL) and a.type.kind is Kind.DECIMAL and a.type.scale == type.scale
    if how or a.function not in _OF_ONE_ROW or (a.function == "sum" and not exact):
        return None
    return a.function, at


def patched(found: pa.Table, low: int, prior: Mapping[int, Row | None], view: ViewOfRows, through: ReadThrough | None
            ) -> pa.Table:
    """The rows of a range from low, in which the keys of `prior` have these rows.  None: no row.

    found: at most one row for each key, ordered by `__key`, the key less low.
    """
    if not prior:
        return found
    count = found.num_columns - 1
    ordinals = found.column(count).to_numpy()
    changed = sorted(prior.items())
    shown = [(key - low, *view.shown(row, count, through)) for key, row in changed if row is not None]
    keys, *columns = zip(*shown, strict=True) if shown else [()] * (count + 1)
    old = pa.Table.from_arrays([pa.array(values, field.type) for values, field in zip(
        (*columns, keys), found.schema, strict=True)], schema=found.schema)
    pieces, at, used = [], 0, 0
    for key, row in changed:
        place = int(ordinals.searchsorted(key - low))
        pieces.append(found.slice(at, place - at))
        at = place + (place < len(ordinals) and int(ordinals[place]) == key - low)
        if row is not None:
            pieces.append(old.slice(used, 1))
            used += 1
    return pa.concat_tables([*pieces, found.slice(at)]).combine_chunks()


__all__ = ["ViewOfRows", "patched", "view_of_rows"]
