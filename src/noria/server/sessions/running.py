"""The running statement of each session, for SHOW PROCESSLIST, KILL and time limits.

Keeps true: a SELECT that runs longer than its session's `max_execution_time`, or its hint, ends with error 3024.  KILL,
a time limit and a client's disconnect stop the statement, also on the worker and on Spark.  An immediate answer is not
affected.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from noria.core.errors import SqlError, interrupted, statement_timeout
from noria.core.errors.codes import KILL_DENIED, NO_SUCH_THREAD
from noria.core.limits import LONGEST_EXECUTION_MS, SHOWN_STATEMENT_CHARACTERS
from noria.server.access.permits import Permits
from noria.server.answering.first_state_progress import awaited
from noria.server.outcomes import Stopped
from noria.sql.statements.people.words import hidden

T = TypeVar("T")
_HINT = re.compile(r"\A[\s(]*SELECT\s*/\*\+(.*?)\*/", re.IGNORECASE | re.DOTALL)
_TIME = re.compile(r"\bMAX_EXECUTION_TIME\s*\(\s*(\d+)\s*\)", re.IGNORECASE)
HOW_FAR_S = 0.5  # a statement over its limit may take so much longer, so that its error shows the view's progress
HTTP_NUMBERS = 2**30  # sessions of HTTP requests and embedded calls are numbered from here, connections below


def hinted_ms(text: str) -> int | None:
    """Return the limit of a SELECT's optimizer hint MAX_EXECUTION_TIME(ms), or None.

    >>> hinted_ms("SELECT /*+ MAX_EXECUTION_TIME(50) */ 1")
    50
    """
    hint = _HINT.match(text) if "/*+" in text else None
    found = _TIME.search(hint[1]) if hint is not None else None
    return int(found[1]) if found is not None else None


class RunningStatement:
    """The running statement of one session.  give_up: cancels a write unless it is committed; its future has the
    outcome.

    used: called when a statement has ended that may have used tables.
    """

    def __init__(self, give_up: Callable[[asyncio.Future[Any]], None], used: Callable[[], None] = lambda: None) -> None:
        self._give_up, self._used = give_up, used
        self.text, self.state, self.command = "", "", "Sleep"
        self.since = time.monotonic()
        self.writes_to: Any = None  # the statement, if it writes or locks rows
        self.reads: Callable[[], Collection[str]] | None = None  # the tables that a SELECT reads
        self.pending: asyncio.Future[Any] | None = None  # the write without a transaction for which it waits
        self._last = ""  # the previous statement
        self._sending: object | None = None
        self._reading = False  # a SELECT without a task
        self._task: asyncio.Task[Any] | None = None
        self._write: asyncio.Future[Any] | None = None
        self._why: SqlError | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set_state(self, state: str) -> None:
        """Set the statement's state in SHOW PROCESSLIST: what it waits for."""
        self.state = state

    def begin(self, text: str) -> None:
        self.text, self.command, self.state, self.since = text, "Query", "", time.monotonic()
        self.writes_to = self.reads = None

    def end(self, done: object = None) -> None:
        self._last = self.text or self._last
        self.text, self.command, self.state, self.since = "", "Sleep", "", time.monotonic()
        self._task = self._write = self.pending = self._why = None
        self.unlimited()
        self.use_nothing()

    def use_nothing(self) -> None:
        """Note that the statement uses no tables any more, as between two statements of a text."""
        if self.writes_to is not None or self.reads is not None:
            self.writes_to = self.reads = None
            self._used()

    @contextmanager
    def sending(self) -> Iterator[Stopped]:
        """See `outcomes.Session`."""
        mine = self._sending = object()
        self.begin(self._last)
        self.set_state("sending rows")
        try:
            yield lambda: self._why if self._sending is mine else None
        finally:
            if self._sending is mine:
                self._sending = None
                self.end()

    async def bounded(self, answer: Awaitable[T], text: str) -> T:
        """Return the answer.  If the statement is stopped first (`stop`), raise the reason."""
        self.begin(text)
        task = self._task = asyncio.current_task()
        assert task is not None
        try:
            return await answer
        except asyncio.CancelledError:
            if self._why is None:
                raise
            task.uncancel()
            raise self._why from None
        finally:
            self.end()

    def limit(self, limit_ms: int, down: Callable[[], str] = str,
              how_far: Callable[[str], Awaitable[str]] | None = None) -> None:
        """Within `bounded`: stop the statement after so many milliseconds, unless `unlimited` is called first.  0
        stands for LONGEST_EXECUTION_MS.  If the statement is planned again, its first limit counts.  For the error's
        text, `down` describes workers that are away, and `how_far` the progress of the view for which it waits."""
        if self._timer is None:
            limit = min(limit_ms or LONGEST_EXECUTION_MS, LONGEST_EXECUTION_MS)
            self._timer = asyncio.get_running_loop().call_later(limit / 1000, self._late, limit, down, how_far)

    def _late(self, limit_ms: int, down: Callable[[], str], how_far: Callable[[str], Awaitable[str]] | None) -> None:
        task, view = self._task, awaited(self.state)

        def stop(progress: str = "") -> None:
            if self._task is task:  # else the statement has ended
                self.stop(statement_timeout(limit_ms, ", ".join(t for t in (progress, down()) if t)))

        if how_far is None or not view:
            stop()
        else:
            report = asyncio.ensure_future(asyncio.wait_for(how_far(view), HOW_FAR_S))
            report.add_done_callback(lambda t: stop("" if t.cancelled() or t.exception() is not None else t.result()))

    def unlimited(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def write(self, future: asyncio.Future[Any], text: str) -> None:
        """Register a write that needs no task.  It ends with its future."""
        self.begin(text)
        self._write = self.pending = future
        future.add_done_callback(self.end)

    def read(self, text: str, reads: Callable[[], Collection[str]]) -> None:
        """Register a SELECT that needs no task yet.  reads: returns the tables that it reads."""
        self.begin(text)
        self._reading, self.reads, self.state = True, reads, "waiting for the worker"

    def read_ended(self) -> SqlError | None:
        """End a SELECT without a task.  Return why it was stopped; None if it was not."""
        why = self._why
        self._reading = False
        self.end()
        return why

    async def written(self, future: asyncio.Future[Any]) -> None:
        """Within `bounded`: wait until a write is done.  If it is stopped, try to cancel it; wait for the outcome."""
        self.pending = future
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._why is None or task is None:
                raise
            task.uncancel()
            self._give_up(future)
            await asyncio.wait((future,))

    def stop(self, why: SqlError) -> None:
        """End the running statement with this error.  A write that is committed continues."""
        if self._write is not None:
            self._give_up(self._write)
        elif self._task is not None and self._why is None:
            self._why = why
            self._task.cancel()
        elif self._sending is not None or self._reading:
            self._why = self._why or why

    def leave(self) -> None:
        """Stop the statement, because the client is gone.  A write that was sent continues."""
        if self._reading:
            self.read_ended()
        elif self._write is None:
            self.stop(interrupted())


class ProcessEntry(Protocol):
    """A session, as `Processes` shows it to others."""

    connection_id: int
    user: str
    address: str
    database: str
    running: RunningStatement
    permits: Permits


class Processes:
    """The sessions of a server.  hang_up: closes the connection with a number; returns False if none has it.  end_held:
    likewise for a session between two requests."""

    def __init__(self) -> None:
        self._sessions: dict[int, ProcessEntry] = {}
        self._numbers = itertools.count(HTTP_NUMBERS)
        self.hang_up: Callable[[int], bool] = lambda number: False
        self.end_held: Callable[[int], bool] = lambda number: False

    def number(self) -> int:
        """Return a new number for a session without a connection."""
        return next(self._numbers)

    def add(self, session: ProcessEntry) -> None:
        self._sessions[session.connection_id] = session

    def remove(self, session: ProcessEntry) -> None:
        if self._sessions.get(session.connection_id) is session:
            del self._sessions[session.connection_id]

    def kill(self, number: int, connection: bool, by: ProcessEntry) -> None:
        """Stop the session's statement; connection: close its connection, too.  Raises SqlError 1094 for an unknown
        number, 1095 for another user's session."""
        session = self._sessions.get(number)
        if session is None or not (by.permits.may_kill or by.permits.shares(session.permits)):
            unknown = session is None or not by.permits.sees_processes
            raise SqlError(*NO_SUCH_THREAD, f"Unknown thread id: {number}") if unknown else SqlError(
                *KILL_DENIED, f"You are not owner of thread {number}")
        session.running.stop(interrupted())
        if connection and not self.end_held(number):
            self.hang_up(number)

    def using(self, besides: RunningStatement) -> Iterator[tuple[int, RunningStatement]]:
        """Yield the running statements, with the numbers of their sessions, except one session's."""
        for number, session in self._sessions.items():
            if session.running is not besides and session.running.command == "Query":
                yield number, session.running

    def writes(self) -> Iterator[tuple[int, asyncio.Future[Any]]]:
        """Yield the writes without a transaction for which sessions wait, with the numbers of the sessions."""
        for number, session in self._sessions.items():
            if session.running.pending is not None:
                yield number, session.running.pending

    def runs(self, number: object) -> bool:
        """True if the session with this number runs a statement."""
        session = self._sessions.get(number) if isinstance(number, int) else None
        return session is not None and session.running.command == "Query"

    def rows(self, full: bool, to: ProcessEntry) -> list[tuple[Any, ...]]:
        """Return Id, User, Host, db, Command, Time (s), State, Info of each session that `to` may see.  full: do not
        cut statements."""
        now = time.monotonic()
        return [(number, s.user, s.address, s.database or None, s.running.command, int(now - s.running.since),
                 s.running.state, _shown(s.running.text, full)) for number, s in sorted(self._sessions.items())
                if to.permits.sees_processes or to.permits.shares(s.permits)]


def _shown(text: str, full: bool) -> str | None:
    """A statement as others see it: without passwords."""
    text = hidden(text)
    return (text if full else text[:SHOWN_STATEMENT_CHARACTERS]) or None
