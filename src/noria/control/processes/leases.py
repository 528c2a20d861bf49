"""Decides who owns a data directory, and in which epoch.

One front end at a time holds a directory's `lock`.  A new owner increments the epoch and writes it durably before it
starts anything.  Workers number their own incarnations (`runtime/transport/shard_owner.py`).  A worker that restarts
under the same front end keeps its epoch, because unanswered changes are identified by (epoch, seq).

Keeps true: two claims of a directory never hold at once; no epoch is used twice.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from noria.runtime.transport.shard_owner import Process, try_lock
from noria.storage.rocks.disk import sync


class CannotClaim(Exception):
    """The directory cannot be claimed: another front end serves it, or it cannot be written."""


class Claim:
    """The claim of a data directory, held until `release` or the end of the process.

    wrest: a lease (`zookeeper`) proves that no other process may hold the directory; a process of this machine that
    still does is killed.
    """

    def __init__(self, data_dir: Path, wrest: bool = False):
        self.data_dir = data_dir
        with _usable(data_dir):
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._take(wrest)
            except BaseException:
                self.release()
                raise

    def _take(self, wrest: bool) -> None:
        if not try_lock(self._lock):
            holder = os.pread(self._lock, 200, 0).decode(errors="replace").split()
            if not wrest or not _killed(holder) or not try_lock(self._lock):
                raise CannotClaim(f"the data directory {self.data_dir} is in use by process "
                                     f"{holder[0] if holder else 'unknown'}: stop that server or use another directory")
        us = Process.of(os.getpid())
        assert us is not None, "we live"
        said = f"{us.pid} {us.started} {us.space}".encode()
        os.pwrite(self._lock, said, 0)  # over the last owner's entry, so it needs no new room
        os.ftruncate(self._lock, len(said))

    def next_epoch(self) -> int:
        """Increment the epoch durably and return it, for processes that are started from now on."""
        path = self.data_dir / "epoch"
        try:
            epoch = int(path.read_text()) + 1 if path.exists() else 1
        except ValueError as e:
            raise CannotClaim(f"{path} holds no number, so this is no data directory of noria, or a damaged "
                              f"one: restore the file (any number above all it ever held) or use another "
                              f"directory") from e
        fresh = path.with_suffix(".new")
        with _usable(self.data_dir):
            try:
                fresh.write_text(str(epoch))
                sync(str(fresh))
                fresh.replace(path)
            except OSError:
                fresh.unlink(missing_ok=True)
                raise
            sync(str(self.data_dir))
        return epoch

    def release(self) -> None:
        os.close(self._lock)


@contextlib.contextmanager
def _usable(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise CannotClaim(f"the data directory {data_dir} cannot be used: {e.strerror}") from e


def _killed(holder: list[str]) -> bool:
    """True if the process that the lock file names is of this machine and has ended."""
    try:
        pid, started, space = holder
        process = Process(int(pid), int(started), space)
    except ValueError:
        return False
    us = Process.of(os.getpid())
    return us is not None and us.space == space and (process.kill() or not process.alive)
