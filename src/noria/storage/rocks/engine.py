"""RocksDB as this package uses it: column families by name, one synced commit at a time, bounded memory.

Keeps true:

* What `commit` returned from is on disk (WAL on, synced).  What it rejected for lack of space is not in the database.
* If a failed write leaves that in doubt, the database is reopened before the next commit, which settles it.
* An unreadable file costs only the table of its family: reads of it raise error 1194.  Only damage to the log, the
  catalog or the MANIFEST ends the store.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rocksdict import (
    BlockBasedIndexType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    IngestExternalFileOptions,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from noria.core.errors import SqlError
from noria.core.limits import STORE_SHARE
from noria.storage.rocks import reading, recovery
from noria.storage.rocks.damage import Damage, is_damage, sst_in
from noria.storage.rocks.errors import (
    StoreDamaged,
    StoreError,
    StoreInUse,
    damaged,
    disk_full,
    one_line,
    opening_error,
    table_damaged,
)
from noria.storage.rocks.store_position import StorePosition
from noria.storage.rocks.sync_mark import SyncMark

META = "meta"
DELTAS = "deltas"  # the delta log (`delta_log.py`)
DEFAULT = "default"  # RocksDB's own family, which stays empty
BALLAST = "noria-ballast"
_BUFFERS = "rocksdb.cur-size-all-mem-tables"
_UNFLUSHED = "rocksdb.cur-size-active-mem-table"
_ENTRIES = "rocksdb.num-entries-active-mem-table"
_FLUSHING = "rocksdb.num-immutable-mem-table"
_FAMILY_BUFFERS = 4  # per family: with two, all commits wait if one buffer fills while the other is flushed
_BYTES_PER_SYNC = 2**20  # of table files: else commits wait while megabytes of them are synced
BLOOM_BITS = 10  # per key: about one look-up of an absent key in a hundred reads a block
Found = TypeVar("Found")


@dataclass(frozen=True)
class RocksMemory:
    """How much memory RocksDB may use, and how much disk it must leave free."""

    cache_bytes: int = 64 * 2**20
    write_buffer_bytes: int = 64 * 2**20  # of all families together
    family_buffer_bytes: int = 32 * 2**20  # of one family before it is flushed
    wal_bytes: int = 256 * 2**20  # bounds the log to replay at a start
    reserve_bytes: int = 32 * 2**20  # commits are rejected when less disk is free, so that compaction can continue

    @classmethod
    def within(cls, limit: int) -> RocksMemory:
        """The store's part of a memory limit for the whole process (0: no limit), halved, at most the defaults."""
        share = max(int(limit * STORE_SHARE / 2), 2**20) if limit else cls.cache_bytes
        return cls(min(cls.cache_bytes, share), min(cls.write_buffer_bytes, share),
                   min(cls.family_buffer_bytes, share // 2))


def table_options(options: Options | None = None, cache: Cache | None = None) -> Options:
    """The options that determine how files on disk look; Spark's tasks write theirs with the same.

    Filters and indexes are partitioned.  As one block, the filter of a file with two million keys (2.5 MB) would exceed
    a shard of the cache, and each look-up would read it anew.
    """
    options = options or Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bytes_per_sync(_BYTES_PER_SYNC)
    blocks = BlockBasedOptions()
    if cache is not None:
        blocks.set_block_cache(cache)
    blocks.set_bloom_filter(BLOOM_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    blocks.set_index_type(BlockBasedIndexType.two_level_index_search())
    blocks.set_partition_filters(True)
    options.set_block_based_table_factory(blocks)
    return options


class RocksEngine:
    """An open RocksDB database."""

    def __init__(self, path: str, memory: RocksMemory):
        self.path, self.memory = path, memory
        self._ballast = Path(path) / BALLAST
        self._unchecked_bytes = 2**62  # committed since the disk's free space was last checked
        self.in_doubt = False  # did a commit fail, so that the log's end must be read again?
        self.reopened: Callable[[], object] = lambda: None  # called after the database was reopened
        self.table_of: Callable[[str], str] = lambda family: family  # the name of a family's table
        self._cache = Cache(memory.cache_bytes)
        self._synced, self._unsynced, self._unlogged = WriteOptions(), WriteOptions(), WriteOptions()
        self._synced.sync, self._unlogged.disable_wal = True, True
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._condemned: list[str] = []
        self.lives = 0  # how many times the database was opened
        self._open()

    # ---------------------------------------------------------------- opening and closing
    def _open(self) -> None:
        self._closed = True
        self.lives += 1
        fresh = self._is_fresh()
        if not fresh:
            recovery.check_log(self.path, lambda: self._options(False))
        self.damage = Damage(self.path)
        names = self._open_database(fresh)
        self.opened_at = self.position()
        self._closed = False
        for name in names:
            self._hold(name)
        try:
            if META not in names:
                self.create_family(META)
            self._quiet_damaged()
            self._set_mark()
            self._fill_ballast()
        except BaseException:
            self.close()
            raise

    def _open_database(self, fresh: bool) -> list[str]:
        """Open the database and return its families.

        The log was checked, so an unreadable file now belongs to a table.  RocksDB is then opened without strictness.
        """
        try:
            names = [] if fresh else [n for n in Rdict.list_cf(self.path, self._options(fresh)) if n != DEFAULT]
            try:
                self._db = self._rdict(fresh, names, not self.damage.families)
            except Exception as e:
                if fresh or not is_damage(str(e)) or isinstance(opening_error(self.path, e), StoreInUse):
                    raise
                self._db = self._rdict(fresh, names, False)
                self._note_file(one_line(e), names)
        except StoreError:
            raise
        except Exception as e:  # rocksdict raises bare Exceptions
            raise opening_error(self.path, e) from e
        return names

    def _rdict(self, fresh: bool, names: list[str], strict: bool) -> Rdict:
        """Open RocksDB.  strict: it rejects a database with an unreadable file, and stops writing when it meets one."""
        options = self._options(fresh, recovery.tracked_options())
        options.set_paranoid_checks(strict)
        return Rdict(self.path, options, {n: self._options(False) for n in names})

    def _note_file(self, text: str, names: list[str]) -> str:
        """Record the damage of the family whose file RocksDB's message names; return it, or "" if there is none."""
        number = sst_in(text)
        for name in names if number is not None else ():
            listed = self._db.get_column_family(name).property_value("rocksdb.sstables") or ""
            if re.search(rf"^ *{number}:", listed, re.MULTILINE):
                if name == META:
                    raise damaged(self.path, f"its catalog cannot be read ({text})")
                self.damage.note(name, text)
                return name
        return ""

    def _quiet_damaged(self) -> None:
        """Disable compaction of damaged families, which would read the damaged file again and again."""
        for name in list(self.damage.families):
            if name in self._families:
                self._families[name].set_options({"disable_auto_compactions": "true"})
            else:
                self.damage.forget(name)

    def _set_mark(self) -> None:
        if self._families[META].get(recovery.MARKED) is None:
            batch = WriteBatch(raw_mode=True)
            batch.put(recovery.MARKED, b"1", self._handles[META])
            self._guarded(lambda: self._db.write(batch, self._synced))
        try:
            self._mark = SyncMark(self.path, self._db.latest_sequence_number())
        except OSError as e:
            raise StoreError(f"cannot write to the data directory {self.path}: {e.strerror}") from e

    def _is_fresh(self) -> bool:
        """True for an empty directory; raises StoreDamaged for one that has data but no CURRENT."""
        if not os.path.isdir(self.path):
            try:
                os.makedirs(self.path)
            except OSError as e:
                raise StoreError(f"cannot make the data directory {self.path}: {e.strerror}") from e
        files = os.listdir(self.path)
        if "CURRENT" in files:
            return False
        if any(f.endswith((".sst", ".log")) and os.path.getsize(os.path.join(self.path, f)) for f in files):
            raise StoreDamaged(f"the data directory {self.path} is damaged: it has data but no file CURRENT; "
                               "restore it from a backup")
        return True

    def _options(self, fresh: bool, base: Options | None = None) -> Options:
        """Options of a column family, or with `base` those of the database."""
        memory = self.memory
        options = table_options(base, self._cache)
        options.create_if_missing(fresh)
        options.set_db_write_buffer_size(memory.write_buffer_bytes)
        options.set_write_buffer_size(memory.family_buffer_bytes)
        options.set_max_write_buffer_number(_FAMILY_BUFFERS)
        options.set_max_total_wal_size(memory.wal_bytes)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_keep_log_file_num(2)
        # A torn record at the log's end is a commit that never returned; anywhere else it is damage to report.
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        return options

    def memory_bytes(self) -> int:
        """The bytes that the block cache and the write buffers use now."""
        return int(self._cache.get_usage()) + self._buffers()

    def _buffers(self) -> int:
        return sum(int(f.property_int_value(_BUFFERS) or 0) for f in (self._db, *self._families.values()))

    def hold(self, memory: RocksMemory) -> None:
        """Set the cache and buffer sizes.  Buffers that exceed them are flushed."""
        self.memory = memory
        self._cache.set_capacity(memory.cache_bytes)
        for family in self._families.values():
            family.set_options({"write_buffer_size": str(memory.family_buffer_bytes)})
        if self._buffers() > memory.write_buffer_bytes:
            self.flush()

    def _hold(self, name: str) -> None:
        self._families[name] = self._db.get_column_family(name)
        self._handles[name] = self._db.get_column_family_handle(name)

    def close(self) -> None:
        """Close the database and release the lock on the directory.  Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._mark.close()
        self._handles.clear()
        for open_one in (*self._families.values(), self._db):
            with suppress(Exception):  # on a full disk it cannot flush; the log has what is in memory
                open_one.close()
        self._families.clear()
        del self._db

    def position(self) -> StorePosition:
        return StorePosition((Path(self.path) / "IDENTITY").read_text().strip(), self.sequence())

    def sequence(self) -> int:
        """RocksDB's last sequence number: how many keys were ever written."""
        return int(self._db.latest_sequence_number())

    def reopen_if_in_doubt(self) -> None:
        """After a failed write, reopen the database, which shows what of it is on disk."""
        if self.in_doubt:
            self.close()
            self._open()
            self.in_doubt = False
            self.reopened()

    # ---------------------------------------------------------------- families
    def families(self) -> list[str]:
        return [name for name in self._families if name not in self._condemned]

    def family(self, name: str) -> Rdict:
        return self._families[name]

    def handle(self, name: str) -> ColumnFamily:
        return self._handles[name]

    def create_family(self, name: str, ballast: bool = False) -> None:
        """Create an empty family, after dropping what a failed attempt left of it.  ballast: as in `commit`."""
        self._make_room(0, ballast)
        self.reopen_if_in_doubt()
        if name in self._families:
            self.drop_family(name)
        self._guarded(lambda: self._db.create_column_family(name, self._options(False)))
        self._hold(name)

    def condemn(self, *names: str) -> None:
        """Mark families as unused: `tidy` drops them, or the next opening does."""
        self._condemned += names

    def tidy(self) -> bool:
        """Drop one condemned family, which takes some milliseconds; return True if there are more."""
        if self._condemned:
            self.drop_family(self._condemned[0])
        return bool(self._condemned)

    def drop_family(self, name: str) -> None:
        if name in self._condemned:
            self._condemned.remove(name)
        del self._handles[name]
        family = self._families.pop(name)
        try:
            self._db.drop_column_family(name)
        except Exception as e:  # a full disk: it is dropped now, or when the store opens next
            if "No space left" not in str(e):
                raise
        with suppress(Exception):  # close would flush for half a second; of a dropped family it does not
            family.close()
        self.damage.forget(name)

    # ---------------------------------------------------------------- reading
    def get(self, name: str, keys: Any) -> Any:
        """The value of a key, or the values of a list of keys; None for an absent key."""
        try:
            return self._families[name].get(keys)
        except Exception as e:
            raise self.unreadable(name, e) from e

    def _read(self, name: str, read: Callable[[Rdict], Found]) -> Found:
        """What `read` returns of a family; its failure is what `unreadable` makes of it."""
        try:
            return read(self._families[name])
        except Exception as e:
            raise self.unreadable(name, e) from e

    def values_with_prefix(self, name: str, prefix: bytes, most: int = 2**62, after: bytes | None = None
                           ) -> tuple[list[bytes], bytes | None]:
        """The values of at most `most` keys that start with the prefix, in key order, from the key behind `after` on.

        Also returns the last key, or None if the end was reached.
        """
        return self._read(name, lambda family: reading.values_under(family, prefix, most, after))

    def count_with_prefix(self, name: str, prefix: bytes, most: int) -> int:
        """How many keys start with the prefix; counts no further than `most`."""
        return self._read(name, lambda family: reading.count_under(family, prefix, most))

    def items_with_prefix(self, name: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        return self._read(name, lambda family: reading.items_under(family, prefix))

    def keys_between(self, name: str, first: bytes, last: bytes, backwards: bool = False) -> Iterator[bytes]:
        """Yield the keys from `first` to those that start with `last`, in order."""
        try:
            yield from reading.keys_between(self._families[name], first, last, backwards)
        except Exception as e:
            raise self.unreadable(name, e) from e

    def any_between(self, name: str, first: bytes, last: bytes) -> bool:
        """True if there is a key from `first` to `last`, both included."""
        return self._read(name, lambda family: reading.any_between(family, first, last))

    def values(self, name: str, rows: int, first: bytes | None = None) -> list[bytes]:
        """The first `rows` values from a key on; fewer only at the end."""
        return self._read(name, lambda family: reading.values(family, rows, first))

    def items(self, name: str, rows: int, first: bytes | None = None) -> list[tuple[bytes, bytes]]:
        return self._read(name, lambda family: reading.items(family, rows, first))

    def slices(self, name: str, rows: int, what: str, first: bytes | None = None, end: bytes | None = None
               ) -> Iterator[list[Any]]:
        """Yield the keys, values or items of a family from `first` to below `end`, `rows` at a time."""
        try:
            yield from reading.slices(self._families[name], rows, what, first, end)
        except Exception as e:
            raise self.unreadable(name, e) from e

    def unreadable(self, name: str, error: Exception) -> Exception:
        """Turn the error of a failed read of a family into the error that the caller raises."""
        text = one_line(error)
        error.__traceback__ = None  # its frames refer to iterators, which would keep the database open
        if isinstance(error, SqlError | StoreError):
            return error
        if not is_damage(text):
            return StoreError(f"cannot read the data directory {self.path}: {text}")
        if name == META:
            return damaged(self.path, f"its catalog cannot be read ({text})")
        self.damage.note(name, text)
        self._quiet_damaged()
        return self.damage_error(name)

    def damage_error(self, name: str) -> SqlError:
        return table_damaged(self.table_of(name), self.damage.families[name])

    # ---------------------------------------------------------------- writing
    def commit(self, batch: WriteBatch, sync: bool = True, ballast: bool = False) -> None:
        """Write the whole batch.  Raises SqlError 1021 and writes nothing if the disk is full.

        ballast: the commit may use the room of the ballast, because it will free room, or is already decided.
        """
        self.make_ready(batch.size_in_bytes(), ballast)
        self._guarded(lambda: self._db.write(batch, self._synced if sync else self._unsynced))
        if sync:
            self._mark.reach(self._db.latest_sequence_number())

    def put_unlogged(self, batch: WriteBatch) -> None:
        """Write past the log, so that no commit waits until these bytes are synced.

        They are on disk once `begin_flush` of the family is done; a reopening before that may lose them.
        """
        self.make_ready(batch.size_in_bytes())
        self._guarded(lambda: self._db.write(batch, self._unlogged))

    def make_ready(self, nbytes: int, ballast: bool = False) -> None:
        """Check the space for bytes to be written now or once they are decided.  Raises SqlError 1021 as `commit`."""
        self._unchecked_bytes += nbytes
        if self.in_doubt or self._unchecked_bytes > self.memory.reserve_bytes // 16:
            self._make_room(nbytes, ballast)
            self._unchecked_bytes = 0
        self.reopen_if_in_doubt()

    def _make_room(self, nbytes: int, ballast: bool) -> None:
        """Raise SqlError 1021 if there is no space, even without the ballast if that may be used."""
        if not ballast or self.has_space(nbytes):
            self.check_space(nbytes)
            self._fill_ballast()
            return
        self._ballast.unlink(missing_ok=True)
        if self._free_bytes() < self.memory.reserve_bytes // 8 + 2 * nbytes:
            self.check_space(nbytes)

    def _fill_ballast(self) -> None:
        """Create a file that only reserves room: deleting it on a full disk lets DELETE and DROP TABLE run."""
        size = self.memory.reserve_bytes // 2
        if not size or self._ballast.exists() or not self.has_space(size):
            return
        with suppress(OSError), open(self._ballast, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)

    def check_space(self, nbytes: int) -> None:
        """Raise SqlError 1021 before RocksDB meets a full disk: log and flush of these bytes need room."""
        while not self.has_space(nbytes) and self._condemned:
            self.tidy()
        if not self.has_space(nbytes):
            raise disk_full(self.path, f"{self._free_bytes()} bytes are free, "
                                       f"{self.memory.reserve_bytes} are kept in reserve")

    def has_space(self, nbytes: int) -> bool:
        return self._free_bytes() >= self.memory.reserve_bytes + 2 * nbytes

    def _free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except Exception as e:
            self.in_doubt = True
            if "No space left" in str(e):
                raise disk_full(self.path, "the write found no space") from e
            met = is_damage(str(e)) and self._note_file(one_line(e), list(self._families))  # by a compaction
            if met and met != DELTAS:
                raise self.damage_error(met) from e  # after a reopening the others continue
            raise StoreError(f"cannot write to the data directory {self.path}: {e}") from e  # a restart drops DELTAS

    def ingest(self, name: str, paths: list[str]) -> None:
        """Ingest SST files into a family; RocksDB moves them."""
        self.reopen_if_in_doubt()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._guarded(lambda: self._families[name].ingest_external_file(paths, options))

    def begin_flush(self, name: str) -> None:
        """Start to flush the family's memtable; new rows use another one."""
        self._guarded(lambda: self._families[name].flush(wait=False))

    def is_flushing(self, name: str) -> bool:
        return bool(self._families[name].property_int_value(_FLUSHING))

    def flush(self) -> None:
        """Flush all memtables, after which a checkpoint takes milliseconds."""
        for name in self.families():
            self._guarded(self._families[name].flush)

    def flush_ahead(self, least_bytes: int) -> bool:
        """Start to flush memtables of at least so many bytes; True if no flush is running."""
        for name in self.families():
            family = self._families[name]
            if family.property_int_value(_ENTRIES) and int(family.property_int_value(_UNFLUSHED) or 0) >= least_bytes:
                self.begin_flush(name)
        return not any(map(self.is_flushing, self.families()))

    def checkpoint(self, path: str) -> None:
        self.check_space(0)
        self.reopen_if_in_doubt()
        self.flush()
        self._guarded(lambda: Checkpoint(self._db).create_checkpoint(path))
