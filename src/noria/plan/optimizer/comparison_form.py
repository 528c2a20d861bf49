"""Removes the unused columns of tables from a plan, to compare plans from before and after a change of a table.

    before:  project a, b (table t of 3 columns)      after:  project a, b (table t of 4 columns)
    both:    project a, b (rows of t)

Keeps true: two comparison forms are equal only if their plans have the same columns of the same tables, in the same
positions and of the same types.  A form is only compared; it is never in a graph.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from noria.core.types import Field, TableDef
from noria.plan.columns import cols_of
from noria.plan.mir import Base, Mir, Project
from noria.plan.optimizer.rewrites import everywhere, merge_projects, narrow


@dataclass(frozen=True)
class VersionlessBase(Mir):
    """A base table that equals its other versions; the nodes above select the columns."""

    table: TableDef = field(compare=False)
    identity: int | str

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.table.fields

    def __str__(self) -> str:
        return f"rows of {self.table.name}"


def comparison_form(plan: Mir) -> Mir:
    """The plan without unused table columns, for comparison."""
    for rewrite in (_SOME_COLUMNS, _MERGED, narrow, _MERGED):
        plan = rewrite(plan)
    return plan


def _some_columns(plan: Mir) -> Mir:
    """table t   →   project all columns (rows of t); `narrow` then removes the unused columns"""
    if not isinstance(plan, Base):
        return plan
    table = plan.table
    copies = cols_of(plan)
    return Project(VersionlessBase(table, table.table_id or table.name), copies, tuple(f.name for f in plan.fields))


_SOME_COLUMNS, _MERGED = everywhere(_some_columns), everywhere(merge_projects)
