"""Aggregates and window functions as leaves of expressions; `sql.query` replaces them by columns of plan nodes."""

from __future__ import annotations

from dataclasses import dataclass

from noria.core.expressions.expr import Call, Col, Expr
from noria.plan.calls import PEERS, Frame


@dataclass(frozen=True)
class AggCall(Expr):
    """An aggregate function of an expression over the block's columns (None: COUNT(*)).  `more`: the further
    arguments of COUNT(DISTINCT a, b), and all those of GROUP_CONCAT(DISTINCT a, b), whose `argument` joins them."""

    function: str
    argument: Expr | None
    distinct: bool = False
    more: tuple[Expr, ...] = ()

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return () if self.argument is None else (self.argument, *self.more)

    def __str__(self) -> str:
        inside = ", ".join(map(str, self.arguments)) or "*"
        return f"{self.function}({'distinct ' if self.distinct else ''}{inside})"


@dataclass(frozen=True)
class ConcatCall(AggCall):
    """GROUP_CONCAT of a text.  Also JSON_ARRAYAGG and JSON_OBJECTAGG, whose texts are members of the document."""

    order: tuple[tuple[Expr, bool], ...] = ()
    separator: str = ","

    @property
    def arguments(self) -> tuple[Expr, ...]:
        return (*super().arguments, *(e for e, _ in self.order))

    def __str__(self) -> str:
        order = "".join(f" {e}{' desc' if d else ''}" for e, d in self.order)
        return f"{super().__str__()}{order} {self.separator!r}"


@dataclass(frozen=True)
class OverCall(Expr):
    """A window function, whose parts may be aggregates.  `frame`, `by`: as in `mir.Over`."""

    function: str
    argument: Expr | None
    partition: tuple[Expr, ...]
    order: tuple[tuple[Expr, bool], ...]
    frame: Frame = PEERS
    by: int = 1

    @property
    def parts(self) -> tuple[Expr, ...]:
        argument = () if self.argument is None else (self.argument,)
        return (*argument, *self.partition, *(e for e, _ in self.order))

    def __str__(self) -> str:
        by, order = ", ".join(map(str, self.partition)), ", ".join(f"{e}{' desc' if d else ''}" for e, d in self.order)
        return f"{self.function}({self.argument or ''}, {self.by}) {self.frame} over ({by}; {order})"


@dataclass(frozen=True)
class GroupingCall(Expr):
    """GROUPING(…) of group columns: which of them are rolled up in a row."""

    arguments: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"grouping({', '.join(map(str, self.arguments))})"


def parts_of(e: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression; an aggregate has none."""
    if isinstance(e, GroupingCall):
        return e.arguments
    return e.args if isinstance(e, Call) else e.parts if isinstance(e, OverCall) else ()


def uses_aggregate(e: Expr) -> bool:
    return isinstance(e, AggCall) or any(map(uses_aggregate, parts_of(e)))


def columns_read(e: Expr) -> set[int]:
    """The columns that an expression reads, also in aggregates and windows."""
    if isinstance(e, Col):
        return {e.index}
    return set().union(*map(columns_read, e.arguments if isinstance(e, AggCall) else parts_of(e)))
