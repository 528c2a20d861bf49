"""An index that is built while its table is written: slice by slice, on the worker's own thread.

Keeps true: from the first slice on every write maintains the index as if it were whole, so the slices need only add
the rows that were there, as they are when their slice comes; adding an entry again changes nothing.  Nothing looks
the index up before its entry in the catalog is committed; a crash before leaves a family that goes at the next start.
So the entries of many rows go past the log, and are in files before that commit; where the database was opened anew
meanwhile, the build begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from rocksdict import WriteBatch

from noria.storage import meta
from noria.storage.engine import Engine
from noria.storage.table import Index, Table

_UNLOGGED_ROWS = 2**16  # tables with fewer rows: a flush takes longer than a sync of their entries


class IndexBuild:
    """Implements dataflow.protocols.IndexBuild.  readable: raises the SqlError of a damaged table."""

    def __init__(self, engine: Engine, table: Table, index: Index, readable: Callable[[], object]):
        self._engine, self._table, self.index, self._readable = engine, table, index, readable
        self._after: bytes | None = None  # the key up to which rows are indexed
        self.done = 0
        self._unlogged, self._flushing = table.counters.rows >= _UNLOGGED_ROWS, False
        engine.create_family(index.family)
        self._life = engine.lives
        table.building.append(index)

    @property
    def declared(self) -> bool:
        return bool(self._table.declared(self.index.columns))

    @property
    def total(self) -> int:
        return self._table.counters.rows

    @property
    def over(self) -> bool:
        """Is it whole, or given up?"""
        return self.index not in self._table.building

    def step(self, rows: int) -> bool:
        """Index the next rows; True when the index is whole and in use."""
        self._readable()
        if self._life != self._engine.lives:
            self.again()
        if self._flushing:
            if not self._engine.is_flushing(self.index.family):
                self._finish()
            return self.over
        first = None if self._after is None else self._after + b"\0"  # the least key above it
        pairs = self._engine.items(self._table.family, rows, first)
        if pairs:
            keys = [k for k, _ in pairs]
            batch = WriteBatch(raw_mode=True)
            batch.set_default_column_family(self._engine.handle(self.index.family))
            entries = self._table.index_keys(self.index, self._table.codes([v for _, v in pairs]), keys)
            deque(map(batch.__setitem__, entries, keys), maxlen=0)
            batch.set_default_column_family(None)
            if self._unlogged:
                self._engine.put_unlogged(batch)
            else:
                self._engine.commit(batch, sync=False)
            self._after, self.done = keys[-1], self.done + len(keys)
        if len(pairs) == rows or self._life != self._engine.lives:
            return False
        if self._unlogged:
            self._flushing = True
            self._engine.begin_flush(self.index.family)
        else:
            self._finish()
        return self.over

    def again(self) -> None:
        """Rows came beside all writes: begin at the first one again."""
        self._after, self.done, self._flushing, self._life = None, 0, False, self._engine.lives

    def give_up(self) -> None:
        """Without a trace."""
        if not self.over:
            self._table.building.remove(self.index)
            self._engine.condemn(self.index.family)

    def _finish(self) -> None:
        batch = WriteBatch(raw_mode=True)
        index = replace(self.index, name=self._table.declared(self.index.columns))  # declared or dropped meanwhile
        meta.put_index(self._engine, batch, self._table, index)
        self._engine.commit(batch)
        self._table.building.remove(self.index)
        self._table.indexes.append(index)


def build_whole(build: IndexBuild, rows: int, between: Callable[[], object]) -> None:
    """All slices at once; without a trace if one fails."""
    try:
        while not build.step(rows):
            between()
    except BaseException:
        build.give_up()
        raise
