"""Runs WITH RECURSIVE: iteration after iteration, until one finds no new rows.

    rows := first                           iteration 1
    new := further(rows of the last one)    iteration 2, 3, …
    rest, beside all rows

A SELECT that reads no table is computed here.  Others are one-shots, which bring the rows of the last iteration.

Keeps true: the rows have the types of the first SELECT, as in MySQL.  A query ends with error 3636 after
`cte_max_recursion_depth` iterations, and with error 1114 beyond MOST_ROWS rows or MOST_CHARACTERS characters.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import CTE_MAX_RECURSION_DEPTH, TABLE_FULL, WRONG_NUMBER_OF_COLUMNS_IN_SELECT
from noria.core.expressions.coerce import coerce
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import TEXT, Column, Field, SqlType
from noria.core.values import encode
from noria.plan.constant_row import GivenRows, with_rows
from noria.server.outcomes import ResultSet
from noria.server.sessions import session_reads
from noria.server.sessions.context import SessionContext
from noria.server.sessions.inspect import inspection, over_rows
from noria.sql import commands as sql

MOST_ROWS = 100_000  # of one recursive query
MOST_CHARACTERS = 64 * 2**20  # of all its texts
AT_ONCE_ROWS = 256  # computed within the event loop; more rows in a thread
_numbers = itertools.count(1)
_Row = tuple[Any, ...]


async def resolved(session: SessionContext, command: sql.Recursive) -> sql.Command:
    """Run the recursive queries.  Return the statement that is left, beside their rows."""
    given: dict[str, GivenRows] = {}
    for part in command.parts:
        given[part.name] = await _Part(session, part, given).run()
    return command.rest(given)


class _Part:
    """One recursive query.  columns: those of its rows, once the first SELECT was answered."""

    def __init__(self, session: SessionContext, part: sql.RecursivePart, given: sql.Given):
        self._session, self._part, self._given = session, part, given
        self._columns: list[Column] = []
        self._rows: list[_Row] = []
        self._seen: set[tuple[int, ...]] = set()
        self._symbols = PlainSymbols()
        self._characters = 0

    async def run(self) -> GivenRows:
        new: list[_Row] = []
        for command in self._part.first(self._given):
            new += self._taken(await self._answered(session_reads.now(self._session, command)))
        fields = tuple(c.field for c in self._columns)
        steps = _Steps(next(_numbers), fields)
        commands = [session_reads.now(self._session, c) for c in self._part.further(
            {**self._given, self._part.name: GivenRows(fields, steps.number, ())})]
        most = int(self._session.variables["cte_max_recursion_depth"])
        iteration = 1
        while new:
            if iteration > most:
                raise SqlError(*CTE_MAX_RECURSION_DEPTH,
                               f"Recursive query aborted after {iteration} iterations. Try increasing "
                               "@@cte_max_recursion_depth to a larger value.")
            iteration += 1
            last, new = tuple(new), []
            for command in commands:
                new += self._taken(await self._answered(steps.beside(command, last), len(last)))
            if not iteration % 64:
                await asyncio.sleep(0)  # others have their turn; KILL is heard
        return GivenRows(fields, next(_numbers), tuple(self._rows))

    async def _answered(self, command: sql.Command, brought: int = 0) -> ResultSet:
        """Answer a SELECT that brings so many rows."""
        if isinstance(command, sql.SelectItems):
            return inspection.select_items(await session_reads.computed(self._session, command), self._session)
        assert isinstance(command, sql.Select), "a query of WITH is a SELECT"
        if command.view is not None and command.view.empty_row is None and over_rows.can_run(command.view.plan):
            batch = sql.as_batch(command)
            run = partial(over_rows.run, batch.plan, _no_table)
            rows = await asyncio.to_thread(run) if brought > AT_ONCE_ROWS else run()
            return ResultSet(batch.fields, [r[: batch.visible] for r in rows])
        return await session_reads.select(self._session, command)

    def _taken(self, found: ResultSet) -> list[_Row]:
        """Add the rows of an answer.  Return those that are new."""
        if not self._columns:
            names = self._part.columns or tuple(f.name for f in found.fields)
            _check_width(names, found.fields, self._part.name)
            self._columns = [Column(n, _kept_type(f.type)) for n, f in zip(names, found.fields, strict=True)]
        if len(found.fields) != len(self._columns):
            raise SqlError(*WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
                           "The used SELECT statements have a different number of columns")
        rows = [tuple(None if v is None else coerce(v, c, n) for v, c in zip(row, self._columns, strict=True))
                for n, row in enumerate(found.rows, 1)]
        if self._part.distinct:
            rows = [row for row in rows if self._is_new(row)]
        self._characters += sum(len(v) for row in rows for v in row if isinstance(v, str | bytes))
        self._rows += rows
        if len(self._rows) > MOST_ROWS or self._characters > MOST_CHARACTERS:
            raise SqlError(*TABLE_FULL, f"The table '{self._part.name}' is full: WITH RECURSIVE keeps up to "
                                        f"{MOST_ROWS} rows and {MOST_CHARACTERS} characters")
        return rows

    def _is_new(self, row: _Row) -> bool:
        key = []
        for value, column in zip(row, self._columns, strict=True):
            code = encode(value, column.type, self._symbols)
            key.append(int(self._symbols.fold_table[code]) if column.type.folds and value is not None else code)
        found = tuple(key)
        if found in self._seen:
            return False
        self._seen.add(found)
        return True


class _Steps:
    """Replaces the rows of the recursive query in planned SELECTs."""

    def __init__(self, number: int, fields: tuple[Field, ...]):
        self.number, self.fields = number, fields

    def beside(self, command: sql.Command, rows: tuple[_Row, ...]) -> sql.Command:
        assert isinstance(command, sql.Select), "it has a FROM"
        if command.view is not None:
            return replace(command, view=replace(command.view, plan=with_rows(command.view.plan, self.number, rows)))
        assert command.batch is not None
        return replace(command, batch=replace(command.batch, plan=with_rows(command.batch.plan, self.number, rows)))


def _check_width(names: Sequence[str], fields: Sequence[Field], name: str) -> None:
    if len(names) != len(fields):
        raise SqlError(*WRONG_NUMBER_OF_COLUMNS_IN_SELECT,
                       f"In definition of view, derived table or common table expression '{name}', SELECT list and "
                       "column names list have different column counts")


def _kept_type(type: SqlType) -> SqlType:
    """The type of a column of the rows.  A TIMESTAMP is already in the session's time zone."""
    if type.is_listed:
        return TEXT
    return replace(type, timestamp=False) if type.timestamp else type


def _no_table(name: str, equal: Mapping[str, str]) -> Sequence[Sequence[Any]]:
    raise AssertionError("the plan reads no table")


__all__ = ["resolved"]
