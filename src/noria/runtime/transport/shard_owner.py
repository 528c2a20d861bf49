"""Ensures that one worker at a time uses a shard's files: the lock, the fence and the record of the holder.
Create a `ShardOwner`.

A shard directory has three small files beside its store:

* `lock`: flock'ed by the worker that has the store open. The kernel frees it however that worker ends.
* `fence`: two int64, (front-end epoch, incarnation). Each newcomer raises the incarnation before it waits for the
  lock. A worker that reads a higher one than its own is replaced, and ends before its next commit.
* `owner`: the process that holds the lock. A newcomer kills it. Whoever may start workers holds the data
  directory's own lock (`control/processes/leases.py`), so an older holder is a left-over: frozen, cancelled or
  cut off. Pid, start time, boot and pid namespace are compared before.

Keeps true: of two workers of a shard only the holder of `lock` has the store open. Incarnations only grow, also
across front ends. A newcomer with an older front-end epoch than the fence's is always rejected.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

_FENCE = struct.Struct("<qq")
LOCK_POLL_MS = 10  # between tries while an unknown holder has the lock
LOCK_WAIT_MS = 10_000  # longer than any lease: a holder that lives still is no left-over


class Fenced(Exception):
    """A newer worker or front end owns the shard: the worker must end without another commit."""


class LockBusy(Exception):
    """A process that is not a worker of this shard holds it; the message says which, and what to do."""


@dataclass(frozen=True)
class Process:
    """A process, identified by more than its number, since numbers are reused."""

    pid: int
    started: int  # clock ticks since boot
    space: str  # boot id and pid namespace in which the number means something

    @staticmethod
    def of(pid: int) -> Process | None:
        """The live process of that number; None if there is none, or only a zombie."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
            space = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
        except OSError:
            return None
        fields = stat[stat.rindex(")") + 2:].split()  # the name before may hold anything
        return None if fields[0] in "ZX" else Process(pid, int(fields[19]), space)

    @property
    def alive(self) -> bool:
        return Process.of(self.pid) == self

    def send_kill(self) -> int | None:
        """Send SIGKILL, which ends a stopped process too. Returns a pidfd that signals its end; None if it had
        ended."""
        try:
            handle = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return None
        if not self.alive:
            os.close(handle)
            return None
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        return handle

    def kill(self) -> bool:
        """Send SIGKILL and wait for the end; False if it had ended already."""
        handle = self.send_kill()
        if handle is None:
            return False
        end = select.poll()  # select() takes no descriptor beyond 1023, and views are files
        end.register(handle, select.POLLIN)
        end.poll(LOCK_WAIT_MS)
        os.close(handle)
        return True


def _nothing(worker: int) -> None:
    pass


@dataclass(frozen=True)
class RemoteOwner:
    """Callbacks for workers on other hosts, whose processes cannot be signalled here. `appeared`: one is about to
    serve. `end`: one must be ended, since it may be frozen."""

    appeared: Callable[[int], None] = _nothing
    end: Callable[[int], None] = _nothing


def try_lock(file: int) -> bool:
    """Lock an open file.  Returns False if another process holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class Fence:
    """The shard's fence as its worker sees it. `check` costs one small read."""

    def __init__(self, path: Path, epoch: int):
        """Raise the fence: this process is the newest incarnation from now on."""
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        try:
            newest, before = self._read()
            if newest > epoch:
                raise Fenced(f"this worker was started by front end {epoch}, but {newest} has taken over")
            self.incarnation = before + 1
            os.pwrite(self._fd, _FENCE.pack(epoch, self.incarnation), 0)
            os.fsync(self._fd)
        except BaseException:
            os.close(self._fd)
            raise
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _read(self) -> tuple[int, int]:
        raw = os.pread(self._fd, _FENCE.size, 0)
        return _FENCE.unpack(raw) if len(raw) == _FENCE.size else (0, 0)

    def check(self) -> None:
        newest = self._read()[1]
        if newest != self.incarnation:
            raise Fenced(f"incarnation {self.incarnation} of this worker was replaced by {newest}")

    def close(self) -> None:
        os.close(self._fd)


class ShardOwner:
    """The ownership of a shard: raises the fence, takes the lock, records the owner. Call `release` when the
    store is closed."""

    def __init__(self, directory: Path, epoch: int, wait_ms: int = LOCK_WAIT_MS,
                 note: Callable[[str], None] = lambda text: None):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._owner = directory / "owner"
        self.fence = Fence(directory / "fence", epoch)
        self._lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait_for_lock(directory, wait_ms, note)
            self._record()
        except BaseException:
            self.release()
            raise

    @property
    def incarnation(self) -> int:
        return self.fence.incarnation

    def _wait_for_lock(self, directory: Path, wait_ms: int, note: Callable[[str], None]) -> None:
        deadline = time.monotonic() + wait_ms / 1000
        while not try_lock(self._lock):
            holder = self._recorded()
            if holder is not None and holder.pid == os.getpid() and holder.alive:
                raise LockBusy(f"{directory} is open in this process already: close it there first")
            if holder is not None and holder.kill():
                note(f"killed process {holder.pid}, which still held {directory}")
                continue
            if time.monotonic() > deadline:
                who = f"process {holder.pid}" if holder is not None else "an unknown process"
                raise LockBusy(f"{directory} is held by {who}, which is not one of ours: end it, or use "
                               f"another data directory")
            time.sleep(LOCK_POLL_MS / 1000)
            self.fence.check()

    def _recorded(self) -> Process | None:
        try:
            return Process(**json.loads(self._owner.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    def _record(self) -> None:
        here = Process.of(os.getpid())
        if here is None:
            return  # no /proc: no process will be killed by its number
        fresh = self._owner.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(here)))
        fresh.replace(self._owner)

    def release(self) -> None:
        """Free the lock by closing its file."""
        os.close(self._lock)
        self.fence.close()
