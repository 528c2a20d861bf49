"""Scalar expressions as frozen, typed trees.

Each node has its SQL type, and says whether it can be NULL.  Columns are positions in the input row.  `functions.call`
makes trees and fits the types of arguments; the classes here do not check them.  `evaluate.py` runs a tree over a
batch, and `spark/lowering/expressions.py` lowers it to Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.core.types import Kind, SqlType


@dataclass(frozen=True)
class Expr:
    type: SqlType
    nullable: bool


@dataclass(frozen=True)
class Col(Expr):
    """A column of the input row."""

    index: int

    def __str__(self) -> str:
        return f"#{self.index}"


@dataclass(frozen=True)
class Const(Expr):
    """A literal: a Python value of the type, or None.

    It is an int, float, Decimal, str, bytes, date, datetime or timedelta.
    """

    value: Any

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True)
class Call(Expr):
    """The call of a function.  size: the number of parts of the tree; a part that occurs twice counts twice.

    unrounded: the value has digits that its type does not have, until it leaves the expression (`evaluate_exact.py`).
    """

    op: str
    args: tuple[Expr, ...]
    size: int = field(init=False, compare=False, repr=False)
    unrounded: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(a.size if isinstance(a, Call) else 1 for a in self.args))
        object.__setattr__(self, "unrounded", self.type.kind is Kind.DECIMAL and _keeps_digits(self))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


_ARITHMETIC = frozenset({"add", "sub", "mul", "mod", "neg", "abs", "coalesce", "greatest", "least"})


def _keeps_digits(e: Call) -> bool:
    """Whether the value of a DECIMAL call has more digits than its type: a quotient, and what is computed of one."""
    if e.op in _ARITHMETIC:
        return any(map(is_unrounded, e.args))
    if e.op in ("if", "case"):
        return any(map(is_unrounded, (*e.args[1::2], e.args[-1])))
    if e.op == "cast":  # one that only fits arguments to each other takes no digits away
        scale = e.args[0].type.scale
        return e.type.precision == MAX_DECIMAL_DIGITS and e.type.scale >= scale and is_unrounded(e.args[0])
    return e.op in ("div", "total")


def is_unrounded(e: Expr) -> bool:
    return isinstance(e, Call) and e.unrounded


@dataclass(frozen=True)
class Param(Expr):
    """The statement's parameter number `index`, until `functions.with_values` replaces it by a value.

    Its type is guessed from its context.  Evaluators never receive it.
    """

    index: int

    def __str__(self) -> str:
        return f"?{self.index}"


def col(index: int, type: SqlType, nullable: bool = True) -> Col:
    return Col(type, nullable, index)


def const(value: Any, type: SqlType) -> Const:
    return Const(type, value is None, value)


def walk(e: Expr) -> Iterator[Expr]:
    """Yield all nodes of a tree, parents first."""
    yield e
    if isinstance(e, Call):
        for a in e.args:
            yield from walk(a)


def columns_of(e: Expr) -> set[int]:
    if isinstance(e, Col):  # most are
        return {e.index}
    return {x.index for x in walk(e) if isinstance(x, Col)}


def substitute(e: Expr, f: Callable[[Col], Expr]) -> Expr:
    """Return the expression with each column replaced by f(column)."""
    if isinstance(e, Col):
        return f(e)
    if isinstance(e, Call):
        return Call(e.type, e.nullable, e.op, tuple(substitute(a, f) for a in e.args))
    return e


def composed(e: Expr, exprs: Sequence[Expr]) -> Expr:
    """Replace each column by the expression at its index."""
    return substitute(e, lambda c: exprs[c.index])


def shifted(e: Expr, by: int) -> Expr:
    return substitute(e, lambda c: Col(c.type, c.nullable, c.index + by))


def conjuncts(e: Expr | None) -> list[Expr]:
    """Return the terms of a conjunction; none for None."""
    if e is None:
        return []
    if isinstance(e, Call) and e.op == "and":
        return [t for a in e.args for t in conjuncts(a)]
    return [e]
