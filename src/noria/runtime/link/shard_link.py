"""The operations that a link of one worker offers to `ShardedLink`: states, places in the queue, changes before
the worker serves."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from noria.core.statements import Move, Staged, Statement
from noria.dataflow.messages.packets import Migrate, Migrated, Own, Packet, Write
from noria.runtime.link.changes import Change, InFlightPacket, PendingReplies, ReservedPlace, WorkerGone
from noria.runtime.link.locked_writes import LockedWrites
from noria.runtime.link.pauses import Pauses
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.write_routing import RoutedWrite

Losses = Mapping[int, tuple[int, str]]  # of each worker: how often it was lost, and why the last time


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


class LinkState(enum.Enum):
    DOWN = "down"
    RECOVERING = "recovering"  # a worker is there, the program is being brought back
    UP = "up"
    CLOSED = "closed"


class _QueueBypass:
    """Submits changes past the paused queue."""

    def __init__(self, submit: Callable[[Change], asyncio.Future[Any]]):
        self.submit = submit

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        return self.submit(Write(tuple(parts.values())))


class ShardLink:
    """A link of one worker, with the operations that `ShardedLink` needs beside `Link`."""

    workers = 1
    state: LinkState
    _book: PendingReplies
    _pauses: Pauses
    _loop: asyncio.AbstractEventLoop
    written: WrittenTables
    _locked: LockedWrites

    async def up(self) -> None:
        """See `Link`."""
        raise NotImplementedError

    def _waits_for_locks(self, epoch: int) -> None:
        """Prepare to run writes again that met a lock."""
        self.written = WrittenTables()
        self._locked = LockedWrites(self.ask, self.submit, f"write {epoch}")
        self._book.changes.on_blocked = self._locked.begin

    async def ask(self, body: Packet, retry: bool = False, lease: MemoryLease | None = None) -> Any:
        """See `Link`."""
        raise NotImplementedError

    def submit(self, body: Change) -> asyncio.Future[Any]:
        """See `Link`."""
        raise NotImplementedError

    @property
    def staging_workers(self) -> Sequence[ShardLink]:
        """See `transactions.transaction_coordinator.Workers`, as the next five."""
        return (self,)

    def routed(self, statement: Statement) -> RoutedWrite:
        return RoutedWrite({0: statement})

    async def learn_numbers(self, table: str) -> None:
        """Nothing to learn: the worker itself assigns them."""

    def commit_staged(self, parts: Mapping[int, Staged], once: str = "") -> asyncio.Future[Any]:
        return self.submit(Write(tuple(parts.values()), once=once))

    async def at_one_moment(self, ask: Callable[[Any], Awaitable[Any]]) -> None:
        await ask(self)

    def unanswered(self) -> set[str]:
        return set(self._book.changes.unanswered())

    def _send(self, body: Packet, seq: int) -> None:
        raise NotImplementedError

    def losses(self) -> Losses:
        return {}

    def has(self, worker: int, view: str, writes: Own) -> bool:
        return True

    async def catch_up(self, writes: Own, view: str = "", worker: int | None = None) -> None:
        """Nothing to do: there is no other worker."""

    async def replay(self, changed: Callable[[Change], Change]) -> None:
        """Within `on_hello` only: send again, before anything else, the changes that the last worker left
        unanswered."""
        for flight in tuple(self._book.changes.flying):
            flight.body = changed(flight.body)
            await self._at_once(flight)

    async def first(self, body: Change) -> Any:
        """Within `on_hello` only: send a change before all waiting ones."""
        if self.state is not LinkState.RECOVERING:
            raise WorkerGone("a change came out of its turn: the worker is not being brought back")
        answer: asyncio.Future[Any] = self._loop.create_future()
        await self._at_once(self._book.changes.begun(body, answer))
        return answer.result()

    async def take_in(self, version: int, changed: Callable[[Change], Change]) -> None:
        """Within `on_hello` only: send the waiting changes of the program up to this version."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate) and 0 < body.version <= version:
                self._book.changes.waiting.remove((body, future))
                reply = await self._at_once(self._book.changes.begun(changed(body), future))
                if reply.error is not None:
                    raise reply.error

    def has_it_otherwise(self) -> None:
        """Within `on_hello` only: answer waiting changes of the program, which the worker receives with the whole
        program."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate):
                self._book.changes.waiting.remove((body, future))
                if not future.done():
                    future.set_result(Migrated(0))

    async def _at_once(self, flight: InFlightPacket) -> Any:
        """Send a packet and wait for its answer, even if its callers are gone."""
        done: asyncio.Future[Any] = self._loop.create_future()
        flight.parts.append((0, done))
        flight.sent, flight.early, flight.tries = True, True, flight.tries + 1
        self._send(flight.body, flight.seq)
        return await done

    def gate(self, group: str) -> None:
        """Let the group's `Write`, when it is submitted, keep its place and wait."""
        self._book.changes.gated.add(group)

    def release(self, group: str) -> None:
        self._book.changes.release(group)
        self._pump()

    def pass_by(self, group: str) -> None:
        """Let writes of other tables pass the group, whose decision is delayed."""
        self._book.changes.pass_by(group)
        self._pump()

    def hold(self, group: str) -> asyncio.Future[Any]:
        """Reserve a place in the queue for `put`. The future is done when everything before it is answered."""
        return self._add(ReservedPlace(group))

    def put(self, group: str, body: Change) -> asyncio.Future[Any]:
        """Put a change in the group's place."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._book.changes.put(group, body, future)
        self._pump()
        return future

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None:
        self._book.changes.withdraw(change, sent)

    def let_go(self, group: str) -> None:
        """Remove the group's place."""
        self._book.changes.put(group, None, self._loop.create_future())
        self._pump()

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[ExclusiveWriter]:
        """See `Link.unwritten`."""
        with self._pauses.of(table):
            place = f"unwritten {table}"
            try:
                await self.hold(place)  # all before it was answered
            finally:
                self.let_go(place)
            yield _QueueBypass(self._add)

    def _after_pauses(self, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pauses.submit(body, future)
        return future

    def _add(self, body: Change | ReservedPlace) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._begin(body, future)
        return future

    def _begin(self, body: Change | ReservedPlace, future: asyncio.Future[Any]) -> None:
        raise NotImplementedError

    def _pump(self) -> None:
        raise NotImplementedError

    @property
    def held(self) -> str:
        """The group that is prepared here and undecided."""
        return self._book.changes.held
