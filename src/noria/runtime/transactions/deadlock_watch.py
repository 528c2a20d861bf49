"""Detects and ends deadlocks across workers, among waits for LOCK TABLES, GET_LOCK, definitions and rows.
Call `Deadlocks.waiting` around each wait.

    a wait begins here ──► it closes a cycle of waits here ──► the victim's wait ends at once
         │ a session for which it waits runs a statement
         └──► every LOOK_S: who waits for rows at the workers? ──► the same cycle twice ──► the victim's wait ends

Keeps true: a wait that has ended, for whatever reason, is no longer registered.  While nobody waits, no task runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from noria.dataflow.transactions.locks import deadlock
from noria.dataflow.transactions.wait_graph import Party, RowWait, Wait, WaitGraph, Weight
from noria.runtime.transactions.client_transactions import ClientTransactions

LOOK_S = 0.05  # between two looks for cycles that include waits at workers


class Deadlocks:
    """See the module."""

    def __init__(self) -> None:
        self._graph = WaitGraph()
        self._stops: dict[Party, asyncio.Future[None]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._runs: Callable[[Party], bool] = lambda party: False
        self._rows: Callable[[], Awaitable[Mapping[Party, RowWait]]] = _none
        self._end: Callable[[Party], None] = lambda party: None

    def connect(self, runs: Callable[[Party], bool], rows: Callable[[], Awaitable[Mapping[Party, RowWait]]],
                end: Callable[[Party], None]) -> None:
        """Look at workers, too.  runs: True if the session runs a statement, so that it may wait at a worker.

        rows: requests from the workers who waits for rows.  end: ends the wait of such a party with error 1213.
        """
        self._runs, self._rows, self._end = runs, rows, end

    def __len__(self) -> int:
        """The number of waits."""
        return len(self._graph)

    @contextmanager
    def waiting(self, party: Party, weight: Weight, blockers: Callable[[], Iterable[Party]], work: int = 0
                ) -> Iterator[asyncio.Future[None]]:
        """Register a wait.  Yield a future that is done once the wait must end with an error, as a deadlock's victim.

        party: None for a read or write of no session, which holds nothing.  work: as in `Wait`.
        """
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if party is None:
            yield stop
            return
        victims = self._graph.begin(party, Wait(weight, work, blockers))
        self._stops[party] = stop
        try:
            for victim in victims:
                self._stop(victim)
            if self._looking is None or self._looking.done():
                self._looking = asyncio.ensure_future(self._look())
            yield stop
        finally:
            self._graph.end(party)
            del self._stops[party]

    def _stop(self, victim: Party) -> None:
        stop = self._stops.get(victim)
        if stop is None:
            self._end(victim)
        elif not stop.done():
            stop.set_result(None)

    async def _look(self) -> None:
        before: set[frozenset[Party]] = set()
        while True:
            await asyncio.sleep(LOOK_S)
            if not self._stops:
                return
            now: set[frozenset[Party]] = set()
            if any(map(self._runs, self._graph.blockers())):
                rows = await self._rows()
                now = {frozenset(cycle) for cycle in self._graph.cycles(rows)}
                same = [party for cycle in now & before for party in cycle]  # the workers answered one after another
                for victim in self._graph.victims(rows, same) if same else ():
                    self._stop(victim)
            before = now


async def _none() -> Mapping[Party, RowWait]:
    return {}


class RowWaits:
    """Reports to `Deadlocks` who waits for rows at the workers.  writers: the sessions of writes without a transaction
    that wait for a lock, by the names under which they wait."""

    def __init__(self, coordinator: ClientTransactions, writers: Callable[[], Mapping[str, Party]]):
        self._coordinator, self._writers = coordinator, writers

    async def collect(self) -> dict[Party, RowWait]:
        """Request the waits from all workers.  Returns them by the session that waits."""
        waits = await self._coordinator.lock_waits()
        transactions = {t.name: t for t in self._coordinator.opened()}
        writers = self._writers()

        def party(name: Party) -> Party:
            transaction = transactions.get(str(name))
            owner = writers.get(str(name)) if transaction is None else transaction.owner
            return name if owner is None else owner

        rows: dict[Party, RowWait] = {}
        for name, others in waits.items():
            mine = transactions.get(str(name))
            weight = Weight.DEFINITION if mine is not None and mine.defines else Weight.STATEMENT
            work = 0 if mine is None else sum(mine.done.values())
            rows[party(name)] = RowWait(weight, work, {party(o) for o in others}, ends=mine is not None)
        return rows

    def end(self, victim: Party) -> None:
        """End the victim's wait with error 1213, which rolls its transaction back."""
        for transaction in list(self._coordinator.opened()):
            if victim in (transaction.owner, transaction.name):
                self._coordinator.end_wait(transaction, deadlock())
