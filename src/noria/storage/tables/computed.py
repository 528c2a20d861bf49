"""The values of generated columns and of defaults that read other columns, computed for batches of codes.

Keeps true: they are computed in an order in which each column comes behind those that it reads.  A text is parsed once
for each definition in a process.  A table without such columns costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import division_by_zero
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, columns_of
from noria.core.expressions.functions import for_column, zero_divisors
from noria.core.symbols import Symbols
from noria.core.types import BIGINT, Column, TableDef
from noria.core.values import recode

KEPT = 256  # definitions whose expressions stay compiled


@dataclass(frozen=True)
class Computed:
    """A generated column.  reads: the columns of its expression.  divides: finds rows with a division by zero."""

    at: int
    column: Column
    expr: Expr
    reads: frozenset[int]
    value: Callable[[Batch, Symbols], Codes]
    divides: tuple[Callable[[Batch, Symbols], npt.NDArray[np.bool_]], ...]

    def codes(self, rows: Codes, symbols: Symbols) -> Codes:
        """The column's codes.  Raises SqlError for a value that it cannot store."""
        batch = Batch.of(rows)
        if any(divides(batch, symbols).any() for divides in self.divides):
            raise division_by_zero()
        return recode(self.value(batch, symbols), self.expr.type, self.column, 1, symbols)


def computed_of(table: TableDef) -> tuple[Computed, ...]:
    return _computed(table.columns, table.generated, table.name) if table.generated else ()


@lru_cache(KEPT)
def _computed(columns: tuple[Column, ...], generated: Sequence[int], name: str) -> tuple[Computed, ...]:
    from noria.sql.expressions.table_expressions import of_text  # workers without such columns need no parser

    table, made = TableDef(name, columns), []
    for at in generated:
        expr = for_column(of_text(table, columns[at].expression), columns[at].type)
        made.append(Computed(at, columns[at], expr, frozenset(columns_of(expr)), evaluate.compile(expr),
                             tuple(evaluate.predicate(z) for z in zero_divisors(expr))))
    return tuple(made)


def defaults_of(table: TableDef) -> tuple[Computed, ...]:
    """The defaults that read other columns."""
    return _computed(table.columns, table.defaulted, table.name) if table.defaulted else ()


def time_default(column: Column) -> Expr:
    """The default of a column that depends on the time."""
    return _time_default(column.expression)


@lru_cache(KEPT)
def _time_default(text: str) -> Expr:
    from noria.sql.expressions.table_expressions import of_text

    return of_text(TableDef("", (Column("", BIGINT),)), text)


def fill(table: TableDef, rows: Codes, symbols: Symbols) -> None:
    """Set the generated columns of rows."""
    for each in computed_of(table):
        rows[each.at] = each.codes(rows, symbols)


def sources(table: TableDef, columns: Sequence[int]) -> set[int]:
    """These columns, and all that generated ones among them read."""
    found, made = set(columns), {c.at: c for c in computed_of(table)}
    for at in reversed(table.generated):
        if at in found:
            found |= made[at].reads
    return found
