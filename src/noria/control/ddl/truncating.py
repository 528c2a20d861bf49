"""TRUNCATE: empties a small table in one commit and tick; replaces a large one by an empty one (section 5).

    few rows ──► one write
    many ──► an empty table beside it ─► a twin of each of its views over that, filled ─► ONE Migrate: names change

Keeps true:
* Until that packet everybody reads the old rows, and new writes are lost with them.  The packet is one commit, so a
  crash at any moment leaves the old table or the empty one.  The old rows are deleted as files, uncounted.
* No catalog and no recipe has the empty table and the twins before: a worker that starts knows nothing of them.
* The packet is sent when each view that then reads the table has a whole twin, whatever happened to views meanwhile.
* Positions and former columns are kept: earlier statements and texts mean what they meant.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from noria.control.catalog.names import beside, fold, without_numbers
from noria.control.catalog.published import published
from noria.control.ddl.program import Program
from noria.control.views.texts import Change
from noria.core import limits
from noria.core.errors import TOO_LONG, SqlError, is_gone, unknown_table, view_changed
from noria.core.expressions.functions import literal
from noria.core.statements import Clear
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import Base, Filter, Mir, rebased, tables_of
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link
from noria.sql import commands


@dataclass(frozen=True)
class _Twin:
    """A view over the empty table, made for one definition of a view over the old one."""

    of: int
    view: ViewDef

    @property
    def name(self) -> str:
        return beside(self.view.name, self.view.definition)


@dataclass
class Run:
    """A table that is being replaced.

    name: the final name of the other table; made: True once that exists.  twins: by the views' folded names; stale:
    twins of replaced definitions; explained: explanations by the twins' names.
    """

    was: TableDef
    empty: TableDef
    name: str
    made: bool = False
    twins: dict[str, _Twin] = field(default_factory=dict)
    stale: list[_Twin] = field(default_factory=list)
    explained: dict[str, str] = field(default_factory=dict)

    @property
    def beside(self) -> list[_Twin]:
        return [*self.twins.values(), *self.stale]


class Truncate(Program):
    """A program that can empty tables."""

    def __init__(self, link: Link, adhoc_views: int = limits.ADHOC_VIEWS, hold_ms: int = limits.READ_HOLD_MS):
        super().__init__(link, adhoc_views, hold_ms)
        self._emptying = asyncio.Lock()  # the twins of one TRUNCATE would keep another from finishing
        self._unwritten: dict[str, asyncio.Event] = {}  # tables whose writes wait, and the events that end the wait

    async def _define(self, command: commands.Command) -> Change:
        if not isinstance(command, commands.Truncate):
            return await super()._define(command)
        return await self._while_gone(command.name, partial(self._emptied, command.name))

    async def _while_gone(self, name: str, once: Callable[[], Awaitable[None]]) -> Change:
        for _ in range(limits.POISON_DEATHS):
            try:
                await once()
                return Change()
            except SqlError as e:
                if not is_gone(e):
                    raise
        raise SqlError(1105, "HY000", f"Table '{name}' stays as it is: each time the worker ended, or the "
                                      "table was defined anew, while another one was made; try again")

    async def _emptied(self, name: str) -> None:
        if not await self._emptied_at_once(name):
            async with self._emptying:
                await self._instead(self._run_for(self._known(name)))

    async def _emptied_at_once(self, name: str) -> bool:
        """Empty a small table with one write; False, and nothing done, for a table of many rows."""
        while True:
            async with self._lock:
                if (held := self._unwritten.get(fold(name))) is None:
                    write = Clear(self._known(name).name, limits.TRUNCATE_AT_ONCE_ROWS)
                    reply: packets.Wrote = await self._change(packets.Write((write,)))
                    break
            await held.wait()
        error = reply.results[0].error
        if error is not None and error.code != TOO_LONG:
            raise error
        return error is None

    async def _instead(self, run: Run) -> None:
        """Replace the table in one change, as soon as all preconditions hold."""
        try:
            while (more := await self._next(run)) is not None:
                await more
        except BaseException:
            if run.made:
                steps: list[packets.MigrationStep] = [packets.DropView(t.name) for t in run.beside]
                steps.append(packets.DropTable(run.empty.name))
                self._link.submit(packets.Migrate(tuple(steps), self.recipe(), not run.empty.is_passing))
            raise
        finally:
            self._not_beside(t.name for t in run.beside)

    def _known(self, name: str) -> TableDef:
        found = self._tables.get(fold(name))
        if found is None:
            raise unknown_table(name)
        return found

    def _run_for(self, table: TableDef) -> Run:
        number = self._next_table_id()
        return Run(table, replace(table, name=beside(table.name, number), table_id=number, first_id=1), table.name)

    def _next_table_id(self) -> int:
        self._last_table_id += 1
        return self._last_table_id

    async def _next(self, run: Run) -> Awaitable[object] | None:
        """Make one change of the program: the missing twins, or if none is missing, the last change.

        Returns what to await before the next change.  A view that reads the table and is being replaced is awaited
        first, because its twin must have its new definition.
        """
        async with self._lock:
            if self._tables.get(fold(run.was.name)) != run.was:
                raise view_changed(run.was.name)
            if any(_reads(v, run.was) for v in self._beside.values()):
                return self._fewer_beside.wait()
            views = [v for v in self._kept() if not v.adhoc and fold(v.name) not in self._broken and _reads(v, run.was)]
            missing = [v for v in views if (t := run.twins.get(fold(v.name))) is None or t.of != v.definition]
            if missing or not run.made:
                return self._whole_beside(await self._make(run, missing))
            if (more := self._before_switch(run)) is not None:
                return more
            await self._switch(run, views)
            return None

    def _before_switch(self, run: Run) -> Awaitable[None] | None:
        """What is left to do once all twins exist, or None."""
        return None

    async def _make(self, run: Run, views: Sequence[ViewDef]) -> packets.Migrated:
        if not run.made:  # in a change of its own: creating files takes some milliseconds each
            run.made = True  # or partly made
            await self._with_room((packets.CreateTable(run.empty),), self.recipe(), not run.empty.is_passing)
        steps = []
        for view in views:
            name = fold(view.name)
            run.stale += [run.twins[name]] if name in run.twins else []
            twin = _Twin(view.definition, self._numbered(_over(view, run.was, run.empty)))
            run.twins[name] = twin
            steps.append(published(replace(twin.view, name=twin.name)))
        reply = await self._with_room(tuple(steps), self.recipe(), False)
        self._beside.update((t.name, t.view) for t in run.twins.values())
        run.explained.update(reply.explain)
        by_spark = tuple((v, node, self._input(plan, run)) for v, node, plan in reply.bootstrap)
        return replace(reply, bootstrap=by_spark)

    def _input(self, plan: Mir, run: Run) -> Mir:
        """The input of a twin's node for Spark, whose snapshots lack the empty table."""
        return rebased(plan, run.empty.name, lambda b: Filter(_as(b, run.was), literal(False)))

    async def _switch(self, run: Run, views: Sequence[ViewDef]) -> None:
        """Rename the other table and the twins, and drop the old table and its views."""
        table = replace(run.empty, name=run.name)
        gone = replace(run.was, name=beside(run.was.name, run.was.table_id))
        twins = [run.twins[fold(v.name)] for v in views]
        adhoc = [n for n, v in self._adhoc.items() if _reads(v, run.was)]
        drops = [*(self._adhoc[n].name for n in adhoc), *(v.name for v in views),
                 *(t.name for t in run.beside if t not in twins)]
        await self._migrate((*map(packets.DropView, drops), packets.AlterTable(gone), packets.AlterTable(table),
                             *(packets.RenameView(t.name, t.view.name) for t in twins), packets.DropTable(gone.name)),
                            self.recipe())
        for name in adhoc:
            self._forget(name)
        if fold(table.name) != fold(run.was.name):
            del self._tables[fold(run.was.name)]
        self._tables[fold(table.name)] = table
        numbers = {fold(t.view.name): t.view.definition for t in twins}
        for name, view in [(n, v) for n, v in self._views.items() if _reads(v, run.was)]:
            new = self._numbered(_over(view, run.was, table))  # a view without a reader keeps its own number
            self._redefine(replace(new, definition=numbers.get(name, new.definition)))
        for t in twins:
            if t.name in run.explained:
                self._explain[fold(t.view.name)] = without_numbers(run.explained[t.name])
        self.version += 1


def _reads(view: ViewDef, table: TableDef) -> bool:
    return any(t.table_id == table.table_id for t in tables_of(view.plan).values())


def _over(view: ViewDef, was: TableDef, table: TableDef) -> ViewDef:
    """The view with one table replaced by another."""
    return replace(view, plan=rebased(view.plan, was.name, lambda b: _as(b, table)))


def _as(base: Base, table: TableDef) -> Base:
    """The same columns of another table, with its keys as far as they consist of these columns."""
    return Base(replace(base.table, name=table.name, table_id=table.table_id).keyed_as(table))
