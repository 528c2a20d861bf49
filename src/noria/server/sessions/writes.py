"""The INSERTs, UPDATEs and DELETEs of one session, each by itself or within the session's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from noria.control.catalog.origin import made_by
from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.core.types import TableDef
from noria.runtime.link.link import WorkerUnavailable
from noria.runtime.transactions.read_your_writes import merged_writes
from noria.server.outcomes import Ok, Outcome, PendingOutcome, ResultSet
from noria.server.sessions import session_reads
from noria.server.sessions.context import SessionContext
from noria.server.sessions.counting import counted
from noria.server.sessions.modes import zero_dates
from noria.server.sessions.modes.auto_increment_zero import refuse_zero
from noria.sql import commands as sql

MOST_WARNINGS = 1024  # of one statement: MySQL's default of max_error_count
Items = Callable[[sql.SelectItems], Awaitable[ResultSet]]


async def run(session: SessionContext, command: Insert | Update | Delete) -> Outcome:
    """Run a write and wait for its outcome."""
    command = _in_mode(session, command)
    await session.locked.admit_write(command, session.transaction, session.variables)
    transaction = session.transaction
    if transaction.active or transaction.is_checked(command):
        return await _within(session, command)
    if session.executor.program.may_rewrite(command) and (done := await _rewrite(session, command)) is not None:
        return written(session, command, done)
    later = submit(session, command)
    await session.running.written(later.future)
    return later.then(later.future)


async def run_selected(session: SessionContext, command: sql.SelectedWrite, items: Items) -> Outcome:
    """Run a write of rows that a SELECT finds.  items: answers SELECTs without FROM."""
    await session.locked.admit_write(command, session.transaction, session.variables)
    for table in command.tables:
        _check_write(session, table)
    if command.insert is not None and "NO_AUTO_VALUE_ON_ZERO" in session.variables["sql_mode"]:
        _refuse_numbering(session, command.insert)
    select, found = command.select, None
    ignored: list[SqlError] = []
    if isinstance(select, tuple):
        found = _together([await items(row) for row in select])
    elif isinstance(select, sql.Select) and not session.transaction.active:
        found = await session_reads.select(session, select)
    else:
        await session_reads.wait_for_own_writes(session)
    session.running.set_state("waiting for the worker")
    try:
        result, rows = await session.transaction.write_selected(command, found, session.offset, ignored)
    finally:
        session.collect_own_writes()
    if command.insert is not None:
        return applied(session, command.insert._replace(rows=range(rows)), result, True)
    table = command.tables[0]
    done = applied(session, Delete(table, None) if command.targets[0].assignments is None
                    else Update(table, (), None), result)
    if not ignored:
        return done
    info = done.info.replace("Warnings: 0", f"Warnings: {len(ignored)}")
    warnings = [("Warning", e.code, e.message) for e in ignored[:MOST_WARNINGS]]
    return replace(done, warnings=warnings, info=info)


def _refuse_numbering(session: SessionContext, insert: Insert) -> None:
    """Refuse to insert rows that are not known yet where a 0 would have to stay a 0."""
    table = session.executor.program.table(insert.table)
    if table is not None and any(table.columns[c].auto_increment for c in insert.columns):
        raise not_supported("INSERT … SELECT of AUTO_INCREMENT values with NO_AUTO_VALUE_ON_ZERO",
                            "leave the mode or the column out")


def _together(results: Sequence[ResultSet]) -> ResultSet:
    return replace(results[0], rows=[row for r in results for row in r.rows])


async def _rewrite(session: SessionContext, command: Update | Delete) -> asyncio.Future[Any] | None:
    _check_write(session, command.table)
    with made_by(f"{session.user}@{session.address}", session.text):
        return await session.executor.write_by_spark(command, session.offset, session.running.set_state)


def _check_write(session: SessionContext, table: str) -> None:
    session.executor.locks.check_own(session.connection_id, table)
    session.transaction.check_write()


async def _within(session: SessionContext, command: Insert | Update | Delete) -> Ok:
    """Run a write within the transaction."""
    _check_write(session, command.table)
    _refuse_zero(session, command)
    program = session.executor.program
    session.running.set_state("waiting for the worker")
    try:
        if program.may_rewrite(command) and await program.is_large(command):
            return applied(session, command, await session.transaction.write_in_parts(command, session.offset))
        if session.transaction.active:
            return applied(session, command, await session.transaction.write(command, session.offset))
        return applied(session, command, await session.transaction.write_alone(command, session.offset))
    finally:
        session.collect_own_writes()


def _in_mode(session: SessionContext, command: Insert | Update | Delete) -> Insert | Update | Delete:
    return in_mode(session, command, session.executor.program.table(command.table))


def in_mode(session: SessionContext, command: Insert | Update | Delete, table: TableDef | None
            ) -> Insert | Update | Delete:
    """Return the write of a table as the session's sql_mode reads it."""
    return zero_dates.read(command, table) if zero_dates.are_allowed(session.variables["sql_mode"]) else command


def _refuse_zero(session: SessionContext, command: Insert | Update | Delete) -> None:
    if isinstance(command, Insert) and "NO_AUTO_VALUE_ON_ZERO" in session.variables["sql_mode"]:
        refuse_zero(command, session.executor.program.table(command.table))


def submit(session: SessionContext, command: Insert | Update | Delete) -> PendingOutcome[Outcome]:
    """Begin a write without a transaction."""
    command = _in_mode(session, command)
    _check_write(session, command.table)
    _refuse_zero(session, command)
    wait_s = float(session.variables["innodb_lock_wait_timeout"])
    return PendingOutcome(session.executor.submit(command, session.offset, wait_s=wait_s),
                          partial(written, session, command))


def written(session: SessionContext, command: Insert | Update | Delete, done: asyncio.Future[Any]) -> Ok:
    """Return the outcome of a finished write, and note it as one whose effects some worker may lack."""
    try:
        result = session.executor.result_of(done)
    except WorkerUnavailable as e:
        raise session.noted(SqlError(*UNKNOWN_ERROR, str(e))) from e
    except SqlError as e:
        raise session.noted(e) from None
    if own := session.executor.written(done):
        session.unseen = merged_writes(session.unseen, own)
    return applied(session, command, result)


def applied(session: SessionContext, command: Insert | Update | Delete, result: WriteResult, selected: bool = False
             ) -> Ok:
    session.warnings = ()
    if result.last_insert_id:
        session.last_insert_id = result.last_insert_id
    affected, info = counted(command, result, session.client.found_rows, selected)
    session.row_count = affected
    return Ok(affected, result.insert_id, (), info)


__all__ = ["applied", "in_mode", "run", "run_selected", "submit", "written"]
