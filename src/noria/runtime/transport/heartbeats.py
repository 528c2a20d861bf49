"""Sends signs of life both ways between a front end and its worker, and cancellations, on a second connection.

Each end has a thread for it, so that no statement, however long it occupies the loop or the worker, delays a
lease's renewal. A kernel or a parser that holds the interpreter delays even these threads: then each end checks
the other's processor time.

Keeps true: a computing process does not count as frozen. A process that is stopped, has ended, or is
silent without computing is reported lost within a lease; one that computes without a sign, within `limits.KERNEL_S`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import socket
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from noria.core.limits import HEARTBEAT_MS, KERNEL_S, POISON_KEPT
from noria.runtime.transport import wire
from noria.runtime.transport.shard_owner import Process
from noria.runtime.transport.wire import FrameDecoder, FrameKind, Signal

_WORDS = struct.Struct("<qq")


# ---------------------------------------------------------------- the worker's end
class WorkerHeartbeat:
    """A worker's thread: sends pulses, receives heartbeats and the numbers of cancelled requests."""

    def __init__(self, connect: Callable[[], socket.socket], beat: bytes, clock: Callable[[], float]):
        self._connect, self._beat, self._clock = connect, beat, clock
        self.last_signal_at = clock()
        self._cancelled: OrderedDict[int, None] = OrderedDict()
        self._stop = False
        self._line: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop = True
        line = self._line
        if line is not None:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def is_cancelled(self, number: int) -> bool:
        """Whether the front end has cancelled the request of this number."""
        return number in self._cancelled

    def _run(self) -> None:
        with contextlib.suppress(OSError), self._connect() as line:  # no front end: the lease decides when to end
            self._line = line
            poll, reader = select.poll(), FrameDecoder()
            poll.register(line, select.POLLIN)
            going = True
            while going and not self._stop:
                line.sendall(self._beat)
                going = self._listen(line, poll, reader)

    def _listen(self, line: socket.socket, poll: select.poll, reader: FrameDecoder) -> bool:
        """Listen until the next pulse is due; False at the end of the stream."""
        due = self._clock() + HEARTBEAT_MS / 1000
        while not self._stop and (left_s := due - self._clock()) > 0:
            if not poll.poll(left_s * 1000):
                continue
            data = line.recv(65_536)
            if not data:
                return False
            self.last_signal_at = self._clock()
            for item in reader.feed(data):
                if isinstance(item, Signal) and item.kind is FrameKind.CANCEL:
                    self._cancelled[item.number] = None
                    while len(self._cancelled) > POISON_KEPT:
                        self._cancelled.popitem(last=False)
        return True


# ---------------------------------------------------------------- the front end's end
class FrontEndHeartbeat:
    """A front end's thread: sends heartbeats on every worker's second connection."""

    def __init__(self, epoch: int, sender: int):
        self._beat, self._epoch, self._sender = wire.signal(FrameKind.HEARTBEAT, epoch, sender), epoch, sender
        self._lines: dict[int, socket.socket] = {}  # by incarnation
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        with self._lock:
            for line in self._lines.values():
                line.close()
            self._lines.clear()

    def add(self, incarnation: int, descriptor: int) -> None:
        """Send heartbeats on a copy of this connection's descriptor."""
        line = socket.socket(fileno=os.dup(descriptor))
        with self._lock:
            old = self._lines.pop(incarnation, None)
            self._lines[incarnation] = line
        if old is not None:
            old.close()

    def remove(self, incarnation: int) -> None:
        with self._lock:
            line = self._lines.pop(incarnation, None)
        if line is not None:
            line.close()

    def cancel(self, incarnation: int, number: int) -> None:
        """Send a worker the cancellation of a request."""
        with self._lock:
            line = self._lines.get(incarnation)
            if line is not None:
                self._send(line, wire.signal(FrameKind.CANCEL, self._epoch, self._sender, number))

    def _run(self) -> None:
        while not self._stop.wait(HEARTBEAT_MS / 1000):
            with self._lock:
                for line in self._lines.values():
                    self._send(line, self._beat)

    @staticmethod
    def _send(line: socket.socket, message: bytes) -> None:
        """Send without waiting. A worker that reads nothing loses heartbeats; after half a message the connection
        is shut down."""
        try:
            sent = line.send(message, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            if sent < len(message):
                line.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


# ---------------------------------------------------------------- is it computing?
class Computing:
    """The processor time of a process of this host, checked while it gives no sign of life."""

    def __init__(self, process: Process | None, clock: Callable[[], float] = time.monotonic):
        self._process, self._clock = process, clock
        self._ticks = processor_ticks(process)
        self._silent_since: float | None = None

    def sign(self) -> None:
        """Record a sign of life."""
        self._silent_since = None

    def goes_on(self) -> bool:
        """Whether the process has computed since the last check, or waits for a processor or the disk. False
        after KERNEL_S without a sign."""
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        before, self._ticks = self._ticks, processor_ticks(self._process)
        going = self._ticks > before or (self._ticks >= 0 and waits_for_its_turn(self._process))
        return going and now - self._silent_since < KERNEL_S


def processor_ticks(process: Process | None) -> int:
    """Clock ticks of processor time that a process has used; -1 if unknown or the process is stopped."""
    if process is None or not process.alive:
        return -1
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text()
    except OSError:
        return -1
    fields = stat[stat.rindex(")") + 2:].split()
    return -1 if fields[0] in "TtZX" else int(fields[11]) + int(fields[12])


def waits_for_its_turn(process: Process | None) -> bool:
    """Whether a thread of the process is ready to run, or in a wait that no signal ends. RocksDB syncs its log
    so, and holds the interpreter then."""
    try:
        stats = [p.read_text() for p in Path(f"/proc/{process.pid}/task").glob("*/stat")] if process is not None else []
    except OSError:
        return False
    return any(stat[stat.rindex(")") + 2] in "RD" for stat in stats)


# ---------------------------------------------------------------- what a worker is doing
class RequestUnderWay:
    """Two numbers in a file that outlives the worker: the request it executes (0: none), and how often it began
    one.

    So the front end knows which request a worker executed when it ended, however it ended, and whether it has
    continued since a check.
    """

    def __init__(self, path: Path):
        """Create the file anew (the worker's side)."""
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(bytes(_WORDS.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _WORDS.size)
        self._words = memoryview(self._map).cast("q")

    def __call__(self, number: int) -> None:
        self._words[0] = number
        self._words[1] += 1

    @staticmethod
    def seen(path: Path) -> tuple[int, int] | None:
        """The worker's current request, and how often it began one; None if unknown."""
        try:
            number, times = _WORDS.unpack(path.read_bytes())
        except (OSError, struct.error):
            return None
        return number, times

    @staticmethod
    def last(path: Path) -> int | None:
        """The worker's current or last request; None if unknown."""
        seen = RequestUnderWay.seen(path)
        return None if seen is None else seen[0]


def doing_path(run_dir: Path, worker: int) -> Path:
    return run_dir / f"worker-{worker}.doing"
