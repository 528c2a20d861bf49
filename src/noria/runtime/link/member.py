"""What a link of one worker is to the link of several beside: states, places in the queue of changes, and what is done
before the worker serves."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from noria.core.statements import Move
from noria.dataflow.messages.packets import Migrate, Migrated, Own, Packet, Write
from noria.runtime.link.changes import Change, Flight, Hold, ReplyBook, WorkerGone
from noria.runtime.link.pauses import Pauses

Losses = Mapping[int, tuple[int, str]]  # of each worker: how often it was lost, and why the last time


class Unwritten(Protocol):
    """How a table is written that nobody else writes."""

    def submit(self, body: Change) -> asyncio.Future[Any]:
        """As `Link.submit`."""

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        """The future of a `Wrote`: what each worker's part does, all or none."""


class LinkState(enum.Enum):
    DOWN = "down"
    RECOVERING = "recovering"  # a worker is there, the program is being brought back
    UP = "up"
    CLOSED = "closed"


class _Past:
    """Past what waits."""

    def __init__(self, submit: Callable[[Change], asyncio.Future[Any]]):
        self.submit = submit

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        return self.submit(Write(tuple(parts.values())))


class Member:
    """What a link of one worker is to `ShardedLink` beside: what it does before its worker serves."""

    workers = 1
    state: LinkState
    _book: ReplyBook
    _pauses: Pauses
    _loop: asyncio.AbstractEventLoop

    def _send(self, body: Packet, seq: int) -> None:
        raise NotImplementedError

    def losses(self) -> Losses:
        return {}

    def has(self, worker: int, view: str, writes: Own) -> bool:
        return True

    async def catch_up(self, writes: Own, view: str = "", worker: int | None = None) -> None:
        """There is no other worker to wait for."""

    async def replay(self, changed: Callable[[Change], Change]) -> None:
        """Only within `on_hello`: the changes that the last worker left unanswered, before anything else."""
        for flight in tuple(self._book.changes.flying):
            flight.body = changed(flight.body)
            await self._at_once(flight)

    async def first(self, body: Change) -> Any:
        """Only within `on_hello`: a change that goes before all that waits."""
        if self.state is not LinkState.RECOVERING:
            raise WorkerGone("a change came out of its turn: the worker is not being brought back")
        answer: asyncio.Future[Any] = self._loop.create_future()
        await self._at_once(self._book.changes.begun(body, answer))
        return answer.result()

    async def take_in(self, version: int, changed: Callable[[Change], Change]) -> None:
        """Only within `on_hello`: changes of the program that wait, up to this version, which the worker is to have."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate) and 0 < body.version <= version:
                self._book.changes.waiting.remove((body, future))
                reply = await self._at_once(self._book.changes.begun(changed(body), future))
                if reply.error is not None:
                    raise reply.error

    def has_it_otherwise(self) -> None:
        """Only within `on_hello`: what waits of a change of the program comes to the worker with the whole program."""
        for body, future in tuple(self._book.changes.waiting):
            if isinstance(body, Migrate):
                self._book.changes.waiting.remove((body, future))
                if not future.done():
                    future.set_result(Migrated(0))

    async def _at_once(self, flight: Flight) -> Any:
        """What is answered, whether or not anybody else still wants it."""
        done: asyncio.Future[Any] = self._loop.create_future()
        flight.parts.append((0, done))
        flight.sent, flight.early, flight.tries = True, True, flight.tries + 1
        self._send(flight.body, flight.seq)
        return await done

    def gate(self, group: str) -> None:
        """The group's `Write` keeps its place when it is submitted, and waits."""
        self._book.changes.gated.add(group)

    def release(self, group: str) -> None:
        self._book.changes.release(group)
        self._pump()

    def pass_by(self, group: str) -> None:
        """What is decided of the group is long in coming: writes of other tables do not wait for it."""
        self._book.changes.pass_by(group)
        self._pump()

    def hold(self, group: str) -> asyncio.Future[Any]:
        """Take a place in the queue, for what `put` brings; done when all before it was answered."""
        return self._add(Hold(group))

    def put(self, group: str, body: Change) -> asyncio.Future[Any]:
        """What comes to the group's place."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._book.changes.put(group, body, future)
        self._pump()
        return future

    def withdraw(self, change: asyncio.Future[Any], sent: bool) -> None:
        self._book.changes.withdraw(change, sent)

    def let_go(self, group: str) -> None:
        """The group has no place here any more."""
        self._book.changes.put(group, None, self._loop.create_future())
        self._pump()

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[Unwritten]:
        """As `Link.unwritten`."""
        with self._pauses.of(table):
            place = f"unwritten {table}"
            try:
                await self.hold(place)  # all before it was answered
            finally:
                self.let_go(place)
            yield _Past(self._add)

    def _after_pauses(self, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._pauses.submit(body, future)
        return future

    def _add(self, body: Change | Hold) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._begin(body, future)
        return future

    def _begin(self, body: Change | Hold, future: asyncio.Future[Any]) -> None:
        raise NotImplementedError

    def _pump(self) -> None:
        raise NotImplementedError

    @property
    def held(self) -> str:
        """The group of which something is prepared here, and not decided."""
        return self._book.changes.held
