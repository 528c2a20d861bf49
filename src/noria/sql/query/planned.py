"""A query block as planned: its plan, and where in it the columns stand that others ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.plan.lookups import Key
from noria.plan.mir import Mir

C = TypeVar("C")


@dataclass(frozen=True)
class Correlation(Generic[C]):
    """A term of an inner WHERE: outer = column or outer <=> column, of one type.  column: an expression over the inner
    block's relations, or a position of its plan."""

    outer: Expr
    column: C
    null_safe: bool

    def at(self, position: int) -> Correlation[int]:
        return Correlation(self.outer, position, self.null_safe)


@dataclass(frozen=True)
class Query:
    """A planned block: the first `visible` columns are the select list, keys and order columns may follow.
    keys: what is looked up.  after: as in `ViewDef`, and then `visible` and `order` are of its columns.  varied:
    literals were taken as parameters that they could be.  Of a query within an expression, correlations are its columns
    that the outer query's are compared with, given are terms over these alone; single: at most one row has one value of
    the keys and correlations."""

    plan: Mir
    visible: int
    keys: tuple[Key[int], ...]
    order: tuple[tuple[int, bool], ...]
    limit: exp.Expr | None
    offset: exp.Expr | None
    empty_row: tuple[Any, ...] | None
    after: Mir | None = None
    varied: bool = False
    correlations: tuple[Correlation[int], ...] = ()
    given: tuple[Expr, ...] = ()
    single: bool = False
