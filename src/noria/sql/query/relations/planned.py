"""The result of planning a query block: its plan, and the positions of the columns that its user needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlglot import exp

from noria.core.expressions.expr import Expr
from noria.core.types import Origin
from noria.plan.lookups import Key
from noria.plan.mir import Mir

C = TypeVar("C")


@dataclass(frozen=True)
class Correlation(Generic[C]):
    """A term of an inner WHERE: `outer = column` or `outer <=> column`, both of one type.  `column`: an expression over
    the inner block's relations, or a position in its plan."""

    outer: Expr
    column: C
    null_safe: bool

    def at(self, position: int) -> Correlation[int]:
        return Correlation(self.outer, position, self.null_safe)


@dataclass(frozen=True)
class PlannedQuery:
    """A planned block.  Its first `visible` columns are the select list; keys and order columns may follow.

    `after`: as in `ViewDef`; with it, `visible` and `order` refer to its columns.  `varied`: literals of a range
    became parameters.  For a subquery in an expression, `correlations` are its columns that are compared with the
    outer query's, and `outer_terms` are terms over outer columns alone.  `single`: at most one row has the same values
    of the keys and correlations. `origins`: of the select list, for clients (`results/origins.py`).
    """

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
    outer_terms: tuple[Expr, ...] = ()
    single: bool = False
    origins: tuple[Origin | None, ...] = ()
