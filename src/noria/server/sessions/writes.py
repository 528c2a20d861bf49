"""The INSERTs, UPDATEs and DELETEs of one session, each by itself or within the session's transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from noria.control.catalog.origin import made_by
from noria.core.errors import SqlError
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
from noria.server.sessions.modes.lenient_writes import Leniency, Warnings
from noria.sql import commands as sql

Items = Callable[[sql.SelectItems], Awaitable[ResultSet]]


async def run(session: SessionContext, command: Insert | Update | Delete) -> Outcome:
    """Run a write and wait for its outcome.  If a value does not fit where MySQL only warns, run it with another."""
    command = _in_mode(session, command)
    leniency = leniency_of(session, isinstance(command, Insert) and command.on_duplicate == "ignore")
    try:
        done = await _tried(session, leniency.first(command))
    except SqlError as e:
        leniency.warnings.back_to(0)
        again = leniency.again(command, e)
        if again is None:
            raise
        done = await _tried(session, again)
    return warned(done, leniency.warnings)


def may_be_lenient(session: SessionContext, command: Insert | Update | Delete) -> bool:
    """Whether the write may have to be tried twice."""
    return not session.mode.is_default or (isinstance(command, Insert) and command.on_duplicate == "ignore")


def leniency_of(session: SessionContext, ignore: bool, selected: bool = False) -> Leniency:
    """How lenient the session is towards a statement.  ignore: it says IGNORE."""
    return Leniency(session.mode, session.executor.program.table, ignore, selected)


def warned(done: Ok, warnings: Warnings) -> Ok:
    """Add warnings to the outcome of a write."""
    if not warnings.number:
        return done
    info = done.info.replace("Warnings: 0", f"Warnings: {warnings.number}")
    return replace(done, warnings=[("Warning", e.code, e.message) for e in warnings.first], info=info)


async def _tried(session: SessionContext, command: Insert | Update | Delete) -> Ok:
    await session.locked.admit_write(command, session.transaction, session.variables)
    transaction = session.transaction
    checked = None if transaction.active else transaction.checked(command)
    if checked is None or (checked is not command and session.executor.locks.busy):  # a deadlock may need a victim
        return await _within(session, command)
    if session.executor.program.may_rewrite(command) and (done := await _rewrite(session, command)) is not None:
        return written(session, command, done)
    later = submit(session, checked)
    await session.running.written(later.future)
    return written(session, command, later.future)


async def run_selected(session: SessionContext, command: sql.SelectedWrite, items: Items) -> Outcome:
    """Run a write of rows that a SELECT finds.  items: answers SELECTs without FROM."""
    command = await _admitted(session, command)
    select, found = command.select, None
    if isinstance(select, tuple):
        found = _together([await items(row) for row in select])
    elif isinstance(select, sql.Select) and not session.transaction.active:
        found = await session_reads.select(session, select)
    else:
        await session_reads.wait_for_own_writes(session)
    return await _run_found(session, command, found)


async def run_found(session: SessionContext, command: sql.SelectedWrite, found: ResultSet, warnings: Warnings) -> Ok:
    """Run a write of rows that are known.  warnings: receives those of their values."""
    return await _run_found(session, await _admitted(session, command), found, warnings)


async def _admitted(session: SessionContext, command: sql.SelectedWrite) -> sql.SelectedWrite:
    await session.locked.admit_write(command, session.transaction, session.variables)
    for table in command.tables:
        _check_write(session, table)
    if command.insert is None:
        return command
    insert = _in_mode(session, command.insert)
    assert isinstance(insert, Insert)
    return replace(command, insert=insert)


async def _run_found(session: SessionContext, command: sql.SelectedWrite, found: ResultSet | None,
                     warnings: Warnings | None = None) -> Ok:
    leniency = leniency_of(session, command.ignores, command.insert is not None)
    if warnings is not None:
        leniency.warnings, warnings.before = warnings, warnings.number
    session.running.set_state("waiting for the worker")
    try:
        result, rows = await session.transaction.write_selected(command, found, session.offset, leniency)
    finally:
        session.collect_own_writes()
    if command.insert is not None:
        return warned(applied(session, command.insert._replace(rows=range(rows)), result, True), leniency.warnings)
    table = command.tables[0]
    done = applied(session, Delete(table, None) if command.targets[0].assignments is None
                    else Update(table, (), None), result)
    return warned(done, leniency.warnings)


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
    if isinstance(command, Insert) and not session.mode.numbers_zero:
        command = command._replace(keeps_zero=True)
    return zero_dates.read(command, table) if session.mode.zero_dates else command


def submit(session: SessionContext, command: Insert | Update | Delete) -> PendingOutcome[Outcome]:
    """Begin a write without a transaction."""
    command = _in_mode(session, command)
    _check_write(session, command.table)
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


__all__ = ["applied", "in_mode", "leniency_of", "may_be_lenient", "run", "run_found", "run_selected", "submit",
           "warned", "written"]
