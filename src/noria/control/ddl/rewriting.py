"""UPDATE and DELETE over a large table: Spark rewrites the table while its worker continues.

    writes of the table wait ─► Spark: which rows match
      few ──► one write of just these
      many ─► an empty table beside it, with a twin of each of its views ─► Spark: files of all rows as they will be
              ─► ingested by all workers or none ─► the twins are filled ─► ONE Migrate: names change (`swapping`)
                                                                                         ─► writes continue

Keeps true:
* Until that packet everybody reads the old rows.  A statement that fails, is cancelled, or whose server ends has
  changed nothing.
* The table does not change while the statement runs, because nothing else writes it.  Reads continue, and so do writes
  of other tables.
* A feed records each change of a row, so a table under a feed is changed by its worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeGuard

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.names import copy_of, fold
from noria.control.changes.sender import ChangeSender
from noria.control.ddl.copying import next_id
from noria.control.ddl.swapping import ReplacedTable, TableSwap, without_rows
from noria.control.processes.supervisor import DriverGone
from noria.control.views.first_states import FirstStates
from noria.core import limits
from noria.core.errors import SqlError, is_redefined, view_changed
from noria.core.errors.codes import NO_SUCH_TABLE, UNKNOWN_ERROR
from noria.core.expressions.column_ranges import bounded, ranges_of
from noria.core.expressions.expr import Expr
from noria.core.statements import Delete, Move, Statement, Update, WriteResult, named_columns
from noria.core.types import TableDef
from noria.dataflow.messages import packets
from noria.plan.mir import Mir, tables_of
from noria.runtime.link.link import WorkerUnavailable
from noria.runtime.link.one_worker_link import ExclusiveWriter
from noria.runtime.routing.write_routing import rows_stay

SetState = Callable[[str], None]
Rewritable = Update | Delete


class MatchCount(Protocol):
    """How many rows a statement matches and changes; if they are few, its `Move` for each worker."""

    @property
    def rows(self) -> int: ...

    @property
    def changed(self) -> int: ...

    @property
    def moves(self) -> Mapping[int, Move] | None: ...


class Rewriter(Protocol):
    """Spark's part of a rewrite.  set_state: is called with what the statement does or waits for."""

    async def matching(self, statement: Rewritable, table: TableDef, set_state: SetState) -> MatchCount: ...

    async def rewritten(self, statement: Rewritable, table: TableDef, other: TableDef, set_state: SetState) -> None:
        """Fill the other table with the rows as the statement leaves them."""


@dataclass
class _Rewrite:
    """A statement that is being run.  filled: True once the other table has its rows."""

    statement: Rewritable
    set_state: SetState
    filled: bool = False


class TableRewrites:
    """Lets Spark run UPDATE and DELETE over large tables.  rewriter: None without Spark."""

    def __init__(self, catalog: ProgramCatalog, sender: ChangeSender, first_states: FirstStates, swap: TableSwap):
        self._catalog, self._sender, self._first_states, self._swap = catalog, sender, first_states, swap
        self.rewriter: Rewriter | None = None

    def may_rewrite(self, statement: Statement) -> TypeGuard[Rewritable]:
        """True if the statement would scan its whole table, and Spark could run it."""
        if self.rewriter is None or not isinstance(statement, Update | Delete):
            return False
        table = self._catalog.table(statement.table)
        if table is None or _is_led_to(statement.where, table):
            return False
        return not self._has_feed(table)

    async def rewrite(self, statement: Rewritable, set_state: SetState) -> packets.Wrote | None:
        """Run the statement by Spark; None if its worker should run it, and nothing was done.

        After a SqlError nothing is changed.  So it is after a cancellation, unless it was too late: then the result is
        returned.
        """
        planned = self._swap.known(statement.table)
        if not await self.is_large(statement):
            return None
        return await self._sender.complete_or_undo(
            asyncio.ensure_future(self._rewritten(statement, planned, set_state)))

    async def is_large(self, statement: Rewritable) -> bool:
        """True if the statement would scan more rows than a worker may read at once."""
        planned = self._swap.known(statement.table)
        about = await self._sender.request(packets.Inspect(0, "table", statement.table))
        return about["rows"] >= limits.REWRITTEN_ROWS and not await self._is_of_few(statement, planned)

    async def _is_of_few(self, statement: Rewritable, table: TableDef) -> bool:
        """True if few rows are in a range of a key or an index to which the condition is limited."""
        bounds = ranges_of(statement.where, [c.type for c in table.columns])
        for column in {columns[0] for columns in (table.primary_key, *(i.columns for i in table.indexes)) if columns}:
            if column in bounds:
                low, high = bounds[column]
                within = f"{column} {low} {high} {table.name}"
                if await self._sender.request(packets.Inspect(0, "few between", within)):
                    return True
        return False

    async def _rewritten(self, statement: Rewritable, planned: TableDef, set_state: SetState) -> packets.Wrote | None:
        set_state("waiting for another statement that rewrites a table")
        async with self._swap.turn:
            for _ in range(limits.POISON_DEATHS):
                table = self._swap.known(statement.table)
                if not _means_the_same(statement, planned, table):
                    raise view_changed(table.name)
                try:
                    return await self._in_place_of(table, statement, set_state)
                except _LeftToWorker:
                    return None
                except SqlError as e:
                    if not is_redefined(e):
                        raise
        raise SqlError(*UNKNOWN_ERROR, f"Table '{statement.table}' stays as it is: each time a worker or Spark ended, "
                                       "or the table was defined anew, while its rows were rewritten; try again")

    async def _in_place_of(self, table: TableDef, statement: Rewritable, set_state: SetState) -> packets.Wrote:
        assert self.rewriter is not None
        set_state("waiting for writes of the table")
        async with AsyncExitStack() as still:
            async with self._sender.lock:  # the lock under which TRUNCATE writes the table
                self._refuse_changed(table)
                still.enter_context(self._noted(table))
            write = await still.enter_async_context(self._sender.link.unwritten(table.name))
            with _begins_anew(table):
                found = await self.rewriter.matching(statement, table, set_state)
            if not found.changed:
                return packets.Wrote(0, (WriteResult(matched=found.rows),))
            if found.moves is not None:
                return await self._few(table, statement, found, write)
            if found.changed <= limits.REWRITTEN_KEYS:
                raise _LeftToWorker
            with _begins_anew(table):
                number = self._catalog.next_table_id()
                other = replace(table, name=copy_of(table.name, number), table_id=number,
                                first_id=await next_id(self._sender, table, table))
            rewrite = _Rewrite(statement, set_state)
            await self._swap.swap(ReplacedTable(table, other, table.name, left=partial(self._left, rewrite),
                                                spark_input=partial(_input, rewrite)))
            return packets.Wrote(0, (WriteResult(found.changed, matched=found.rows),))

    async def _few(self, table: TableDef, statement: Rewritable, found: MatchCount,
                   write: ExclusiveWriter) -> packets.Wrote:
        """Write only the rows that change.

        If rows may move between workers or repeat a UNIQUE value of another one, the workers run the statement.
        """
        assert found.moves is not None
        async with self._sender.lock:
            self._refuse_changed(table)
            stay = self._sender.link.workers == 1 or rows_stay(statement, table)
            sent = write.moved(found.moves) if stay else write.submit(packets.Write((statement,)))
            wrote: packets.Wrote = await self._sender.answered(sent)
        return replace(wrote, results=(WriteResult(found.changed, 0, found.rows, wrote.results[0].error),))

    def _refuse_changed(self, table: TableDef) -> None:
        """Under the lock: raise an error if the table changed, or a feed reads it."""
        if self._catalog.table(table.name) != table:
            raise view_changed(table.name)
        if self._has_feed(table):
            raise _LeftToWorker

    def _has_feed(self, table: TableDef) -> bool:
        return any(v.feed and table.name in tables_of(v.plan) for v in self._catalog.views())

    @contextmanager
    def _noted(self, table: TableDef) -> Iterator[None]:
        held = self._swap.unwritten[fold(table.name)] = asyncio.Event()
        try:
            yield
        finally:
            del self._swap.unwritten[fold(table.name)]
            held.set()

    def _left(self, rewrite: _Rewrite, run: ReplacedTable) -> Awaitable[object] | None:
        """What is left to do once all twins exist: the rows, unless they are there."""
        self._refuse_changed(run.was)
        return None if rewrite.filled else self._fill(rewrite, run)

    async def _fill(self, rewrite: _Rewrite, run: ReplacedTable) -> None:
        assert self.rewriter is not None
        with _begins_anew(run.was):
            await self.rewriter.rewritten(rewrite.statement, run.was, run.empty, rewrite.set_state)
        rewrite.filled = True
        rewrite.set_state("filling views")
        for twin in run.twins.values():
            if not twin.view.internal:  # an internal view has no state of its own
                await self._first_states.fill(replace(twin.view, name=twin.name), ())


def _input(rewrite: _Rewrite, plan: Mir, run: ReplacedTable) -> Mir:
    """The input of a twin's node for Spark."""
    if rewrite.filled:
        raise view_changed(run.was.name)  # a new view, too large for its worker: start again
    return without_rows(plan, run)


class _LeftToWorker(Exception):
    """The worker of the table should run the statement."""


@contextmanager
def _begins_anew(table: TableDef) -> Iterator[None]:
    """Turn the end of a worker or of Spark, before anything was changed, into an error that starts the statement again.

    Error 1146 means the table beside the old one, which was lost with the workers.
    """
    try:
        yield
    except (WorkerUnavailable, DriverGone) as e:
        raise view_changed(table.name) from e
    except SqlError as e:
        if e.code == NO_SUCH_TABLE.number:
            raise view_changed(table.name) from e
        raise


def _means_the_same(statement: Rewritable, planned: TableDef, table: TableDef) -> bool:
    """True if the statement's columns are the same as when it was planned."""
    def of(some: TableDef, column: int) -> tuple[object, ...] | None:
        if column >= len(some.columns):
            return None
        found = some.columns[column]
        return found.name, found.type, found.dropped

    return all(of(planned, c) == of(table, c) and not table.columns[c].dropped
               for c in named_columns(statement) if c >= 0)


def _is_led_to(where: Expr | None, table: TableDef) -> bool:
    """True if a key or a declared index finds the rows for which the condition may be true."""
    points = bounded(where, [c.type for c in table.columns])
    return any(columns and columns[0] in points for columns in (table.primary_key, *(i.columns for i in table.indexes)))

