"""The entire program: exported as a text, and changed to what a text says, as one change (section 5).

    text ──outline──┐
    program ──text──┴─► difference ─► target ─► views that can be made beside ─► ONE Migrate ─► what is new is filled

Keeps true:
* A text that is wrong or impossible changes nothing, and neither does a view that cannot be made.
* New and changed views are made beside the running program.  Nothing of it is durable until all of them are filled.
  The change itself is one packet and one commit, so a crash at any moment leaves the old program or the new one.
* A view that needs a new table or column is made in that packet and gets its first state afterwards.  A view that
  would have no reader (`readers`) is checked there, and keeps nothing.
* The change that was shown is the change that is made: if the program changed meanwhile, it is rejected.
* A table whose rows move to other workers (`copying`) is changed before that, by itself, as was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from noria.control.apply.preview import Preview
from noria.control.apply.target import NewView, TargetProgram, TransitionalCatalog, target_of
from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold, temporary_name, without_numbers
from noria.control.catalog.origin import with_text
from noria.control.catalog.view_index import reading
from noria.control.catalog.worker_view import add_view_step
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.alterations import loses_unique, lost
from noria.control.ddl.copying import CopyingAlter
from noria.control.ddl.databases import DatabaseChanges
from noria.control.ddl.foreign_keys import ForeignKeys, only_keys
from noria.control.ddl.shadow_views import ShadowViews
from noria.control.ddl.table_changes import TableChanges
from noria.control.views.first_states import FirstStates
from noria.control.views.readers import ViewReaders, ViewRemoval
from noria.core import limits
from noria.core.errors import SqlError, is_redefined
from noria.core.errors.codes import (
    DEPENDENT_BY_OTHERS,
    NOT_SUPPORTED_YET,
    QUERY_INTERRUPTED,
    TABLE_DEF_CHANGED,
    UNKNOWN_ERROR,
)
from noria.core.identifiers import quote_identifier
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import tables_of
from noria.sql.commands import AlterTable, CreateDatabase
from noria.sql.parse import parse
from noria.sql.program.difference import ProgramDifference, difference
from noria.sql.program.export import ExportedView, program_text
from noria.sql.program.outline import read

ReportStep = Callable[[str], None]


def _silent(said: str) -> None:
    """Report to nobody."""


@dataclass(frozen=True)
class PlannedTarget:
    """A target, and the version of the program that it was computed for."""

    target: TargetProgram
    version: int


@dataclass
class _ApplyRun:
    """One change under way.  first: tables that are already changed; changed: True once all of it is made."""

    report_step: ReportStep
    may_change: Callable[[str], None]
    first: list[str] = field(default_factory=list)
    changed: bool = False


class ProgramApply:
    """Exports the program, and changes it to what a text says.

    tables: checks the rows of changed tables; alter: changes the tables whose rows move.
    """

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, first_states: FirstStates, readers: ViewReaders,
                 views: ShadowViews, tables: TableChanges, alter: CopyingAlter, databases: DatabaseChanges,
                 keys: ForeignKeys):
        self._databases, self._keys = databases, keys
        self._catalog, self._sender, self._first_states, self._readers = catalog, sender, first_states, readers
        self._shadow_views, self._tables, self._alter = views, tables, alter

    # ------------------------------------------------------------ the running program
    async def exported(self) -> str:
        """The program as a text for `apply`, which makes the same program in an empty database."""
        catalog, counters = self._catalog, await self._counters()
        views = [ExportedView(n, catalog.texts[n], catalog.as_of[n]) for n in catalog.view_defs]
        text = await asyncio.to_thread(program_text, list(catalog.tables()), views, counters, catalog.databases)
        return text + "".join(_left_out(v.text) for v in catalog.placeholder_views())

    async def _counters(self) -> Mapping[str, int]:
        """The next AUTO_INCREMENT value of each table that has one."""
        numbered = [t for t in self._catalog.tables() if t.auto_increment is not None]
        return {t.name: await self.next_number(t) for t in numbered}

    async def next_number(self, table: TableDef) -> int:
        """The next AUTO_INCREMENT value of a table; 1 if it has none."""
        if table.auto_increment is None:
            return 1
        reply: packets.Done = await self._sender.link.ask(packets.Inspect(0, "table", table.name), retry=True)
        number = 1 if reply.error is not None else reply.value["auto_increment"] + 1  # dropped meanwhile, or damaged
        return int(number)

    # ------------------------------------------------------------ what would change
    async def preview(self, text: str, drop: bool) -> Preview:
        """What `apply` would do with this text."""
        return await self._shown(await self._plan(text, drop))

    async def _plan(self, text: str, drop: bool) -> PlannedTarget:
        catalog, want = self._catalog, await asyncio.to_thread(read, text, self._catalog.databases)
        while True:
            version, running = catalog.version, TransitionalCatalog(dict(catalog.table_defs), dict(catalog.view_defs))
            schema, last_id, as_of = catalog.schema, catalog.last_table_id, list(catalog.as_of.values())
            have = await asyncio.to_thread(read, await self.exported(), catalog.databases)
            if catalog.version == version:
                break
        d = await asyncio.to_thread(difference, have, want, drop)
        if d.refused:
            raise SqlError(*NOT_SUPPORTED_YET, "\n".join(d.refused))
        found = await asyncio.to_thread(target_of, d, want, running, schema, last_id, as_of)
        self._keys.refuse_applied(found.created, found.altered, d.tables_dropped)
        views = tuple(replace(v, at_once=v.at_once or self._is_read(v)) for v in found.views)
        new = tuple(d for d in want.databases if catalog.databases.get(d.name) is None)
        return PlannedTarget(replace(found, views=self._with_lent(views, d), databases=new), version)

    def _with_lent(self, views: Sequence[NewView], d: ProgramDifference) -> tuple[NewView, ...]:
        """Mark the views that can be read through other views as lent: they get no reader."""
        gone = {fold(n) for n in (*d.replaced, *d.views_dropped)}
        but = {*gone, *self._catalog.without_reader}
        stay = [v for n, v in self._catalog.view_defs.items() if n not in but and not v.internal]
        made = [v for v in views if not v.without_reader and not v.view.internal]
        for v in list(made):
            others = (*stay, *(o.view for o in made if o is not v))
            if any(reading(other, v.view) is not None for other in others):
                made.remove(v)
        return tuple(v if v in made or v.view.internal or v.without_reader else replace(v, lent=True) for v in views)

    def _is_read(self, new: NewView) -> bool:
        """True if it replaces a view that has a reader now."""
        old = self._catalog.view_defs.get(fold(new.view.name))
        return old is not None and not old.internal and self._catalog.reader_now(old) is not None

    async def _shown(self, planned: PlannedTarget) -> Preview:
        t = planned.target
        steps = [add_view_step(replace(v.view, name=_temporary_name(v))) for v in t.views if not v.without_reader]
        views = self._catalog.view_defs
        gone = [packets.DropView(views[n].name) for n in self._going(t) if n in views]
        found = await self._sender.request(packets.Rehearse(0, (*steps, *gone)))
        return Preview(t, found, tuple(a.was.name for a in t.altered if self._alter.moves(a)))

    def _going(self, t: TargetProgram) -> list[str]:
        """Folded names of the views whose current definitions are dropped."""
        return [fold(n) for n in (*t.difference.replaced, *t.difference.views_dropped)]

    # ------------------------------------------------------------ the change
    async def apply(self, text: str, drop: bool = False, expected: str = "", report_step: ReportStep = _silent,
                    may_change: Callable[[str], None] = _silent) -> Preview:
        """Change the program to what the text says; other tables and views stay unless `drop` is set.

        expected: the digest of the preview; report_step: is called with each step; may_change: raises SqlError for a
        locked table.  After a SqlError or a cancellation the program is unchanged, unless the error says otherwise.
        """
        run = _ApplyRun(report_step, may_change)
        try:
            return await self._sender.complete_or_undo(asyncio.ensure_future(self._apply(text, drop, expected, run)))
        except asyncio.CancelledError:
            if run.changed:
                raise SqlError(*QUERY_INTERRUPTED,
                               "Query execution was interrupted, too late: the program is changed, and "
                               "what is left is filled in the background") from None
            if run.first:
                raise SqlError(*QUERY_INTERRUPTED, f"Query execution was interrupted{_but(run.first)}") from None
            raise
        except SqlError as e:
            if run.first and not run.changed:
                raise SqlError(e.code, e.state, e.message + _but(run.first)) from e
            raise

    async def _apply(self, text: str, drop: bool, expected: str, run: _ApplyRun) -> Preview:
        shown: Preview | None = None
        for _ in range(limits.POISON_DEATHS):
            run.report_step("planning")
            planned = await self._plan(text, drop)
            preview = await self._shown(planned)
            if not run.first and expected and expected != preview.digest:
                raise _changed_meanwhile()
            shown = shown if shown is not None and run.first else preview
            if planned.target.databases:
                planned = await self._with_databases(planned, text, drop)
            if planned.target.difference.empty:
                return shown
            try:
                planned = await self._after_first(planned, preview.first, (text, drop), run)
                if not planned.target.difference.empty:
                    await self._changed(planned, run)
            except SqlError as e:
                if not is_redefined(e):
                    raise
                continue
            await self._filled(planned.target, run.report_step)
            return shown
        raise SqlError(*UNKNOWN_ERROR, "The program stays as it is: each time the worker ended, or others changed the "
                                       "program, while the new views were made; try again")

    async def _with_databases(self, planned: PlannedTarget, text: str, drop: bool) -> PlannedTarget:
        """Make the new databases of the text, and plan again."""
        for database in planned.target.databases:
            with with_text(f"noria apply: CREATE DATABASE {quote_identifier(database.name)}"):
                await self._databases.create(CreateDatabase(database, if_not_exists=True))
        return await self._plan(text, drop)

    async def _after_first(self, planned: PlannedTarget, first: Sequence[str], wanted: tuple[str, bool], run: _ApplyRun
                           ) -> PlannedTarget:
        """Change these tables one by one, as ALTER TABLE does; return the plan for the rest."""
        d = planned.target.difference
        for name in first:
            run.may_change(name)
            text = f"ALTER TABLE {quote_identifier(name)} {', '.join(dict(d.altered)[name])}"
            (command,) = parse(text, self._catalog)
            assert isinstance(command, AlterTable)
            run.report_step(f"changing table {name}")
            with with_text(f"noria apply: {text}"):
                await self._alter.alter(command)
            run.first.append(name)
        if not first:
            return planned
        left = await self._plan(*wanted)
        if _does(left.target.difference) != _does(d, first):
            raise _changed_meanwhile()
        return left

    async def _changed(self, planned: PlannedTarget, run: _ApplyRun) -> None:
        """Make all of the change, or nothing."""
        views = [replace(v, view=self._catalog.numbered(v.view)) for v in planned.target.views]
        new = {_temporary_name(v): v for v in views if v.early and not v.without_reader}
        try:
            explained = await self._made_meanwhile(new, planned.version, run.report_step) if new else {}
            for alter in planned.target.altered:
                self._tables.refuse_if_needed(alter, self._going(planned.target))
                await self._tables.refuse_orphans_before(alter)
                await self._tables.fit(alter)
            async with self._sender.lock:
                self._check(planned.version)
                t = replace(planned.target, views=tuple(views))
                adhoc = list(dict.fromkeys([*self._over(t.difference.tables_dropped), *self._looking_up(t)]))
                for name in (*(a.was.name for a in t.altered), *t.difference.tables_dropped):
                    run.may_change(name)
                run.report_step("changing the program")
                parting = self._readers.plan_removal(self._going(t), [v.view for v in t.views if not v.without_reader])
                with with_text(f"noria apply: {t.text}"), self._sender.making([v.view for v in views]):
                    steps, recipe = self._steps(t, adhoc, parting), self._recipe_of(t, parting)
                    reply = await self._sender.with_room(steps, recipe, True)
                self._become(t, adhoc, parting)
                self._readers.record_dropped_readers(reply)
                run.changed = True
                self._catalog.explanations.update((fold(new[name].view.name), without_numbers(text))
                                                  for name, text in explained.items())
                self._readers.start_first_states(reply)
        except BaseException:
            if new:
                self._sender.unawaited(map(packets.DropView, new))
            for alter in planned.target.altered:
                await self._tables.unfit(alter.was)
            raise
        finally:
            self._shadow_views.forget(new)

    def _check(self, version: int) -> None:
        if self._catalog.version != version:
            raise _changed_meanwhile()

    async def _made_meanwhile(self, views: Mapping[str, NewView], version: int, report_step: ReportStep
                           ) -> Mapping[str, str]:
        """Make and fill these views under temporary names that no text can use; return their explanations."""
        async with self._sender.lock:
            self._check(version)
            steps = tuple(add_view_step(replace(v.view, name=name)) for name, v in views.items())
            self._shadow_views.views.update((name, v.view) for name, v in views.items())
            reply = await self._sender.with_room(steps, self._catalog.recipe(), False)
        waiting = list(dict.fromkeys([*reply.filling, *(name for name, _, _ in reply.bootstrap)]))
        if waiting:
            report_step(f"filling {', '.join(views[n].view.name for n in waiting)}")
        await self._shadow_views.fill(reply)
        return dict(reply.explain)

    def _over(self, tables: Sequence[str]) -> list[str]:
        """Ad-hoc views that read these tables.  Raises SqlError if a view in the making reads one of them."""
        gone = {fold(t) for t in tables}
        for view in self._shadow_views.views.values():
            if gone & {fold(t) for t in tables_of(view.plan)}:
                raise SqlError(*DEPENDENT_BY_OTHERS,
                               f"View '{view.name}', which is being replaced, reads a table that is to "
                               "be dropped: try again")
        return self._catalog.adhoc_over(gone)

    def _looking_up(self, t: TargetProgram) -> list[str]:
        """Ad-hoc views that need a changed column, or read a table that loses a UNIQUE index.

        Such a view may look rows up by that index.
        """
        losing = {a.was.name for a in t.altered if loses_unique(a.was, a.table)}
        return [n for n, v in self._catalog.adhoc_defs.items()
                if losing & tables_of(v.plan).keys() or any(lost(a, v) for a in t.altered)]

    def _steps(self, t: TargetProgram, adhoc: Sequence[str], parting: ViewRemoval) -> tuple[packets.MigrationStep, ...]:
        return (*map(packets.CreateTable, t.created), *(packets.AlterTable(a.table) for a in t.altered),
                *(packets.DropView(self._catalog.adhoc_defs[n].name) for n in adhoc), *parting.steps,
                *(packets.CheckView(add_view_step(v.view).view) for v in t.views if v.without_reader),
                *(add_view_step(v.view) for v in t.views if not v.early and not v.without_reader),
                *(packets.RenameView(_temporary_name(v), v.view.name)
                  for v in t.views if v.early and not v.without_reader),
                *(s for v in t.views if not v.without_reader for s in self._readers.drop_unused_readers(v.view)
                  if fold(s.view) not in self._going(t)),
                *(packets.DropTable(self._catalog.table_defs[fold(n)].name) for n in t.difference.tables_dropped))

    def _recipe_of(self, t: TargetProgram, parting: ViewRemoval) -> tuple[str, ...]:
        going = {*self._going(t), *(fold(v.view.name) for v in t.views)}
        return (*self._catalog.recipe(going, read=parting.read), *(v.recipe for v in t.views))

    def _become(self, t: TargetProgram, adhoc: Sequence[str], parting: ViewRemoval) -> None:
        """Update the catalog to what the worker has acknowledged."""
        for name in adhoc:
            self._catalog.forget(name)
        self._readers.record_removal(parting, self._going(t))
        for table in (*t.created, *(a.table for a in t.altered)):
            self._catalog.table_defs[fold(table.name)] = table
            self._catalog.last_table_id = max(self._catalog.last_table_id, table.table_id)
        for a in t.altered:
            self._catalog.note_altered(a.table)
        for name in t.difference.tables_dropped:
            del self._catalog.table_defs[fold(name)]
        self._catalog.forget_placeholders([fold(v.view.name) for v in t.views])
        for v in t.views:
            self._catalog.remember(v.view, set(v.used), v.text, v.as_of, v.without_reader)
        self._catalog.version += 1

    async def _filled(self, t: TargetProgram, report_step: ReportStep) -> None:
        """Wait for what can only be filled after the change; it is filled even if nobody waits."""
        late = [v.view.name for v in t.views if not v.early and not v.without_reader]
        indexed = [a.table.name for a in t.altered if set(a.table.indexes) - set(a.was.indexes)]
        if late or indexed:
            report_step(f"the program is changed; filling {', '.join((*late, *indexed))}")
        try:
            for name in late:
                if (view := self._catalog.view(name)) is not None:
                    await self._first_states.of(view)
            for name in indexed:
                await self._sender.request(packets.Inspect(0, "indexed", name))
            for alter in t.altered:
                await self._tables.refuse_orphans(alter, only_keys)
        except SqlError as e:
            raise SqlError(e.code, e.state, f"The program is changed, but not all of it could be filled: {e.message}"
                           ) from e


def _left_out(text: str) -> str:
    """A placeholder view as comment lines: it is not part of an exported program."""
    return "".join(f"-- {line}\n" for line in ["without FROM, or reads a view that is:", *text.splitlines()]) + "\n"


def _temporary_name(v: NewView) -> str:
    return temporary_name(v.view.name, v.view.definition)


def _does(d: ProgramDifference, but: Sequence[str] = ()) -> tuple[object, ...]:
    """What a difference does, except to some tables."""
    altered = [(name, parts) for name, parts in d.altered if name not in but]
    return d.created, altered, d.tables_dropped, d.made, d.replaced, d.views_dropped


def _but(first: Sequence[str]) -> str:
    return f"; the rest of the program is as it was, but changed by now: {', '.join(f'table {t}' for t in first)}"


def _changed_meanwhile() -> SqlError:
    return SqlError(*TABLE_DEF_CHANGED,
                    "The program was changed by somebody else meanwhile, and this change was not made: "
                    "look at what it would do now, and try again")
