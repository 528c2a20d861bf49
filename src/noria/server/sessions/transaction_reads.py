"""Statements within a transaction: staged writes, and SELECTs that no view can answer because of it.

A SELECT of tables that the transaction has changed, or of a snapshot older than the views, is a one-shot.  It reads the
tables' rows plus those that only this transaction has.

Keeps true: such a SELECT is exact, or an error that says why it cannot be answered within the transaction.
"""

from __future__ import annotations

from datetime import timedelta

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import LOCK_DEADLOCK, QUERY_TIMEOUT
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.runtime.transactions.transaction_coordinator import (
    OpenTransaction,
    TransactionCoordinator,
)
from noria.server.answering.executor import Executor
from noria.server.answering.keys import looked_up
from noria.server.answering.shapes import Shape, no_rows
from noria.server.outcomes import ResultSet
from noria.sql import commands as sql


class TransactionService:
    """See the module."""

    def __init__(self, executor: Executor):
        self.coordinator = TransactionCoordinator(executor.staging, "t")
        self._executor, self._reads = executor, executor.reads
        self._tables: dict[int, tuple[ViewDef, frozenset[str]]] = {}

    async def stage(self, transaction: OpenTransaction, statement: Insert | Update | Delete, offset: timedelta,
                    wait_s: float) -> WriteResult:
        """Run a write within the transaction.  offset: how far the session's clock is ahead of UTC."""
        return await self.coordinator.stage(transaction, self._executor.at_its_time(statement, offset), wait_s)

    def tables(self, view: ViewDef) -> frozenset[str]:
        """The base tables below a view."""
        known = self._tables.get(id(view))
        if known is None or known[0] is not view:
            if len(self._tables) >= 1_000:
                self._tables.clear()
            known = self._tables[id(view)] = view, frozenset(tables_of(view.plan))
        return known[1]

    def reads_apart(self, transaction: OpenTransaction, view: ViewDef) -> bool:
        """True if the transaction must not read the views that have these rows."""
        return self.coordinator.reads_apart(transaction, self.tables(view)) or (
            transaction.snapshot is not None and self._executor.lags(view))

    def is_apart(self, transaction: OpenTransaction, select: sql.Select) -> bool:
        """True if neither views nor Spark have just the rows that the transaction must see."""
        if select.view is not None:
            return self.reads_apart(transaction, select.view)
        assert select.batch is not None, "a SELECT has a view or a plan for Spark"
        return self.coordinator.reads_apart(transaction, tables_of(select.batch.plan))

    async def select(self, transaction: OpenTransaction, select: sql.Select) -> ResultSet | None:
        """Answer a SELECT; None if the views have just the rows that the transaction must see."""
        if not self.is_apart(transaction, select):
            return None
        view = select.view
        if view is None:
            raise not_supported("in a transaction that has changed its tables, or whose snapshot is older than they "
                                "are, this SELECT", "Spark answers it, and sees the last commits only")
        tables = self.tables(view)
        shape = Shape.of(view)
        keys, nulls, between = looked_up(select.lookups, view.key_fields)
        if not keys and between is None:
            return await shape.result_of(no_rows(view.plan.fields), self._reads.room.lease())
        within = self.coordinator.within(transaction, tables)
        try:
            return await shape.result_of(*await self._reads.once(view, keys, nulls, between, within))
        except SqlError as e:
            if e.code == LOCK_DEADLOCK.number:
                self.coordinator.end(transaction)
            elif e.code == QUERY_TIMEOUT.number:
                raise SqlError(e.code, e.state, f"{e.message}: a SELECT in a transaction reads the tables themselves, "
                                                "once the transaction or a later commit has changed them") from None
            raise
