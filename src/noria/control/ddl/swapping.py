"""Replaces a table by another one that is made beside it (section 5).

    an empty table beside it ─► a twin of each of its views over that, filled ─► ONE Migrate: names change

Keeps true:
* Until that packet everybody reads the old rows.  The packet is one commit, so a crash at any moment leaves the old
  table or the other one.  The old rows are deleted as files, uncounted.
* No catalog and no recipe has the other table and the twins before: a worker that starts knows nothing of them.
* The packet is sent when each view that then reads the table has a filled twin, whatever happened to views meanwhile.
* Positions and former columns are kept: earlier statements and texts mean what they meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import fold, temporary_name, without_numbers
from noria.control.catalog.worker_view import add_view_step
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.change import ChangeResult, retried
from noria.control.ddl.shadow_views import ShadowViews
from noria.core.errors import unknown_table, view_changed
from noria.core.expressions.functions import literal
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import Base, Filter, Mir, rebased, tables_of
from noria.plan.view import ViewDef


@dataclass(frozen=True)
class TwinView:
    """A view over the empty table, made for one definition of a view over the old one."""

    of: int
    view: ViewDef

    @property
    def name(self) -> str:
        return temporary_name(self.view.name, self.view.definition)


@dataclass
class ReplacedTable:
    """A table that is being replaced.

    name: the final name of the other table; made: True once that exists.  twins: by the views' folded names; stale:
    twins of replaced definitions; explained: explanations by the twins' names.

    A statement that also moves rows sets three functions.  `left` returns what remains to do once all twins exist, or
    None.  `spark_input` returns the input of a twin's node for Spark.  `around` returns a context for the last change.
    """

    was: TableDef
    empty: TableDef
    name: str
    made: bool = False
    twins: dict[str, TwinView] = field(default_factory=dict)
    stale: list[TwinView] = field(default_factory=list)
    explained: dict[str, str] = field(default_factory=dict)
    left: Callable[[ReplacedTable], Awaitable[object] | None] = lambda run: None
    spark_input: Callable[[Mir, ReplacedTable], Mir] = lambda plan, run: without_rows(plan, run)
    around: Callable[[ReplacedTable], AbstractAsyncContextManager[object]] = lambda run: nullcontext()
    children: Sequence[TableDef] = ()  # tables whose FOREIGN KEYs have the table's new names

    @property
    def all_twins(self) -> list[TwinView]:
        return [*self.twins.values(), *self.stale]


class TableSwap:
    """Replaces tables.

    Each statement that replaces a table holds `turn`: the twins of one would keep another from finishing.  `unwritten`
    has the tables whose writes wait, by folded names, and the events that end the wait.
    """

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, views: ShadowViews):
        self._catalog, self._sender, self._shadow_views = catalog, sender, views
        self.turn = asyncio.Lock()
        self.unwritten: dict[str, asyncio.Event] = {}

    def known(self, name: str) -> TableDef:
        """The table of this name.  Raises an error if there is none."""
        found = self._catalog.table(name)
        if found is None:
            raise unknown_table(name)
        return found

    async def while_gone(self, name: str, attempt: Callable[[], Awaitable[None]]) -> ChangeResult:
        """Do it once, and again if the worker has ended or the table has changed meanwhile."""
        return await retried(attempt, f"Table '{name}' stays as it is: each time the worker ended, or the table was "
                                   "defined anew, while another one was made; try again")

    async def swap(self, run: ReplacedTable) -> None:
        """Replace the table in one change, as soon as all preconditions hold."""
        try:
            while (more := await self._next(run)) is not None:
                await more
        except BaseException:
            if run.made:
                drops = (packets.DropView(t.name) for t in run.all_twins)
                self._sender.unawaited((*drops, packets.DropTable(run.empty.name)), not run.empty.is_passing)
            raise
        finally:
            self._shadow_views.forget(t.name for t in run.all_twins)

    async def _next(self, run: ReplacedTable) -> Awaitable[object] | None:
        """Make one change of the program: the missing twins, or if none is missing, the last change.

        Returns what to await before the next change.  A view that reads the table and is being replaced is awaited
        first, because its twin must have its new definition.
        """
        catalog = self._catalog
        async with self._sender.lock:
            if catalog.table_defs.get(fold(run.was.name)) != run.was:
                raise view_changed(run.was.name)
            if any(_reads(v, run.was) for v in self._shadow_views.views.values()):
                return self._shadow_views.fewer()
            views = [v for v in catalog.kept()
                     if not v.adhoc and fold(v.name) not in catalog.broken and _reads(v, run.was)]
            missing = [v for v in views if (t := run.twins.get(fold(v.name))) is None or t.of != v.definition]
            if missing or not run.made:
                return self._shadow_views.fill(await self._make(run, missing))
            if (more := run.left(run)) is not None:
                return more
            async with run.around(run):
                await self._switch(run, views)
            return None

    async def _make(self, run: ReplacedTable, views: Sequence[ViewDef]) -> packets.Migrated:
        recipe = self._catalog.recipe
        if not run.made:  # in a change of its own: creating files takes some milliseconds each
            run.made = True  # or partly made
            await self._sender.with_room((packets.CreateTable(run.empty),), recipe(), not run.empty.is_passing)
        steps = []
        for view in views:
            name = fold(view.name)
            run.stale += [run.twins[name]] if name in run.twins else []
            twin = TwinView(view.definition, self._catalog.numbered(_over(view, run.was, run.empty)))
            run.twins[name] = twin
            steps.append(add_view_step(replace(twin.view, name=twin.name)))
        reply = await self._sender.with_room(tuple(steps), recipe(), False)
        self._shadow_views.views.update((t.name, t.view) for t in run.twins.values())
        run.explained.update(reply.explain)
        by_spark = tuple((v, node, run.spark_input(plan, run)) for v, node, plan in reply.bootstrap)
        return replace(reply, bootstrap=by_spark)

    async def _switch(self, run: ReplacedTable, views: Sequence[ViewDef]) -> None:
        """Rename the other table and the twins, and drop the old table and its views."""
        catalog = self._catalog
        table = replace(run.empty, name=run.name)
        gone = replace(run.was, name=temporary_name(run.was.name, run.was.table_id))
        twins = [run.twins[fold(v.name)] for v in views]
        adhoc = [n for n, v in catalog.adhoc_defs.items() if _reads(v, run.was)]
        drops = [*(catalog.adhoc_defs[n].name for n in adhoc), *(v.name for v in views),
                 *(t.name for t in run.all_twins if t not in twins)]
        await self._sender.migrate((*map(packets.DropView, drops), packets.AlterTable(gone), packets.AlterTable(table),
                                    *map(packets.AlterTable, run.children),
                                    *(packets.RenameView(t.name, t.view.name) for t in twins),
                                    packets.DropTable(gone.name)), catalog.recipe())
        for name in adhoc:
            catalog.forget(name)
        if fold(table.name) != fold(run.was.name):
            del catalog.table_defs[fold(run.was.name)]
        catalog.table_defs[fold(table.name)] = table
        for child in run.children:
            catalog.table_defs[fold(child.name)] = child
            catalog.note_altered(child)
        numbers = {fold(t.view.name): t.view.definition for t in twins}
        for name, view in [(n, v) for n, v in catalog.view_defs.items() if _reads(v, run.was)]:
            new = catalog.numbered(_over(view, run.was, table))  # a view without a reader keeps its own number
            catalog.redefine(replace(new, definition=numbers.get(name, new.definition)))
        for t in twins:
            if t.name in run.explained:
                catalog.explanations[fold(t.view.name)] = without_numbers(run.explained[t.name])
        catalog.version += 1


def without_rows(plan: Mir, run: ReplacedTable) -> Mir:
    """The input of a twin's node for Spark, whose snapshots lack the empty table."""
    return rebased(plan, run.empty.name, lambda b: Filter(_as(b, run.was), literal(False)))


def _reads(view: ViewDef, table: TableDef) -> bool:
    return any(t.table_id == table.table_id for t in tables_of(view.plan).values())


def _over(view: ViewDef, was: TableDef, table: TableDef) -> ViewDef:
    """The view with one table replaced by another."""
    return replace(view, plan=rebased(view.plan, was.name, lambda b: _as(b, table)))


def _as(base: Base, table: TableDef) -> Base:
    """The same columns of another table, with its keys as far as they consist of these columns."""
    return Base(replace(base.table, name=table.name, table_id=table.table_id).keyed_as(table))
