"""The program: tables and views, their changes, and how a restarted worker gets them (section 5).

A change is one `Migrate` packet.  The worker plans and applies it, and stores the recipe (the CREATE VIEW statements of
the program) in the same commit as the tables.  Keeps true:

* `table` and `view` return what the worker has acknowledged;
* changes happen one at a time, in the order asked;
* nothing is dropped that a named view builds on; ad-hoc views (`adhoc.py`) are dropped with what they read;
* a view has a reader when it is read (`readers.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from noria.control.catalog.names import Recorder, beside, fold, without_numbers
from noria.control.catalog.origin import instead
from noria.control.catalog.published import published
from noria.control.catalog.recipe import AsOf, Instead, read, read_text, stamped
from noria.control.ddl.alterations import loses_unique, lost, refits
from noria.control.ddl.restore import brought_back
from noria.control.views.readers import quoted
from noria.control.views.texts import Change, Texts
from noria.core import limits
from noria.core.errors import (
    INDEX_NEEDED,
    TOO_LONG,
    VIEW_CHANGED,
    Poisoned,
    SqlError,
    is_gone,
    is_out_of_service,
    table_exists,
    unknown_table,
    view_changed,
)
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import tables_of
from noria.plan.uses import outdated, used
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link, WorkerGone
from noria.sql import commands
from noria.sql.parse import parse

log = logging.getLogger(__name__)
ALL = ""  # all views at once


class Program(Texts):
    """The catalog and its changes.  hold_ms: how long the worker may take to make an ad-hoc view."""

    def __init__(self, link: Link, adhoc_views: int = limits.ADHOC_VIEWS, hold_ms: int = limits.READ_HOLD_MS):
        super().__init__(link, adhoc_views, hold_ms)
        self._beside: dict[str, ViewDef] = {}  # views in the making that replace others, by temporary name
        self._fewer_beside = asyncio.Event()  # set, and replaced by another, whenever such a view is gone
        self._last_table_id = 0
        self.on_feed_dropped: Callable[[str], object] = lambda name: None
        self._under_way: Sequence[ViewDef] = ()  # the views that the current change makes
        self._at: str | None = None  # the view that a recovery was restoring when it was cut off
        self._deaths: dict[str, int] = {}  # how many workers ended while this view was restored
        self._kinds: dict[type, Callable[[Any], Awaitable[Change]]] = {
            commands.CreateTable: self._create_table, commands.CreateView: self._create_view,
            commands.DropTable: self._drop_tables, commands.DropView: self._drop_views,
            commands.RenameTables: self._rename_tables, commands.CreateTextView: self._create_text_view}

    # ------------------------------------------------------------ named changes
    async def define(self, command: commands.Command) -> Change:
        """Run CREATE and DROP of tables and views.  After a SqlError the program is unchanged.  So it is after a
        cancellation, unless it was too late: then the result is returned."""
        return await self._given_up_whole(asyncio.ensure_future(self._define(command)))

    async def _define(self, command: commands.Command) -> Change:
        change = await self._defined(command)
        return replace(change, warnings=(*change.warnings, *await self._made_of_texts())) if self._as_text else change

    async def _defined(self, command: commands.Command) -> Change:
        if isinstance(command, commands.CreateView) and command.or_replace and not command.view.internal:
            old = self._views.get(fold(command.view.name))
            answers = old is not None and not old.internal and self.reader_now(old) is not None
            if answers and not self._is_held(command.view):
                return await self._replace_view(command)
        if isinstance(command, commands.AlterTable):
            return await self._altered(command)
        async with self._lock:
            change: Change = await self._kinds[type(command)](command)
        if isinstance(command, commands.CreateView):
            await self._whole(fold(command.view.name), self._take_back)
        return change

    async def _take_back(self, view: ViewDef, why: BaseException) -> None:
        """Drop a new view that has no first state."""
        name = fold(view.name)
        with instead(f"view {view.name} was taken back: it has no first state"):
            await self._migrate((packets.DropView(view.name),), self.recipe((name,)))
        self._forget(name)
        self.version += 1

    async def _create_table(self, command: commands.CreateTable) -> Change:
        name = fold(command.table.name)
        if name in self._tables and command.if_not_exists:
            return Change((("Note", 1050, f"Table '{command.table.name}' already exists"),))
        if self._taken(name):
            raise table_exists(command.table.name)
        self._last_table_id += 1
        table = replace(command.table, table_id=self._last_table_id, made=self.schema)
        await self._migrate((packets.CreateTable(table),), self.recipe())
        self._tables[name] = table
        self.version += 1
        return Change()

    async def _fit(self, command: commands.AlterTable) -> None:
        """Check that rows fit another definition; from then on the worker checks written rows, too, until the table
        is redefined.  Raises SqlError for a row that does not fit."""
        if refits(command):
            await self._done(packets.Fit(0, command.table))

    async def _done(self, wait: packets.Ask | packets.Fit) -> None:
        reply: packets.Done = await self._link.ask(wait, retry=True)
        if reply.error is not None:
            raise reply.error

    async def _unfit(self, was: TableDef) -> None:
        """Stop the checks of the table's rows, and drop what was made for another definition."""
        async with self._lock:
            for table in self._tables.values():
                if table.table_id == was.table_id:
                    self._link.submit(packets.Migrate((packets.AlterTable(table),), self.recipe(), False))

    async def _altered(self, command: commands.AlterTable) -> Change:
        for attempt in range(limits.FITTING_TRIES):
            self._refuse_if_needed(command)
            try:
                await self._fit(command)
                async with self._lock:
                    altered = await self._alter_table(command)
            except SqlError as e:
                again = e.code == INDEX_NEEDED or (e.code == VIEW_CHANGED and refits(command))
                if not again or attempt + 1 == limits.FITTING_TRIES:
                    await self._unfit(command.was)
                    raise
                if e.code == INDEX_NEEDED:
                    await self._done(packets.Ask(0, "looked up", command.was.name))
                continue  # else: a worker restarted, or rows were loaded
            except asyncio.CancelledError:
                await self._unfit(command.was)
                raise
            break
        await self._indexed(altered)
        return Change()

    def _refuse_if_needed(self, command: commands.AlterTable, gone: Collection[str] = ()) -> None:
        """Raise an error if the command changes what named views need.  gone: views to ignore."""
        self._refuse_if_read(command, gone)
        self._refuse_if_told_apart(command, gone)

    def _refuse_if_read(self, command: commands.AlterTable, gone: Collection[str]) -> None:
        views = (*(v for n, v in self._views.items() if n not in gone), *self._beside.values())
        needed = [(v.name.partition("\0")[0], c) for v in views for c in lost(command, v)]
        if needed:
            column = command.was.columns[needed[0][1]].name
            readers = dict.fromkeys(v for v, c in needed if c == needed[0][1])
            raise SqlError(3730, "HY000", f"Cannot change or drop column '{column}' of table '{command.was.name}': "
                                          f"views need it: {quoted(readers)}; drop these first, or change them "
                                          "and the table at once, with noria apply")

    def _refuse_if_told_apart(self, command: commands.AlterTable, gone: Collection[str]) -> None:
        """Raise an error if a view needs the old primary key, since GROUP BY the key is only right with it."""
        if command.was.keyed == command.table.keyed:
            return
        tables = {**self._tables, fold(command.was.name): replace(command.table, name=command.was.name)}
        for name, text in self._texts.items():
            if name not in gone and any(b.table.table_id == command.was.table_id for b in used(self._views[name].plan)):
                try:
                    list(parse(text, AsOf(Instead(self, tables.values()), self._as_of[name])))
                except SqlError as e:
                    raise SqlError(3730, "HY000", f"Cannot change the primary key of table '{command.was.name}': view "
                                                  f"'{self._views[name].name}' needs it ({e.message}); drop it first"
                                   ) from None

    async def _alter_table(self, command: commands.AlterTable) -> commands.AlterTable:
        """Make the change and return it as made, with the current time in new columns that need it."""
        name, to = fold(command.was.name), fold(command.table.name)
        if self._tables.get(name) != command.was:
            raise view_changed(command.was.name)  # it changed since the statement was planned
        if to != name and self._taken(to):
            raise table_exists(command.table.name)
        self._refuse_if_needed(command)
        table = stamped(command.was, command.table, self.schema + 1, self._as_of.values())
        loses = loses_unique(command.was, table)  # an index that views may look up by
        adhoc = [n for n, v in self._adhoc.items()
                 if lost(command, v) or (loses and command.was.name in tables_of(v.plan))]
        drops = tuple(packets.DropView(self._adhoc[n].name) for n in adhoc)
        await self._migrate((*drops, packets.AlterTable(table)), self.recipe())
        for n in adhoc:
            self._forget(n)
        del self._tables[name]
        self._tables[to] = table
        self._note_altered(table)
        if command.was.name != table.name:
            self._rename_table(command.was.name, table.name)
        self.version += 1
        return commands.AlterTable(command.was, table)

    async def _rename_tables(self, command: commands.RenameTables) -> Change:
        """Rename tables from left to right, all in one change."""
        tables, change = dict(self._tables), self.schema + 1
        steps: list[packets.AlterTable] = []
        names: list[tuple[str, str]] = []
        for old, new in command.names:
            was = tables.get(fold(old))
            if was is None:
                raise unknown_table(old)
            if fold(new) in tables or fold(new) in self._views or fold(new) in self._as_text:
                raise table_exists(new)
            del tables[fold(old)]
            tables[fold(new)] = stamped(was, replace(was, name=new), change, self._as_of.values())
            steps.append(packets.AlterTable(tables[fold(new)]))
            names.append((was.name, new))
        await self._migrate(tuple(steps), self.recipe())
        self._tables = tables
        for old, new in names:
            self._rename_table(old, new)
        self.version += 1
        return Change()

    async def _indexed(self, command: commands.AlterTable) -> None:
        """Wait for the table's indexes, which are built in the background; on failure drop them.  The rest of the
        change stays: rows may have new columns already, or UNIQUE may have rejected some."""
        try:
            await self._done(packets.Ask(0, "indexed", command.table.name))
        except BaseException:
            async with self._lock:
                if self._tables.get(fold(command.table.name)) == command.table:
                    known = {i.columns for i in command.was.indexes}
                    bare = [i for i in command.table.indexes if i.unique or i.columns in known]
                    without = replace(command.table, indexes=tuple(bare))
                    with instead(f"indexes of {command.table.name} were taken back: they are not whole"):
                        await self._alter_table(commands.AlterTable(command.table, without))
            raise

    async def _create_view(self, command: commands.CreateView) -> Change:
        view, name = self._numbered(command.view), fold(command.view.name)
        used, as_of = self._checked(command), self.schema
        old = [name] if name in self._views else []
        parting, begins = self._parting(old, (view,)), self._beginning(view, command.materialized)
        recipe = self.recipe([name], command.text, begins.readerless, parting.read)
        steps = (*parting.steps, begins.step, *(() if begins.readerless else self._yielding(view)))
        make = isinstance(begins.step, packets.AddView)
        with self._making([begins.view]):
            reply = await (self._with_room(steps, recipe, True) if make else self._migrate(steps, recipe))
        self._parted(parting, old)
        self._as_text.pop(name, None)
        self._remember(begins.view, used, command.text, as_of, begins.readerless)
        if begins.adopted is not None:
            self._given_reader(begins.view, begins.adopted)
            self._forget(fold(begins.adopted.name))
        self._yielded(reply)
        self.version += 1
        self._planned(reply)
        return Change()

    def _checked(self, command: commands.CreateView) -> set[str]:
        """The names of the views that the text reads.  Raises SqlError if the view cannot be made."""
        name = fold(command.view.name)
        if name in self._tables or (self._taken(name) and not command.or_replace):
            raise table_exists(command.view.name)
        if (error := outdated(command.view.plan, {t.name: t for t in self._tables.values()})) is not None:
            raise error
        used = self._names_in(command.view.text, self.schema)
        if name in self._views:
            self._refuse_if_used([name], "replace")
            if name in used:
                raise SqlError(1462, "HY000", f"View '{command.view.name}' cannot read itself")
        return used

    async def _replace_view(self, command: commands.CreateView) -> Change:
        """Make the new view beside the old one, which answers until the new one is whole.  If the worker ends
        meanwhile, try again."""
        for _ in range(limits.POISON_DEATHS):
            try:
                return await self._replaced(command)
            except SqlError as e:
                if not is_gone(e):
                    raise
        raise SqlError(1105, "HY000", f"View '{command.view.name}' stays as it is: the worker ended each time while "
                                      "the new one was made; try again")

    async def _replaced(self, command: commands.CreateView) -> Change:
        name = fold(command.view.name)
        async with self._lock:
            self._checked(command)
            view = self._numbered(command.view)
            new = replace(view, name=beside(view.name, view.definition))
            reply = await self._with_room((published(new),), self.recipe(), False)
            self._beside[new.name] = view
        try:
            await self._whole_beside(reply)
            async with self._lock:
                used, as_of = self._checked(command), self.schema
                old = [name] if name in self._views else []
                parting = self._parting(old, (view,))
                steps = (*parting.steps, packets.RenameView(new.name, view.name), *self._yielding(view))
                with self._making([view]):
                    changed = await self._migrate(steps, self.recipe(old, command.text, False, parting.read))
                self._parted(parting, old)
                self._remember(view, used, command.text, as_of)
                self._yielded(changed)
                self.version += 1
                self._explain.update((name, without_numbers(text)) for _, text in reply.explain)
                self._planned(changed)
        except BaseException:
            self._link.submit(packets.Migrate((packets.DropView(new.name),), self.recipe(), False))
            raise
        finally:
            self._not_beside([new.name])
        return Change()

    def _not_beside(self, names: Iterable[str]) -> None:
        """Forget views in the making, which have replaced others or were given up."""
        for name in names:
            self._beside.pop(name, None)
        self._fewer_beside.set()
        self._fewer_beside = asyncio.Event()

    def _rename_table(self, table: str, name: str) -> None:
        super()._rename_table(table, name)
        self._beside = {known: view.with_table(table, name) for known, view in self._beside.items()}

    async def _whole_beside(self, reply: packets.Migrated) -> None:
        """Wait for the first states of views that were made beside others."""
        waiting = dict.fromkeys([*reply.filling, *(name for name, _, _ in reply.bootstrap)])
        fills = [asyncio.ensure_future(self.first_states.whole(
            replace(self._beside[name], name=name), [(node, plan) for v, node, plan in reply.bootstrap if v == name]))
            for name in waiting]
        try:
            await asyncio.gather(*fills)
        finally:
            for f in fills:
                f.cancel()

    async def _drop_tables(self, command: commands.DropTable) -> Change:
        known = [n for n in command.names if fold(n) in self._tables]
        warnings = self._unknown([n for n in command.names if n not in known], command.if_exists)
        gone = {fold(n) for n in known}
        readers = [v.name for v in (*self._views.values(), *self._beside.values())
                   if gone & {fold(t) for t in tables_of(v.plan)}]
        if readers:
            raise SqlError(3730, "HY000", f"Cannot drop table {quoted(known)}: views read it: {quoted(readers)}; "
                                          "drop these first")
        adhoc = [n for n, v in self._adhoc.items() if gone & {fold(t) for t in tables_of(v.plan)}]
        if known:
            steps: list[packets.MigrationStep] = [packets.DropView(self._adhoc[n].name) for n in adhoc]
            steps += [packets.DropTable(self._tables[fold(n)].name) for n in known]
            await self._migrate(tuple(steps), self.recipe())
            for n in adhoc:
                self._forget(n)
            for n in gone:
                self._tables.pop(n, None)
            self.version += 1
        return Change(warnings)

    async def _drop_views(self, command: commands.DropView) -> Change:
        known = [n for n in command.names if fold(n) in self._views]
        texts = [fold(n) for n in command.names if fold(n) in self._as_text and not command.feeds]
        missing = [n for n in command.names if n not in known and fold(n) not in texts]
        warnings, gone = self._unknown(missing, command.if_exists), [fold(n) for n in known]
        self._refuse_of_another_kind(gone, command.feeds)
        self._refuse_if_used(gone, "drop")
        if known:
            parting = self._parting(gone)
            recipe = self.recipe((*gone, *texts), read=parting.read)
            reply = await (self._with_room(parting.steps, recipe, True) if parting.orphans else
                           self._migrate(parting.steps, recipe))
            self._parted(parting, gone)
            self.version += 1
            self._planned(reply)
            for name in gone if command.feeds else ():
                self.on_feed_dropped(name)
        elif texts:
            await self._migrate((), self.recipe(texts))
        self._forget_texts(texts)
        return Change(warnings)

    def _unknown(self, names: list[str], if_exists: bool) -> tuple[tuple[str, int, str], ...]:
        if names and not if_exists:
            raise SqlError(1051, "42S02", f"Unknown table {quoted(names)}")
        return tuple(("Note", 1051, f"Unknown table '{n}'") for n in names)

    def _names_in(self, text: str, as_of: int) -> set[str]:
        recorder = Recorder(AsOf(self, as_of))
        parse(text, recorder)
        return recorder.views

    # ------------------------------------------------------------ errors
    def _forget(self, name: str) -> None:
        self.first_states.forget(name)
        self._deaths.pop(name, None)
        super()._forget(name)

    def _unfillable(self, name: str, why: BaseException) -> None:
        """Leave out a view that will have no first state while this worker lives."""
        view = self._views.get(name) or self._adhoc.get(name)
        if view is None or isinstance(why, WorkerGone) or (is_out_of_service(why) and not view.adhoc):
            return  # the worker itself rebuilds a view that is out of service
        if isinstance(why, Poisoned):  # building it ends workers
            self._deaths[name] = limits.POISON_DEATHS
        error = why if isinstance(why, SqlError) else SqlError(1105, "HY000", str(why))
        if view.adhoc and error.code == TOO_LONG:
            self._cost_too_much(view)
        self._leave_out(name, error)
        self._link.submit(packets.Migrate((packets.DropView(view.name, error),), self.recipe(), False))

    # ------------------------------------------------------------ a worker starts
    async def welcome(self, hello: packets.Hello) -> None:
        """Send a worker that started the program that its store holds, and the ad-hoc views of this front end.

        A change may be waiting for the answer of the worker that died, and hold the lock.  It is sent again after
        this, and answered as if nothing had happened.  So this takes no lock, and the catalog already has what
        the store holds of that change when its answer arrives.
        """
        adhoc = list(self._adhoc.values())
        self._tables = {fold(t.name): t for t in hello.tables if not t.is_beside}
        self._last_table_id = max([self._last_table_id, *(t.table_id for t in hello.tables)])
        deaths = dict(self._deaths)
        for name in [*self._views, *self._adhoc]:
            self._forget(name)
        self._deaths = deaths
        self._as_text = {fold(v.name): v for v in map(read_text, hello.recipe) if v is not None}
        for text, as_of, unread in [read(s) for s in hello.recipe if read_text(s) is None]:
            for command in self._parse_recipe(text, as_of):
                used = self._names_in(command.view.text, as_of)
                self._remember(self._as_made(command.view), used, text, as_of, unread)
        for view in adhoc:
            if all(fold(t) in self._tables for t in tables_of(view.plan)):
                self._remember(view, set())
        self._read_through()
        self.version += 1
        self._broken.clear()
        if self._at is not None:  # a worker ended while it was restored
            self._deaths[self._at] = self._deaths.get(self._at, 0) + 1
            for view in self._kept():
                if self._may(view):
                    await self._bring_back([view], fold(view.name))
        else:
            await self._bring_back([v for v in self._kept() if self._may(v)], ALL)
        self._at = None
        for table in [t for t in hello.tables if t.is_beside]:  # the change that made it has ended or starts again
            self._link.submit(packets.Migrate((packets.DropTable(table.name),), self.recipe()))

    @contextmanager
    def _making(self, views: Sequence[ViewDef]) -> Iterator[None]:
        """Remember the views of the current change: a worker may commit it and end before it answers."""
        self._under_way = views
        try:
            yield
        finally:
            self._under_way = ()

    def _as_made(self, view: ViewDef) -> ViewDef:
        """The view of a recipe, with the definition number that the current change uses if it is one of that."""
        made = (m for m in self._under_way if m == replace(view, definition=m.definition))
        return next(made, None) or self._numbered(view)

    def _read_through(self) -> None:
        """Mark views that can be read through another view as readerless: no worker keeps anything yet."""
        for name, view in self._views.items():
            lender = None if view.internal or name in self._readerless else self._lender(view, named=True)
            if lender is not None:
                self._readerless.add(name)

    def _kept(self) -> list[ViewDef]:
        """The views that a worker has: named views with a reader, and ad-hoc ones."""
        return [*(v for n, v in self._views.items() if n not in self._readerless), *self._adhoc.values()]

    def _may(self, view: ViewDef) -> bool:
        """True if the view may be restored; a view that ended POISON_DEATHS workers is left out."""
        deaths = self._deaths.get(fold(view.name), 0)
        if deaths >= limits.POISON_DEATHS:
            self._leave_out(fold(view.name), SqlError(1105, "HY000", f"it ended the worker {deaths} times"))
        return deaths < limits.POISON_DEATHS

    async def _bring_back(self, views: Sequence[ViewDef], at: str) -> None:
        """Restore views.  Those that cannot be made are left out; reads of them return the error."""
        self._at = at
        async for reply in brought_back(self._link, views, self.recipe()):
            for name, why in reply.failed:
                self._leave_out(fold(name), why)
            self._planned(reply)

    def _parse_recipe(self, text: str, as_of: int) -> Iterator[commands.CreateView]:
        for command in parse(text, AsOf(self, as_of)):
            if not isinstance(command, commands.CreateView):
                raise RuntimeError(f"the stored recipe holds something that is no view: {text}")
            yield command
