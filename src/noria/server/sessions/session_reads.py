"""The SELECTs of one session that wait: for locks, for the session's own writes, for a worker or for Spark.

Keeps true: a SELECT sees the session's acknowledged writes.  Within a transaction it sees the rows that the isolation
level demands: from views if they have them, else from the tables themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from noria.core.errors import SqlError, definition_changed
from noria.core.errors.codes import SUBQUERY_NO_1_ROW
from noria.core.limits import VIEW_BINDS
from noria.core.types import TEXT, Field
from noria.plan.view import ViewDef
from noria.server.answering import time_zone
from noria.server.answering.first_state_progress import how_far
from noria.server.answering.statements import CachedStatement
from noria.server.outcomes import ResultSet
from noria.server.sessions.context import SessionContext
from noria.server.sessions.inspect import inspection
from noria.server.sessions.running import hinted_ms
from noria.sql import commands as sql
from noria.sql.expressions.clock import Moment

Locks = Callable[[sql.SelectItems], Awaitable[sql.SelectItems]]
"""Replaces the functions about locks, and SLEEP, by their values."""


def as_of(session: SessionContext, compiled: CachedStatement, values: Sequence[Any]) -> ResultSet | None:
    """Answer a SELECT at once from rows that have not changed since the transaction's snapshot."""
    tick = session.transaction.tick_of(compiled)
    found = None if tick is None else session.transactions.select_as_of(compiled, values, tick)
    if found is not None:
        session.warnings = ()
        session.found_rows = len(found.rows)
        session.transaction.note_answer(compiled)
    return found


async def within(session: SessionContext, compiled: CachedStatement, values: Sequence[Any]) -> ResultSet:
    """Answer a SELECT of a transaction that shared memory does not have as the transaction must see it."""
    assert compiled.view is not None, "a SELECT that is answered directly has a view"
    await session.locked.admit_read_of(compiled.view, session.transaction, session.variables)
    await wait_for_own_writes(session)
    found = await limited(session, _bound(session, compiled.select(values), compiled, values))
    session.warnings, session.found_rows = found.warnings, len(found.rows)
    return found


async def in_time(session: SessionContext, answer: Awaitable[ResultSet], view: ViewDef) -> ResultSet:
    """Answer a SELECT outside transactions that has begun, once no lock on a table forbids it."""
    try:
        await session.locked.admit_read_of(view, session.transaction, session.variables)
    except BaseException:
        if asyncio.iscoroutine(answer):
            answer.close()  # it has not begun
        raise
    result = await limited(session, answer)
    session.warnings, session.found_rows = result.warnings, len(result.rows)
    return result


async def limited(session: SessionContext, answer: Awaitable[ResultSet]) -> ResultSet:
    """Return the answer.  If the SELECT takes longer than its limit, the session stops it."""
    hinted = hinted_ms(session.running.text)
    limit = int(session.variables["max_execution_time"]) if hinted is None else hinted
    session.running.limit(limit, session.executor.lost_workers(), partial(_how_far, session))
    return await answer


async def _how_far(session: SessionContext, view: str) -> str:
    return how_far(view, await session.executor.builds())


async def select_after_own_writes(session: SessionContext, compiled: CachedStatement, values: Sequence[Any],
                           view: str, worker: int | None) -> ResultSet:
    """Run a SELECT after the view's worker has this session's own writes."""
    await wait_for_own_writes(session, view, worker)
    answer = session.executor.select(compiled, values, session.client.keeps, session.running.set_state)
    return answer if isinstance(answer, ResultSet) else await answer


async def wait_for_own_writes(session: SessionContext, view: str = "", worker: int | None = None) -> None:
    """Wait until the view on this worker has this session's writes.  Default: all views on all workers."""
    unseen = session.unseen
    if not unseen:
        return
    session.running.set_state("waiting for its own writes")
    await session.executor.catch_up(unseen, view, worker)
    if not view and session.unseen is unseen:
        session.unseen = {}


async def select(session: SessionContext, command: sql.Select) -> ResultSet:
    """Answer a SELECT in the session's time zone."""
    await session.locked.admit_read(command, session.transaction, session.variables)
    await wait_for_own_writes(session)
    if not session.offset:
        return await _bound(session, command)
    in_utc = await _bound(session, time_zone.in_utc(command, session.offset))
    return time_zone.shown(in_utc, session.offset)


async def select_counted(session: SessionContext, command: sql.CountedSelect) -> ResultSet:
    """Answer SELECT SQL_CALC_FOUND_ROWS, and note how many rows there are without its LIMIT."""
    found = await select(session, command.select)
    view, rows = command.select.view, len(found.rows)
    offset = 0 if view is None else view.offset
    full = view is None or rows == view.limit or (not rows and offset)
    least = offset + rows if rows else 0
    if full:
        count: Any = (await select(session, command.count)).rows[0][0]
        least = max(int(count), least)
    session.found_rows = least
    return found


def now(session: SessionContext, command: sql.Command) -> sql.Command:
    """Return the statement with values in place of what it reads of the clock and the session."""
    if not isinstance(command, sql.SessionDependent):
        return command

    def value(kind: Any, name: str, scope: str) -> Any:
        return inspection.value_of(sql.OutputColumn(Field(name, TEXT), kind, name, scope), session)

    utc = datetime.now(UTC).replace(tzinfo=None)
    return command.at(Moment(utc, time_zone.at_moment(session.offset, utc), value))


async def computed(session: SessionContext, command: sql.SelectItems, locks: Locks | None = None) -> sql.SelectItems:
    """Replace the expressions of a SELECT without FROM by their values.  locks: evaluates the functions about locks
    and SLEEP within them."""
    where, limit = command.where, command.limit
    if where is not None and limit != 0 and not (await _computed(session, where, locks)).value:
        limit = 0
    if limit == 0:
        return sql.SelectItems(tuple(sql.OutputColumn(i.field) for i in command.items), 0)
    items = [await _computed(session, i, locks) if i.kind == "computed" else i for i in command.items]
    return sql.SelectItems(tuple(items), limit)


async def _computed(session: SessionContext, item: sql.OutputColumn, locks: Locks | None) -> sql.OutputColumn:
    """The item with its value.  Raises SqlError 1242 if a query has several rows where one value is needed."""
    assert item.compute is not None
    inputs = sql.SelectItems(item.arguments)
    values: list[Any] = list(inspection.select_items(await locks(inputs) if locks else inputs, session).rows[0])
    for query in item.queries:
        rows = (await _answered(session, query.select)).rows
        if query.how == "value" and len(rows) > 1:
            raise SqlError(*SUBQUERY_NO_1_ROW, "Subquery returns more than 1 row")
        values.append(bool(rows) if query.how == "exists" else [row[0] for row in rows] if query.how == "values" else
                      rows[0][0] if rows else None)
    found = item.compute(values)
    return sql.OutputColumn(replace(item.field, type=found.type), value=found.value)


async def _answered(session: SessionContext, command: sql.Select | sql.SelectItems) -> ResultSet:
    if isinstance(command, sql.Select):
        return await select(session, command)
    return inspection.select_items(await computed(session, command), session)


async def select_locking(session: SessionContext, command: sql.LockingSelect) -> ResultSet:
    """Answer SELECT … FOR UPDATE or FOR SHARE in the session's time zone."""
    await session.locked.admit_locking(command, session.transaction, session.variables)
    await wait_for_own_writes(session)
    if session.offset:
        grouped = command.grouped and time_zone.in_utc(command.grouped, session.offset)
        command = replace(command, select=time_zone.in_utc(command.select, session.offset), grouped=grouped)
    session.running.set_state("waiting for the worker")
    try:
        found = await session.transaction.select_locking(command)
    finally:
        session.set_status()
    return time_zone.shown(found, session.offset) if session.offset else found


async def _bound(session: SessionContext, command: sql.Select, compiled: CachedStatement | None = None,
                 values: Sequence[Any] = ()) -> ResultSet:
    """Answer a SELECT.  compiled, values: of a text that is known; then its view need not be looked for."""
    for _ in range(VIEW_BINDS):
        try:
            if compiled is not None and (first := await session.transaction.select_first(compiled, values)) is not None:
                return first
            found = await session.transaction.select(command)
        finally:
            session.set_status()
        if found is not None:
            if compiled is not None:
                session.transactions.fill_beside(compiled, values)
            return found
        if compiled is None:
            found = await session.executor.select_bound(command, session.running.set_state)
        else:
            answer = session.executor.select(compiled, values, False, session.running.set_state)
            found = answer if isinstance(answer, ResultSet) else await answer
        if not session.transaction.is_outdated(command):  # nobody wrote the tables while it was answered
            return found
    raise definition_changed()


__all__ = ["computed", "in_time", "limited", "now", "select", "select_after_own_writes", "select_counted",
           "select_locking",
           "wait_for_own_writes", "within"]
