"""Keeps the FOREIGN KEYs of a load, from the snapshot in which Spark looks its parents up to the moment it is stored.

    snapshot ──► Spark rejects rows without a parent ──► parents are held ──► has a key of them gone since? ─no─► stored
                                                                             └─yes─► looked up again, in a new snapshot
                                                                                     └─ one that a row needs: again

Keeps true: when a load is stored, each of its rows has its parents, and none can go before.  Others may read and add
rows to the parents' tables while Spark works.  They wait only while the parents are held.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from noria.control.ddl.foreign_keys import ForeignKeys
from noria.core.errors import SqlError, not_supported, view_changed
from noria.core.types import TableDef
from noria.runtime.link.written import WrittenTables
from noria.spark.loading.rows.orphans import ReferredKey

if TYPE_CHECKING:  # at run time only the jobs that need it import it: serving does not need pyspark
    from noria.spark.loading.load import LoadSpec

Step = dict[str, Any]
Hold = Callable[[Sequence[str]], AbstractAsyncContextManager[None]]  # keeps others from writing these tables
Snapshot = Callable[[Path], Awaitable[str]]  # makes a snapshot in a directory, and returns its path
Build = Callable[["LoadSpec"], AsyncIterator[Step]]
Gone = Callable[..., Awaitable[int]]  # the job `parents.gone`


class ParentsOfLoad:
    """The parents of one loaded table; they are held until the block ends.  place: a directory for snapshots."""

    def __init__(self, foreign_keys: ForeignKeys, written: WrittenTables, table: TableDef, place: Path,
                 snapshot: Snapshot, hold: Hold | None):
        self._foreign_keys, self._written, self._table = foreign_keys, written, table
        self._place, self._snapshot, self._hold = place, snapshot, hold
        self._numbers = itertools.count(1)
        self._keys = tuple(
            ReferredKey(key.columns, parent, () if parent is None else key.positions_in(parent),
                        key.refers_to(table.name), reason)
            for key, parent, reason in foreign_keys.parents(table))
        self._names = list(dict.fromkeys(key.parent.name for key in self._keys if key.parent is not None))
        self._stack = AsyncExitStack()
        self._held_since: int | None = None
        if self._keys and hold is None:
            raise not_supported(f"a load into '{table.name}', which has a FOREIGN KEY, here", "use SQL statements")

    async def __aenter__(self) -> ParentsOfLoad:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._stack.aclose()

    async def built(self, build: Build, gone: Gone, spec: LoadSpec, statements: bool) -> AsyncIterator[Step]:
        """Build what is to be stored, and yield its steps and its result.  Afterwards the parents are held.

        gone: counts the keys that a later snapshot lacks.  statements: the rows are written by statements, which keep
        the keys, so nothing is held.
        """
        before = self._foreign_keys.removals(self._names), self._written.moment
        spec = await self._in_snapshot(spec)
        async for step in build(spec):
            yield step
        if not self._names or statements:
            return
        assert self._hold is not None
        yield {"step": f"waiting for transactions that use {', '.join(self._names)}"}
        try:
            await self._stack.enter_async_context(self._hold(self._names))
        except SqlError as e:
            raise SqlError(e.code, e.state, f"{e.message}; nothing was loaded: load again") from e
        changed = self._foreign_keys.removals(self._names) != before[0] or self._is_written_since(before[1])
        self._held_since = self._written.moment
        if not changed:
            return
        yield {"step": f"looking for the parents of {self._table.name} again, because some are gone"}
        spec = await self._in_snapshot(spec)
        if await gone(keys=spec.keys, checkpoint=spec.checkpoint, out=spec.out):
            shutil.rmtree(spec.out, ignore_errors=True)
            async for step in build(spec):
                yield step

    async def _in_snapshot(self, spec: LoadSpec) -> LoadSpec:
        """The spec with the keys, and with a new snapshot in which their parents are looked up."""
        if not self._keys:
            return spec
        place = self._place / f"parents-{next(self._numbers)}"
        place.mkdir(mode=0o700)
        return replace(spec, keys=self._keys, checkpoint=await self._snapshot(place))

    def _is_written_since(self, moment: int) -> bool:
        """True if the table refers to itself and was written: TRUNCATE empties it without looking for children."""
        return any(key.own for key in self._keys) and self._written.since(moment, [self._table.name])

    def refuse_emptied(self) -> None:
        """Raise error 1412 if a TRUNCATE that had begun before has emptied the table while it was held."""
        if self._held_since is not None and self._is_written_since(self._held_since):
            raise view_changed(self._table.name)
