"""RocksDB as this package uses it: column families by name, one synced commit at a time, bounded memory.

A family may be a part of the family `shared` (`shared.py`).  Callers name a family and need not know where it is.

Keeps true:

* What `commit` returned from is on disk (WAL on, synced).  What it rejected for lack of space is not in the database.
* If a failed write leaves that in doubt, the database is reopened before the next commit, which settles it.
* An unreadable file costs only the table of its family: reads of it raise error 1194.  Only damage to the log, the
  catalog or the MANIFEST ends the store.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rocksdict import (
    Cache,
    Checkpoint,
    ColumnFamily,
    IngestExternalFileOptions,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from noria.core.errors import SqlError
from noria.storage.rocks import reading, recovery
from noria.storage.rocks.damage import Damage, is_damage, sst_in
from noria.storage.rocks.disk import DiskSpace, is_fresh
from noria.storage.rocks.errors import (
    StoreError,
    StoreInUse,
    damaged,
    disk_full,
    one_line,
    opening_error,
    table_damaged,
)
from noria.storage.rocks.family_reads import FamilyReads
from noria.storage.rocks.options import RocksMemory, engine_options
from noria.storage.rocks.reading import Family, Part
from noria.storage.rocks.shared import AT_ONCE, RESIDUE, SHARED, Parts, prefix_of, range_of
from noria.storage.rocks.store_position import StorePosition
from noria.storage.rocks.sync_mark import SyncMark

META = "meta"
DELTAS = "deltas"  # the delta log (`delta_log.py`)
DEFAULT = "default"  # RocksDB's own family, which stays empty
_BUFFERS = "rocksdb.cur-size-all-mem-tables"
_UNFLUSHED = "rocksdb.cur-size-active-mem-table"
_ENTRIES = "rocksdb.num-entries-active-mem-table"
_FLUSHING = "rocksdb.num-immutable-mem-table"


class RocksEngine:
    """An open RocksDB database."""

    def __init__(self, path: str, memory: RocksMemory):
        self.path, self.memory = path, memory
        self.space = DiskSpace(path, memory.reserve_bytes)
        self._unchecked_bytes = 2**62  # committed since the disk's free space was last checked
        self.in_doubt = False  # did a commit fail, so that the log's end must be read again?
        self.reopened: Callable[[], object] = lambda: None  # called after the database was reopened
        self.table_of: Callable[[str], str] = lambda family: family  # the name of a family's table
        self._cache = Cache(memory.cache_bytes)
        self._synced, self._unsynced, self._unlogged = WriteOptions(), WriteOptions(), WriteOptions()
        self._synced.sync, self._unlogged.disable_wal = True, True
        self._families: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._parts = Parts(memory.part_entries)
        self._condemned: list[str] = []
        reads = FamilyReads(self.family, self.unreadable)
        self.get, self._read, self.slices, self.any_between = reads.get, reads.read, reads.slices, reads.any_between
        self.values, self.items, self.keys_between = reads.values, reads.items, reads.keys_between
        self.values_with_prefix, self.count_with_prefix, self.items_with_prefix = (
            reads.values_with_prefix, reads.count_with_prefix, reads.items_with_prefix)
        self.lives = 0  # how many times the database was opened
        self._open()

    # ---------------------------------------------------------------- opening and closing
    def _open(self) -> None:
        self._closed = True
        self.lives += 1
        fresh = is_fresh(self.path)
        if not fresh:
            recovery.check_log(self.path, lambda: self._family_options())
        self.damage = Damage(self.path)
        names = self._open_database(fresh)
        self.opened_at = self.position()
        self._closed = False
        for name in names:
            self._hold(name)
        try:
            if META not in names:
                self.create_family(META)
            self._settle_parts()
            self._quiet_damaged()
            self._set_mark()
            self.space.fill_ballast()
        except BaseException:
            self.close()
            raise

    def _open_database(self, fresh: bool) -> list[str]:
        """Open the database and return its families.

        The log was checked, so an unreadable file now belongs to a table.  RocksDB is then opened without strictness.
        """
        try:
            names = [] if fresh else [n for n in Rdict.list_cf(self.path, self._family_options(fresh)) if n != DEFAULT]
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
        options = engine_options(self.memory, self._cache, fresh, recovery.tracked_options())
        options.set_paranoid_checks(strict)
        return Rdict(self.path, options, {n: self._family_options() for n in names})

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
            holder = name if name in self._families else SHARED
            if holder in self._families:
                self._families[holder].set_options({"disable_auto_compactions": "true"})
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

    def _family_options(self, fresh: bool = False) -> Options:
        return engine_options(self.memory, self._cache, fresh)

    def memory_bytes(self) -> int:
        """The bytes that the block cache and the write buffers use now."""
        return int(self._cache.get_usage()) + self._buffers()

    def _buffers(self) -> int:
        return sum(int(f.property_int_value(_BUFFERS) or 0) for f in (self._db, *self._families.values()))

    def hold(self, memory: RocksMemory) -> None:
        """Set the cache and buffer sizes.  Buffers that exceed them are flushed."""
        before, self.memory = self.memory, replace(memory, part_entries=self.memory.part_entries)
        self.space.reserve_bytes = memory.reserve_bytes
        self._cache.set_capacity(memory.cache_bytes)
        if memory.family_buffer_bytes != before.family_buffer_bytes:
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
        return [n for n in (*self._families, *self._parts.sizes) if n != SHARED and n not in self._condemned]

    def family(self, name: str) -> Family:
        if name in self._parts.sizes:
            return Part(self._families[SHARED], prefix_of(name))
        return self._families[name]

    def is_part(self, name: str) -> bool:
        return name in self._parts.sizes

    def handle(self, name: str) -> ColumnFamily:  # of a family that is no part
        return self._handles[name]

    def create_family(self, name: str, ballast: bool = False, rows: int | None = None) -> None:
        """Create an empty family, after dropping what a failed attempt left of it.  ballast: as in `commit`.

        rows: how many it will soon have; a few make it a part.
        """
        self._make_room(0, ballast)
        self.reopen_if_in_doubt()
        if name in self._families or name in self._parts.sizes:
            self.drop_family(name)
        if rows is not None and rows < self.memory.part_entries and not self._shared_is_damaged():
            if SHARED not in self._families:
                self._create(SHARED)
            self._parts.add(name)
        else:
            self._create(name)

    def _create(self, name: str) -> None:
        self._guarded(lambda: self._db.create_column_family(name, self._family_options()))
        self._hold(name)

    def keep_part(self, name: str, rows: int) -> bool:
        """Know a part of a table in the catalog, which may be empty; False if its rows are gone."""
        if name in self._families:
            return True
        if SHARED not in self._families or (rows and name not in self._parts.sizes and not self._shared_is_damaged()):
            return False
        self._parts.add(name, rows)
        return True

    def _settle_parts(self) -> None:
        """Find the parts that have keys, and drop the families of moves that were not committed."""
        try:
            for name in self._parts.settle(self._families):
                self._drop_own(name)
        except Exception as e:
            self.unreadable(SHARED, e)

    def separate(self, name: str) -> None:
        """Move a part into a family of its own, which takes some milliseconds; a family that is none stays."""
        if name not in self._parts.sizes:
            return
        size = self._parts.sizes[name]
        self._make_room(size.nbytes, False)
        self.reopen_if_in_doubt()
        if name not in self._parts.sizes:  # the reopening found a move that is committed
            return
        items = self._read(name, lambda part: reading.items_under(part, b""))
        batch = WriteBatch(raw_mode=True)
        self._guarded(lambda: self._db.create_column_family(name, self._family_options()))
        batch.set_default_column_family(self._db.get_column_family_handle(name))
        deque(map(batch.__setitem__, [k for k, _ in items], [v for _, v in items]), maxlen=0)
        batch.set_default_column_family(None)
        batch.delete_range(*range_of(name), self._handles[SHARED])
        self._guarded(lambda: self._db.write(batch, self._synced))  # if in doubt, `_settle_parts` finds out
        self._mark.reach(self._db.latest_sequence_number())
        self._parts.forget(name)
        self._hold(name)

    def _move_outgrown(self, times: float) -> None:
        """Move the next part that is too large; one that was only written often stays.  A full disk delays it."""
        name = self._parts.next_outgrown(times)
        if name is not None:
            with suppress(SqlError):
                some = self._read(name, lambda part: reading.items(part, self.memory.part_entries))
                if self._parts.measure(name, some):
                    self.separate(name)

    def condemn(self, *names: str) -> None:
        """Mark families as unused: `tidy` drops them, or the next opening does."""
        self._condemned += names

    def tidy(self) -> bool:
        """Drop one condemned family or move one large part, in some milliseconds; return True if there are more."""
        if self._condemned:
            with suppress(SqlError):  # a full disk: the next opening drops a part
                self.drop_family(self._condemned[0])
        elif self._parts.outgrown and not self.in_doubt:
            self._move_outgrown(1)
        return bool(self._condemned or self._parts.outgrown)

    def put_dropped(self, batch: WriteBatch, names: Collection[str]) -> None:
        """Add to a batch that drops tables what drops their parts.  `forget_dropped` follows its commit."""
        for name in filter(self.is_part, names):
            batch.delete_range(*range_of(name), self._handles[SHARED])

    def forget_dropped(self, names: Collection[str]) -> None:
        """After the commit of `put_dropped`: the parts are gone; `tidy` drops the families."""
        parts = list(filter(self.is_part, names))
        self._condemned += [name for name in names if name not in parts]
        for name in parts:
            self._forget_part(name)

    def drop_family(self, name: str) -> None:
        if name in self._condemned:
            self._condemned.remove(name)
        if name in self._parts.sizes:
            batch = WriteBatch(raw_mode=True)
            batch.delete_range(*range_of(name), self._handles[SHARED])
            self._guarded(lambda: self._db.write(batch, self._synced))  # before a family of this name may be created
            self._mark.reach(self._db.latest_sequence_number())
            self._forget_part(name)
        else:
            self._drop_own(name)

    def _forget_part(self, name: str) -> None:
        self._parts.forget(name)
        if name in self.damage.families:
            self.damage.note(RESIDUE, self.damage.families[name])
            self.damage.forget(name)
        if not self._parts.sizes and self._shared_is_damaged():
            self._drop_own(SHARED)
            self.damage.forget(RESIDUE)

    def _outlast(self) -> None:
        """Write once more to `meta`: RocksDB forgets the last sequence number with the family that has it."""
        batch = WriteBatch(raw_mode=True)
        batch.put(recovery.MARKED, b"1", self._handles[META])
        with suppress(Exception):  # a full disk: the next commit meets it, too
            self._db.write(batch, self._unsynced)

    def _drop_own(self, name: str) -> None:
        if name in (DELTAS, SHARED):
            self._outlast()
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

    # ---------------------------------------------------------------- damage
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
        return table_damaged(self.table_of(name), self.damage.families.get(name) or self.damage.families[SHARED])

    def is_damaged(self, name: str) -> bool:
        damaged = self.damage.families
        return bool(damaged) and (name in damaged or (SHARED in damaged and name in self._parts.sizes))

    def _shared_is_damaged(self) -> bool:
        """True if a block of `shared` is unreadable, so that no new part may begin there."""
        return any(name == SHARED or name not in self._families for name in self.damage.families)

    # ---------------------------------------------------------------- writing
    def fill(self, batch: WriteBatch, name: str, removed: Collection[bytes], keys: Collection[bytes],
             values: Collection[bytes]) -> None:
        """Add to a batch: the keys to delete from a family, then the keys to put, with their values.

        Afterwards the batch must get another default family: one that outlives a reopening must not hold the database.
        """
        holder = name
        if name in self._parts.sizes:
            removed, keys = self._parts.fill(name, removed, keys, values)
            holder = SHARED
        batch.set_default_column_family(self._handles[holder])
        deque(map(batch.delete, removed), maxlen=0)
        deque(map(batch.__setitem__, keys, values), maxlen=0)

    def commit(self, batch: WriteBatch, sync: bool = True, ballast: bool = False) -> None:
        """Write the whole batch.  Raises SqlError 1021 and writes nothing if the disk is full.

        ballast: the commit may use the room of the ballast, because it will free room, or is already decided.
        """
        self.make_ready(batch.size_in_bytes(), ballast)
        self._guarded(lambda: self._db.write(batch, self._synced if sync else self._unsynced))
        if sync:
            self._mark.reach(self._db.latest_sequence_number())
        if self._parts.outgrown:
            self._move_outgrown(AT_ONCE)

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
        if not ballast or self.space.suffices(nbytes):
            self.check_space(nbytes)
            self.space.fill_ballast()
        elif not self.space.suffices_without_ballast(nbytes):
            self.check_space(nbytes)

    def check_space(self, nbytes: int) -> None:
        """Raise SqlError 1021 before RocksDB meets a full disk: log and flush of these bytes need room."""
        while not self.space.suffices(nbytes) and self._condemned:
            self.tidy()
        if not self.space.suffices(nbytes):
            raise disk_full(self.path, f"{self.space.free_bytes()} bytes are free, "
                                       f"{self.memory.reserve_bytes} are kept in reserve")

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
        self.separate(name)
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
        for family in self._families.values():
            self._guarded(family.flush)

    def flush_ahead(self, least_bytes: int) -> bool:
        """Start to flush memtables of at least so many bytes; True if no flush is running."""
        for name, family in self._families.items():
            if name in self._condemned:
                continue
            if family.property_int_value(_ENTRIES) and int(family.property_int_value(_UNFLUSHED) or 0) >= least_bytes:
                self.begin_flush(name)
        return not any(map(self.is_flushing, self._families))

    def checkpoint(self, path: str) -> None:
        self.check_space(0)
        self.reopen_if_in_doubt()
        self.flush()
        self._guarded(lambda: Checkpoint(self._db).create_checkpoint(path))
