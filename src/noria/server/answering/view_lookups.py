"""Lookups: from shared memory if the key is present, else by one upquery for all clients that wait for the key.

Keeps true: an answer belongs to the requested definition of the view; error 1412 reports that it was dropped.  Rows
from shared memory are one version of the key, published by the worker that owns it.  Several keys of one worker are as
of one moment.  However many clients wait for one key of a view, one request for it is under way (ONE-REQUEST).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from noria.control.catalog.worker_view import add_view_step
from noria.core.errors import SqlError, is_unfilled
from noria.core.limits import (
    DENSE_KEYS,
    OFF_LOOP_ROWS,
    ONE_SHOT_MS,
    ONE_SHOT_ROWS,
    TRANSACTION_READ_MS,
    TRANSACTION_READ_ROWS,
    VIEW_HOLD_MS,
)
from noria.dataflow.messages.packets import Done, Inspect, Query, QueryForecast, Read, Rows, SessionWrites
from noria.dataflow.messages.transaction_packets import Within
from noria.plan.optimizer import kept_top
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef, first_of
from noria.runtime.link.key_fills import KeyFill, KeyFills
from noria.runtime.link.link import Link
from noria.runtime.link.read_batching import KeyRows
from noria.runtime.link.result_memory import MemoryLease, ResultMemory
from noria.runtime.routing.scatter_gather import numbered, row_by_row, select_keys
from noria.server.answering.keys import typed_keys
from noria.server.outcomes import ReadVersion
from noria.server.rows import as_batch, chosen, is_large, python_rows, shown
from noria.views.reader import AttachedView, AttachedViews, LargeAnswer

Key = tuple[Any, ...]
Looked = tuple[pa.Table, Any]  # rows with `__key`, and a mask of the keys that are missing


KEPT_VIEWS = 1_024  # SELECTs whose view is kept in the form that workers read


@dataclass(slots=True)
class ViewEntry:
    """A key's entry in a view (`outcomes.Entry`).  worker: the one that owns the key."""

    view: AttachedView
    handle: int
    link: Link
    worker: int

    def watch(self) -> Callable[[], int]:
        return partial(self.view.version, self.handle)

    def stamp(self) -> None:
        self.view.stamp(self.handle)

    def has(self, writes: SessionWrites) -> bool:
        return self.link.has(self.worker, self.view.name, writes)


class MappedRows(NamedTuple):
    """Rows from shared memory, and their entry if it was requested and the key has one."""

    rows: list[Any]
    version: ReadVersion | None


class ManyRows(NamedTuple):
    """Rows as Arrow with `__key` (the ordinal of each row's key), and the lease of the memory that they occupy."""

    table: pa.Table
    lease: MemoryLease


@dataclass(slots=True)
class _RunningRead:
    """A read that is running, and how many callers wait for it."""

    task: asyncio.Task[list[Any] | ManyRows]
    waiting: int = 0


class ViewLookups:
    """Looks keys up in the views of the workers behind a link.

    attach: returns the published views of a worker, by its number.  hold_ms: how long a read of an ad-hoc view may
    occupy a worker.
    """

    def __init__(self, link: Link, attach: Callable[[int], AttachedViews], hold_ms: int):
        self._link, self._hold_ms = link, hold_ms
        self._routes, self._alone = link.routes, link.routes.workers == 1
        self._attach = attach
        self._views: list[AttachedViews | None] = [None] * link.routes.workers
        self._running_reads: dict[tuple[str, int, Key], _RunningRead] = {}
        self._fills = KeyFills(lambda: link.staging_workers)
        self._shown: dict[int, tuple[ViewDef, ViewDef]] = {}  # by id of the first
        self.hits = 0
        self.upqueries = self.one_shots = 0
        self._hits_of: defaultdict[str, int] = defaultdict(int)
        self._worker_reads_of: defaultdict[str, int] = defaultdict(int)
        self.on_forget: Callable[[AttachedView], None] = lambda view: None
        self.on_drop: Callable[[str], None] = lambda view: None
        self.room = ResultMemory()  # of large results
        self._copying = asyncio.Semaphore(1)  # large answers are copied, and wait for room, one at a time

    def counts(self, view: str) -> tuple[int, int]:
        """Return (lookups answered from shared memory, all lookups) of a view.  Kept replies do not count."""
        hits, worker_reads = self._hits_of.get(view, 0), self._worker_reads_of.get(view, 0)
        return hits, hits + worker_reads

    def hits_of(self) -> Mapping[str, int]:
        """Return the number of lookups answered from shared memory, by view."""
        return self._hits_of

    def had_elsewhere(self, hits: Mapping[str, int]) -> None:
        """Count lookups that another process answered from shared memory."""
        for view, number in hits.items():
            self.hits += number
            self._hits_of[view] += number

    def attached(self, view: ViewDef, worker: int) -> AttachedView | None:
        """Return the view in the worker's shared memory, whatever its definition.

        None if it is not published, or if this process cannot map more memory; then the worker must answer.
        """
        views = self._views[worker]
        if views is None:
            views = self._views[worker] = self._attach(worker)
        try:
            return views.view(view.name)
        except (KeyError, OSError):
            return None

    def _attached_of(self, view: ViewDef, key: Key) -> AttachedView | None:
        """Return the view in the memory of the worker that owns the key, or None."""
        return self.attached(view, 0 if self._alone else self._routes.owner(view, key))

    def refresh(self) -> None:
        """Unmap files from which views have moved to other memory."""
        for views in self._views:
            if views is not None:
                with suppress(OSError):  # the next read will find the new memory
                    views.refresh()

    def forget(self, view: str) -> None:
        """Forget the counts and the mapping of a dropped view."""
        self._hits_of.pop(view, None)
        self._worker_reads_of.pop(view, None)
        for views in self._views:
            attached = None if views is None else views.forget(view)
            if attached is not None:
                self.on_forget(attached)
        self.on_drop(view)

    def local(self, view: ViewDef, key: Key, keep: bool, through: ReadThrough | None = None) -> MappedRows | None:
        """Return the key's rows from shared memory.  None: call `fetch`; the key is missing or has too many rows.

        keep: return their entry, too.  through: chooses some of the rows and columns.  Raises SqlError 1690 if a row
        holds an evaluation error."""
        found = self._found(view, key, keep, through)
        if found is not None:
            self.hits += 1
            self._hits_of[view.name] += 1
        return found

    def _found(self, view: ViewDef, key: Key, keep: bool = False,
               through: ReadThrough | None = None) -> MappedRows | None:
        worker = 0 if self._alone else self._routes.owner(view, key)
        attached = self.attached(view, worker)
        if attached is None:
            return None
        read_version = None
        try:
            if keep:
                found = attached.lookup_entry(key, through)
                rows, handle, version = found or (None, -1, -1)
                read_version = ReadVersion(ViewEntry(attached, handle, self._link, worker), version,
                                           attached.entry_tick) if handle >= 0 else None
            else:
                rows = attached.lookup(key, through)
        except LargeAnswer:
            return None
        except (SqlError, OSError) as e:
            if isinstance(e, SqlError) and attached.definition == view.definition:
                raise
            return None  # another definition, or more than this process may map
        if rows is None or attached.definition != view.definition:
            return None
        return MappedRows(rows, read_version)

    def fill(self, view: ViewDef, key: Key) -> KeyFill | None:
        """Let the worker fill a missing key, together with other keys.  None: call `fetch`, because the view is not in
        shared memory, or because somebody waits for the key otherwise."""
        worker = self._routes.owner(view, key) if key else 0
        attached = self.attached(view, worker) if key else None
        if attached is None or attached.definition != view.definition:
            return None
        found = self._fills.find(worker, view.name, view.definition, key)
        if found is None:
            if self._running_reads and (view.name, view.definition, key) in self._running_reads:
                return None
            self.upqueries += 1
            found = self._fills.add(worker, view.name, view.definition, self._limit_ms(view) // 2, key)
        elif found.soon.done():
            return None
        self._worker_reads_of[view.name] += 1
        return found

    def filled(self, view: ViewDef, key: Key, through: ReadThrough | None) -> list[Any] | None:
        """Return the rows of a key that was filled.  None: call `fetch`.  Raises SqlError as `local` does."""
        found = self._found(view, key, False, through)
        return None if found is None else found.rows

    async def fetch(self, view: ViewDef, key: Key, through: ReadThrough | None = None) -> list[Any] | ManyRows:
        """Return the key's rows from the worker, which fills the key.  Callers that wait for one key are coalesced.

        If the key is present with many rows, they come from shared memory.
        """
        large = await self._large(view, key, through)
        if large is not None:
            self.hits += 1
            self._hits_of[view.name] += 1
            return large
        self._worker_reads_of[view.name] += 1
        wanted = (view.name, view.definition, key)
        running = self._running_reads.get(wanted)
        if running is None:
            self.upqueries += 1
            running = self._running_reads[wanted] = _RunningRead(asyncio.ensure_future(self._read(view, key)))
            running.task.add_done_callback(partial(self._answered, wanted))
        running.waiting += 1
        try:
            rows = await asyncio.shield(running.task)
        finally:
            running.waiting -= 1
            if not running.waiting and not running.task.done():  # nobody waits any more
                running.task.cancel()
                self._running_reads.pop(wanted, None)
        if isinstance(rows, ManyRows):
            return ManyRows(chosen(rows.table, through), rows.lease)
        return rows if through is None else through.rows(rows)

    async def _large(self, view: ViewDef, key: Key, through: ReadThrough | None = None) -> ManyRows | None:
        """Return the many rows of a key from shared memory; None if the key is missing."""
        attached = self._attached_of(view, key)
        if attached is None:
            return None
        async with self._copying:
            table = self._table(view, key, through)
            if table is None:
                return None
            return ManyRows(table, await self._covered(table))

    async def _covered(self, table: pa.Table) -> MemoryLease:
        """Wait for memory for the table if it is large, and return the lease."""
        lease = self.room.lease()
        if is_large(table):
            await lease.cover(table.nbytes)
        return lease

    def _answered(self, wanted: tuple[str, int, Key], task: asyncio.Task[list[Any] | ManyRows]) -> None:
        running = self._running_reads.get(wanted)
        if running is not None and running.task is task:
            del self._running_reads[wanted]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the callers may have left

    def _limit_ms(self, view: ViewDef) -> int:
        return self._hold_ms if view.adhoc else VIEW_HOLD_MS

    async def _read(self, view: ViewDef, key: Key) -> list[Any] | ManyRows:
        """Let the worker fill the key, then read the rows from shared memory, so that the worker need not send them.

        If they were evicted meanwhile, or cannot be published, the worker sends them.
        """
        near = self._attached_of(view, key) is not None
        if near:
            if (fill := self._fills.find(self._routes.owner(view, key), view.name, view.definition, key)) is not None:
                await asyncio.shield(fill.answered)
                if (found := self._found(view, key)) is not None:
                    return found.rows
            await self._ask(Read(0, view.name, [key], fill=True, definition=view.definition,
                                 limit_ms=self._limit_ms(view)))
            found = self._found(view, key)
            if found is not None:
                return found.rows
            large = await self._large(view, key)
            if large is not None:
                return large
        return await self._sent(view, key, together=not near)

    async def _sent(self, view: ViewDef, key: Key, together: bool) -> list[Any] | ManyRows:
        """Return the key's rows as the worker sends them.  together: the read may share a packet with other reads
        (`runtime/link/read_batching.py`)."""
        lease = self.room.lease()
        rows = await self._ask(Read(0, view.name, [key], definition=view.definition, limit_ms=self._limit_ms(view),
                                    together=together, chunked=True), lease)
        if isinstance(rows, KeyRows) and rows.batch.table.num_rows <= OFF_LOOP_ROWS:
            return rows.of(rows.batch.made(lambda table: python_rows(table, table.num_columns - 1)))
        return ManyRows(rows.table() if isinstance(rows, KeyRows) else pa.table(rows), lease)

    def _table(self, view: ViewDef, key: Key, through: ReadThrough | None = None) -> pa.Table | None:
        """Return the key's rows from shared memory as Arrow, with `__key`; None if the key is missing."""
        attached = self._attached_of(view, key)
        if attached is None:
            return None
        try:
            table = attached.lookup_table(key, through)
        except (SqlError, OSError) as e:
            if isinstance(e, SqlError) and attached.definition == view.definition:
                raise
            return None
        return table if attached.definition == view.definition else None

    async def _rows(self, view: ViewDef, keys: Any, nulls: bool = False) -> pa.Table:
        rows = await self._ask(Read(0, view.name, keys, nulls, definition=view.definition,
                                    limit_ms=self._limit_ms(view)))
        return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])

    async def _ask(self, read: Read | Query, lease: MemoryLease | None = None) -> Any:
        """Return the worker's rows.  If a restarted worker has no first state of the view yet, wait and ask again."""
        while True:
            reply: Rows = await self._link.ask(read, retry=True, lease=lease)
            if reply.error is None:
                return reply.rows
            if not (isinstance(read, Read) and is_unfilled(reply.error)):
                raise reply.error
            built: Done = await self._link.ask(Inspect(0, "built", read.view), retry=True)
            built.result()

    async def one_shot(self, view: ViewDef, keys: list[Key], nulls: bool, key_range: tuple[int, int] | None,
                   within: Within | None = None, much: bool = False) -> ManyRows:
        """Answer by a one-shot: return the rows of a view that is not in the program, for some keys or a range.
        within: its transaction.  much: it may read more.

        Raises SqlError 3024 if a worker would read too much.
        """
        self.one_shots += 1
        lease = self.room.lease()
        query = self._query(view, keys, nulls, key_range, within, much)
        return ManyRows(cast(pa.Table, await self._ask(query, lease)), lease)

    async def foreseen(self, view: ViewDef, keys: list[Key], nulls: bool,
                       key_range: tuple[int, int] | None) -> QueryForecast:
        """Return how the workers would answer `one_shot` now."""
        reply: Done = await self._link.ask(Inspect(0, "forecast", read=self._query(view, keys, nulls, key_range)),
                                           retry=True)
        found: QueryForecast = reply.result()
        return found

    def _query(self, view: ViewDef, keys: list[Key], nulls: bool, key_range: tuple[int, int] | None,
               within: Within | None = None, much: bool = False) -> Query:
        rows, descending = (key_range and first_of(view)) or (None, False)
        most, limit_ms = (ONE_SHOT_ROWS, ONE_SHOT_MS) if within is None and not much else (
            TRANSACTION_READ_ROWS, TRANSACTION_READ_MS)
        return Query(0, self._published_view(view), keys, nulls, key_range, rows, descending, most, limit_ms,
                     not self._alone and not row_by_row(view.plan), chunked=True, within=within)

    def _published_view(self, view: ViewDef) -> ViewDef:
        """Return the view as workers read it.  A SELECT that is repeated gets the same object, encoded once."""
        known = self._shown.get(id(view))
        if known is None or known[0] is not view:
            if len(self._shown) >= KEPT_VIEWS:
                self._shown.clear()
            known = self._shown[id(view)] = view, add_view_step(kept_top(view)).view
        return known[1]

    def local_keys(self, view: ViewDef, keys: list[Key], nulls: bool,
                   through: ReadThrough | None = None) -> pa.Table | None:
        """Return the rows of several keys from shared memory, as of one moment of each worker.  None if one is missing.
        nulls: a None in a key matches NULL; else it matches nothing."""
        looked = self._look(view, keys, nulls, through)
        if looked is None or looked[1].any():
            return None
        found = looked[0]
        self.hits += len(keys)
        self._hits_of[view.name] += len(keys)
        return found

    def local_range(self, view: ViewDef, low: int, high: int, through: ReadThrough | None = None,
                    tick: int | None = None, counts: bool = True) -> pa.Table | None:
        """Return the rows of a range of few codes from the shared memory of the only worker.  None if one is missing.
        tick: the rows at the end of this earlier tick; then also None if one may have changed since."""
        attached = self.attached(view, 0) if self._alone and high - low < DENSE_KEYS else None
        if attached is None:
            return None
        try:
            found = attached.lookup_between(low, high, tick, through)
        except (SqlError, OSError) as e:
            if isinstance(e, SqlError) and attached.definition == view.definition:
                raise
            return None
        if found is None or attached.definition != view.definition or found.num_rows > OFF_LOOP_ROWS:
            return None
        self.hits += counts
        self._hits_of[view.name] += counts
        return found

    def present_keys(self, view: ViewDef, keys: list[Key]) -> Looked | None:
        """Return the rows of the present keys, and the mask of missing keys.  None if the view is not mapped."""
        looked = self._look(view, keys, False, None)
        if looked is not None:
            there = len(keys) - int(np.count_nonzero(looked[1]))
            self.hits += there
            self._hits_of[view.name] += there
        return looked

    def _look(self, view: ViewDef, keys: Any, nulls: bool, through: ReadThrough | None) -> Looked | None:
        """Return the rows of many keys, and the mask of missing keys.  None if no worker publishes this definition of
        the view to this process."""
        if self._alone:
            return self._look_at(0, view, keys, nulls, through)
        whose = self._routes.owners(view, keys)
        missing = np.ones(len(whose), np.bool_)
        found: list[tuple[pa.Table, Any]] = []
        for worker in np.unique(whose).tolist() or [0]:
            at = np.flatnonzero(whose == worker)
            looked = self._look_at(worker, view, select_keys(keys, at), nulls, through)
            if looked is not None:
                found.append((looked[0], at))
                missing[at] = looked[1]
        return (numbered(found).combine_chunks(), missing) if found else None

    def _look_at(self, worker: int, view: ViewDef, keys: Any, nulls: bool,
                 through: ReadThrough | None) -> Looked | None:
        attached = self.attached(view, worker)
        if attached is None:
            return None
        try:
            found = attached.lookup_many(keys, nulls=nulls, through=through)
        except Exception as e:
            if attached.definition == view.definition and not isinstance(e, OSError):
                raise
            return None
        return found if attached.definition == view.definition else None

    async def fetch_keys(self, view: ViewDef, keys: list[Key], nulls: bool, through: ReadThrough | None = None
                         ) -> pa.Table:
        """As `local_keys`, but from the workers, which fill missing keys."""
        self.upqueries += 1
        self._worker_reads_of[view.name] += len(keys)
        return chosen(await self._rows(view, keys, nulls), through)

    async def fetch_range(self, view: ViewDef, low: int, high: int, first: tuple[int, bool] | None,
                          through: ReadThrough | None = None) -> ManyRows:
        """Return the rows whose key is a code from low to high.  They come from the workers, which know all keys.

        first: (rows, descending): so many rows of the least keys (True: of the greatest) are enough.
        """
        self.upqueries += 1
        self._worker_reads_of[view.name] += 1
        rows, descending = first or (None, False)
        read = Read(0, view.name, (), key_range=(low, high), first=rows, descending=descending,
                    definition=view.definition, limit_ms=self._limit_ms(view), chunked=True)
        lease = self.room.lease()
        return ManyRows(chosen(cast(pa.Table, await self._ask(read, lease)), through), lease)

    async def fetch_table(self, view: ViewDef, keys: pa.Table, through: ReadThrough | None = None) -> pa.Table:
        """Return the visible columns of the rows of many keys, and `__key`, the ordinal of each row's key.  Present
        keys are read from shared memory, the others from the workers."""
        typed = typed_keys(keys, view.key_fields)
        found, missing = self._many_local(view, typed, through)
        ordinals = np.flatnonzero(missing)
        if found is not None and not len(ordinals):
            return found
        self.upqueries += 1
        absent = typed.take(pa.array(ordinals)).combine_chunks()
        some = view.key and len(ordinals)
        rows = await self._rows(view, as_batch(absent, len(ordinals)) if some else [()] * len(ordinals))
        own = pa.array(ordinals[rows.column("__key").to_numpy()], pa.int64())
        rows = shown(view, chosen(rows.set_column(rows.num_columns - 1, "__key", own), through), through)
        if found is None or not found.num_rows:
            return rows
        return pa.concat_tables([found, rows]).combine_chunks()

    def _many_local(self, view: ViewDef, keys: pa.Table, through: ReadThrough | None
                    ) -> tuple[pa.Table | None, Any]:
        looked = self._look(view, keys, False, through)
        if looked is None:
            return None, np.ones(keys.num_rows, np.bool_)
        rows, missing = looked
        absent = int(np.count_nonzero(missing))
        self.hits += keys.num_rows - absent
        self._hits_of[view.name] += keys.num_rows - absent
        self._worker_reads_of[view.name] += absent
        return shown(view, rows, through), missing
