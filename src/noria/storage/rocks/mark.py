"""How far the store is known to have synced: `noria-mark`, one small record beside RocksDB's files.

After each synced commit the sequence number that it reached is written here, without a sync of its own (a
microsecond; a second sync would double what a commit costs).  When the store opens, RocksDB must come at least
that far, else acknowledged rows are gone and the store refuses to open.

What is detected:

* closed logs (not the one being written): RocksDB notes each one's number and synced size in its MANIFEST; one
  that is missing or has another size is found whatever happened before, also a loss of power.
* the log being written, cut or deleted, after a stop, an end or a kill of the process: the mark is exact, since the
  kernel keeps what was written.
* the same after a loss of power: the mark may be as old as the kernel's last write-back of it (it is synced when
  the store opens and closes), so of what was lost since, nothing is known.  Never does it tell of a loss that is
  none: it is written after the sync of what it tells of.
* a damaged record in any log: RocksDB's checksums.

Not detected: an older copy of the whole directory, mark included.
"""

from __future__ import annotations

import os
import struct
import zlib
from contextlib import suppress

from noria.storage.rocks.errors import StoreDamaged

FILE = "noria-mark"
_RECORD = struct.Struct("<8sQ")
_CHECK = struct.Struct("<I")
_MAGIC = b"noria m1"


def _record(sequence: int) -> bytes:
    head = _RECORD.pack(_MAGIC, sequence)
    return head + _CHECK.pack(zlib.crc32(head))


def read(path: str) -> int | None:
    """The store's mark; None where it has none yet (it was made by an earlier version, or is new)."""
    name = os.path.join(path, FILE)
    try:
        with open(name, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    if len(raw) != _RECORD.size + _CHECK.size or _record(_RECORD.unpack_from(raw)[1]) != raw:
        raise StoreDamaged(f"the file {name}, which says how far the store had synced, is damaged: whether the "
                           f"write-ahead log is whole cannot be told; noria check --accept-loss goes on with what "
                           f"is there")
    return int(_RECORD.unpack_from(raw)[1])


class Mark:
    """The open store's mark."""

    def __init__(self, path: str, sequence: int):
        """Make it, or set it to where the store stands: on disk when this returns."""
        self._fd = os.open(os.path.join(path, FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(self._fd, _record(sequence), 0)
            os.fsync(self._fd)
            directory = os.open(path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except BaseException:
            os.close(self._fd)
            raise

    def reach(self, sequence: int) -> None:
        """A commit up to here is on disk.  A mark that cannot be written lags behind, which is safe."""
        with suppress(OSError):
            os.pwrite(self._fd, _record(sequence), 0)

    def close(self) -> None:
        with suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)
