"""Three small tables, views over them, and what a program of such views has in its graph."""

from __future__ import annotations

from collections.abc import Sequence

from dataflow.engine_rig import Rig
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import BIGINT, INT, Column, TableDef
from noria.dataflow.graph.nodes import Node
from noria.dataflow.ops.stateful.keep import Keep
from noria.plan import mir
from noria.plan.view import ViewDef
from reference import random_plans

T = mir.Base(TableDef("t", (Column("id", INT, False), Column("x", INT), Column("y", INT)), (0,), table_id=1))
U = mir.Base(TableDef("u", (Column("id", INT, False), Column("t", INT), Column("z", INT)), (0,), table_id=2))
W = mir.Base(TableDef("w", (Column("id", INT, False), Column("u", INT)), (0,), table_id=3))


def aggregates(views: list[ViewDef]) -> list[mir.Aggregate]:
    """Those of a program of these views."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    return [m for m in rig.lowering.made if isinstance(m, mir.Aggregate)]


def total(name: str, rows: mir.Mir, by: int, *columns: int) -> ViewDef:
    """The sums of the columns, by one column, which is the key."""
    aggs = tuple(mir.agg("sum", c, rows.fields) for c in columns)
    return ViewDef(name, mir.Aggregate(rows, (by,), aggs, tuple(f"s{c}" for c in columns)), (0,), 1 + len(columns))


def product(rows: mir.Mir, a: int, by: int) -> mir.Mir:
    """All columns, and a product."""
    columns = [col(i, f.type, f.nullable) for i, f in enumerate(rows.fields)]
    made = functions.call("mul", columns[a], const(by, BIGINT))
    return mir.Project(rows, (*columns, made), (*(f.name for f in rows.fields), "made"))


def joins(views: list[ViewDef]) -> list[mir.Join]:
    """Those of a program of these views."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    return [m for m in rig.lowering.made if isinstance(m, mir.Join)]


def shown(name: str, rows: mir.Mir, *columns: int) -> ViewDef:
    """These columns of the rows, by the first."""
    return ViewDef(name, random_plans.projection(rows, columns), (0,), len(columns))


UT = mir.Join(U, T, ((1, 0),))  # each u with its t
UW = mir.Join(U, W, ((0, 1),))  # and with its ws, of which there may be many


def copies(views: Sequence[ViewDef]) -> list[Node]:
    """What is kept of rows that cannot be found otherwise."""
    rig = Rig([t.table for t in (T, U, W)], [])
    for v in views:
        rig.add_view(v)
    rig.lowering.replan()
    rig.engine.relayout()
    return [n for n in rig.engine.graph.nodes if isinstance(n.op, Keep)]
