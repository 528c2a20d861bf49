"""Which transaction ends to break a deadlock across workers, if transactions and statements of their own are in it.

A statement without a transaction that met a lock belongs to another coordinator than transactions do."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.statements import Delete
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages.packets import Done, Inspect, Packet
from noria.dataflow.messages.transaction_packets import EndTransaction, EndWait, LockRows, Stage
from noria.runtime.link.link import LinkState
from noria.runtime.routing.write_routing import RoutedWrite
from noria.runtime.transactions.client_transactions import STATEMENT, ClientTransactions

LOOKS = 8  # a victim ends at the second look
TABLE = TableDef("t", (Column("id", INT, False),), (0,))


class Worker:
    """Answers no request for a lock before `EndWait`, and reports the waits of `workers`."""

    state = LinkState.UP

    def __init__(self, workers: Workers):
        self._workers = workers
        self._waiting: dict[str, asyncio.Future[Any]] = {}

    def losses(self) -> dict[int, Any]:
        return {}

    async def ask(self, body: Packet) -> Any:
        if isinstance(body, Inspect):
            self._workers.looks += 1
            return Done(0, self._workers.waits)
        if isinstance(body, EndWait):
            self._workers.victims.append(body.transaction)
            self._waiting[body.transaction].set_result(Done(0, None, body.error))
        if isinstance(body, EndWait | EndTransaction):
            return Done(0)
        assert isinstance(body, Stage | LockRows)
        self._waiting[body.transaction] = waiting = asyncio.get_running_loop().create_future()
        return await waiting


class Workers:
    """Two workers."""

    def __init__(self) -> None:
        self.waits: list[tuple[str, ...]] = []
        self.victims: list[str] = []
        self.looks = 0
        self.staging_workers = [Worker(self), Worker(self)]

    def routed(self, statement: Any) -> RoutedWrite:
        return RoutedWrite({0: statement, 1: statement})


async def _lock(coordinator: ClientTransactions, transaction: Any) -> None:
    await coordinator.lock_rows(transaction, TABLE, [(n,) for n in range(20)], True, "", 60.0)


def test_a_statement_of_its_own_ends_whoever_looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.runtime.transactions.client_transactions.ACROSS_S", 0.001)

    async def test() -> None:
        workers: Any = Workers()
        sessions = ClientTransactions(workers, "t")
        statements = ClientTransactions(workers, f"{STATEMENT}5")
        holder, statement = sessions.begin(), statements.begin()
        workers.waits = [(holder.name, statement.name), (statement.name, holder.name)]
        locks = asyncio.ensure_future(_lock(sessions, holder))
        while workers.looks < LOOKS * 2:
            await asyncio.sleep(0)
        assert not workers.victims
        with pytest.raises(SqlError, match="Deadlock"):
            await statements.stage(statement, Delete("t", None), 60.0)
        assert set(workers.victims) == {statement.name} and not locks.done()
        locks.cancel()
        with pytest.raises((SqlError, asyncio.CancelledError)):
            await locks

    asyncio.run(asyncio.wait_for(test(), 60))


def test_of_transactions_the_one_with_fewer_requests_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.runtime.transactions.client_transactions.ACROSS_S", 0.001)

    async def test() -> None:
        workers: Any = Workers()
        sessions = ClientTransactions(workers, "t")
        first, second = sessions.begin(), sessions.begin()
        first.done, second.done = {0: 2, 1: 1}, {0: 1, 1: 1}
        first.losses = second.losses = {0: 0, 1: 0}
        workers.waits = [(first.name, second.name), (second.name, first.name)]
        locks = [asyncio.ensure_future(_lock(sessions, t)) for t in (first, second)]
        with pytest.raises(SqlError, match="Deadlock"):
            await locks[1]
        assert set(workers.victims) == {second.name} and not locks[0].done()
        locks[0].cancel()
        with pytest.raises((SqlError, asyncio.CancelledError)):
            await locks[0]

    asyncio.run(asyncio.wait_for(test(), 60))
