"""SELECTs of one key that was missing.  Most keys are filled within milliseconds, so such a statement has no task.

    miss ──► the key's fill ──soon──► rows from shared memory
                            └─late, gone, an error─► a task, as for any statement that waits (`session_reads`)

Keeps true: the rows are those that the task would return.  A statement whose time is limited, by its hint or by
`max_execution_time`, has a task from the start.  KILL ends a statement without a task once its fill is due.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from noria.core.errors import SqlError
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.server.answering.hits import MissedKey
from noria.server.outcomes import Outcome, PendingRead, ResultSet
from noria.server.sessions.context import SessionContext
from noria.server.sessions.variables import VARIABLES

_NO_LIMIT = VARIABLES["max_execution_time"]


def begin(session: SessionContext, missed: MissedKey, view: ViewDef, text: str,
          later: Callable[[], Awaitable[Outcome]]) -> PendingRead[Outcome] | None:
    """Let the statement wait for its key's fill without a task.  None: it needs one.  later: begins the task's work."""
    if "/*+" in text or session.variables["max_execution_time"] != _NO_LIMIT or (filled := missed.fill()) is None:
        return None
    session.running.read(text, partial(tables_of, view.plan))
    if session.transaction.counts:
        session.transaction.note_read(tables_of(view.plan))
    return PendingRead(filled, partial(_ended, session, missed, later))


def _ended(session: SessionContext, missed: MissedKey, later: Callable[[], Awaitable[Outcome]],
           done: Future[Any]) -> Outcome | Awaitable[Outcome]:
    """Return the rows, or the answer of a task.  Raises the reason for which the statement was stopped."""
    stopped = session.running.read_ended()
    if stopped is not None:
        raise session.noted(stopped)
    try:
        found: ResultSet | None = missed.found()
    except SqlError:  # the task will report it
        found = None
    if found is None:
        return later()
    session.warnings = ()
    return found
