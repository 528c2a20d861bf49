"""Scalar expressions as frozen, typed trees.

Every node knows its SQL type and whether it can be NULL; a tree refuses to exist when its types do not fit.
Columns are positions in the input row.  `evaluate.py` runs a tree over a batch, `spark/lowering/expressions.py`
lowers it to Spark; both follow the one table of functions in `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from noria.core.types import SqlType


@dataclass(frozen=True)
class Expr:
    type: SqlType
    nullable: bool


@dataclass(frozen=True)
class Col(Expr):
    """The input's column at `index`."""

    index: int

    def __str__(self) -> str:
        return f"#{self.index}"


@dataclass(frozen=True)
class Const(Expr):
    """A literal: a Python value of the type (int, float, Decimal, str, date, datetime) or None."""

    value: Any

    def __str__(self) -> str:
        return "NULL" if self.value is None else repr(self.value) if isinstance(self.value, str) else str(self.value)


@dataclass(frozen=True)
class Call(Expr):
    """A function of `functions.py` applied to arguments of the types it wants.  size: of the whole tree, each part
    as often as it stands in it."""

    op: str
    args: tuple[Expr, ...]
    size: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(a.size if isinstance(a, Call) else 1 for a in self.args))

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))})"


@dataclass(frozen=True)
class Param(Expr):
    """The statement's parameter at `index`, until `functions.with_values` puts its value there.  Its type is a guess
    from where it stands; evaluators never see it."""

    index: int

    def __str__(self) -> str:
        return f"?{self.index}"


def col(index: int, type: SqlType, nullable: bool = True) -> Col:
    return Col(type, nullable, index)


def const(value: Any, type: SqlType) -> Const:
    return Const(type, value is None, value)


def walk(e: Expr) -> Iterator[Expr]:
    """The expression and everything below it, parents first."""
    yield e
    if isinstance(e, Call):
        for a in e.args:
            yield from walk(a)


def columns_of(e: Expr) -> set[int]:
    if isinstance(e, Col):  # most are
        return {e.index}
    return {x.index for x in walk(e) if isinstance(x, Col)}


def substitute(e: Expr, f: Callable[[Col], Expr]) -> Expr:
    """The expression with every column replaced by f(column)."""
    if isinstance(e, Col):
        return f(e)
    if isinstance(e, Call):
        return Call(e.type, e.nullable, e.op, tuple(substitute(a, f) for a in e.args))
    return e


def shifted(e: Expr, by: int) -> Expr:
    return substitute(e, lambda c: Col(c.type, c.nullable, c.index + by))


def conjuncts(e: Expr | None) -> list[Expr]:
    """The terms of a conjunction; none for None."""
    if e is None:
        return []
    if isinstance(e, Call) and e.op == "and":
        return [t for a in e.args for t in conjuncts(a)]
    return [e]
