"""How far the store is known to have synced: `noria-mark`, one small record beside RocksDB's files.

After each synced commit, its sequence number is written here without a sync of its own.  That takes a microsecond; a
second sync would double the time of a commit.  When the store opens, RocksDB must recover at least that far.
Otherwise acknowledged rows are lost, and the store refuses to open.

What is detected:

* Closed logs that are missing or have another size: RocksDB records each one's number and synced size in its MANIFEST.
  This also holds after a loss of power.
* The current log, cut or deleted, after the process ended or was killed: the mark is exact, since the kernel keeps
  what was written.
* The same after a loss of power, as far as the mark was written back.  It is synced when the store opens and closes;
  in between it may be as old as the kernel's last write-back.  It never reports a false loss, because it is written
  after the sync of its commit.
* A damaged record in any log: by RocksDB's checksums.

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
    """The store's mark; None if it has none yet (it is new, or an earlier version made it)."""
    name = os.path.join(path, FILE)
    try:
        with open(name, "rb") as file:
            raw = file.read()
    except FileNotFoundError:
        return None
    if len(raw) != _RECORD.size + _CHECK.size or _record(_RECORD.unpack_from(raw)[1]) != raw:
        raise StoreDamaged(f"the file {name}, which says how far the store had synced, is damaged. So it is unknown "
                           "whether the write-ahead log is whole; noria check --accept-loss continues with what is "
                           "there")
    return int(_RECORD.unpack_from(raw)[1])


class SyncMark:
    """The mark of an open store."""

    def __init__(self, path: str, sequence: int):
        """Create the mark, or set it to this sequence number; it is on disk on return."""
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
        """Record that commits up to here are on disk.  A mark that cannot be written lags behind, which is safe."""
        with suppress(OSError):
            os.pwrite(self._fd, _record(sequence), 0)

    def close(self) -> None:
        with suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)
