"""Writes of Spark's source, and of loads, into tables with FOREIGN KEYs: each statement is a session's transaction.

    statement ──► BEGIN ──► checked, with all that follows from it ──► COMMIT, under the statement's name

Keeps true: such a statement is written, checked and remembered by one commit, or nothing of it happens.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_DEADLOCK
from noria.core.statements import Delete, Insert
from noria.server.outcomes import Client, Ok
from noria.server.sessions.requests import complete
from noria.server.sessions.session import Session
from noria.server.sessions.sessions import Sessions
from noria.server.sessions.transactions.transaction_service import ALONE_TRIES
from noria.sql.text.databases import HOME, Databases


class CheckedWrites:
    """See the module.  databases: names tables for the sessions."""

    def __init__(self, sessions: Sessions, databases: Databases):
        self._sessions, self._databases = sessions, databases

    def _session(self) -> Session:
        return self._sessions.connect(Client("root", HOME, self._sessions.processes.number(), "localhost",
                                             False))

    @asynccontextmanager
    async def hold(self, tables: Sequence[str]) -> AsyncIterator[None]:
        """Keep others from writing these tables, once no transaction that has changed or locked them is open.  Raises
        SqlError 1205 after LOCK_WAIT_S.  It is tried again if it is the victim of a deadlock of others' rows."""
        named = ", ".join(f"{self._databases.full(name)} READ" for name in tables)
        with closing(self._session()) as session:
            for left in reversed(range(ALONE_TRIES)):
                try:
                    await complete(session, f"LOCK TABLES {named}", ())
                    break
                except SqlError as e:
                    if e.code != LOCK_DEADLOCK.number or not left:
                        raise
            yield

    async def write(self, statement: Insert | Delete, idempotency_key: str) -> int:
        """Run a statement, and return the number of affected rows.  idempotency_key: as in `Write`, if any row is
        affected.

        It is tried again if its transaction is lost with a worker, or to end a deadlock.
        """
        for left in reversed(range(ALONE_TRIES)):
            try:
                return await self._written(statement, idempotency_key)
            except SqlError as e:
                if e.code != LOCK_DEADLOCK.number or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _written(self, statement: Insert | Delete, idempotency_key: str) -> int:
        what = "DELETE FROM" if isinstance(statement, Delete) else "INSERT INTO"
        with closing(self._session()) as session:
            await complete(session, "BEGIN", ())
            done = await session.run_made(lambda: statement, f"{what} {statement.table}")
            assert isinstance(done, Ok)
            await session.commit(idempotency_key)
            await session.wait_for_own_writes()
            return done.affected
