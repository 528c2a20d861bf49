"""The parts of a link of one worker that do not depend on where the worker runs.

`WorkerQueue` has the operations that `ClusterLink` needs beside `Link`: places in the queue, and changes before the
worker serves. `OnlyWorker` has the operations of `Link` for several workers.  `OneWorkerLink` combines both.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

from noria.core.statements import Move, Staged, Statement
from noria.dataflow.messages.packets import Migrate, Migrated, Packet, SessionWrites, Write
from noria.runtime.link.change_queue import (
    Change,
    InFlightPacket,
    PendingReplies,
    ReservedPlace,
    WorkerUnavailable,
)
from noria.runtime.link.commit_order import Scope
from noria.runtime.link.locked_writes import LockedWrites
from noria.runtime.link.pauses import Pauses
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.write_routing import RoutedWrite

Losses = Mapping[int, tuple[int, str]]  # of each worker: how often it was lost, and why the last time


class LinkState(enum.Enum):
    DOWN = "down"
    RECOVERING = "recovering"  # a worker has sent its Hello; the program is being restored
    UP = "up"
    CLOSED = "closed"


class ExclusiveWriter(Protocol):
    """Writes a table that nobody else may write meanwhile."""

    def submit(self, body: Change) -> asyncio.Future[Any]:
        """See `Link.submit`."""

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        """Apply each worker's part, all or none. Returns the future of a `Wrote`."""


class StagingWorker(Protocol):
    """The link of one worker, as transactions use it."""

    @property
    def state(self) -> LinkState: ...

    async def up(self) -> None: ...

    def losses(self) -> Losses: ...

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class _QueueBypass:
    """Submits changes past the paused queue."""

    def __init__(self, submit: Callable[[Change], asyncio.Future[Any]]):
        self.submit = submit

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        return self.submit(Write(tuple(parts.values())))


class QueueOwner(Protocol):
    """The link that a `WorkerQueue` belongs to."""

    state: LinkState

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...

    def submit(self, body: Change) -> asyncio.Future[Any]: ...

    def future(self) -> asyncio.Future[Any]: ...

    def send(self, body: Packet, seq: int) -> None:
        """Send a packet at once."""

    def begin(self, body: Change | ReservedPlace, future: asyncio.Future[Any]) -> None:
        """Add a change to the queue, or fail its future."""

    def pump(self) -> None:
        """Send all changes that may be sent now."""


class SingleLink(Protocol):
    """The link that an `OnlyWorker` answers for."""

    def submit(self, body: Change) -> asyncio.Future[Any]: ...


class WorkerQueue:
    """The queue of changes of one worker, with places and with changes before the worker serves.

    `name`: makes the names of the transactions unique in which writes wait for locks.
    """

    def __init__(self, owner: QueueOwner, book: PendingReplies, name: str):
        self._owner, self._book, self.recent = owner, book, book.recent
        self._pauses = Pauses(owner.begin)
        self._locked = LockedWrites(owner.ask, owner.submit, name)
        book.changes.on_blocked = self._locked.begin

    def submit(self, body: Change) -> asyncio.Future[Any]:
        """Add a change, behind the pauses of its tables."""
        if not self._pauses:
            return self._add(body)
        future = self._owner.future()
        self._pauses.submit(body, future)
        return future

    def give_up(self, change: asyncio.Future[Any]) -> int | None:
        """Cancel a change that has not begun. Return the number of its packet if it was sent alone."""
        if self._locked.give_up(change) or (self._pauses and self._pauses.cancel(change)):
            return None
        return self._book.changes.give_up(change)

    def unanswered(self) -> set[str]:
        return set(self._book.changes.unanswered())

    def waits_as(self, change: asyncio.Future[Any]) -> str | None:
        """See `Workers`."""
        return self._locked.waits_as(change)

    def on_answer(self, callback: Callable[[], None]) -> None:
        """Register a callback for answered changes."""
        self._book.changes.on_answer = callback

    @property
    def prepared_group(self) -> str:
        """The group that is prepared here and undecided."""
        return self._book.changes.prepared_group

    async def replay(self, changed: Callable[[Change], Change]) -> None:
        """Within `on_hello` only: send again, before anything else, the changes that the last worker left
        unanswered."""
        for flight in tuple(self._book.changes.in_flight):
            flight.body = changed(flight.body)
            await self._at_once(flight)

    async def first(self, body: Change) -> Any:
        """Within `on_hello` only: send a change before all waiting ones."""
        if self._owner.state is not LinkState.RECOVERING:
            raise WorkerUnavailable("a change came out of its turn: the worker is not being brought back")
        answer: asyncio.Future[Any] = self._owner.future()
        await self._at_once(self._book.changes.begun(body, answer))
        return answer.result()

    async def send_program_changes(self, version: int, changed: Callable[[Change], Change]) -> None:
        """Within `on_hello` only: send the waiting changes of the program up to this version."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate) and 0 < body.version <= version:
                self._book.changes.waiting.remove((body, future))
                reply = await self._at_once(self._book.changes.begun(changed(body), future))
                if reply.error is not None:
                    raise reply.error

    def answer_migrations(self) -> None:
        """Within `on_hello` only: answer waiting changes of the program, which the worker receives with the
        complete program."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate):
                self._book.changes.waiting.remove((body, future))
                if not future.done():
                    future.set_result(Migrated(0))

    async def _at_once(self, flight: InFlightPacket) -> Any:
        """Send a packet and wait for its answer, even if its callers were cancelled."""
        done: asyncio.Future[Any] = self._owner.future()
        flight.parts.append((0, done))
        flight.sent, flight.early, flight.tries = True, True, flight.tries + 1
        self._owner.send(flight.body, flight.seq)
        return await done

    def gate(self, group: str) -> None:
        """Let the group's `Write`, when it is submitted, keep its place and wait."""
        self._book.changes.gated.add(group)

    def release(self, group: str) -> None:
        self._book.changes.release(group)
        self._owner.pump()

    def pass_by(self, group: str) -> None:
        """Let writes of other tables pass the group, whose decision is delayed."""
        self._book.changes.pass_by(group)
        self._owner.pump()

    def reserve_place(self, group: str) -> asyncio.Future[Any]:
        """Reserve a place in the queue for `fill_place`. The future is done when everything before it is answered."""
        return self._add(ReservedPlace(group))

    def fill_place(self, group: str, body: Change) -> asyncio.Future[Any]:
        """Put a change in the group's place."""
        future: asyncio.Future[Any] = self._owner.future()
        self._book.changes.fill_place(group, body, future)
        self._owner.pump()
        return future

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None:
        self._book.changes.withdraw(change, sent)

    def release_place(self, group: str) -> None:
        """Remove the group's place."""
        self._book.changes.fill_place(group, None, self._owner.future())
        self._owner.pump()

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[ExclusiveWriter]:
        """See `Link.unwritten`."""
        with self._pauses.of(table):
            place = f"unwritten {table}"
            try:
                await self.reserve_place(place)  # all before it was answered
            finally:
                self.release_place(place)
            yield _QueueBypass(self._add)

    def _add(self, body: Change | ReservedPlace) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._owner.future()
        self._owner.begin(body, future)
        return future


class OnlyWorker:
    """`client_transactions.Workers` for a link whose worker is the only one."""

    def __init__(self, link: SingleLink):
        self._link = link

    def routed(self, statement: Statement) -> RoutedWrite:
        return RoutedWrite({0: statement})

    async def learn_numbers(self, table: str) -> None:
        """Nothing to learn: the worker itself assigns them."""

    def commit_staged(self, parts: Mapping[int, Staged], idempotency_key: str, scope: Scope) -> asyncio.Future[Any]:
        return self._link.submit(Write(tuple(parts.values()), idempotency_key=idempotency_key))

    async def after_earlier_commits(self, scope: Scope) -> None:
        """Nothing to wait for: one worker shows a commit at once."""

    async def at_one_moment(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        await ask(self._link)

    def has(self, worker: int, view: str, writes: SessionWrites) -> bool:
        return True

    async def catch_up(self, writes: SessionWrites, view: str = "", worker: int | None = None) -> None:
        """Nothing to do: there is no other worker."""


class OneWorkerLink:
    """A link of one worker offers the operations of its parts."""

    workers = 1

    def __init__(self, queue: WorkerQueue, only: OnlyWorker):
        self._queue, self.written, self.recent = queue, WrittenTables(), queue.recent
        self.unanswered, self.unwritten, self.on_answer = queue.unanswered, queue.unwritten, queue.on_answer
        self.replay, self.first, self.send_program_changes = queue.replay, queue.first, queue.send_program_changes
        self.answer_migrations, self.withdraw = queue.answer_migrations, queue.withdraw
        self.gate, self.release, self.pass_by = queue.gate, queue.release, queue.pass_by
        self.reserve_place, self.fill_place = queue.reserve_place, queue.fill_place
        self.release_place, self.waits_as = queue.release_place, queue.waits_as
        self.routed, self.learn_numbers, self.commit_staged = only.routed, only.learn_numbers, only.commit_staged
        self.at_one_moment, self.has, self.catch_up = only.at_one_moment, only.has, only.catch_up
        self.after_earlier_commits = only.after_earlier_commits

    @property
    def prepared_group(self) -> str:
        """The group that is prepared here and undecided."""
        return self._queue.prepared_group

    @property
    def staging_workers(self) -> Sequence[Self]:
        return (self,)
