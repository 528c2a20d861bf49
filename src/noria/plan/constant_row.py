"""The row on which a SELECT without FROM computes its columns: one row that no table has.

    SELECT 1, 'x'        project 1, 'x' (one_row)        one_row = aggregate count_star() (nothing)

Keeps true: an Aggregate without groups makes exactly one row, on one worker, so the row needs no node of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from noria.core.types import BIGINT, Field
from noria.plan.mir import Aggregate, Mir, agg


@dataclass(frozen=True)
class Nothing(Mir):
    """No rows of one column."""

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return (Field("nothing", BIGINT, True),)

    def __str__(self) -> str:
        return "nothing"


@dataclass(frozen=True)
class GivenRows(Mir):
    """Rows that a statement brings itself: those of a temporary table, or of a query of WITH that is answered.

    number: tells the rows from those of other nodes, so that equality need not compare them.  rows: Python values.
    """

    columns: tuple[Field, ...]
    number: int
    rows: tuple[tuple[Any, ...], ...] = field(compare=False, repr=False)

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        return self.columns

    def __str__(self) -> str:
        return f"{len(self.rows)} rows of the statement"


def has_given_rows(plan: Mir) -> bool:
    """Whether the plan has rows of its statement, so that no view can be made of it."""
    return isinstance(plan, GivenRows) or any(map(has_given_rows, plan.inputs))


def with_rows(plan: Mir, number: int, rows: tuple[tuple[Any, ...], ...]) -> Mir:
    """The plan with these rows in place of those of the `GivenRows` of this number."""
    if isinstance(plan, GivenRows):
        return GivenRows(plan.columns, number, rows) if plan.number == number else plan
    inputs = tuple(with_rows(i, number, rows) for i in plan.inputs)
    return plan if all(a is b for a, b in zip(inputs, plan.inputs, strict=True)) else plan.with_inputs(*inputs)


def one_row() -> Mir:
    """One row, whose column nobody reads."""
    return Aggregate(Nothing(), (), (agg("count_star", None, Nothing().fields),), ("one",))
