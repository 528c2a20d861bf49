"""Builds an index while its table is written: in slices on the worker's own thread, or from files of Spark's tasks.

Keeps true:

* From the first slice on, every write maintains the index as if it were complete.  So a slice need only add the rows
  that exist when it runs; adding an entry again changes nothing.
* While the build waits for files, it records what writes do to the index: the last state of each entry.  The files
  hold the entries of a later checkpoint, so the index is complete once the recorded entries are put over them.
* Nothing reads the index before its catalog entry is committed.  After an earlier crash the next start drops the
  family.  So the entries of many rows bypass the log, and are flushed to files before that commit.
* If the database was reopened meanwhile, the slices start again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, pairwise, repeat

from rocksdict import WriteBatch

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import INDEX_NOTED
from noria.storage.rocks.engine import RocksEngine
from noria.storage.rocks.errors import StoreError
from noria.storage.tables import meta
from noria.storage.tables.sst import describe
from noria.storage.tables.table import Changed, Index, StoredTable

_UNLOGGED_ROWS = 2**16  # with fewer rows, a flush takes longer than a sync of their entries


class RocksIndexBuild:
    """Implements dataflow.graph.protocols.IndexBuild.

    readable: raises the SqlError of a damaged table; awaited: Spark's tasks make files for it.
    """

    def __init__(self, engine: RocksEngine, table: StoredTable, index: Index, readable: Callable[[], object],
                 awaited: bool = False):
        self._engine, self._table, self.index, self._readable = engine, table, index, readable
        self._after: bytes | None = None  # the key up to which rows are indexed
        self._noted: dict[bytes, bytes | None] | None = None  # entry to the row's key, None: it was deleted
        self.done = 0
        self._unlogged, self._flushing, self._life = table.counters.rows >= _UNLOGGED_ROWS, False, engine.lives
        if awaited:
            self._noted = {}
            table.awaited.append(self)
        else:
            self._begin()

    def _begin(self) -> None:
        """Create the family; from here on writes maintain it."""
        self._engine.create_family(self.index.family, rows=None if self._unlogged else self._table.counters.rows)
        self._table.building.append(self.index)
        self._life = self._engine.lives

    @property
    def _begun(self) -> bool:
        return self.index in self._table.building

    @property
    def awaits(self) -> bool:
        """True if the build waits for files."""
        return self._noted is not None and not self._begun and self in self._table.awaited

    @property
    def declared(self) -> bool:
        return bool(self._table.declared(self.index.columns))

    @property
    def total(self) -> int:
        return self._table.counters.rows

    @property
    def over(self) -> bool:
        """True if the index is complete or abandoned."""
        return not self._begun and self not in self._table.awaited

    def step(self, rows: int) -> bool:
        """Index the next rows, or apply some recorded entries; True when the index is complete and in use."""
        self._readable()
        if self.awaits:
            return False
        if not self._begun:
            self._begin()
            self._stop_observing()
        complete = self._next_slice(rows) if self._noted is None else self._put_noted(self._noted, rows)
        if complete:
            self._finish()
        return self.over

    def _next_slice(self, rows: int) -> bool:
        if self._life != self._engine.lives:
            self.restart()
        if self._flushing:
            return not self._engine.is_flushing(self.index.family)
        first = None if self._after is None else self._after + b"\0"  # the least key above it
        pairs = self._engine.items(self._table.family, rows, first)
        if pairs:
            keys = [k for k, _ in pairs]
            entries = self._table.index_keys(self.index, self._table.codes([v for _, v in pairs]), keys)
            self._put(entries, keys)
            self._after, self.done = keys[-1], self.done + len(keys)
        if len(pairs) == rows or self._life != self._engine.lives:
            return False
        if self._unlogged:
            self._flushing = True
            self._engine.begin_flush(self.index.family)
        return not self._unlogged

    def _put_noted(self, noted: dict[bytes, bytes | None], rows: int) -> bool:
        some = dict(islice(noted.items(), rows))
        self._put([e for e, k in some.items() if k is not None], [k for k in some.values() if k is not None],
                  [e for e, k in some.items() if k is None])
        for entry in some:
            del noted[entry]
        return not noted

    def _put(self, entries: Sequence[bytes], keys: Sequence[bytes], removed: Sequence[bytes] = ()) -> None:
        batch = WriteBatch(raw_mode=True)
        self._engine.fill(batch, self.index.family, removed, entries, keys)
        batch.set_default_column_family(None)
        if self._unlogged and self._noted is None:
            self._engine.put_unlogged(batch)
        else:
            self._engine.commit(batch, sync=False)

    # ---------------------------------------------------------------- from files
    def written(self, changed: Callable[[], Changed]) -> None:
        """Record what a commit did to the index, while the build waits for files."""
        noted = self._noted
        if noted is None:
            return
        left, removed, keys, added = changed()
        before, after = self._table.index_keys(self.index, removed, left), self._table.index_keys(self.index, added,
                                                                                                  keys)
        if self._begun:  # the family has these entries now, so their records are obsolete
            for entry in (*before, *after):
                noted.pop(entry, None)
            return
        noted.update(zip(before, repeat(None)))
        noted.update(zip(after, keys, strict=True))
        if len(noted) > INDEX_NOTED:
            self.in_slices()

    def deliver(self, files: Sequence[str]) -> None:
        """Ingest files of `sst.write_file`, made from a checkpoint since the build waits for them.

        After a SqlError it still waits.
        """
        assert self.awaits
        self._readable()
        try:
            described = sorted((describe(f) for f in files), key=lambda f: f.first)
        except StoreError as e:
            raise SqlError(*UNKNOWN_ERROR, str(e)) from e
        if any(file.first <= before.last for before, file in pairwise(described)):
            raise SqlError(*UNKNOWN_ERROR, f"files of index {self.index.family} overlap")
        self._engine.check_space(sum(f.nbytes for f in described))
        self._begin()
        try:
            if described:
                self._engine.ingest(self.index.family, [f.path for f in described])
        except BaseException:
            self._table.building.remove(self.index)
            raise
        self.done = sum(f.rows for f in described)

    def in_slices(self) -> None:
        """Continue in slices: no file will be delivered, or too much was written meanwhile."""
        if self.awaits:
            self._noted = None

    def _stop_observing(self) -> None:
        if self in self._table.awaited:
            self._table.awaited.remove(self)

    # ---------------------------------------------------------------- its end
    def restart(self) -> None:
        """Restart at the first row, because rows were loaded without a write."""
        self._after, self.done, self._flushing, self._life = None, 0, False, self._engine.lives
        if self._noted is not None:
            self._noted.clear()
            if self._begun:
                self._noted = None
                self._stop_observing()

    def abandon(self) -> None:
        """Abandon the build and drop its family."""
        if self._begun:
            self._table.building.remove(self.index)
            self._engine.condemn(self.index.family)
        self._stop_observing()

    def _finish(self) -> None:
        batch = WriteBatch(raw_mode=True)
        index = replace(self.index, name=self._table.declared(self.index.columns))  # may have changed meanwhile
        meta.put_index(self._engine, batch, self._table, index)
        self._engine.commit(batch)
        self._table.building.remove(self.index)
        self._stop_observing()
        self._table.indexes.append(index)


def run_all_slices(build: RocksIndexBuild, rows: int, after_slice: Callable[[], object]) -> None:
    """Run all slices; abandon the build if one fails."""
    try:
        while not build.step(rows):
            after_slice()
    except BaseException:
        build.abandon()
        raise
