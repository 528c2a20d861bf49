"""Queues the changes of one link, and sends them again after a worker's death.

Concurrent single-statement writes are merged into one `Write` (group commit: one synced commit for all), and
their results are split again. No I/O here: `link.py` and `inprocess.py` send the packets.

Keeps true: sequence numbers grow by one and are sent in order. A change keeps its number until it is answered, so
a worker that has applied it answers with the first results. After a `Prepare` only its `Decide` is sent, and
while that waits for a lost worker, writes of other tables.

A change is blamed for a death that occurred while the worker executed it. If that is unknown, a change that was
alone in flight is blamed, and after the death changes are sent singly until one is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from noria.core.errors import SqlError, interrupted
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import (
    GROUP_ROWS,
    GROUP_STATEMENTS,
    PIPELINED_ROWS,
    POISON_DEATHS,
    SENDER_WAITS,
    WRITES_IN_FLIGHT,
)
from noria.core.statements import Insert, Staged, Statement, WriteResult, tables_written
from noria.dataflow.messages.packets import (
    Decide,
    Done,
    Ingest,
    Migrate,
    Migrated,
    Packet,
    Prepare,
    Rows,
    Write,
    Wrote,
)
from noria.dataflow.messages.transaction_packets import OpenSnapshot
from noria.runtime.link.locked_writes import met_lock
from noria.runtime.link.poison_requests import PoisonRequests, poisoned_error
from noria.runtime.link.recent_changes import RecentChanges
from noria.runtime.link.written import tables_of_change

_MOST_PASSED = 1_000  # changes searched for one that may pass them
FIRST_REQUEST = 2**40  # questions are numbered apart from changes: a Done of an Ingest carries its seq


@dataclass(frozen=True)
class ReservedPlace:
    """A place in the queue that nothing passes, for a change that is not known yet. It is never sent."""

    group: str


Change = Write | Prepare | Decide | Migrate | Ingest
Changed = Wrote | Migrated | Done
OnBlocked = Callable[[Write, asyncio.Future[Any]], None]


class WorkerUnavailable(ConnectionError):
    """No worker can answer the request: it has ended, or the link is closed. The message says since when and why."""


class WorkerLost(Exception):
    """A worker that a group needs was lost before the decision. Nothing of the group is done, and it may begin
    again. `deaths`: how many workers it may have ended."""

    def __init__(self, deaths: int = 0):
        super().__init__("a worker was lost on the way")
        self.deaths = deaths


@dataclass
class InFlightPacket:
    """One numbered packet and its callers, as (number of statements, future). A caller with 0 statements only
    waits for the answer. `waits`: of each caller, how long it may wait for locks, as in `Write`.

    `early`: the packet was sent before the worker had its graph, so its tick sent nothing to other workers. They
    receive its rows when they gather again, so which workers have them is unknown.
    """

    seq: int
    body: Change
    parts: list[tuple[int, asyncio.Future[Any]]]
    sent: bool = False
    tries: int = 0
    deaths: int = 0
    early: bool = False
    waits: list[float] = field(default_factory=list)

    def answer(self, reply: Changed, blocked: OnBlocked | None = None) -> None:
        """Answer the callers. `blocked`: runs the write of a caller who met a lock."""
        if self.early and isinstance(reply, Wrote):
            reply = replace(reply, recipients=None)
        if blocked is not None and isinstance(reply, Wrote) and isinstance(self.body, Write) and met_lock(reply):
            self._answer_each(reply, self.body, blocked)
            return
        if sum(count > 0 for count, _ in self.parts) < 2 or not isinstance(reply, Wrote):
            for _, future in self.parts:
                _set_result(future, reply)
            return
        start = 0
        for count, future in self.parts:
            _set_result(future, Wrote(reply.seq, reply.results[start:start + count], reply.recipients))
            start += count

    def _answer_each(self, reply: Wrote, body: Write, blocked: OnBlocked) -> None:
        start = 0
        for n, (count, future) in enumerate(self.parts):
            wait_s = self.waits[n] if n < len(self.waits) else SENDER_WAITS
            own = Wrote(reply.seq, reply.results[start:start + count], reply.recipients)
            if count and wait_s != SENDER_WAITS and met_lock(own) and not future.done():
                mine = body.statements[start:start + count]
                blocked(replace(body, statements=mine, forget=(), wait_s=wait_s), future)
            else:
                _set_result(future, own if count else reply)
            start += count

    def fail(self, error: Exception) -> None:
        for _, future in self.parts:
            _fail(future, error)


@dataclass
class ChangeQueue:
    """The queue of a link's changes: they commit in order of arrival. One packet is in flight, and one large
    write behind it.

    `prepared_group`: the group that is prepared or about to be; only its decision may be sent. `others_may_pass`: so
    may writes of other tables. `on_blocked`: runs a write that met a lock. `on_answer`: called when changes were
    answered.

    `gated`: groups whose `Write` keeps its place, and delays everything behind it, until it is
    released. The future of a `ReservedPlace` is done when everything before it is answered.
    """

    last_seq: int = 0
    waiting: deque[tuple[Change | ReservedPlace, asyncio.Future[Any]]] = field(default_factory=deque)
    in_flight: deque[InFlightPacket] = field(default_factory=deque)
    groups: int = 0
    statements: int = 0
    prepared_group: str = ""
    others_may_pass: bool = False
    gated: set[str] = field(default_factory=set)
    on_blocked: OnBlocked | None = None
    on_answer: Callable[[], None] | None = None
    _prepared_tables: frozenset[str] = frozenset()
    _prepared_checks_reads: bool = False
    _careful: bool = False

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight

    @property
    def sent(self) -> bool:
        """Whether a worker has an unanswered change."""
        return any(f.sent for f in self.in_flight)

    def unanswered(self) -> Iterator[str]:
        """The tables of the changes that are not answered."""
        for flight in self.in_flight:
            yield from tables_of_change(flight.body)
        for body, _ in self.waiting:
            if not isinstance(body, ReservedPlace):
                yield from tables_of_change(body)

    def fill_place(self, group: str, body: Change | None, future: asyncio.Future[Any]) -> None:
        """Put a change in the group's place; None: remove the place."""
        place = next((n for n, (b, _) in enumerate(self.waiting) if isinstance(b, ReservedPlace) and b.group == group),
                     None)
        if place is None:
            _fail(future, WorkerUnavailable("its place in the queue was removed: nothing waits for the worker"))
        elif body is None:
            del self.waiting[place]
        else:
            self.waiting[place] = body, future

    def add(self, body: Change | ReservedPlace, future: asyncio.Future[Any]) -> None:
        self.waiting.append((body, future))

    def next(self) -> InFlightPacket | None:
        """The packet to send now: first those that the last worker left unanswered, then waiting changes, merged.
        None if there is none or enough are in flight."""
        flight = next((f for f in self.in_flight if not f.sent), None)
        if self._careful and any(f.sent for f in self.in_flight):
            return None
        if flight is None:
            flight = self._begin_next()
        if flight is not None:
            flight.sent = True
        return flight

    def _begin_next(self) -> InFlightPacket | None:
        if not self.waiting or len(self.in_flight) >= (WRITES_IN_FLIGHT if _large(self.waiting[0][0]) else 1):
            return None
        if self.prepared_group and not self._decision_first():
            return self._begin_passing() if self.others_may_pass else None
        if getattr(self.waiting[0][0], "group", None) in self.gated:
            return None
        first, future = self.waiting[0]
        if isinstance(first, ReservedPlace):
            _set_result(future, None)
            return None
        self.waiting.popleft()
        self.prepared_group = ""
        if isinstance(first, Prepare):
            self.prepared_group, self.others_may_pass, self._prepared_tables = first.group, False, _tables(first)
            self._prepared_checks_reads = _checks_reads(first)
        flight = self.begun(first, future)
        if isinstance(first, Write) and _shares(first):
            self._merge(flight, first)
        return flight

    def _begin_passing(self) -> InFlightPacket | None:
        """The first write that shares no table with the prepared group or with changes waiting before it."""
        tables = set(self._prepared_tables)
        for n, (body, future) in enumerate(islice(self.waiting, _MOST_PASSED)):
            if not isinstance(body, Write | Prepare):
                return None
            passes = isinstance(body, Write) and _shares(body) and not _checks_reads(body)
            if passes and tables.isdisjoint(_tables(body)):
                del self.waiting[n]
                return self.begun(body, future)
            tables |= _tables(body)
        return None

    def begun(self, body: Change, future: asyncio.Future[Any]) -> InFlightPacket:
        """Assign the next sequence number to a change, and put it in flight."""
        self.last_seq += 1
        self.groups += 1
        flight = InFlightPacket(self.last_seq, body, [(1, future)])
        if isinstance(body, Write):
            flight.waits.append(body.wait_s)
        self.in_flight.append(flight)
        return flight

    def _decision_first(self) -> bool:
        """Move the decision of the prepared group, if it waits, to the front of the queue. Returns whether it does."""
        group = self.prepared_group
        decision = next((c for c in self.waiting if isinstance(c[0], Decide) and c[0].group == group), None)
        if decision is not None:
            self.waiting.remove(decision)
            self.waiting.appendleft(decision)
        return decision is not None

    def _merge(self, flight: InFlightPacket, first: Write) -> None:
        """Merge the writes behind the first one into its packet, within the bounds of a group."""
        statements = list(first.statements)
        flight.parts[0] = (len(statements), flight.parts[0][1])
        rows = sum(map(_rows, statements))
        while self.waiting and len(statements) < GROUP_STATEMENTS and rows < GROUP_ROWS:
            body, future = self.waiting[0]
            if not isinstance(body, Write) or not _shares(body):
                break
            more = sum(map(_rows, body.statements))
            if rows + more > GROUP_ROWS or len(statements) + len(body.statements) > GROUP_STATEMENTS:
                break
            self.waiting.popleft()
            statements.extend(body.statements)
            flight.parts.append((len(body.statements), future))
            flight.waits.append(body.wait_s)
            rows += more
        if len(flight.parts) > 1:
            flight.body = Write(tuple(statements))
        self.statements += len(statements)

    def answered(self, seq: int, reply: Changed) -> bool:
        """Pass a reply to its callers. False for a second answer, which nobody waits for."""
        flight = next((f for f in self.in_flight if f.seq == seq), None)
        if flight is None:
            return False
        self.in_flight.remove(flight)
        self._careful = self._careful and any(not f.sent for f in self.in_flight)
        body = flight.body
        if isinstance(body, Write | Prepare | Decide) and isinstance(reply, Done):  # one of the two was unreadable
            statements = 1 if isinstance(body, Decide) else len(body.statements)
            reply = Wrote(seq, (WriteResult(error=reply.error),) * statements)
        if isinstance(body, (Prepare, Decide)) and isinstance(reply, Wrote) and any(r.error for r in reply.results):
            self.prepared_group = body.group if isinstance(body, Decide) else ""  # its decision will be sent again
        flight.answer(reply, None if isinstance(body, Write) and body.group else self.on_blocked)
        self._answered()
        return True

    def worker_died(self, why: str, at: int | None, blame: PoisonRequests) -> None:
        """Send the changes in flight again, except one that has ended POISON_DEATHS workers. `at`: the number of
        the request that the worker executed; None: unknown."""
        sent = [f for f in self.in_flight if f.sent and (f.seq == at or at is None)]
        if len(sent) == 1:
            sent[0].deaths += 1
            if len(sent[0].parts) == 1:
                blame.note(sent[0].body)
            if sent[0].deaths >= POISON_DEATHS:
                self.in_flight.remove(sent[0])
                if self.prepared_group == getattr(sent[0].body, "group", None):
                    self.prepared_group = ""
                sent[0].fail(WorkerUnavailable(
                    f"the worker ended {POISON_DEATHS} times while it applied this change (last: {why}), so it is "
                    "given up: read back whether it took effect"))
        for flight in self.in_flight:
            flight.sent = False
        self._answered()
        self._careful = bool(self.in_flight) and at is None

    def release(self, group: str) -> None:
        """Let the group's `Write` be sent; its prepared part no longer delays other changes."""
        self.gated.discard(group)
        if self.prepared_group == group:
            self.prepared_group = ""

    def pass_by(self, group: str) -> None:
        """Let writes of other tables pass the prepared group, whose decision is delayed; but not one that has checked
        what it has read, which may be any table."""
        if self.prepared_group == group and not self._prepared_checks_reads:
            self.others_may_pass = True

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None:
        """Drop a waiting change or, if `sent`, one that may have been prepared; its future raises `WorkerLost`."""
        for waiting in [w for w in self.waiting if w[1] is change]:
            self.waiting.remove(waiting)
            _fail(change, WorkerLost())
        for flight in [f for f in self.in_flight if sent and [c for _, c in f.parts] == [change]]:
            self.in_flight.remove(flight)
            if self.prepared_group == getattr(flight.body, "group", None):
                self.prepared_group = ""
            _fail(change, WorkerLost(flight.deaths))
        self._answered()

    def give_up(self, change: asyncio.Future[Any]) -> int | None:
        """Drop a change that was not sent. Otherwise return its sequence number, or None if it shares a packet: a
        packet is not stopped for one of its changes."""
        for waiting in self.waiting:
            if waiting[1] is change:
                self.waiting.remove(waiting)
                _fail(change, interrupted())
                self._answered()
                return None
        return next((f.seq for f in self.in_flight if [c for _, c in f.parts] == [change]), None)

    def fail(self, error: Exception) -> None:
        for flight in self.in_flight:
            flight.fail(error)
        for _, future in self.waiting:
            _fail(future, error)
        self.in_flight.clear()
        self.waiting.clear()
        self._answered()

    def _answered(self) -> None:
        if self.on_answer is not None:
            self.on_answer()


@dataclass
class PendingQuestion:
    body: Packet
    future: asyncio.Future[Any]
    retry: bool


@dataclass
class PendingReplies:
    """Delivers replies to their callers: of changes, of questions, and of the one Migrate of a recovery."""

    changes: ChangeQueue = field(default_factory=ChangeQueue)
    blame: PoisonRequests = field(default_factory=PoisonRequests)
    questions: dict[int, PendingQuestion] = field(default_factory=dict)
    recent: RecentChanges = field(default_factory=RecentChanges)
    _last_request: int = FIRST_REQUEST
    _recovery: asyncio.Future[Any] | None = None

    def register(self, body: Any, retry: bool, loop: asyncio.AbstractEventLoop) -> tuple[int, PendingQuestion]:
        """Register a question under a new number."""
        number = self.number()
        self.questions[number] = PendingQuestion(replace(body, request=number), loop.create_future(), retry)
        return number, self.questions[number]

    def number(self) -> int:
        """A new request number."""
        self._last_request += 1
        return self._last_request

    def restoring(self, body: Migrate, loop: asyncio.AbstractEventLoop) -> asyncio.Future[Any]:
        """The future of a recovery's Migrate, which has sequence number 0."""
        if body.durable:
            raise ValueError("a recovery restores what the catalog has: its Migrate must say durable=False")
        self._recovery = loop.create_future()
        return self._recovery

    def deliver(self, body: Packet) -> bool:
        """Pass a reply to its caller. False if nobody waits for it."""
        if isinstance(body, Wrote):
            self.recent.note(body.prior)
            return self.changes.answered(body.seq, body)
        if isinstance(body, Rows | Done) and body.request > FIRST_REQUEST:
            question = self.questions.get(body.request)
            if question is None:
                return False
            self.blame.answered(question.body)
            if isinstance(question.body, OpenSnapshot) and isinstance(body, Done) and body.error is None:
                self.recent.opened(*body.value)
            _set_result(question.future, body)
            return True
        self.recent.clear()
        if isinstance(body, Migrated) and body.seq == 0:
            if self._recovery is not None:
                _set_result(self._recovery, body)
            return self._recovery is not None
        if isinstance(body, Done):
            return self.changes.answered(body.request, body)
        return isinstance(body, Migrated) and self.changes.answered(body.seq, body)

    def unreadable(self, number: int | None, why: str) -> bool:
        """Report an unreadable answer to the caller of its question. False if it answers no question: then it is
        unknown what the worker did."""
        question = None if number is None else self.questions.get(number)
        if question is not None:
            _fail(question.future, SqlError(*UNKNOWN_ERROR, f"the worker's answer cannot be read: {why}"))
        return question is not None

    def patient(self) -> list[PendingQuestion]:
        """Questions to send to the next worker."""
        return [q for q in self.questions.values() if q.retry and not q.future.done()]

    def worker_died(self, why: str, at: int | None) -> None:
        """Blame the request that the worker executed."""
        self.recent.clear()
        self.changes.worker_died(why, at, self.blame)
        question = None if at is None else self.questions.get(at)
        if question is not None and (deaths := self.blame.note(question.body)) >= POISON_DEATHS:
            _fail(question.future, poisoned_error(deaths))

    def fail_unretried(self, error: Exception) -> None:
        """Fail the questions that do not wait for the next worker."""
        for question in self.questions.values():
            if not question.retry:
                _fail(question.future, error)
        if self._recovery is not None:
            _fail(self._recovery, error)
            self._recovery = None

    def fail(self, error: Exception) -> None:
        """Fail everything: no reply will be received any more."""
        self.changes.fail(error)
        for question in self.questions.values():
            _fail(question.future, error)
        self.fail_unretried(error)


def _shares(body: Write) -> bool:
    """Whether the write may share a packet with others."""
    return not (body.group or body.idempotency_key or body.forget)


def _tables(body: Write | Prepare) -> frozenset[str]:
    return frozenset(t for s in body.statements for t in tables_written(s))


def _checks_reads(body: Write | Prepare) -> bool:
    return any(isinstance(s, Staged) and s.checks_reads for s in body.statements)


def _large(body: Change | ReservedPlace) -> bool:
    return isinstance(body, Write) and sum(map(_rows, body.statements)) >= PIPELINED_ROWS


def _rows(statement: Statement) -> int:
    return len(statement.rows) if isinstance(statement, Insert) else 1


def _set_result(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():  # a caller may have been cancelled
        future.set_result(reply)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # retrieved, so that asyncio logs nothing if the caller was cancelled
