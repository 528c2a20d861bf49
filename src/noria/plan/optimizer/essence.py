"""The essence of a plan, without the unused columns of its tables.

Two plans that were made before and after a column was added, and use no changed column, have the same rows.

    before:  project a, b (table t of 3 columns)      after:  project a, b (table t of 4 columns)
    both:    project a, b (rows of t)

Keeps true: plans are equal only if they have the same columns in the same places, of the same types, from the same
columns of the same tables.  An essence is only compared; it is in no graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from noria.core.expressions.expr import Col
from noria.core.types import Field, TableDef
from noria.plan.mir import Base, Mir, Project
from noria.plan.optimizer.rewrites import everywhere, merge_projects, narrow


@dataclass(frozen=True)
class Rows(Mir):
    """A base table, of which those above say what they look at."""

    table: TableDef = field(compare=False)
    identity: int | str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.table.fields

    def __str__(self) -> str:
        return f"rows of {self.table.name}"


def essence(plan: Mir) -> Mir:
    for rewrite in (_SOME_COLUMNS, _MERGED, narrow, _MERGED):
        plan = rewrite(plan)
    return plan


def _some_columns(plan: Mir) -> Mir:
    """table t   →   project all columns (rows of t), of which `narrow` leaves those that are looked at"""
    if not isinstance(plan, Base):
        return plan
    table = plan.table
    copies = tuple(Col(f.type, f.nullable, i) for i, f in enumerate(plan.fields))
    return Project(Rows(table, table.table_id or table.name), copies, tuple(f.name for f in plan.fields))


_SOME_COLUMNS, _MERGED = everywhere(_some_columns), everywhere(merge_projects)
