"""Finds the columns of its base tables that a plan needs: its rows, their number and their order depend on them.

A plan reads complete rows of a table.  A column that no node above uses may be dropped or change its type; the plan
stays valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from noria.core.errors import SqlError, view_changed
from noria.core.expressions.expr import columns_of
from noria.core.types import TableDef
from noria.plan import mir
from noria.plan.constant_row import GivenRows, Nothing

Wanted = list[set[int]]  # the needed columns of each input


def columns_used(plan: mir.Mir) -> dict[mir.Base, set[int]]:
    """The base tables of a plan, and the positions of their columns that it needs to compute all of its own."""
    found: dict[mir.Base, set[int]] = {}
    rest: list[tuple[mir.Mir, set[int]]] = [(plan, set(range(plan.width)))]
    while rest:
        node, wanted = rest.pop()
        if isinstance(node, mir.Base):
            found.setdefault(node, set()).update(wanted)
            continue
        rest += zip(node.inputs, _BELOW[type(node)](node, wanted), strict=True)
    return found


def outdated(plan: mir.Mir, tables: Mapping[str, TableDef]) -> SqlError | None:
    """Return error 1412 if a table has changed, since the plan was made, in a column that the plan needs; else None."""
    if all(tables.get(t.name) == t for t in _tables(plan)):
        return None
    for base, columns in columns_used(plan).items():
        was = base.table
        table = tables.get(was.name)
        if table is None or table.table_id != was.table_id or any(changed(was, table, c) for c in columns):
            return view_changed(was.name)
    return None


def _tables(plan: mir.Mir) -> Iterator[TableDef]:
    """The table of each Base node."""
    if isinstance(plan, mir.Base):
        yield plan.table
    for i in plan.inputs:
        yield from _tables(i)


def changed(was: TableDef, table: TableDef, column: int) -> bool:
    """Whether the column was dropped, or changed its type or became nullable.  A new name or NOT NULL is no change."""
    before, after = was.columns[column], table.columns[column]
    return bool(after.dropped) or before.type != after.type or (after.nullable and not before.nullable)


def _same(node: Any, wanted: set[int]) -> Wanted:
    return [wanted for _ in node.inputs]


def _filter(node: mir.Filter, wanted: set[int]) -> Wanted:
    return [wanted | columns_of(node.predicate)]


def _project(node: mir.Project, wanted: set[int]) -> Wanted:
    return [_union(columns_of(node.exprs[c]) for c in wanted)]


def _join(node: mir.Join, wanted: set[int]) -> Wanted:
    width = node.left.width
    every = wanted | ({*columns_of(node.residual)} if node.residual is not None else set())
    left, right = {c for c in every if c < width}, {c - width for c in every if c >= width}
    return [left | {a for a, _ in node.on}, right | {b for _, b in node.on}]


def _aggregate(node: mir.Aggregate, wanted: set[int]) -> Wanted:
    return [{*node.group, *(a.column for a in node.aggs if a.column is not None)}]


def _group_concat(node: mir.GroupConcat, wanted: set[int]) -> Wanted:
    return [{*node.group, node.column, *node.distinct, *(c for c, _ in node.order)}]


def _distinct(node: mir.Distinct, wanted: set[int]) -> Wanted:
    return [set(range(node.width))]


def _all_columns(node: Any, wanted: set[int]) -> Wanted:
    """An order compares all columns, so it needs them all."""
    return [set(range(node.input.width))]


def _repeat(node: mir.Repeat, wanted: set[int]) -> Wanted:
    return [wanted | {node.count}]


def _union(parts: Iterable[Iterable[int]]) -> set[int]:
    return {c for part in parts for c in part}


_BELOW: dict[type[mir.Mir], Callable[[Any, set[int]], Wanted]] = {
    Nothing: _same, GivenRows: _same,
    mir.Filter: _filter, mir.Project: _project, mir.Join: _join, mir.Aggregate: _aggregate, mir.Distinct: _distinct,
    mir.GroupConcat: _group_concat, mir.Repeat: _repeat, mir.TopK: _all_columns, mir.UnionAll: _same,
    mir.Window: _all_columns,
}
