"""A worker in this process behind the interface of a link, for tests and for `noria.open(path)`.

There is no transport, lease or second process. The event loop steps all packets that have arrived since the last
step together, so concurrent writes share commits as they do across processes.

Keeps true: the same changes in the same order produce the same packets as with `WorkerLink`. The shard is locked
and fenced like that of a separate worker process, so the two cannot open it at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from noria.core.limits import IDLE_MS
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.messages.packets import Envelope, Hello, Ingest, Migrate, Packet, Rows, Write
from noria.kernels.jit import processor_ns
from noria.runtime.link.change_queue import Change, ReservedPlace, WorkerUnavailable
from noria.runtime.link.collecting import collected
from noria.runtime.link.link import FRONT_END, LinkState, LinkStats, OnHello, PendingReplies
from noria.runtime.link.one_worker_link import Losses, OneWorkerLink, OnlyWorker, WorkerQueue
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.transport.shard_owner import ShardOwner
from noria.runtime.worker.worker_main import HostedWorker, WorkerConfig, open_worker

log = logging.getLogger(__name__)


class InProcessLink(OneWorkerLink):
    """See `runtime.link.Link`. `config.endpoint` is not used. `others`: with several workers, all links by
    number."""

    others: Sequence[InProcessLink] = ()

    def __init__(self, config: WorkerConfig, *, on_hello: OnHello | None = None):
        self.config, self.on_hello, self.worker = config, on_hello, config.worker
        self.state, self.since, self.why = LinkState.DOWN, time.monotonic(), "not started"
        self.stats, self.routes = LinkStats(), KeyRoutes(1)
        self.hello: Hello | None = None
        self.on_lost: Callable[[str], None] | None = None  # never called: it ends with this process
        self.book = PendingReplies()
        super().__init__(WorkerQueue(self, self.book, f"write {config.epoch}"), OnlyWorker(self))
        self._arrived: list[Envelope] = []
        self._stepping: asyncio.Handle | None = None
        self._recovered = asyncio.Event()  # or the link has ended

    # ------------------------------------------------------------ life
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lineage = ShardOwner(self.config.shard_dir, self.config.epoch)
        try:
            self.hosted: HostedWorker = open_worker(
                self.config, self._lineage.incarnation, WorkerEnvironment(time.perf_counter_ns, note=log.error,
                                                                           processor=processor_ns))
        except BaseException:
            self._lineage.release()
            raise
        self.hello = self.hosted.hello()
        self.stats.workers = 1
        self._enter(LinkState.RECOVERING, "the program is being brought back")
        if self.on_hello is not None:
            await self.on_hello(self.hello)
        self._enter(LinkState.UP, "in this process")
        self._soon()

    async def close(self) -> None:
        if self.state is LinkState.CLOSED:
            return
        if self._stepping is not None:
            self._stepping.cancel()
        was_up = self.state is LinkState.UP
        self._enter(LinkState.CLOSED, "closed")
        self.book.fail(WorkerUnavailable("the database was closed"))
        if self.hello is not None:
            try:
                if was_up:
                    self.hosted.keep()
                self.hosted.close()
            finally:
                self._lineage.release()

    async def up(self) -> None:
        if self.state is not LinkState.UP:
            raise WorkerUnavailable(f"the worker is {self.state.value}: {self.why}")

    # ------------------------------------------------------------ requests
    def is_idle(self) -> bool:
        return self.book.changes.is_idle

    def submit(self, body: Change) -> asyncio.Future[Any]:
        return self._queue.submit(body)

    def begin(self, body: Change | ReservedPlace, future: asyncio.Future[Any]) -> None:
        if self.state is not LinkState.UP:
            future.set_exception(WorkerUnavailable(f"the worker is {self.state.value}: {self.why}"))
            return
        self.stats.changes += 1
        if not isinstance(body, ReservedPlace):
            self.written.note(body)
        self.book.changes.add(body, future)
        self._soon()

    def cancel(self, change: asyncio.Future[Any]) -> None:
        """Drop a change that has not begun."""
        self._queue.give_up(change)

    async def change(self, body: Change) -> Any:
        return await self.submit(body)

    async def ask(self, body: Packet, retry: bool = False, lease: MemoryLease | None = None) -> Any:
        if retry and self.state is LinkState.RECOVERING:  # others of several workers are being brought back
            await self._recovered.wait()
        await self.up()
        self.stats.questions += 1
        reply = await self._ask(body)
        if isinstance(reply, Rows) and reply.left:
            return await collected(reply, self._ask, lambda more: self.send(more, 0), lease)
        return reply

    async def recover(self, body: Packet) -> Any:
        if self.state is not LinkState.RECOVERING:
            raise WorkerUnavailable(f"the worker is {self.state.value}: recovery is over")
        if not isinstance(body, Migrate):
            return await self._ask(body)
        reply = self.book.restoring(body, self._loop)
        self.send(body, 0)
        return await reply

    async def request(self, body: Packet) -> Any:
        if isinstance(body, Write | Migrate | Ingest):
            return await self.change(body)
        return await self.ask(body)

    async def _ask(self, body: Packet) -> Any:
        number, question = self.book.register(body, False, self._loop)
        self.send(question.body, 0)
        try:
            return await question.future
        finally:
            self.book.questions.pop(number, None)

    def losses(self) -> Losses:
        return {}

    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    # ------------------------------------------------------------ stepping
    def send(self, body: Packet, seq: int) -> None:
        self._arrived.append(Envelope(self.config.epoch, FRONT_END, seq, body))
        self._soon()

    def frontier_of(self, worker: int) -> int:
        """The number of the last message of the other worker whose effects are visible here (see
        `worker/frontier.py`)."""
        return self.hosted.frontier()[worker]

    def receive(self, message: Envelope) -> None:
        """Receive a message of another worker."""
        self._arrived.append(message)
        self._soon()

    def restart(self, why: str) -> None:
        """Break this worker: it can only restart with its process."""
        self._broken(WorkerUnavailable(why))

    def pump(self) -> None:
        self._soon()

    def _soon(self) -> None:
        if self._stepping is None and self.state in (LinkState.UP, LinkState.RECOVERING):
            self._stepping = self._loop.call_soon(self._step)

    def _step(self) -> None:
        """Handle everything that has arrived in one step; otherwise run a slice of deferrable work."""
        self._stepping = None
        while self.state is LinkState.UP and (flight := self.book.changes.next()) is not None:
            self._arrived.append(Envelope(self.config.epoch, FRONT_END, flight.seq, flight.body))
        packets, self._arrived = self._arrived, []
        try:
            if packets:
                replies, more = [*self.hosted.handle(packets), *self.hosted.do_turns()], True
            else:
                replies, more = self.hosted.idle(IDLE_MS)
        except Exception as bug:
            self._broken(bug)
            return
        for reply in replies:
            self.stats.dropped += not self.book.deliver(reply.body)
        for to, message in self.hosted.outgoing() if self.others else ():
            self.others[to].receive(message)
        self.stats.groups = self.book.changes.groups
        if more or self.book.changes.waiting or self._arrived:
            self._soon()

    def _broken(self, bug: Exception) -> None:
        """Stop the worker after a bug, as a separate process would end: its memory may disagree with the disk."""
        self._enter(LinkState.DOWN, f"the worker broke: {bug!r}; close the database and open it again")
        error = WorkerUnavailable(self.why)
        error.__cause__ = bug
        self.book.fail(error)

    def _enter(self, state: LinkState, why: str) -> None:
        self.state, self.why, self.since = state, why, time.monotonic()
        if state is not LinkState.RECOVERING:
            self._recovered.set()
