"""The sessions of a server.

A MySQL client has one session while it is connected.  A call of the embedded database has its own session, which ends
with it (`Sessions.run`).  So has an HTTP request, but the requests of one transaction share a session (`held`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from noria.core.errors import not_supported
from noria.runtime.transactions.deadlock_watch import RowWaits
from noria.server.access.access import Access
from noria.server.answering.executor import Executor
from noria.server.logins import LoginGuard
from noria.server.outcomes import Client, Outcome, ResultSet
from noria.server.sessions.held_transactions import HeldTransactions
from noria.server.sessions.inspect import inspection
from noria.server.sessions.inspect.explain import Explainer
from noria.server.sessions.requests import check_kept, complete
from noria.server.sessions.running import Processes
from noria.server.sessions.session import Session
from noria.server.sessions.transactions.transaction_service import TransactionService
from noria.server.sessions.user_locks import UserLocks


class Sessions:
    """Implements `outcomes.Backend`.  guard: guards the logins of this process.  access: the accounts; without them
    everybody may do everything."""

    def __init__(self, executor: Executor, access: Access | None = None):
        self._executor, self.access = executor, access or Access()
        self.access.on_change.append(executor.program.accounts_changed)
        self.access.everywhere = lambda: executor.wait_for_front_ends()
        self._explainer = Explainer(executor)
        self.processes = Processes()
        self.guard = LoginGuard()
        self.replies = executor.replies
        self._transactions = TransactionService(executor)
        self._user_locks = UserLocks(executor.locks.deadlocks)
        rows = RowWaits(self._transactions.coordinator, self._locked_writes)
        executor.locks.deadlocks.connect(self.processes.runs, rows.collect, rows.end)
        self.held = HeldTransactions(executor, self.processes, self.connect)
        executor.program.foreign_keys.count = self._count
        executor.program.foreign_keys.in_force = self._transactions.over

    def _locked_writes(self) -> dict[str, int]:
        """The sessions whose writes without a transaction wait for locks, by the names under which these wait."""
        workers = self._executor.staging
        return {name: number for number, write in self.processes.writes() if (name := workers.waits_as(write))}

    def connect(self, client: Client) -> Session:
        return Session(self._executor, self.processes, self._explainer, client, self.guard, self._transactions,
                       self._user_locks, self.access)

    async def run(self, text: str, parameters: Sequence[Any], found_rows: bool = False, database: str = ""
                  ) -> list[Outcome]:
        """Run the statements of a text in a session of their own and return their outcomes.  Raises the SqlError of the
        first statement that fails.  found_rows: as in `Client`.  database: "" for the server's default one."""
        database = database or self._executor.program.catalog.default_database
        session = self.connect(Client("root", database, self.processes.number(), "localhost", found_rows))
        try:
            outcomes = await complete(session, text, parameters)
            if session.in_transaction:
                raise not_supported("a transaction over several calls", "each is a session of its own, so this one was "
                                    "rolled back: use `with db.transaction()`, or send BEGIN … COMMIT as one text")
            check_kept(session, outcomes, database)
            await session.wait_for_own_writes()  # the client's next request has another session, which would not wait
            return outcomes
        finally:
            session.close()

    async def _count(self, text: str) -> int:
        """The number that a SELECT returns."""
        (outcome,) = await self.run(text, ())
        assert isinstance(outcome, ResultSet)
        return int(str(outcome.rows[0][0]))

    def views(self) -> list[dict[str, Any]]:
        """Describe every named and ad-hoc view for /views."""
        catalog = self._executor.program.catalog
        return [inspection.view_about(v, catalog) for v in (*catalog.views(), *catalog.adhoc())]
