"""A run of faults as `chaos.run`, whose clients are transactions: registers with a checked history, and transfers.

After each fault all clients pause.  Then the history since the last pause must have no anomaly that its levels do not
allow, and the accounts, their views and their feeds must agree.
"""

from __future__ import annotations

import time
from typing import Any

from chaos.faults import FAULTS
from chaos.run import Figures, Run, Shape
from chaos.transactions import registers, transfers
from chaos.transactions.registers import RegisterClient, Registers
from chaos.transactions.transfers import Bank, FeedReader, SumReader, TransferClient
from chaos.workload.clients import CONVERGE_S, Client, Failure
from e2e.serving import execute

MOST_TRANSFERS = 2_000  # in the books at once


class TransactionRun(Run):
    """See the module."""

    FAULTS = tuple(f for f in FAULTS if "load" not in f.name and "slow readers" not in f.name)

    def _program(self) -> None:
        self.registers, self.bank = Registers(), Bank()
        with self.world.server.connect() as connection:
            for text in (*registers.MADE, self.registers.rows(), *transfers.MADE, *transfers.FEEDS):
                execute(connection, text)

    def _made(self, shape: Shape) -> list[Client]:
        world = self.world
        self.feeds = [FeedReader(world, name) for name in transfers.FOLLOWED]
        for feed in self.feeds:
            feed.start()
        return [*(RegisterClient(world, self.registers, n) for n in range(registers.CLIENTS)),
                *(TransferClient(world, self.bank, n) for n in range(transfers.CLIENTS)),
                *(SumReader(world, self.bank, n) for n in range(transfers.READERS))]

    def compare(self) -> None:
        with self.world.server.connect() as connection:
            self._soon(lambda: self.bank.compare(connection), self.world.workers > 1)
            for feed in self.feeds:
                self._soon(lambda feed=feed: self._feed(feed, connection), True)
            self._soon(lambda: self.registers.history(connection), self.world.workers > 1)
            self.registers.check(connection, self.world.workers > 1)
            self.registers.next(connection)
            if len(self.bank.done) > MOST_TRANSFERS:
                self.bank.close_books(connection)
        self.figures.compared += 1

    def _soon(self, check: Any, wait: bool) -> None:
        """At once; or soon, where messages may be on their way."""
        end = time.monotonic() + (CONVERGE_S if wait else 0)
        while True:
            try:
                self._failed()
                check()
                return
            except Failure:
                if time.monotonic() > end or self.world.failures:
                    raise
            self.world.stop.wait(0.1)

    def _feed(self, feed: FeedReader, connection: Any) -> None:
        feed.compare(connection, transfers.FOLLOWED[feed.feed])

    def finish(self, verify: bool = True) -> Figures:
        if verify:
            super().finish()
        else:
            self.check()
            self.halt()
            self._failed()
        counts = self.figures.counts
        counts["transactions in checked histories"] = self.registers.transactions
        counts["transfers"] = self.bank.total + len(self.bank.done)
        for name, count in sorted(self.registers.seen.items()):
            counts[f"anomalies seen, all allowed: {name}"] = count
        for name, count in self.bank.sums.items():
            counts[f"sums read {name}"] = count
        for feed in self.feeds:
            counts[f"ticks of {feed.feed}"] = feed.ticks
        return self.figures
