"""Runs a worker's process: it takes over the shard, opens it, and serves packets. It ends when the front end says
goodbye or is lost, or when a newer worker replaces it. Call `run_worker`.

    lock and fence → store, symbols, views, core → Hello → (poll → fence → handle → send)* → close → free the lock

Keeps true (design/decisions.md, 2): it rejects packets of another front-end epoch. It handles nothing after a newer
worker has raised the fence. If it receives nothing for a lease, it ends and frees the lock. The core has one thread.
A second thread sends signs of life (`transport/heartbeats.py`), so that a frozen process is distinguished from a busy
one.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import (
    DEFAULT_MEMORY_BYTES,
    HEARTBEAT_MS,
    IDLE_MS,
    KERNEL_S,
    LEASE_MS,
    UNSENT_BYTES,
    WORKER_BOOTSTRAP_ROWS,
    WORKER_INDEX_ROWS,
)
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.messages.packets import Done, Envelope, Hello
from noria.kernels.jit import processor_ns
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import Computing, RequestUnderWay, WorkerHeartbeat, doing_path
from noria.runtime.transport.mesh import Mesh, peer_endpoint
from noria.runtime.transport.shard_owner import Fence, ShardOwner
from noria.runtime.transport.wire import FrameDecoder, FrameKind, WireError
from noria.runtime.worker.frontier import Frontier, frontier_path
from noria.runtime.worker.resources import raise_open_files
from noria.views.files import VIEWS

Clock = Callable[[], float]
READ_ROWS = 4_096  # of Spark's files at a time: some milliseconds
READ_BYTES = 2**20  # at a time from the front end
GOODBYE = "goodbye"  # the reason of an end that the front end requested
IDLE_AFTER_MS = 1  # quiet time before deferrable work: more than between a client's statements
IDLE_DUE_S = 0.02  # deferrable work is done this often without quiet time


class FrontEndLost(Exception):
    """The connection to the front end has ended, so the worker ends. That front end, or the next one, starts
    another worker."""


@dataclass(frozen=True)
class WorkerConfig:
    """The settings of a worker process.

    `endpoint`: where the front end listens. `epoch`: the front end's. `factory`: "module:function" that opens the
    shard; `build_worker` except in tests. `spark`: whether Spark builds large first states and indexes. `hub`:
    the address at which workers on other hosts reach the server; None: there are none. `certificate`, `key`: for
    connections between hosts (`runtime/worker/remote_hosts.py`). `warm`: whether all kernels are loaded before the
    first request (`runtime/worker/warm.py`); otherwise each is loaded when it is first used.

    Incarnations are not settings: each process takes its own at the fence.
    """

    worker: int
    workers: int
    endpoint: str
    data_dir: Path
    run_dir: Path
    epoch: int
    lease_ms: int = LEASE_MS
    memory_limit: int = DEFAULT_MEMORY_BYTES
    factory: str = "noria.runtime.worker.worker_main:build_worker"
    spark: bool = True
    hub: tuple[str, int] | None = None
    certificate: Path | None = None
    key: Path | None = None
    warm: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.worker < self.workers:
            raise ValueError(f"worker {self.worker} of {self.workers}: numbers go from 0")
        if self.lease_ms < 2 * HEARTBEAT_MS:
            raise ValueError(f"a lease of {self.lease_ms} ms ends between heartbeats of {HEARTBEAT_MS} ms")

    @property
    def shard_dir(self) -> Path:
        """The directory of this worker's base tables, lock and fence."""
        return self.data_dir / f"worker-{self.worker}"

    def for_worker(self, worker: int) -> WorkerConfig:
        return replace(self, worker=worker, endpoint=link_endpoint(self.run_dir, worker, self.workers)
                       if self.workers > 1 else self.endpoint)


class HostedWorker(Protocol):
    """The core with its open store, as a factory returns it."""

    def hello(self) -> Hello: ...

    def handle(self, packets: list[Envelope]) -> list[Envelope]:
        """Handle packets in order; returns the immediate replies."""

    def do_turns(self) -> list[Envelope]:
        """Run some work in turns while packets arrive; returns the replies that it completed."""

    def idle(self, budget_ms: int) -> tuple[list[Envelope], bool]:
        """Do deferrable work for about this time; returns the replies that it completed, and whether more is
        left."""

    def outgoing(self) -> list[tuple[int, Envelope]]:
        """With several workers: the messages to others."""

    def frontier(self) -> tuple[int, ...]:
        """With several workers: the frontier (`Peers.frontier`)."""

    def checkpoint(self) -> None:
        """Called in each turn: begin a checkpoint for the next life if it is due."""

    def keep(self) -> None:
        """Save states for the next life: the last call before `close` at an orderly end."""

    def close(self) -> None: ...


def link_endpoint(run_dir: Path, worker: int, workers: int) -> str:
    """The endpoint at which the front end listens for a worker."""
    return f"ipc://{run_dir}/link" + ("" if workers == 1 else f"-{worker}")


def views_dir(run_dir: Path, worker: int, workers: int) -> Path:
    """The directory in which a worker publishes its views. It differs for another number of workers, so readers
    of the old one see no views and attach to the new one."""
    return run_dir / (VIEWS if workers == 1 else f"{VIEWS}-{worker}-of-{workers}")


def feeds_dir(config: WorkerConfig) -> Path:
    """The directory of a worker's feeds."""
    return config.shard_dir / "feeds"


def open_worker(config: WorkerConfig, incarnation: int, around: WorkerEnvironment) -> HostedWorker:
    module, _, name = config.factory.partition(":")
    opened: HostedWorker = getattr(importlib.import_module(module), name)(config, incarnation, around)
    return opened


def _half_of_memory(workers: int) -> int:
    """The limit in bytes of a worker's part of one full state: together, the workers may use half of this
    machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2 // workers


def run_worker(config: WorkerConfig, clock: Clock = time.monotonic, note: Callable[[str], None] | None = None
               ) -> str:
    """Serve until the end and return why: "goodbye", "lease" or how the front end was lost. Raises `Fenced`,
    `LockBusy` or the failure."""
    raise_open_files()
    shard = ShardOwner(config.shard_dir, config.epoch, note=note or _to_stderr)
    try:
        line = FrontEndConnection(config, shard.incarnation, clock)
        around = WorkerEnvironment(time.perf_counter_ns, RequestUnderWay(doing_path(config.run_dir, config.worker)),
                                   line.watch.is_cancelled, note or _to_stderr, _half_of_memory(config.workers),
                                   processor_ns)
        frontier = Frontier(frontier_path(config.run_dir, config.worker),
                            config.workers) if config.workers > 1 else None
        worker = open_worker(config, shard.incarnation, around)
        try:
            with line, _mesh(config, shard.incarnation, note or _to_stderr) as mesh:
                end = WorkerLoop(config, worker, line, shard.fence, clock, mesh, frontier).run()
            if end == GOODBYE:
                worker.keep()
            return end
        except FrontEndLost as e:
            return str(e)
        finally:
            worker.close()
    finally:
        shard.release()


@contextmanager
def _mesh(config: WorkerConfig, incarnation: int, note: Callable[[str], None]) -> Iterator[Mesh | None]:
    """The channels to the other workers; None if there are none."""
    if config.workers == 1:
        yield None
        return
    mesh = Mesh([peer_endpoint(config.run_dir, w) for w in range(config.workers)], config.worker, config.epoch,
                incarnation, note)
    try:
        yield mesh
    finally:
        mesh.close()


class FrontEndConnection:
    """The worker's two connections to the front end: packets, and signs of life (`transport/heartbeats.py`)."""

    def __init__(self, config: WorkerConfig, incarnation: int, clock: Clock):
        self._config, self._incarnation, self._clock = config, incarnation, clock
        self._reader = FrameDecoder()
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self.watch = WorkerHeartbeat(lambda: self._connect(FrameKind.JOIN_PULSE),
                                     wire.signal(FrameKind.PULSE, config.epoch, config.worker), clock)

    def __enter__(self) -> FrontEndConnection:
        self._socket = self._connect(FrameKind.JOIN)
        self._socket.setblocking(False)
        self._accepted_at = self._clock()
        self.front = Computing(wire.other_end(self._socket))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self.watch.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.watch.close()
        with suppress(OSError):
            self._socket.settimeout(self._config.lease_ms / 1000)
            self._socket.sendall(b"".join(self._unsent))
            self._socket.sendall(wire.signal(FrameKind.GOODBYE, self._config.epoch, self._config.worker))
        self._socket.close()

    def _connect(self, role: FrameKind) -> socket.socket:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            line.connect(wire.socket_path(self._config.endpoint))
            line.settimeout(self._config.lease_ms / 1000)  # a front end that reads nothing for so long is lost
            line.sendall(wire.signal(role, self._config.epoch, self._config.worker, self._incarnation))
        except OSError:
            line.close()
            raise
        return line

    def watch_also(self, other: Mesh) -> None:
        """Let `arrived` wait for this mesh too."""
        self._poll.register(other.fileno(), select.POLLIN)

    def arrived(self, wait_ms: int) -> tuple[bool, bool]:
        """Wait for data; returns whether the front end has sent some, and whether the mesh has. Sends unsent data
        meanwhile."""
        if not self._unsent:
            ready = [fd for fd, _ in self._poll.poll(wait_ms)]
            front = self._socket.fileno() in ready
            return front, len(ready) > front
        self._poll.modify(self._socket, select.POLLIN | select.POLLOUT)
        events = dict(self._poll.poll(min(wait_ms, self._config.lease_ms / 2)))
        self._poll.modify(self._socket, select.POLLIN)
        front_events = events.pop(self._socket.fileno(), 0)
        self._flush()
        return bool(front_events & ~select.POLLOUT), bool(events)

    def receive(self) -> list[wire.Item]:
        """The messages that have arrived. `FrontEndLost` at the end of the stream."""
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError as e:
            raise FrontEndLost(f"the connection to the front end broke: {e}") from e
        if not data:
            raise FrontEndLost("the front end has closed the connection")
        items = self._reader.feed(data)
        while len(data) == READ_BYTES and self.arrived(0)[0]:
            data = self._socket.recv(READ_BYTES)
            items += self._reader.feed(data)
        return items

    def send(self, envelopes: Sequence[Envelope]) -> None:
        """Send as much as the front end accepts now and keep the rest. Waits only if UNSENT_BYTES are unsent.
        `FrontEndLost` if the front end has ended or is frozen."""
        if envelopes:
            messages = b"".join([wire.encode_answer(e, _to_stderr) for e in envelopes])
            self._unsent.append(memoryview(messages))
            self._unsent_bytes += len(messages)
            self._flush()
        while self._unsent_bytes > UNSENT_BYTES:
            self._await_room()

    def _flush(self) -> None:
        """Send as much as possible without waiting."""
        try:
            while self._unsent:
                first = self._unsent[0]
                sent = self._socket.send(first)
                self._unsent_bytes -= sent
                self._accepted_at = self._clock()
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._check_front()
        except OSError as e:
            raise FrontEndLost(f"the front end takes no replies: {e}") from e

    def _await_room(self) -> None:
        self._poll.modify(self._socket, select.POLLOUT)
        self._poll.poll(self._config.lease_ms / 2)
        self._poll.modify(self._socket, select.POLLIN)
        self._flush()

    def _check_front(self) -> None:
        """Check a front end that accepts nothing. It may be busy; it is lost if it sends no sign of life either."""
        silent_s = self._clock() - self._accepted_at
        if silent_s > self._config.lease_ms / 1000 and (silent_s > KERNEL_S or not self.front_lives()):
            raise FrontEndLost(f"the front end takes no replies for {silent_s:.1f} s, and gives no sign of life")

    def front_lives(self) -> bool:
        """Whether the front end's thread sent a sign of life within a lease, or the front end computes."""
        silent_s = self._clock() - self.watch.last_signal_at
        return silent_s <= self._config.lease_ms / 1000 or self.front.goes_on()


class WorkerLoop:
    """Polls, checks the fence, steps and sends; the only place where a worker depends on time. `end`: why it
    ended."""

    def __init__(self, config: WorkerConfig, worker: HostedWorker, line: FrontEndConnection, fence: Fence, clock: Clock,
                 mesh: Mesh | None = None, frontier: Frontier | None = None):
        self._config, self._worker, self._line, self._fence, self._clock = config, worker, line, fence, clock
        self._mesh, self._frontier, self.end = mesh, frontier, ""
        if mesh is not None:
            line.watch_also(mesh)

    def run(self) -> str:
        self.begin()
        while not self.end:
            self.turn()
        return self.end

    def begin(self) -> None:
        self._line.send([Envelope(self._config.epoch, self._config.worker, 0, self._worker.hello())])
        self._last_signal_at, self._idle_due = self._clock(), 0.0
        self.more = True  # work that can wait may be there
        self._wait_ms = IDLE_AFTER_MS  # for packets, before more of it is done

    def turn(self) -> None:
        """Handle everything that has arrived in one step. Do deferrable work if nothing has, or if it is due."""
        front, others = self._line.arrived(self._wait_ms if self.more else self._config.lease_ms)
        self._fence.check()
        self._worker.checkpoint()
        if not front and self._lease_is_over():
            self.end = "lease"
            return
        if front or others:
            packets, received = self._read() if front else ([], False)
            if others and self._mesh is not None:
                packets = [*self._mesh.receive(), *packets]
            if received:
                self._last_signal_at = self._clock()
                self._line.front.sign()
            if packets:
                self._send(self._worker.handle(packets))
                if (late := self._worker.do_turns()) or self._mesh is not None:
                    self._send(late)
                self._wait_ms = IDLE_AFTER_MS
                self._idle_due = self._idle_due if self.more else self._clock() + IDLE_DUE_S
                self.more = True
            if not self.more or self._clock() < self._idle_due:
                return
        if self.more:
            replies, self.more = self._worker.idle(IDLE_MS)
            self._send(replies)
            self._wait_ms = 0
            self._idle_due = self._clock() + IDLE_DUE_S

    def _send(self, replies: Sequence[Envelope]) -> None:
        if self._frontier is not None:
            self._frontier(self._worker.frontier())
        self._line.send(replies)
        if self._mesh is not None:
            self._mesh.send(self._worker.outgoing())

    def _lease_is_over(self) -> bool:
        """Whether the front end was silent for a lease without computing."""
        self._last_signal_at = max(self._last_signal_at, self._line.watch.last_signal_at)
        if self._clock() <= self._last_signal_at + self._config.lease_ms / 1000:
            return False
        if not self._line.front.goes_on():
            return True
        self._last_signal_at = self._clock()
        return False

    def _read(self) -> tuple[list[Envelope], bool]:
        """The packets of this front end that have arrived, and whether it has sent anything."""
        packets: list[Envelope] = []
        received = False
        for item in self._line.receive():
            if isinstance(item, WireError):
                _to_stderr(f"worker {self._config.worker} dropped a message: {item}")
                self._refuse(item)
                continue
            if item.epoch != self._config.epoch:
                _to_stderr(f"worker {self._config.worker} of epoch {self._config.epoch} refused a packet of "
                           f"epoch {item.epoch}")
                continue
            received = True
            if isinstance(item, Envelope):
                packets.append(item)
            elif item.kind is FrameKind.GOODBYE:
                self.end = GOODBYE
        return packets, received

    def _refuse(self, unreadable: WireError) -> None:
        """Answer an unreadable request with an error. `FrontEndLost` if its number is unknown: then the
        connection cannot be used."""
        if unreadable.number is None:
            raise FrontEndLost(f"what the front end said cannot be read: {unreadable}")
        error = SqlError(*UNKNOWN_ERROR, f"the worker cannot read the request: {unreadable}")
        self._line.send([Envelope(self._config.epoch, self._config.worker, 0, Done(unreadable.number, error=error))])


def _to_stderr(text: str) -> None:
    """Write a line to the log, whatever characters it has. A failure to write is ignored."""
    with suppress(OSError, ValueError):
        print(text.encode(errors="backslashreplace").decode(), file=sys.stderr, flush=True)


# ---------------------------------------------------------------- the real worker
def build_worker(config: WorkerConfig, incarnation: int, around: WorkerEnvironment) -> HostedWorker:
    """Open the shard: store, symbols, published views, core. The imports are here, so that only the worker's
    process makes them."""
    from noria.dataflow.worker.worker import Worker
    from noria.feeds.writer import FeedDirectory
    from noria.kernels import making
    from noria.lowering.lower import Lowering
    from noria.runtime.worker.checkpoints import Checkpoints, strings_of_before
    from noria.runtime.worker.cut_checkpoints import CutCheckpoints
    from noria.state.symbols.symbols import SymbolTable
    from noria.storage.rocks.options import RocksMemory
    from noria.storage.store import RocksStore
    from noria.storage.tables.shards import Shard
    from noria.views.writer import ViewDirectory

    if config.warm:
        from noria.runtime.worker import warm

        warm.kernels()
    making.ensure()
    published = views_dir(config.run_dir, config.worker, config.workers)
    published.mkdir(mode=0o700, parents=True, exist_ok=True)
    symbols = SymbolTable(str(published))
    saved = strings_of_before(config.shard_dir, symbols, around.note)
    shard = Shard(config.worker, config.workers) if config.workers > 1 else None  # one has all rows
    store = RocksStore(str(config.shard_dir / "base"), symbols, fence=incarnation,
                       memory=RocksMemory.within(config.memory_limit), shard=shard)
    views = ViewDirectory(str(published), symbols, incarnation, FeedDirectory(feeds_dir(config), symbols))
    by_spark = config.spark and config.workers == 1  # one of several makes first states itself
    core: Any = Worker(store, symbols, views, Lowering, worker=config.worker, epoch=config.epoch,
                       memory_limit=config.memory_limit, large=WORKER_BOOTSTRAP_ROWS if by_spark else None,
                       large_index=WORKER_INDEX_ROWS if config.spark else 0, read_files=_record_batches,
                       pid=os.getpid(), environment=around, workers=config.workers, incarnation=incarnation)
    if config.workers == 1:
        checkpoints = Checkpoints(config.shard_dir, core, store, symbols, around.note)
        core.keep, core.checkpoint = checkpoints.keep, checkpoints.step
        checkpoints.restore(saved)
    else:
        cuts = CutCheckpoints(config.shard_dir, store, symbols, saved, around.note)
        core.checkpoint = cuts.step
        core.save_at_cuts(cuts)
    hosted: HostedWorker = core
    return hosted


def _record_batches(files: Sequence[str]) -> Iterator[Any]:
    """The rows of Parquet files, a slice at a time."""
    import pyarrow.parquet as pq

    for name in files:
        with pq.ParquetFile(name) as file:
            yield from file.iter_batches(batch_size=READ_ROWS)
