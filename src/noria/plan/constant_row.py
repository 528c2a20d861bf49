"""The row on which a SELECT without FROM computes its columns: one row that no table has.

    SELECT 1, 'x'        project 1, 'x' (one_row)        one_row = aggregate count_star() (nothing)

Keeps true: an Aggregate without groups makes exactly one row, on one worker, so the row needs no node of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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


def one_row() -> Mir:
    """One row, whose column nobody reads."""
    return Aggregate(Nothing(), (), (agg("count_star", None, Nothing().fields),), ("one",))
