"""Plan nodes that only Spark's lowering knows: an order has no place in the data-flow, whose relations are bags.

They stand at the top of the plans of `sql.commands.BatchQuery`, never in a `ViewDef`: which rows are the first, below
the top, is `mir.TopK`.
"""

from __future__ import annotations

from dataclasses import dataclass

from noria.plan.mir import Mir, check


@dataclass(frozen=True)
class Sort(Mir):
    """The rows in order of (column, descending): NULLs first ascending, text by its collation.  Above it only
    Limit keeps the order."""

    input: Mir
    order: tuple[tuple[int, bool], ...]

    def __post_init__(self) -> None:
        check(len(self.order) > 0 and all(0 <= c < self.input.width for c, _ in self.order), "sort")

    def __str__(self) -> str:
        return "sort " + ", ".join(f"#{c}{' desc' if d else ''}" for c, d in self.order)


@dataclass(frozen=True)
class Limit(Mir):
    """The rows after the first `offset`, at most `limit` of them (None: all)."""

    input: Mir
    limit: int | None
    offset: int = 0

    def __post_init__(self) -> None:
        check(self.offset >= 0 and (self.limit is None or self.limit >= 0), "limit")

    def __str__(self) -> str:
        return f"limit {'all' if self.limit is None else self.limit}" + (f" after {self.offset}" if self.offset else "")
