"""RocksDB as this package uses it: column families by name, one synced commit at a time, bounded memory.

Keeps true: what `commit` returned from is on disk (WAL on, synced).  What it refused (no space) is not in the
database; where a failed write leaves that in doubt, the database is opened again before the next commit and
the doubt is settled there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    Checkpoint,
    ColumnFamily,
    DBCompressionType,
    DBRecoveryMode,
    IngestExternalFileOptions,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from noria.core.limits import STORE_SHARE
from noria.storage.encoding import successor
from noria.storage.errors import StoreError, disk_full, opening_error

META = "meta"
DEFAULT = "default"  # RocksDB's own family, which we leave empty
_BUFFERS = "rocksdb.cur-size-all-mem-tables"
BLOOM_BITS = 10  # per key: one look-up of an absent key in a hundred goes to a block


@dataclass(frozen=True)
class Memory:
    """How much RocksDB may take, and how much disk it leaves alone."""

    cache_bytes: int = 64 * 2**20
    write_buffer_bytes: int = 64 * 2**20  # of all families together
    family_buffer_bytes: int = 32 * 2**20  # of one family before it is flushed
    wal_bytes: int = 256 * 2**20  # bounds the log to replay at a start
    reserve_bytes: int = 32 * 2**20  # commits stop when less disk is free, so that compaction can go on

    @classmethod
    def within(cls, limit: int) -> Memory:
        """The store's part of a memory limit for everything (0: none), in two halves, no more than what serves."""
        share = max(int(limit * STORE_SHARE / 2), 2**20) if limit else cls.cache_bytes
        return cls(min(cls.cache_bytes, share), min(cls.write_buffer_bytes, share),
                   min(cls.family_buffer_bytes, share // 2))


def table_options() -> Options:
    """What files on disk look like; Spark's tasks write theirs the same way."""
    options = Options(raw_mode=True)
    options.set_compression_type(DBCompressionType.lz4())
    return options


class Engine:
    """An open database."""

    def __init__(self, path: str, memory: Memory):
        self.path, self.memory = path, memory
        self._unchecked_bytes = 2**62  # committed since the last look at the disk's free space
        self.in_doubt = False  # did a commit fail so that the log's end must be read again?
        self.reopened: Callable[[], object] = lambda: None  # called when the doubt can be settled
        self._cache = Cache(memory.cache_bytes)
        self._synced, self._unsynced = WriteOptions(), WriteOptions()
        self._synced.sync = True
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._open()

    # ---------------------------------------------------------------- opening and closing
    def _open(self) -> None:
        self._closed = True
        fresh = self._is_fresh()
        options = self._options(fresh)
        try:
            names = [] if fresh else [n for n in Rdict.list_cf(self.path, options) if n != DEFAULT]
            self._db = Rdict(self.path, options, {n: self._options(False) for n in names})
        except Exception as e:  # rocksdict raises bare Exceptions
            raise opening_error(self.path, e) from e
        self._closed = False
        for name in names:
            self._hold(name)
        if META not in names:
            self.create_family(META)

    def _is_fresh(self) -> bool:
        """Nothing there yet; a directory that lost its heart is not taken for a new one."""
        if not os.path.isdir(self.path):
            try:
                os.makedirs(self.path)
            except OSError as e:
                raise StoreError(f"cannot make the data directory {self.path}: {e.strerror}") from e
        files = os.listdir(self.path)
        if "CURRENT" in files:
            return False
        if any(f.endswith((".sst", ".log")) and os.path.getsize(os.path.join(self.path, f)) for f in files):
            raise StoreError(f"the data directory {self.path} is damaged: it has data but no file CURRENT; "
                             "restore it from a backup")
        return True

    def _options(self, fresh: bool) -> Options:
        memory = self.memory
        options = table_options()
        options.create_if_missing(fresh)
        blocks = BlockBasedOptions()
        blocks.set_block_cache(self._cache)
        blocks.set_bloom_filter(BLOOM_BITS, False)
        blocks.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(blocks)
        options.set_db_write_buffer_size(memory.write_buffer_bytes)
        options.set_write_buffer_size(memory.family_buffer_bytes)
        options.set_max_total_wal_size(memory.wal_bytes)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_keep_log_file_num(2)
        # A torn record at the log's end is a commit that never returned; anywhere else it is damage to report.
        options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        return options

    def memory_bytes(self) -> int:
        """What the block cache and the write buffers take now."""
        return int(self._cache.get_usage()) + self._buffers()

    def _buffers(self) -> int:
        return sum(int(f.property_int_value(_BUFFERS) or 0) for f in (self._db, *self._families.values()))

    def hold(self, memory: Memory) -> None:
        """Shrink or grow to these sizes.  What is in write buffers that are too large now goes to disk."""
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
        """Idempotent; releases the lock on the directory."""
        if self._closed:
            return
        self._closed = True
        self._handles.clear()
        for open_one in (*self._families.values(), self._db):
            with suppress(Exception):  # it cannot flush, on a full disk: the log has what is in memory
                open_one.close()
        self._families.clear()
        del self._db

    def settle(self) -> None:
        """After a failed write: open the database again, which finds what of it is on disk."""
        if self.in_doubt:
            self.close()
            self._open()
            self.in_doubt = False
            self.reopened()

    # ---------------------------------------------------------------- families
    def families(self) -> list[str]:
        return list(self._families)

    def family(self, name: str) -> Rdict:
        return self._families[name]

    def handle(self, name: str) -> ColumnFamily:
        return self._handles[name]

    def create_family(self, name: str) -> None:
        """Make an empty family; what a failed attempt left of it goes first."""
        self.check_space(0)
        self.settle()
        if name in self._families:
            self.drop_family(name)
        self._guarded(lambda: self._db.create_column_family(name, self._options(False)))
        self._hold(name)

    def drop_family(self, name: str) -> None:
        del self._handles[name]
        self._families.pop(name).close()
        self._db.drop_column_family(name)

    # ---------------------------------------------------------------- reading
    def values_with_prefix(self, name: str, prefix: bytes) -> list[bytes]:
        """Values of all keys that start with the prefix, in key order."""
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(successor(prefix))
        return list(self._families[name].values(from_key=prefix, read_opt=bounds))

    def items_with_prefix(self, name: str, prefix: bytes) -> list[tuple[bytes, bytes]]:
        bounds = ReadOptions()
        bounds.set_iterate_upper_bound(successor(prefix))
        return list(self._families[name].items(from_key=prefix, read_opt=bounds))

    def keys_between(self, name: str, first: bytes, last: bytes, backwards: bool = False) -> Iterator[bytes]:
        """Keys from `first` to those that start with `last`, in order."""
        bounds = ReadOptions()  # it owns the bound's bytes: it must live as long as the iterator
        bounds.set_iterate_upper_bound(successor(last))  # beside which a lower bound has no effect
        if backwards:
            yield from takewhile(lambda key: key >= first, self._families[name].keys(backwards=True, read_opt=bounds))
        else:
            yield from self._families[name].keys(from_key=first, read_opt=bounds)

    def any_between(self, name: str, first: bytes, last: bytes) -> bool:
        """Is there a key from `first` to `last`, both included?"""
        found = next(iter(self._families[name].keys(from_key=first)), None)
        return found is not None and found <= last

    # ---------------------------------------------------------------- writing
    def commit(self, batch: WriteBatch, sync: bool = True) -> None:
        """Write the batch whole; SqlError 1021 and nothing written if the disk is full."""
        nbytes = batch.size_in_bytes()
        self._unchecked_bytes += nbytes
        if self.in_doubt or self._unchecked_bytes > self.memory.reserve_bytes // 16:
            self.check_space(nbytes)
            self._unchecked_bytes = 0
        self.settle()
        self._guarded(lambda: self._db.write(batch, self._synced if sync else self._unsynced))

    def check_space(self, nbytes: int) -> None:
        """Refuse before RocksDB runs into a full disk: room for the log and the flush of these bytes."""
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
            raise StoreError(f"cannot write to the data directory {self.path}: {e}") from e

    def ingest(self, name: str, paths: list[str]) -> None:
        """Take SST files over (they are moved away)."""
        self.settle()
        options = IngestExternalFileOptions()
        options.set_move_files(True)
        self._guarded(lambda: self._families[name].ingest_external_file(paths, options))

    def flush(self) -> None:
        """Write all memtables to files: then a checkpoint takes milliseconds."""
        for family in self._families.values():
            self._guarded(family.flush)

    def checkpoint(self, path: str) -> None:
        self.check_space(0)
        self.settle()
        self.flush()
        self._guarded(lambda: Checkpoint(self._db).create_checkpoint(path))


def open_read_only(path: str, names: list[str]) -> Rdict:
    """A checkpoint's families for reading; any number of processes may."""
    try:
        return Rdict(path, table_options(), {n: table_options() for n in names}, AccessType.read_only(False))
    except Exception as e:
        raise opening_error(path, e) from e

