"""Decides which named views have a reader: a view keeps only what its reads need (section 4.4, for whole views).

    CREATE VIEW, with a key                         a reader, empty if it is partial
    CREATE VIEW, without one: it would be full      none: the first direct read makes it
    CREATE MATERIALIZED VIEW                        a reader, filled before the statement is answered
    a view whose rows another one's reader has      none: that reader is read
    a view whose rows are among another one's       none: that reader is read (`plan/reuse/lookups/through.py`)
    a view whose rows an ad-hoc view has            that view's reader

A view with a key has its reader at once: it costs nothing until keys are read, and the indexes for these reads are
built meanwhile.

Keeps true:

* A view that only other views use has no reader.
* When a view is dropped or replaced, its reader is passed to another view with the same rows, if there is one.  Views
  with a key that were read through it get readers of their own.
* A reader that was made is made again at each start.
* If no key of a view has been read and a new view has its rows, it is read through the new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold
from noria.control.catalog.view_index import holds, reading
from noria.control.catalog.worker_view import add_view_step, columns_needed
from noria.control.changes.sender import ChangeSender
from noria.control.views.first_states import FirstStates
from noria.core.errors import Poisoned, SqlError, is_redefined, view_gone
from noria.dataflow.messages import packets
from noria.plan.view import ViewDef
from noria.runtime.link.link import WorkerUnavailable


@dataclass(frozen=True)
class ViewAddition:
    """The first step of a new view.  adopted: the ad-hoc view whose reader it gets."""

    view: ViewDef
    step: packets.MigrationStep
    readerless: bool = False
    adopted: ViewDef | None = None


@dataclass(frozen=True)
class ViewRemoval:
    """The steps that drop views.

    heirs: folded names of dropped views, each with the view that gets its reader; orphans: views that were read through
    dropped ones, and get readers of their own.
    """

    steps: tuple[packets.MigrationStep, ...]
    heirs: dict[str, str]
    orphans: tuple[str, ...] = ()

    @property
    def read(self) -> list[str]:
        """The views that have a reader from now on."""
        return [*self.heirs.values(), *self.orphans]


class ViewReaders:
    """The readers of named views."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, first_states: FirstStates):
        self._catalog, self._sender, self._first_states = catalog, sender, first_states
        self._first_reads: dict[str, asyncio.Task[None]] = {}  # by folded name

    # ------------------------------------------------------------ the first read
    async def first_read(self, view: ViewDef) -> None:
        """Wait until the view has a reader with its first state.

        The reader is made once for all callers, and completed even if they leave; only dropping the view ends it.
        """
        name = fold(view.name)
        task = self._first_reads.get(name)
        if task is None:
            task = self._first_reads[name] = asyncio.ensure_future(self._read_first(name))
            task.add_done_callback(partial(self._was_read, name))
        await asyncio.shield(task)
        if name not in self._catalog.view_defs:
            raise view_gone(view.name)

    def _was_read(self, name: str, task: asyncio.Task[None]) -> None:
        del self._first_reads[name]
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the callers may have left

    async def _read_first(self, name: str) -> None:
        async with self._sender.lock:
            view = self._catalog.view_defs.get(name)
            if view is None or name not in self._catalog.without_reader or self._catalog.match(view) is not None:
                return
            reply = await self._sender.with_room((add_view_step(view),), self._catalog.recipe(), False)
            if name not in self._catalog.view_defs:  # a worker that started meanwhile could not parse it
                return
            self._catalog.gain_reader(view)
            self.start_first_states(reply)
            self._sender.unawaited((), durable=True)
        await self.wait_filled(name, self._as_unread)

    async def _as_unread(self, view: ViewDef, why: BaseException) -> None:
        """Drop a reader that could not be filled; the next read tries again, unless filling it ended workers."""
        if isinstance(why, Poisoned | WorkerUnavailable):
            return
        self._catalog.lose_reader(fold(view.name))
        await self._sender.migrate((packets.DropView(view.name),), self._catalog.recipe())

    async def wait_filled(self, name: str, otherwise: Callable[[ViewDef, BaseException], Awaitable[None]]) -> None:
        """Wait for the first state of a reader; on failure call `otherwise`."""
        while (view := self._catalog.view_defs.get(name)) is not None:
            try:
                await self._first_states.of(view)
                return
            except BaseException as e:
                if isinstance(e, SqlError) and is_redefined(e):  # another worker builds it again
                    continue
                async with self._sender.lock:
                    if self._catalog.view_defs.get(name) is view:
                        await otherwise(view, e)
                raise

    # ------------------------------------------------------------ new and dropped views
    def plan_addition(self, view: ViewDef, at_once: bool) -> ViewAddition:
        """The first step of a new view.  at_once: make its reader now, whether it is read or not."""
        add = add_view_step(view)
        if view.internal:
            return ViewAddition(view, add)
        donor = next(iter(self._donors(view)), None)
        if self.is_held(view):
            return ViewAddition(view, packets.CheckView(add.view), readerless=True)
        if donor is None and not at_once and not view.key:
            return ViewAddition(view, packets.CheckView(add.view), readerless=True)
        if donor is None:
            return ViewAddition(view, add)
        return ViewAddition(replace(view, definition=donor.definition), packets.RenameView(donor.name, view.name),
                            adopted=donor)

    def _donors(self, view: ViewDef) -> list[ViewDef]:
        """Other views whose readers have exactly this one's rows: named ones, then ad-hoc ones with a first state."""
        found = [v for v in self._catalog.holding(view)
                 if fold(v.name) not in self._catalog.without_reader and fold(v.name) != fold(view.name)
                 and not (v.adhoc and self._first_states.is_unfilled(v))]
        return sorted(found, key=lambda v: v.adhoc)

    def is_held(self, view: ViewDef) -> bool:
        """True if the reader of another named view has its rows."""
        return self._catalog.lender(view, named=True) is not None or any(not v.adhoc for v in self._donors(view))

    def drop_unused_readers(self, view: ViewDef) -> tuple[packets.DropView, ...]:
        """Steps that drop the readers that no key was read from and a new view can replace."""
        return tuple(packets.DropView(v.name, idle=True) for n, v in self._catalog.view_defs.items()
                     if v.key and not v.internal and n not in self._catalog.without_reader and n != fold(view.name)
                     and reading(view, v) is not None)

    def plan_removal(self, gone: Collection[str], coming: Sequence[ViewDef] = ()) -> ViewRemoval:
        """The steps that drop these views, or pass their readers to others.  coming: new views."""
        steps: list[packets.MigrationStep] = []
        heirs: dict[str, str] = {}
        for name in gone:
            view = self._catalog.view_defs[name]
            heir = self._successor(view, {*gone, *heirs.values()})
            if heir is None:
                steps.append(packets.DropView(view.name))
            else:
                steps.append(packets.RenameView(view.name, heir.name))
                heirs[name] = fold(heir.name)
        orphans = self._views_without_reader(gone, {*heirs.values()}, coming)
        steps += [add_view_step(self._catalog.view_defs[n]) for n in orphans]
        return ViewRemoval(tuple(steps), heirs, orphans)

    def _views_without_reader(self, gone: Collection[str], heirs: Collection[str], coming: Sequence[ViewDef]
                              ) -> tuple[str, ...]:
        """Views with a key that were read through dropped views, and can be read through no other."""
        without = self._catalog.without_reader
        there = {n for n in self._catalog.view_defs if n not in without and n not in gone} | {*heirs}
        found: list[str] = []
        left = [n for n in without if n not in gone and n not in heirs and self._catalog.view_defs[n].key]
        for name in sorted(left, key=lambda n: (-columns_needed(self._catalog.view_defs[n]), n)):
            view = self._catalog.view_defs[name]
            lenders = {*self._catalog.held.same(view), *self._catalog.held.others(view)}
            new = any(holds(c, view) for c in coming)
            if not lenders.isdisjoint(gone) and lenders.isdisjoint({*there, *found}) and not new:
                found.append(name)
        return tuple(found)

    def _successor(self, view: ViewDef, but: Collection[str]) -> ViewDef | None:
        """A view without a reader whose rows this view's reader has, and no other named view's."""
        if view.internal or fold(view.name) in self._catalog.without_reader or self._first_states.is_unfilled(view):
            return None
        for name, other in self._catalog.view_defs.items():
            if name in self._catalog.without_reader and name not in but:
                named = [v for v in self._donors(other) if not v.adhoc]
                if len(named) == 1 and named[0] is view:
                    return other
        return None

    def record_dropped_readers(self, reply: packets.Migrated) -> None:
        """Record the views whose unused readers were dropped because they are read through another one now."""
        for name in map(fold, reply.yielded):
            if name in self._catalog.view_defs and name not in self._catalog.without_reader:
                self._first_states.forget(name)
                self._catalog.lose_reader(name)

    def record_removal(self, parting: ViewRemoval, gone: Collection[str]) -> None:
        """Update the catalog after these views were dropped on the worker."""
        for name, heir in parting.heirs.items():
            if name in self._catalog.view_defs and heir in self._catalog.without_reader:  # else a worker did it
                self._catalog.gain_reader(self._catalog.view_defs[heir], self._catalog.view_defs[name])
        for name in parting.orphans:
            if name in self._catalog.view_defs and name in self._catalog.without_reader:
                self._catalog.gain_reader(self._catalog.view_defs[name])
        for name in gone:
            self._catalog.forget(name)

    def start_first_states(self, reply: packets.Migrated) -> None:
        """Keep the explanations, and start to build first states, or to compute them by Spark, in the background."""
        catalog = self._catalog
        catalog.explanations.update((fold(name), text) for name, text in reply.explain)
        for name in dict.fromkeys([*reply.filling, *(name for name, _, _ in reply.bootstrap)]):
            view = catalog.view_defs.get(fold(name)) or catalog.adhoc_defs[fold(name)]
            self._first_states.begin(view, [(node, plan) for v, node, plan in reply.bootstrap if v == name])
