"""The data directory's disk: what is synced, what is free, and whether the directory has data."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from noria.storage.rocks.errors import StoreDamaged, StoreError

BALLAST = "noria-ballast"


def sync(path: str | Path) -> None:
    """Sync a file's bytes, or a directory's entries."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def is_fresh(path: str) -> bool:
    """True for an empty directory; raises StoreDamaged for one that has data but no CURRENT."""
    if not os.path.isdir(path):
        try:
            os.makedirs(path)
        except OSError as e:
            raise StoreError(f"cannot make the data directory {path}: {e.strerror}") from e
    files = os.listdir(path)
    if "CURRENT" in files:
        return False
    if any(f.endswith((".sst", ".log")) and os.path.getsize(os.path.join(path, f)) for f in files):
        raise StoreDamaged(f"the data directory {path} is damaged: it has data but no file CURRENT; "
                           "restore it from a backup")
    return True


class DiskSpace:
    """The free space of a data directory.  reserve_bytes: how much stays free, so that compaction can continue."""

    def __init__(self, path: str, reserve_bytes: int):
        self._path, self.reserve_bytes = path, reserve_bytes
        self._ballast = Path(path) / BALLAST

    def free_bytes(self) -> int:
        disk = os.statvfs(self._path)
        return disk.f_bavail * disk.f_frsize

    def suffices(self, nbytes: int) -> bool:
        """True if there is room for the log and the flush of these bytes."""
        return self.free_bytes() >= self.reserve_bytes + 2 * nbytes

    def suffices_without_ballast(self, nbytes: int) -> bool:
        """Delete the ballast; True if there is room for these bytes then."""
        self._ballast.unlink(missing_ok=True)
        return self.free_bytes() >= self.reserve_bytes // 8 + 2 * nbytes

    def fill_ballast(self) -> None:
        """Create a file that only reserves room: deleting it on a full disk lets DELETE and DROP TABLE run."""
        size = self.reserve_bytes // 2
        if not size or self._ballast.exists() or not self.suffices(size):
            return
        with suppress(OSError), open(self._ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
