"""Changes a write that failed by a value into one whose values fit, where MySQL only warns.

That is so in a session without a strict sql_mode, and in INSERT IGNORE and UPDATE IGNORE.  An INSERT of few rows is
changed before it is sent, so that it takes AUTO_INCREMENT numbers once.  Other writes are tried as they are, so values
that fit cost nothing.  A worker undoes a statement that fails, so it can be tried again.

Keeps true: what it returns fails by none of these values.  It keeps the errors that MySQL keeps: NULL for a NOT NULL
column in an INSERT of one row, a text that is no JSON, values of generated columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from noria.core.errors import SqlError, division_by_zero
from noria.core.errors.codes import BAD_NULL, DIVISION_BY_ZERO, NO_DEFAULT_FOR_FIELD
from noria.core.expressions.coerce import coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import Call, Const, Expr
from noria.core.expressions.functions import fitted, undivided, uses_clock, zero_divisors
from noria.core.expressions.lenient import OF_VALUES, Warned, fit, without_default, without_null
from noria.core.expressions.library.numbers import REMEMBERED
from noria.core.statements import DEFAULT, NEW, Delete, Insert, Update
from noria.core.types import Column, TableDef
from noria.server.sessions.modes.sql_mode import SqlMode

FEW_ROWS = 100  # in an INSERT that is changed before it is sent
Write = Insert | Update | Delete
MOST_WARNINGS = 1024  # of one statement: MySQL's default of max_error_count
_MENDED = {*OF_VALUES, *(c.number for c in (BAD_NULL, DIVISION_BY_ZERO, NO_DEFAULT_FOR_FIELD))}


@dataclass
class Warnings:
    """The warnings of one statement: how many they are, and the first MOST_WARNINGS of them.  before: how many of them
    do not come from its tries."""

    number: int = 0
    before: int = 0
    first: list[SqlError] = field(default_factory=list)

    def add(self, warning: SqlError) -> None:
        self.number += 1
        if len(self.first) < MOST_WARNINGS:
            self.first.append(warning)

    def begin_anew(self) -> None:
        """Forget the warnings of an earlier try."""
        self.back_to(self.before)

    def back_to(self, number: int) -> None:
        """Forget all but the first ones."""
        self.number = number
        del self.first[number:]


@dataclass
class Leniency:
    """The leniency of one statement.  ignore: it says IGNORE.  selected: a SELECT finds the rows of an INSERT.

    warnings: receives the warnings of the values that were changed.
    """

    mode: SqlMode
    table: Callable[[str], TableDef | None]
    ignore: bool = False
    selected: bool = False
    warnings: Warnings = field(default_factory=Warnings)

    @property
    def _is_lenient(self) -> bool:
        return self.ignore or not self.mode.strict

    def first(self, command: Write) -> Write:
        """Return the write to try first."""
        if not self._is_lenient or not isinstance(command, Insert) or len(command.rows) > FEW_ROWS or isinstance(
                command.rows, pa.RecordBatch) or (table := self.table(command.table)) is None:
            return command
        return self._with_rows(command, table)

    def again(self, command: Write, error: SqlError) -> Write | None:
        """Return the write to try after this error, or None if the error stands."""
        table = self.table(command.table)
        if table is None or isinstance(command, Delete) or error.code not in _MENDED:
            return None
        changed: Write | None = None
        if self._is_lenient:
            changed = self._fitted(command, table)
        elif error.code == DIVISION_BY_ZERO.number and not self.mode.division_errors:
            changed = _undivided(command)
        return None if changed == command else changed

    def _fitted(self, command: Insert | Update, table: TableDef) -> Write:
        assigned = tuple((at, self._assigned(e, table.columns[at % NEW])) for at, e in command.assignments)
        if isinstance(command, Update):
            return command._replace(assignments=assigned)
        return self._with_rows(command._replace(assignments=assigned), table)

    def _with_rows(self, command: Insert, table: TableDef) -> Insert:
        """The INSERT with rows that fit."""
        columns = [table.columns[at] for at in command.columns]
        rows = _rows_of(command.rows)
        alone = len(rows) == 1 and not (self.ignore or self.selected)
        kept = [tuple([self._value(v, c, n, alone) for v, c in zip(row, columns, strict=True)])
                for n, row in enumerate(rows, 1)]
        absent = [at for at, c in enumerate(table.columns) if at not in command.columns and _lacks_default(c)]
        more = tuple([self._noted(without_default(table.columns[at])) for at in absent])
        clock = any(isinstance(v, Expr) for row in kept for v in row) or any(
            uses_clock(e) for _, e in command.assignments)
        return command._replace(columns=(*command.columns, *absent), rows=tuple([row + more for row in kept]),
                                clock=clock)

    def _noted(self, found: Warned) -> Any:
        value, warning = found
        if warning is not None:
            self.warnings.add(warning)
        return value

    def _value(self, value: Any, column: Column, row: int, alone: bool) -> Any:
        """What the column keeps of a value of an INSERT.  alone: a NULL that it may not have stays an error."""
        if isinstance(value, Expr):
            if uses_clock(value):
                return value if column.generated or column.type.is_json else fitted(value, column)
            value = self._divided(value)
        if value is DEFAULT:
            return self._noted(without_default(column)) if _lacks_default(column) else value
        if value is None:
            may = column.nullable or column.auto_increment or column.generated or column.computed == "default"
            return value if may or alone else self._noted(without_null(column))
        return value if column.generated else self._noted(fit(value, column, row))

    def _divided(self, e: Expr) -> Any:
        """The value of a constant expression, with a warning for a division by zero."""
        if self.mode.division_errors and any(map(constant, zero_divisors(e))):
            self.warnings.add(division_by_zero())
        return constant(e)

    def _assigned(self, e: Expr, column: Column) -> Expr:
        if column.generated or column.type.is_json or (isinstance(e, Call) and e.op == REMEMBERED):
            return e
        if not isinstance(e, Const):
            return fitted(e, column)
        if e.value is None and column.nullable:
            return e
        kept = self._noted(without_null(column) if e.value is None else fit(e.value, column, 1))
        return Const(column.type, False, coerce(kept, column, 1))


def _lacks_default(column: Column) -> bool:
    """Whether an INSERT must name the column."""
    return not (column.has_default or column.nullable or column.auto_increment or column.dropped or column.computed
                or column.takes_time)


def _rows_of(rows: Any) -> Sequence[Sequence[Any]]:
    if isinstance(rows, pa.RecordBatch):
        return list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
    return list(rows)


def _undivided(command: Insert | Update) -> Write:
    """The write with NULL for each division by zero."""
    assigned = tuple((at, undivided(e)) for at, e in command.assignments)
    if isinstance(command, Update):
        return command._replace(assignments=assigned)
    rows = command.rows if isinstance(command.rows, pa.RecordBatch) else tuple(
        [tuple([undivided(v) if isinstance(v, Expr) else v for v in row]) for row in command.rows])
    return command._replace(assignments=assigned, rows=rows)
