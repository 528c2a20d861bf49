"""`WorkerLink`: the front end's connection to one worker, over a listening socket on the event loop.

`change` sends what changes base tables or the program: it is applied exactly once, in order, however many workers
die meanwhile. `ask` sends everything else and fails with `WorkerUnavailable` when the worker dies. After a Hello,
`on_hello` restores the program (through `recover`). Then unanswered changes are sent again with their old
numbers, and the link is up.

Keeps true: the link accepts messages of the newest incarnation only. A lost worker's process is killed, and its
messages are dropped. A death is detected at once, by the end of the stream; a freeze by missing pulses without
computation. When the caller of a question is cancelled, the worker cancels the question.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import DEAF_S, HEARTBEAT_MS, LEASE_MS
from noria.dataflow.messages.envelopes import error_reply
from noria.dataflow.messages.packets import (
    Envelope,
    Hello,
    Ingest,
    Migrate,
    NextRows,
    Packet,
    Read,
    ReadManyReply,
    Rows,
    Write,
)
from noria.runtime.link.change_queue import Change, PendingReplies, ReservedPlace, WorkerUnavailable
from noria.runtime.link.collecting import collected
from noria.runtime.link.interface import Link, LinkStats, OnHello
from noria.runtime.link.one_worker_link import LinkState, Losses, OneWorkerLink, OnlyWorker, WorkerQueue
from noria.runtime.link.read_batching import ReadBatcher
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.routing.key_routing import KeyRoutes
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import Computing, FrontEndHeartbeat, RequestUnderWay
from noria.runtime.transport.shard_owner import Process, RemoteOwner
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal, WireError

__all__ = ["Link", "LinkState", "LinkStats", "OnHello", "PendingReplies", "WorkerLink", "WorkerUnavailable"]

FRONT_END = -1  # the sender of the front end's packets
Note = Callable[[str], None]


class _Connection(asyncio.Protocol):
    """One stream from a worker: its packets or its pulses, as its first message says."""

    def __init__(self, link: WorkerLink):
        self._link = link
        self._reader = FrameDecoder()
        self.role: FrameKind | None = None
        self.incarnation = 0
        self.process: Process | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.WriteTransport = transport
        if not wire.same_user(transport.get_extra_info("socket")):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            for item in self._reader.feed(data):
                self._link._receive(self, item)
        except WireError as e:
            self._link._drop(str(e))
            self.transport.abort()
        self._link.pump()

    def connection_lost(self, error: Exception | None) -> None:
        self._link._disconnected(self)


class WorkerLink(OneWorkerLink):
    """See `Link`. Use it only from the event loop that started it."""

    def __init__(self, endpoint: str, epoch: int, worker: int = 0, *, lease_ms: int = LEASE_MS,
                 on_hello: OnHello | None = None, on_lost: Note | None = None, note: Note | None = None,
                 doing: Path | None = None, frontier_of: Callable[[int], int] = lambda worker: 0,
                 clock: Callable[[], float] = time.monotonic, elsewhere: RemoteOwner | None = None):
        self.endpoint, self.epoch, self.worker = endpoint, epoch, worker
        self.on_hello, self.on_lost = on_hello, on_lost
        self.state, self.since, self.why = LinkState.DOWN, clock(), "no worker has appeared yet"
        self.stats, self.routes, self._last_loss = LinkStats(), KeyRoutes(1), ""
        self.hello: Hello | None = None
        self._note: Note = note or (lambda text: None)
        self._clock, self._lease_s = clock, lease_ms / 1000
        self._doing, self._heart, self.frontier_of = doing, FrontEndHeartbeat(epoch, FRONT_END), frontier_of
        self._elsewhere = elsewhere or RemoteOwner()
        self._computing = Computing(None)
        self.book = PendingReplies()
        super().__init__(WorkerQueue(self, self.book, f"write {epoch}"), OnlyWorker(self))
        self._together = ReadBatcher(self.book, lambda body: self.send(body, 0))
        self._recovering: asyncio.Task[None] | None = None
        self.peer: _Connection | None = None
        self._last_pulse = self._last_beat = clock()
        self._up = asyncio.Event()
        self._newest, self._pumping = 0, False  # whether `pump` is scheduled

    # ------------------------------------------------------------ life
    async def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        path = wire.socket_path(self.endpoint)
        self._server = await self._loop.create_unix_server(lambda: _Connection(self), path)
        os.chmod(path, 0o600)
        self._heart.start()
        self._beat()

    async def close(self) -> None:
        """Send a goodbye to the worker, which then closes its store; fail everything unanswered."""
        if self.state is LinkState.CLOSED:
            return
        if self.peer is not None:
            self.peer.transport.write(wire.signal(FrameKind.GOODBYE, self.epoch, FRONT_END))
        self._forget_peer()
        self._enter(LinkState.CLOSED, "the front end has closed the link")
        self.book.fail(WorkerUnavailable(self._down_text()))
        self._timer.cancel()
        self._heart.close()
        self._server.close()

    async def up(self) -> None:
        """Wait until a worker serves."""
        await self._up.wait()

    def losses(self) -> Losses:
        return {self.worker: (self.stats.losses, self._last_loss)}

    def is_idle(self) -> bool:
        """Whether every submitted change is answered."""
        return self.book.changes.is_idle

    # ------------------------------------------------------------ requests
    def submit(self, body: Change) -> asyncio.Future[Any]:
        """The future of a change's `Wrote`, `Migrated` or `Done` (Ingest). The change waits while no worker is
        up. Changes submitted in one turn of the loop are sent together."""
        if self.book.blame and (refusal := self.book.blame.refusal(body)) is not None:
            future: asyncio.Future[Any] = self._loop.create_future()
            future.set_exception(refusal)
            return future
        return self._queue.submit(body)

    def begin(self, body: Change | ReservedPlace, future: asyncio.Future[Any]) -> None:
        if self.state is LinkState.CLOSED:
            future.set_exception(WorkerUnavailable(self._down_text()))
            return
        if not isinstance(body, ReservedPlace):
            self.written.note(body)
        self.book.changes.add(body, future)
        self.stats.changes += 1
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self.pump)

    async def change(self, body: Change) -> Any:
        return await self.submit(body)

    async def ask(self, body: Packet, retry: bool = False, lease: MemoryLease | None = None) -> Any:
        """Return `Rows` or `Done`. `retry`: send the question to the next worker, instead of failing, if this one
        dies or none is up."""
        if self.state is not LinkState.UP and not (retry and self.state is not LinkState.CLOSED):
            raise WorkerUnavailable(self._down_text())
        if self.book.blame and (refusal := self.book.blame.refusal(body)) is not None:
            raise refusal
        self.stats.questions += 1
        while True:
            reply = await self._ask(body, retry)
            if not (isinstance(reply, Rows) and reply.left):
                return reply
            try:
                return await collected(reply, self._next_rows, lambda more: self.send(more, 0), lease)
            except WorkerUnavailable:
                if not retry or self._is_closed():
                    raise

    def _is_closed(self) -> bool:
        return self.state is LinkState.CLOSED

    async def _next_rows(self, more: NextRows) -> Rows:
        """Request the next chunk of a result from the worker that holds it."""
        if self.state is not LinkState.UP:
            raise WorkerUnavailable(self._down_text())
        reply: Rows = await self._ask(more, retry=False)
        return reply

    async def recover(self, body: Packet) -> Any:
        """Within `on_hello` only: send a packet past the queue to the new worker. A Migrate must have
        durable=False: the catalog has what it restores."""
        if self.state is not LinkState.RECOVERING:
            raise WorkerUnavailable(self._down_text())
        if not isinstance(body, Migrate):
            return await self._ask(body, retry=False)
        reply = self.book.restoring(body, self._loop)
        self.send(body, seq=0)
        return await reply

    async def request(self, body: Packet) -> Any:
        """`change` or `ask`, depending on the packet."""
        return await (self.change(body) if isinstance(body, Write | Migrate | Ingest) else self.ask(body))

    async def _ask(self, body: Packet, retry: bool) -> Any:
        number, question = self.book.register(body, retry, self._loop)
        if self.state is LinkState.UP and isinstance(question.body, Read) and question.body.together:
            self._together.add(question.body)
        elif self.state is LinkState.UP or (self.state is LinkState.RECOVERING and not retry):
            self.send(question.body, seq=0)
        try:
            return await question.future
        except asyncio.CancelledError:
            self._cancel(number)
            raise
        finally:
            self.book.questions.pop(number, None)

    def _cancel(self, number: int) -> None:
        """Cancel a request at the worker; if the worker does not react, it is killed."""
        if self.peer is None:
            return
        incarnation = self.peer.incarnation
        self._heart.cancel(incarnation, number)
        self._loop.call_later(DEAF_S, self._look_whether_deaf, incarnation, number)

    def _look_whether_deaf(self, incarnation: int, number: int, before: tuple[int, int] | None = None) -> None:
        """Kill a deaf worker: one that executes a cancelled request for DEAF_S without beginning anything else. A
        slice, or a late turn of the request, counts as a beginning."""
        if self.peer is None or self.peer.incarnation != incarnation or self._doing is None:
            return
        seen = RequestUnderWay.seen(self._doing)
        if seen is None or seen[0] != number:
            return
        if seen != before:
            self._loop.call_later(DEAF_S, self._look_whether_deaf, incarnation, number, seen)
            return
        self._kill_peer()
        self._lost(f"it went on for {DEAF_S} s with a request that was cancelled, and was killed")

    def cancel(self, change: asyncio.Future[Any]) -> None:
        """Cancel a change unless it is committed. Its future reports the outcome."""
        number = self._queue.give_up(change)
        if number is not None:
            self._heart.cancel(self.peer.incarnation if self.peer else 0, number)

    def _at(self) -> int | None:
        """The number of the request that the worker executes, or executed when it ended; None: unknown."""
        return None if self._doing is None else RequestUnderWay.last(self._doing)

    # ------------------------------------------------------------ sending
    def future(self) -> asyncio.Future[Any]:
        return self._loop.create_future()

    def pump(self) -> None:
        """Send all changes that may be sent now."""
        self._pumping = False
        while self.state is LinkState.UP and (flight := self.book.changes.next()) is not None:
            flight.tries += 1
            try:
                self.send(flight.body, flight.seq)
            except (TypeError, ValueError) as e:  # a defect of ours: later changes must not wait for its answer
                self._note(f"the change {type(flight.body).__name__} cannot be encoded: {e}")
                error = SqlError(*UNKNOWN_ERROR, f"the statement cannot be sent to a worker: {e}")
                self.book.deliver(error_reply(Envelope(self.epoch, FRONT_END, flight.seq, flight.body), error))
        self.stats.groups = self.book.changes.groups

    def send(self, body: Packet, seq: int) -> None:
        if self.peer is not None:
            self.peer.transport.write(wire.encode(Envelope(self.epoch, FRONT_END, seq, body)))

    def _beat(self) -> None:
        """Detect a frozen worker, and kill it."""
        now = self._clock()
        stalled = now - self._last_beat > self._lease_s / 2  # this loop: pulses are unread, so decide next time
        self._last_beat = now
        self._timer = self._loop.call_later(HEARTBEAT_MS / 1000, self._beat)
        if self.peer is None or now - self._last_pulse <= self._lease_s or stalled or self._computing.goes_on():
            return
        self._kill_peer()
        self._lost(f"it has been frozen for {self._lease_s:.1f} s and was killed")

    # ------------------------------------------------------------ receiving
    def _receive(self, connection: _Connection, item: wire.Item) -> None:
        if isinstance(item, WireError):
            self._drop(str(item))
            if connection is self.peer and not self.book.unreadable(item.number, str(item)):
                self.restart(f"what it said cannot be read: {item}")
        elif item.epoch != self.epoch or item.sender != self.worker:
            self._drop(f"a message of worker {item.sender}, epoch {item.epoch}")
        elif connection.role is None:
            self._receive_join(connection, item)
        elif connection.role is FrameKind.JOIN_PULSE:
            if self.peer is not None and connection.incarnation == self.peer.incarnation:
                self._last_pulse = self._clock()
                self._computing.sign()
        elif isinstance(item, Envelope) and isinstance(item.body, Hello):
            self._appeared(connection, item.body)
        elif connection is not self.peer:
            if isinstance(item, Signal):
                return  # a worker that could not open its shard; Spark reports why
            self._drop(f"a message of the replaced incarnation {connection.incarnation}")
        elif isinstance(item, Envelope) and isinstance(item.body, ReadManyReply):
            self.stats.dropped += not self._together.deliver(item.body)
        elif isinstance(item, Envelope):
            self.stats.dropped += not self.book.deliver(item.body)
        elif item.kind is FrameKind.GOODBYE:
            self._lost("it has ended")

    def _receive_join(self, connection: _Connection, item: Envelope | Signal) -> None:
        if not isinstance(item, Signal) or item.kind not in (FrameKind.JOIN, FrameKind.JOIN_PULSE):
            raise WireError("a connection that does not say whose it is")
        if item.number < self._newest:
            raise WireError(f"incarnation {item.number} joins, but {self._newest} is the least that may")
        connection.role, connection.incarnation = item.kind, item.number
        if item.kind is FrameKind.JOIN_PULSE:
            self._heart.add(item.number, connection.transport.get_extra_info("socket").fileno())

    def _drop(self, what: str) -> None:
        self.stats.dropped += 1
        self._note(f"dropped {what}")

    def _disconnected(self, connection: _Connection) -> None:
        if connection.role is FrameKind.JOIN_PULSE:
            self._heart.remove(connection.incarnation)
        if connection is self.peer:
            self._lost(f"its process {self.hello.pid if self.hello else ''} has ended")

    # ------------------------------------------------------------ workers come and go
    def _appeared(self, connection: _Connection, hello: Hello) -> None:
        if connection.incarnation < self._newest or connection is self.peer:
            raise WireError(f"a Hello of incarnation {connection.incarnation}, which is over")
        if self.peer is not None:
            self._lost("a newer worker has replaced it")
        self._newest, self.hello, self.peer = connection.incarnation, hello, connection
        connection.process = wire.is_here(connection.transport.get_extra_info("socket"), hello.pid)
        if connection.process is None:
            self._elsewhere.appeared(self.worker)
        self._computing = Computing(connection.process)
        self._last_pulse = self._clock()
        self.stats.workers += 1
        self._enter(LinkState.RECOVERING, "the program is being brought back")
        connection.transport.write(wire.signal(FrameKind.HEARTBEAT, self.epoch, FRONT_END))
        self._recovering = self._loop.create_task(self._restore_program(hello))

    async def _restore_program(self, hello: Hello) -> None:
        try:
            if self.on_hello is not None:
                await self.on_hello(hello)
        except WorkerUnavailable:
            return  # the worker died; the next Hello restarts recovery
        except Exception as e:
            self._kill_peer()
            self._lost(f"bringing back the program failed: {e!r}")
            self._note(self.why)
            return
        self._enter(LinkState.UP, f"worker process {hello.pid}")
        for question in self.book.patient():
            self.send(question.body, seq=0)
        self.pump()

    def restart(self, why: str) -> None:
        """Kill the worker; another one is started."""
        self._kill_peer()
        self._lost(why)

    def _kill_peer(self) -> None:
        """Kill the worker's process if it still is the one that sent the Hello. This ends a stopped process too."""
        if self.peer is not None and self.peer.process is None:
            self._elsewhere.end(self.worker)
        elif self.peer is not None and self.peer.process is not None:
            handle = self.peer.process.send_kill()
            if handle is not None:
                os.close(handle)

    def _forget_peer(self) -> None:
        peer, self.peer = self.peer, None
        if peer is not None:
            peer.transport.close()
        if self._recovering is not None and self._recovering is not asyncio.current_task():
            self._recovering.cancel()
        self._recovering = None

    def _lost(self, why: str) -> None:
        if self.peer is None:
            return
        if self.state is LinkState.UP or self.book.changes.sent:
            self.book.worker_died(why, self._at())
        self._newest = self.peer.incarnation + 1
        self._together.clear()
        self._forget_peer()
        self.stats.losses, self._last_loss = self.stats.losses + 1, why
        self._enter(LinkState.DOWN, why)
        self.book.fail_unretried(WorkerUnavailable(self._down_text()))
        if self.on_lost is not None:
            self.on_lost(why)

    def _enter(self, state: LinkState, why: str) -> None:
        self.state, self.why, self.since = state, why, self._clock()
        if state is LinkState.UP:
            self._up.set()
        else:
            self._up.clear()
        self._note(f"worker {self.worker} {state.value}: {why}")

    def _down_text(self) -> str:
        return (f"worker {self.worker} is {self.state.value} since {self._clock() - self.since:.1f} s ({self.why}); "
                f"it is started again by itself: try again")
