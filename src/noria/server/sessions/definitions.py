"""The statements of one session that change tables and views: CREATE, ALTER, RENAME, TRUNCATE and DROP.

Keeps true: a definition commits the session's transaction first.  It changes no table that another transaction has
changed or locked, and its reply is sent when all front ends on this host have the new version of the program.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from noria.control.catalog.origin import made_by
from noria.control.ddl.change import ChangeResult
from noria.dataflow.transactions.wait_graph import Weight
from noria.server.answering import time_zone
from noria.server.outcomes import Ok, Outcome
from noria.server.sessions import writes
from noria.server.sessions.context import SessionContext
from noria.server.sessions.modes import zero_dates
from noria.sql import commands as sql
from noria.sql.query.relations.view_warnings import warnings_of
from noria.sql.text.databases import namespace_of, plain_namespace


async def run(session: SessionContext, command: sql.Command, items: writes.Items) -> Outcome:
    """Commit, wait for other transactions and locks, change the program, and wait for the front ends.  items: answers
    SELECTs without FROM."""
    if isinstance(command, sql.CreateTableAs):
        return await _run_filled(session, command, items)
    if isinstance(command, sql.Truncate):
        session.transaction.check_write()
    if session.offset and isinstance(command, sql.AlterTable):
        time_zone.refuse_converting(command)
    if isinstance(command, sql.CHECKED_KEYS) and not session.variables["foreign_key_checks"]:
        command = replace(command, foreign_key_checks=False)
    if not session.mode.zero_dates:
        zero_dates.refuse_default(command)
    await session.commit()
    tables = _tables_changed(session, command)
    for name in tables:
        session.executor.locks.check_own(session.connection_id, name)
    if session.executor.locks.busy and tables:
        await session.locked.admit(tables, True, session.transaction, session.variables, Weight.DEFINITION)
    change = await _defined(session, command)
    await session.executor.wait_for_front_ends()
    if isinstance(command, sql.DropDatabase) and plain_namespace(session.namespace) == namespace_of(
            command.name):
        session.leave_database()
    unreadable = warnings_of(command.view) if isinstance(command, sql.CreateView) else ()
    return Ok(change.affected, warnings=(*change.warnings, *unreadable))


async def _run_filled(session: SessionContext, command: sql.CreateTableAs, items: writes.Items) -> Outcome:
    """Create a table and insert the rows of a SELECT.  If that fails, there is no table."""
    create = command.create
    there = session.executor.program.table(create.table.name) is not None
    made = await run(session, create, items)
    if there:  # IF NOT EXISTS
        return made
    try:
        return await writes.run_selected(session, command.fill, items)
    except BaseException:
        await asyncio.shield(_defined(session, sql.DropTable((create.table.name,), True)))
        raise


async def _defined(session: SessionContext, command: sql.Command) -> ChangeResult:
    """Change the program when no transaction has changed or locked the tables, and those have ended that have read
    them by now.  ALTER TABLE only waits for those that are open now: it may take long, and later ones that still
    use the old definition get error 1412."""
    wait_s, tables = float(session.variables["lock_wait_timeout"]), _tables_changed(session, command)
    session.running.set_state("Waiting for table metadata lock")
    async with AsyncExitStack() as stack:
        await session.locked.enter_exclusive(stack, tables, wait_s)
        session.running.set_state("")
        if isinstance(command, sql.AlterTable):
            await stack.aclose()
        with made_by(f"{session.user}@{session.address}", session.text):
            return await session.executor.program.define(command)


def _tables_changed(session: SessionContext, command: sql.Command) -> Sequence[str]:
    """The names of the tables that the command redefines, empties or drops."""
    if not isinstance(command, sql.DropDatabase):
        return sql.tables_changed(command)
    catalog = session.executor.program.catalog
    return [t.name for t in catalog.tables() if namespace_of(catalog.databases.split(t.name)[0])
            == namespace_of(command.name)]


__all__ = ["run"]
