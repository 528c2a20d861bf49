"""CREATE VIEW and DROP VIEW.

Keeps true:

* Nothing is dropped that a named view builds on.
* A view that is read is replaced by one that is filled: the new view is made beside it and answers from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold, temporary_name, views_named, without_numbers
from noria.control.catalog.origin import with_text
from noria.control.catalog.worker_view import add_view_step
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult, quoted, retried, unknown
from noria.control.ddl.shadow_views import ShadowViews
from noria.control.views.readers import ViewReaders
from noria.core.errors import SqlError, table_exists
from noria.core.errors.codes import DEPENDENT_BY_OTHERS, VIEW_RECURSIVE, WRONG_OBJECT
from noria.dataflow.messages import packets
from noria.plan.uses import outdated
from noria.plan.view import ViewDef
from noria.sql import commands


class ViewChanges:
    """on_feed_dropped: called with the folded name of each dropped feed."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, readers: ViewReaders, shadow_views: ShadowViews):
        self._catalog, self._sender, self._readers, self._shadow_views = catalog, sender, readers, shadow_views
        self.on_feed_dropped: Callable[[str], object] = lambda name: None

    # ------------------------------------------------------------ CREATE VIEW
    async def create(self, command: commands.CreateView) -> ChangeResult:
        """Make the view, with its first state if it has a reader."""
        name = fold(command.view.name)
        if command.or_replace and not command.view.internal:
            old = self._catalog.view_defs.get(name)
            answers = old is not None and not old.internal and self._catalog.reader_now(old) is not None
            if answers and not self._readers.is_held(command.view):
                return await self._replace(command)
        async with self._sender.lock:
            await self._make(command)
        await self._readers.wait_filled(name, self._take_back)
        return ChangeResult()

    async def _make(self, command: commands.CreateView) -> None:
        catalog, readers = self._catalog, self._readers
        view, name = catalog.numbered(command.view), fold(command.view.name)
        used, as_of = self._checked(command), catalog.schema
        old = [name] if name in catalog.view_defs else []
        parting, begins = readers.plan_removal(old, (view,)), readers.plan_addition(view, command.materialized)
        recipe = catalog.recipe([name], command.text, begins.readerless, parting.read)
        steps = (*parting.steps, begins.step, *(() if begins.readerless else readers.drop_unused_readers(view)))
        make = isinstance(begins.step, packets.AddView)
        with self._sender.making([begins.view]):
            reply = await (self._sender.with_room(steps, recipe, True) if make else self._sender.migrate(steps, recipe))
        readers.record_removal(parting, old)
        catalog.placeholder_defs.pop(name, None)
        catalog.remember(begins.view, used, command.text, as_of, begins.readerless)
        if begins.adopted is not None:
            catalog.gain_reader(begins.view, begins.adopted)
            catalog.forget(fold(begins.adopted.name))
        readers.record_dropped_readers(reply)
        catalog.version += 1
        readers.start_first_states(reply)

    async def _take_back(self, view: ViewDef, why: BaseException) -> None:
        """Drop a new view that has no first state."""
        name = fold(view.name)
        with with_text(f"view {view.name} was taken back: it has no first state"):
            await self._sender.migrate((packets.DropView(view.name),), self._catalog.recipe((name,)))
        self._catalog.forget(name)
        self._catalog.version += 1

    def _checked(self, command: commands.CreateView) -> set[str]:
        """The names of the views that the text reads.  Raises SqlError if the view cannot be made."""
        catalog, name = self._catalog, fold(command.view.name)
        catalog.databases.of(command.view.name)
        if name in catalog.table_defs or (catalog.taken(name) and not command.or_replace):
            raise table_exists(command.view.name)
        if (error := outdated(command.view.plan, {t.name: t for t in catalog.tables()})) is not None:
            raise error
        used = views_named(command.view.text, catalog, catalog.schema)
        if name in catalog.view_defs:
            self._refuse_if_used([name], "replace")
            if name in used:
                raise SqlError(*VIEW_RECURSIVE, f"View '{command.view.name}' cannot read itself")
        return used

    # ------------------------------------------------------------ CREATE OR REPLACE VIEW
    async def _replace(self, command: commands.CreateView) -> ChangeResult:
        """Make the new view beside the old one, which answers until the new one is filled.  If the worker ends
        meanwhile, try again."""
        return await retried(lambda: self._replaced(command),
                             f"View '{command.view.name}' stays as it is: the worker ended each time while the new one "
                             "was made; try again")

    async def _replaced(self, command: commands.CreateView) -> None:
        catalog, sender, readers = self._catalog, self._sender, self._readers
        name = fold(command.view.name)
        async with sender.lock:
            self._checked(command)
            view = catalog.numbered(command.view)
            new = replace(view, name=temporary_name(view.name, view.definition))
            reply = await sender.with_room((add_view_step(new),), catalog.recipe(), False)
            self._shadow_views.views[new.name] = view
        try:
            await self._shadow_views.fill(reply)
            async with sender.lock:
                used, as_of = self._checked(command), catalog.schema
                old = [name] if name in catalog.view_defs else []
                parting = readers.plan_removal(old, (view,))
                steps = (*parting.steps, packets.RenameView(new.name, view.name), *readers.drop_unused_readers(view))
                with sender.making([view]):
                    changed = await sender.migrate(steps, catalog.recipe(old, command.text, False, parting.read))
                readers.record_removal(parting, old)
                catalog.remember(view, used, command.text, as_of)
                readers.record_dropped_readers(changed)
                catalog.version += 1
                catalog.explanations.update((name, without_numbers(text)) for _, text in reply.explain)
                readers.start_first_states(changed)
        except BaseException:
            sender.unawaited((packets.DropView(new.name),))
            raise
        finally:
            self._shadow_views.forget([new.name])

    # ------------------------------------------------------------ DROP VIEW
    async def drop(self, command: commands.DropView) -> ChangeResult:
        """Drop views or feeds, and placeholder views."""
        async with self._sender.lock:
            return await self._drop(command)

    async def _drop(self, command: commands.DropView) -> ChangeResult:
        catalog = self._catalog
        known = [n for n in command.names if fold(n) in catalog.view_defs]
        placeholders = [fold(n) for n in command.names if fold(n) in catalog.placeholder_defs and not command.feeds]
        missing = [n for n in command.names if n not in known and fold(n) not in placeholders]
        warnings, gone = unknown(missing, command.if_exists), [fold(n) for n in known]
        self._refuse_of_another_kind(gone, command.feeds)
        self._refuse_if_used(gone, "drop")
        if known:
            parting = self._readers.plan_removal(gone)
            recipe = catalog.recipe((*gone, *placeholders), read=parting.read)
            reply = await (self._sender.with_room(parting.steps, recipe, True) if parting.orphans else
                           self._sender.migrate(parting.steps, recipe))
            self._readers.record_removal(parting, gone)
            catalog.version += 1
            self._readers.start_first_states(reply)
            for name in gone if command.feeds else ():
                self.on_feed_dropped(name)
        elif placeholders:
            await self._sender.migrate((), catalog.recipe(placeholders))
        catalog.forget_placeholders(placeholders)
        return ChangeResult(warnings)

    # ------------------------------------------------------------ refusals
    def _refuse_of_another_kind(self, names: Collection[str], feeds: bool) -> None:
        """Raise SqlError 1347 if DROP VIEW names a feed, or DROP FEED a view."""
        views = [self._catalog.view_defs[n] for n in names]
        if other := [v.name for v in views if v.feed != feeds]:
            why = "no feed: use DROP VIEW" if feeds else "a feed: use DROP FEED"
            raise SqlError(*WRONG_OBJECT, f"{quoted(other)} is {why}")

    def _refuse_if_used(self, gone: list[str], verb: str) -> None:
        views = self._catalog.view_defs
        readers = [views[v].name for v, used in self._catalog.uses.items() if v not in gone and used & set(gone)]
        if readers:
            raise SqlError(*DEPENDENT_BY_OTHERS,
                           f"Cannot {verb} view {quoted(views[n].name for n in gone)}: views build on "
                           f"it: {quoted(readers)}; drop these first")
