"""Sends each write to the workers that it concerns, and sets their outcome on its future. Call `WriteRouter.begin`.

Keeps true: a write is routed by the definition of its table at this moment. A write that may set AUTO_INCREMENT is
answered when the new value is known here. A write is answered after those that it may have followed (`CommitOrder`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from noria.core.errors import SqlError
from noria.core.statements import Clear, Move, Staged, Statement, WriteResult
from noria.dataflow.messages.packets import Write, Wrote
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.numbering import AutoIncrement
from noria.runtime.cluster.pending_changes import Order, PendingChanges
from noria.runtime.cluster.program_state import LEADER, ProgramState
from noria.runtime.link.change_queue import OnBlocked
from noria.runtime.link.commit_order import CommitOrder, Scope
from noria.runtime.link.pauses import TableWrites
from noria.runtime.link.written import WrittenTables
from noria.runtime.routing.write_routing import RoutedWrite, renumbers, routed
from noria.runtime.transactions.writes import RoutedWrites


class WriteRouter:
    """Begins writes, and notes in `written` each one that begins, also one that begins again."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, pending: PendingChanges, writing: TableWrites,
                 writes: RoutedWrites, numbering: AutoIncrement, written: WrittenTables, order: CommitOrder):
        self._links, self._program, self._pending = links, program, pending
        self._writing, self._writes, self._numbering, self._turn = writing, writes, numbering, 0
        self._written, self._order = written, order
        self.on_blocked: OnBlocked = lambda body, future: None  # runs a write that met a lock
        self._within: dict[asyncio.Future[Any], asyncio.Future[Any]] = {}  # by future that awaits numbers: its write

    def write_of(self, change: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The future for the write itself, if this one also awaits a new AUTO_INCREMENT value."""
        return self._within.get(change, change)

    def begin(self, body: Write, future: asyncio.Future[Any], waits: bool = True) -> None:
        """Begin a write. `waits`: if it meets a lock, it waits; otherwise its result is error 3572."""
        if not body.statements:  # only names to forget: every worker may remember them
            forgotten = asyncio.gather(*(link.submit(body) for link in self._links))
            self._pending.passes_on(forgotten, future, lambda: Wrote(0, ()))
            return
        if len(body.statements) > 1:
            self._begin_together(body, future, waits)
            return
        (statement,) = body.statements
        future = self._renumbered(statement, future)
        try:
            parts = self._route(statement)
        except SqlError as e:
            future.set_result(Wrote(0, (WriteResult(error=e),)))
            return
        inner, wrote = self._writes.begin(parts, body.idempotency_key, body.wait_s)
        self._begun((statement.table,), inner)
        self._pending.passes_on(inner, future, self._expecting(parts, statement.table, wrote),
                                partial(self.on_blocked, body) if waits else None,
                                self._behind((parts,), (statement.table,)))

    def _begin_together(self, body: Write, future: asyncio.Future[Any], waits: bool) -> None:
        try:
            parts = [self._route(s) for s in body.statements]
        except SqlError as e:
            future.set_result(Wrote(0, (WriteResult(error=e),)))
            return
        inner, wrote = self._writes.begin_together(parts, body.idempotency_key)
        tables = {s.table for s in body.statements}
        self._begun(tables, inner)
        order = self._behind(parts, tables)
        for s, part in zip(body.statements, parts, strict=True):
            wrote = self._expecting(part, s.table, wrote)
        self._pending.passes_on(inner, future, wrote, partial(self.on_blocked, body) if waits else None, order)

    def route_for_transaction(self, statement: Statement) -> RoutedWrite:
        """Route a transaction's statement."""
        routed = self._route(statement)
        if routed.brings:
            self._numbering.numbers.reached(self._program.mirror.tables[statement.table], routed.brings)
        return routed

    def commit_staged(self, parts: Mapping[int, Staged], idempotency_key: str, scope: Scope) -> asyncio.Future[Any]:
        """Commit a transaction's parts. Returns the future of a `Wrote`. `scope`: where it has parts and locks."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inner, wrote = self._writes.begin(RoutedWrite(dict(parts)), idempotency_key)
        self._begun({t for part in parts.values() for t in part.tables}, inner)
        self._pending.passes_on(inner, future, wrote, order=partial(self._order.answer, scope))
        return future

    def under_way(self) -> set[str]:
        """The tables with writes under way."""
        return self._writing.tables()

    def on_answer(self, callback: Callable[[], None]) -> None:
        """Register a callback for ended writes."""
        self._writing.on_end = callback

    def moved(self, parts: Mapping[int, Move]) -> asyncio.Future[Any]:
        """See `ExclusiveWriter.moved`."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        inner, wrote = self._writes.begin(RoutedWrite(dict(parts)))
        first = next(iter(parts.values()))
        self._begun((first.table,), inner)
        self._pending.passes_on(inner, self._renumbered(first, future), wrote,
                                order=partial(self._order.answer, Scope(parts.keys(), (first.table,))))
        return future

    def _behind(self, routed: Sequence[RoutedWrite], tables: Collection[str]) -> Order:
        """Delays the answer to these statements until those that they may have followed are visible."""
        planned = any(p.moves or p.unique for p in routed)  # its plan decides at which workers
        workers = range(len(self._links)) if planned else {w for p in routed for w in p.parts}
        return partial(self._order.answer, Scope(workers, tables))

    def _begun(self, tables: Collection[str], write: asyncio.Future[Any]) -> None:
        """Note a write that begins in this turn of the loop, so no worker has it yet."""
        self._written.note_tables(tables)
        for table in tables:
            self._writing.add(table, write)

    def _route(self, statement: Statement) -> RoutedWrite:
        self._turn += 1
        table = self._program.mirror.tables.get(statement.table)
        if table is None:
            return RoutedWrite({LEADER: statement})
        return routed(statement, table, len(self._links), self._numbering.numbers, self._turn)

    def _expecting(self, parts: RoutedWrite, table: str, wrote: Callable[[], Wrote]) -> Callable[[], Wrote]:
        return self._numbering.expecting(parts, self._program.mirror.tables[table], wrote) if parts.brings else wrote

    def _renumbered(self, statement: Statement, future: asyncio.Future[Any]) -> asyncio.Future[Any]:
        """The future for the write itself. If the write may set AUTO_INCREMENT, `future` also waits until the new
        value is known."""
        table = self._program.mirror.tables.get(statement.table)
        if table is None or not renumbers(statement, table):
            return future
        written: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._within[future] = written
        task = asyncio.ensure_future(self._numbering.after(written, table, isinstance(statement, Clear)))
        task.add_done_callback(lambda _: self._within.pop(future))
        self._pending.passes_on(task, future, task.result)
        return written
