"""Who owns a data directory, and the epoch that goes with it.

One front end at a time holds a directory's `lock`; each takes the next epoch, written durably before anything is
started with it.  Workers number their own incarnations (`runtime/lineage.py`): a worker that is started again
under the same front end keeps its epoch, because unanswered changes are told apart by (epoch, seq).

Keeps true: two claims of a directory never hold at once; no epoch is given twice.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class DirectoryInUse(Exception):
    """Another front end serves this directory: which, and what to do."""


class Claim:
    """A data directory that is ours until `release` or the end of the process."""

    def __init__(self, data_dir: Path):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.data_dir = data_dir
        self._lock = os.open(data_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take()
            self.epoch = self._next_epoch()
        except BaseException:
            os.close(self._lock)
            raise

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip() or "unknown"
            raise DirectoryInUse(f"the data directory {self.data_dir} is in use by process {holder}: stop that "
                                 f"server or use another directory") from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _next_epoch(self) -> int:
        path = self.data_dir / "epoch"
        try:
            epoch = int(path.read_text()) + 1 if path.exists() else 1
        except ValueError as e:
            raise DirectoryInUse(f"{path} holds no number, so this is no data directory of noria, or a damaged "
                                 f"one: restore the file (any number above all it ever held) or use another "
                                 f"directory") from e
        fresh = path.with_suffix(".new")
        with fresh.open("w") as f:
            f.write(str(epoch))
            f.flush()
            os.fsync(f.fileno())
        fresh.replace(path)
        directory = os.open(self.data_dir, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        return epoch

    def release(self) -> None:
        os.close(self._lock)
