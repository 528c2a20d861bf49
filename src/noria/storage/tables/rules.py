"""The conditions that a table's rows must fulfil: its enforced CHECK constraints, compiled for batches of codes.

Keeps true: a condition that is NULL holds.  A text is parsed once for each definition in a process, at the first row.
A table without CHECKs costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError, division_by_zero
from noria.core.errors.codes import CHECK_CONSTRAINT_VIOLATED
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr
from noria.core.expressions.functions import zero_divisors
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import BIGINT, Check, Column, Field, TableDef
from noria.core.values import evaluation_error

Mask = npt.NDArray[np.bool_]
KEPT = 256  # definitions whose conditions stay compiled


@dataclass(frozen=True)
class Rule:
    """One CHECK.  value: the compiled condition.  divides: compiled, they find the rows with a division by zero."""

    name: str
    condition: Expr
    value: Callable[[Batch, Symbols], Codes] = field(compare=False)
    divides: tuple[Callable[[Batch, Symbols], Mask], ...] = field(compare=False)

    def broken(self, rows: Batch, symbols: Symbols) -> Mask:
        """The mask of rows for which the condition is false or fails."""
        codes = self.value(rows, symbols)
        found: Mask = (codes == 0) | (codes == ERROR_CODE)
        for divides in self.divides:
            found |= divides(rows, symbols)
        return found

    def error(self, row: Codes, symbols: Symbols) -> SqlError:
        """The error of a row for which the condition does not hold."""
        one = Batch.of(row.reshape(-1, 1))
        if any(divides(one, symbols).any() for divides in self.divides):
            return division_by_zero()
        if self.value(one, symbols)[0] == ERROR_CODE:
            return evaluation_error(BIGINT)
        return SqlError(*CHECK_CONSTRAINT_VIOLATED, f"Check constraint '{self.name}' is violated.")


def rules_of(table: TableDef) -> tuple[Rule, ...]:
    """The rules of the enforced CHECKs, in the order in which they are checked."""
    return _rules(table.enforced, table.fields, _dropped(table), table.name) if table.enforced else ()


def _dropped(table: TableDef) -> tuple[int, ...]:
    return tuple(at for at, c in enumerate(table.columns) if c.dropped)


@lru_cache(KEPT)
def _rules(checks: Sequence[Check], fields: Sequence[Field], dropped: Sequence[int], name: str) -> tuple[Rule, ...]:
    from noria.sql.expressions.table_expressions import of_text  # workers without CHECKs need no parser

    columns = tuple(Column(f.name, f.type, f.nullable, dropped=int(at in dropped)) for at, f in enumerate(fields))
    table = TableDef(name, columns)
    made = []
    for check in checks:
        condition = of_text(table, check.text)
        made.append(Rule(check.name, condition, evaluate.compile(condition),
                         tuple(evaluate.predicate(z) for z in zero_divisors(condition))))
    return tuple(made)


def new_rules(was: TableDef, table: TableDef) -> tuple[Rule, ...]:
    """The rules that rows of the earlier definition need not fulfil: new ones, or those over changed columns."""
    if not table.enforced:
        return ()
    known = {r.condition for r in rules_of(was)}
    return tuple(r for r in rules_of(table) if r.condition not in known)


def broken(rules: Sequence[Rule], rows: Codes, symbols: Symbols) -> Mask:
    """The mask of rows that break a rule."""
    batch, found = Batch.of(rows), np.zeros(rows.shape[1], np.bool_)
    for rule in rules:
        found |= rule.broken(batch, symbols)
    return found


def error_of(rules: Sequence[Rule], row: Codes, symbols: Symbols) -> SqlError:
    """The error of a row that breaks a rule: that of the first one."""
    one = Batch.of(row.reshape(-1, 1))
    return next(r.error(row, symbols) for r in rules if r.broken(one, symbols)[0])


def refuse_broken(rules: Sequence[Rule], rows: Codes, symbols: Symbols) -> None:
    """Raise SqlError 3819 for the first row that breaks a rule."""
    if not rules or not rows.shape[1]:
        return
    found = broken(rules, rows, symbols)
    if found.any():
        raise error_of(rules, rows[:, int(found.argmax())], symbols)
