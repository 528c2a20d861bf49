"""Plan nodes for Spark only: Sort and Limit.  The data-flow has no order, since its relations are bags.

Keeps true: they are at the top of a `sql.commands.BatchQuery`'s plan, never in a `ViewDef`.  Below the top, `mir.TopK`
selects the first rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.plan.mir import Mir, check


@dataclass(frozen=True)
class Sort(Mir):
    """The rows ordered by (column, descending).  NULLs come first in ascending order; text compares by its collation.
    Only a Limit above it keeps the order."""

    input: Mir
    order: tuple[tuple[int, bool], ...]

    def __post_init__(self) -> None:
        check(len(self.order) > 0 and all(0 <= c < self.input.width for c, _ in self.order), "sort")

    def __str__(self) -> str:
        return "sort " + ", ".join(f"#{c}{' desc' if d else ''}" for c, d in self.order)


@dataclass(frozen=True)
class Limit(Mir):
    """At most `limit` rows (None: all), after the first `offset` rows."""

    input: Mir
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        check(self.offset >= 0 and (self.limit is None or self.limit >= 0), "limit")

    def __str__(self) -> str:
        return f"limit {'all' if self.limit is None else self.limit}" + (f" after {self.offset}" if self.offset else "")
