"""UPDATE and DELETE that go through a large table: by Spark, while its worker goes on.

    writes of the table wait ─► Spark: which rows it concerns
      few ──► one write of just these
      many ─► an empty table beside it, with a twin of each of its views ─► Spark: files of all rows as they will be
              ─► taken in, at all workers or none ─► the twins are filled ─► ONE Migrate: names change (`truncating`)
                                                                                         ─► writes go on

Keeps true:
* until that packet everybody reads the old rows; a statement that fails, is cancelled, or whose server ends, has
  changed nothing
* the table is as it was when the statement began until it is done, because nobody else writes it; reads go on, and
  writes of other tables
* a feed tells each change of a row: a table whose rows a feed tells is changed by its worker
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard

from noria.control.catalog.names import copy_of, fold
from noria.control.ddl.copying import Copying
from noria.control.ddl.truncating import Run
from noria.control.processes.supervisor import DriverGone
from noria.core import limits
from noria.core.errors import SqlError, is_gone, view_changed
from noria.core.expressions.expr import Expr
from noria.core.expressions.points import between, bounded
from noria.core.statements import Delete, Move, Statement, Update, WriteResult, named_columns
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import Mir, tables_of
from noria.runtime.link.link import WorkerGone
from noria.runtime.link.member import Unwritten
from noria.runtime.routing.write_routing import rows_stay

_NO_TABLE = 1146
Tell = Callable[[str], None]
Rewritable = Update | Delete


class Found(Protocol):
    """How many rows a statement concerns and changes, and what it comes to by worker, if that is few rows."""

    @property
    def rows(self) -> int: ...

    @property
    def changed(self) -> int: ...

    @property
    def moves(self) -> Mapping[int, Move] | None: ...


class Rewriter(Protocol):
    """Spark's part.  tell: is called with how far it is."""

    async def matching(self, statement: Rewritable, table: TableDef, tell: Tell) -> Found: ...

    async def rewritten(self, statement: Rewritable, table: TableDef, other: TableDef, tell: Tell) -> None:
        """The other table has the rows as the statement leaves them."""


@dataclass(kw_only=True)
class _Rewrite(Run):
    """filled: has the other table its rows?"""

    statement: Rewritable
    tell: Tell
    filled: bool = False


class Rewriting(Copying):
    """See the module."""

    rewriter: Rewriter | None = None

    def may_rewrite(self, statement: Statement) -> TypeGuard[Rewritable]:
        """Does it look at all rows of its table, and would Spark do?"""
        if self.rewriter is None or not isinstance(statement, Update | Delete):
            return False
        table = self._tables.get(fold(statement.table))
        if table is None or _is_led_to(statement.where, table):
            return False
        return not self._is_told(table)

    async def rewrite(self, statement: Rewritable, tell: Tell) -> packets.Wrote | None:
        """What became of it; None where its worker is to do it, and nothing was done.  SqlError: nothing is changed.
        Cancelled: likewise, unless it was too late, which the answer tells."""
        planned = self._known(statement.table)
        about: packets.Done = await self._link.ask(packets.Ask(0, "table", statement.table), retry=True)
        if about.error is not None:
            raise about.error
        if about.value["rows"] < limits.REWRITTEN_ROWS or await self._is_of_few(statement, planned):
            return None
        return await self._given_up_whole(asyncio.ensure_future(self._rewritten(statement, planned, tell)))

    async def _is_of_few(self, statement: Rewritable, table: TableDef) -> bool:
        """Are few rows in the range of a key or an index that the condition bounds it to?"""
        bounds = between(statement.where, [c.type for c in table.columns])
        for column in {columns[0] for columns in (table.primary_key, *(i.columns for i in table.indexes)) if columns}:
            if column in bounds:
                low, high = bounds[column]
                few: packets.Done = await self._link.ask(
                    packets.Ask(0, "few between", f"{column} {low} {high} {table.name}"), retry=True)
                if few.error is not None:
                    raise few.error
                if few.value:
                    return True
        return False

    async def _rewritten(self, statement: Rewritable, planned: TableDef, tell: Tell) -> packets.Wrote | None:
        tell("waiting for another statement that rewrites a table")
        async with self._emptying:
            for _ in range(limits.POISON_DEATHS):
                table = self._known(statement.table)
                if not _means_the_same(statement, planned, table):
                    raise view_changed(table.name)
                try:
                    return await self._in_place_of(table, statement, tell)
                except _ForItsWorker:
                    return None
                except SqlError as e:
                    if not is_gone(e):
                        raise
        raise SqlError(1105, "HY000", f"Table '{statement.table}' stays as it is: each time a worker or Spark ended, "
                                      "or the table was defined anew, while its rows were rewritten; try again")

    async def _in_place_of(self, table: TableDef, statement: Rewritable, tell: Tell) -> packets.Wrote:
        assert self.rewriter is not None
        tell("waiting for writes of the table")
        async with AsyncExitStack() as still:
            async with self._lock:  # in which TRUNCATE writes the table
                self._refuse_changed(table)
                still.enter_context(self._noted(table))
            write = await still.enter_async_context(self._link.unwritten(table.name))
            with _begins_anew(table):
                found = await self.rewriter.matching(statement, table, tell)
            if not found.changed:
                return packets.Wrote(0, (WriteResult(matched=found.rows),))
            if found.moves is not None:
                return await self._few(table, statement, found, write)
            if found.changed <= limits.REWRITTEN_KEYS:
                raise _ForItsWorker
            with _begins_anew(table):
                other = replace(table, name=copy_of(table.name, self._next_table_id()),
                                table_id=self._last_table_id, first_id=await self._next_id(table, table))
            await self._instead(_Rewrite(table, other, table.name, statement=statement, tell=tell))
            return packets.Wrote(0, (WriteResult(found.changed, matched=found.rows),))

    async def _few(self, table: TableDef, statement: Rewritable, found: Found, write: Unwritten) -> packets.Wrote:
        """Just the rows that change.  Those that go to other workers, or get a value that another one may have, are the
        workers' to find."""
        assert found.moves is not None
        async with self._lock:
            self._refuse_changed(table)
            stay = self._link.workers == 1 or rows_stay(statement, table)
            sent = write.moved(found.moves) if stay else write.submit(packets.Write((statement,)))
            wrote: packets.Wrote = await self._answered(sent)
        return replace(wrote, results=(WriteResult(found.changed, 0, found.rows, wrote.results[0].error),))

    def _refuse_changed(self, table: TableDef) -> None:
        """Within the lock: is the table as it was, and does no feed tell its rows?"""
        if self._tables.get(fold(table.name)) != table:
            raise view_changed(table.name)
        if self._is_told(table):
            raise _ForItsWorker

    def _is_told(self, table: TableDef) -> bool:
        return any(v.feed and table.name in tables_of(v.plan) for v in self._views.values())

    @contextmanager
    def _noted(self, table: TableDef) -> Iterator[None]:
        held = self._unwritten[fold(table.name)] = asyncio.Event()
        try:
            yield
        finally:
            del self._unwritten[fold(table.name)]
            held.set()

    def _before_switch(self, run: Run) -> Awaitable[None] | None:
        if isinstance(run, _Rewrite):
            self._refuse_changed(run.was)
            if not run.filled:
                return self._fill(run)
        return super()._before_switch(run)

    async def _fill(self, run: _Rewrite) -> None:
        assert self.rewriter is not None
        with _begins_anew(run.was):
            await self.rewriter.rewritten(run.statement, run.was, run.empty, run.tell)
        run.filled = True
        run.tell("filling views")
        for twin in run.twins.values():
            if not twin.view.internal:  # it has no state but those of views over it
                await self.first_states.whole(replace(twin.view, name=twin.name), ())

    def _input(self, plan: Mir, run: Run) -> Mir:
        if isinstance(run, _Rewrite) and run.filled:
            raise view_changed(run.was.name)  # a view that came since, too large for its worker: once more
        return super()._input(plan, run)


class _ForItsWorker(Exception):
    """The statement is its worker's to do."""


@contextmanager
def _begins_anew(table: TableDef) -> Iterator[None]:
    """What ends with a worker or with Spark, before anything was changed, is done again: 1146 is of a table beside the
    one that there is, which went with the workers."""
    try:
        yield
    except (WorkerGone, DriverGone) as e:
        raise view_changed(table.name) from e
    except SqlError as e:
        if e.code == _NO_TABLE:
            raise view_changed(table.name) from e
        raise


def _means_the_same(statement: Rewritable, planned: TableDef, table: TableDef) -> bool:
    """Are its columns those for which it was planned?"""
    def of(some: TableDef, column: int) -> tuple[object, ...] | None:
        if column >= len(some.columns):
            return None
        found = some.columns[column]
        return found.name, found.type, found.dropped

    return all(of(planned, c) == of(table, c) and not table.columns[c].dropped
               for c in named_columns(statement) if c >= 0)


def _is_led_to(where: Expr | None, table: TableDef) -> bool:
    """Does a key or a declared index lead to the rows that the condition may be true of?"""
    points = bounded(where, [c.type for c in table.columns])
    return any(columns and columns[0] in points for columns in (table.primary_key, *(i.columns for i in table.indexes)))

