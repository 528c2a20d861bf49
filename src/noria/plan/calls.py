"""The aggregates and window functions that plan nodes compute, as frozen values with MySQL's result types.

Call `agg` and `over`.  `mir.Aggregate` and `mir.Window` have the relations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from noria.core.types import BIGINT, DOUBLE, UBIGINT, Field, Kind, SqlType, decimal


def check(ok: bool, what: str | Callable[[], str]) -> None:
    """Raise ValueError for an ill-formed plan, a defect of its maker.  `what` is a function if printing is slow."""
    if not ok:
        raise ValueError(f"ill-formed plan: {what if isinstance(what, str) else what()}")


AGG_FUNCTIONS = ("count_star", "count", "sum", "min", "max", "avg", "variance", "bit_and", "bit_or", "bit_xor")
BIT_FUNCTIONS = ("bit_and", "bit_or", "bit_xor")
CARRYING = ("sum", "avg", "variance", *BIT_FUNCTIONS)  # an error of one row is that of its group
NEVER_NULL = ("count_star", "count", *BIT_FUNCTIONS)  # also over no values


@dataclass(frozen=True)
class Agg:
    """One aggregate of one input column (None for count_star).  Types follow MySQL: SUM of integers and decimals is an
    exact DECIMAL, of doubles a DOUBLE.  AVG adds four digits of scale.  `variance` is that of the population."""

    function: str
    column: int | None
    type: SqlType

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.column is None else f'#{self.column}'})"


def agg(function: str, column: int | None, fields: tuple[Field, ...]) -> Agg:
    """The aggregate with MySQL's result type.  SUM, AVG and VARIANCE need a column of numbers, those of bits one of
    integers; the caller casts others."""
    check(function in AGG_FUNCTIONS, f"unknown aggregate {function}")
    if function in ("count_star", "count"):
        return Agg(function, column, BIGINT)
    check(column is not None, f"{function} without a column")
    assert column is not None
    t = fields[column].type
    if function in ("min", "max"):
        return Agg(function, column, t)
    check(t.is_number, f"{function} of {t}")
    if function in BIT_FUNCTIONS:
        check(t.kind is Kind.INT, f"{function} of {t}")
        return Agg(function, column, UBIGINT)
    if t.kind is Kind.DOUBLE or function == "variance":
        return Agg(function, column, DOUBLE)
    return Agg(function, column, decimal(18, t.scale if function == "sum" else min(t.scale + 4, 18)))


RANKING = ("row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile")
PICKING = ("first_value", "last_value", "nth_value", "lag", "lead")
FRAMED = ("first_value", "last_value", "nth_value", *AGG_FUNCTIONS)  # others do not depend on the frame
OVER_FRAMES = ("count_star", "count", "sum", "min", "max", "avg")  # the aggregates that windows compute
_WITH_NUMBER = ("nth_value", "lag", "lead", "ntile")


@dataclass(frozen=True)
class Frame:
    """The rows of a group that a window function of one row reads: those from `start` to `end`.

    `rows`: both ends are distances in rows, negative for PRECEDING.  Otherwise 0 means the row's peers, the rows that
    are equal in the order.  None: the group's first or last row.
    """

    rows: bool = False
    start: int | None = None
    end: int | None = 0

    def __str__(self) -> str:
        if self.start is None and self.end in (None, 0):
            return "all" if self.end is None else "rows" if self.rows else "range"
        ends = ("" if e is None else str(e) for e in (self.start, self.end))
        return f"{'rows' if self.rows else 'range'} {'..'.join(ends)}"


PEERS = Frame()  # MySQL's default: up to the last peer
WHOLE = Frame(True, None, None)  # the whole group


@dataclass(frozen=True)
class Over:
    """A window function.  `column`: its argument (None for rankings and count_star).  `by`: LAG's and LEAD's distance,
    NTH_VALUE's row, and NTILE's number of buckets.  `frame`: PEERS for a function that does not depend on it."""

    function: str
    column: int | None
    type: SqlType
    frame: Frame = PEERS
    by: int = 1

    def __str__(self) -> str:
        arguments = ", ".join([*([] if self.column is None else [f"#{self.column}"]),
                               *([str(self.by)] if self.function in _WITH_NUMBER else [])])
        return f"{self.function}({arguments}){'' if self.frame == PEERS else f' {self.frame}'}"


def over(function: str, column: int | None, fields: tuple[Field, ...], frame: Frame = PEERS, by: int = 1) -> Over:
    """The window function with MySQL's result type."""
    frame = frame if function in FRAMED else PEERS
    frame = WHOLE if frame.start is None and frame.end is None else frame
    if function in RANKING:
        return Over(function, None, DOUBLE if function in ("percent_rank", "cume_dist") else BIGINT, frame, by)
    if function in PICKING:
        check(column is not None, f"{function} without a column")
        assert column is not None
        return Over(function, column, fields[column].type, frame, by)
    made = agg(function, column, fields)
    return Over(function, made.column, made.type, frame)
