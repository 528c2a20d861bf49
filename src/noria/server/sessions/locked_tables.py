"""LOCK TABLES of one session: waits for others, and admits its statements while tables are locked.

Keeps true: a statement is admitted before it reads or writes, and `RunningStatement.writes_to` then says what it may
write.  So LOCK TABLES waits for it, or it waits for LOCK TABLES.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_WAIT_TIMEOUT
from noria.core.statements import Delete, Insert, Update
from noria.plan.mir import tables_of
from noria.server.answering.executor import Executor
from noria.server.sessions.running import Processes, RunningStatement
from noria.server.sessions.transaction import SessionTransaction
from noria.server.sessions.transaction_reads import TransactionService
from noria.sql import commands as sql

LOOK_S = 0.005  # how often LOCK TABLES looks whether earlier writes have ended


class LockedTables:
    """See the module.  holder: the session.  variables: the session's."""

    def __init__(self, holder: object, executor: Executor, processes: Processes, running: RunningStatement,
                 service: TransactionService):
        self._holder, self._executor, self._locks = holder, executor, executor.locks
        self._processes, self._running, self._service = processes, running, service

    @property
    def matter(self) -> bool:
        """True if a SELECT of the session may have to wait, or may not be allowed."""
        locks = self._locks
        return locks.busy and (locks.reads_wait or locks.holds(self._holder))

    # ------------------------------------------------------------ LOCK TABLES
    async def lock(self, command: sql.LockTables, wait_s: float) -> None:
        """Lock the tables, and those below views.  Raises SqlError 1205."""
        self._running.tell("Waiting for table metadata lock")
        await self._locks.lock(self._holder, list(self._with_tables(command)), wait_s, self._written)

    def _with_tables(self, command: sql.LockTables) -> Iterable[tuple[str, bool]]:
        program = self._executor.program
        for name, write in command.tables:
            yield name, write
            with suppress(SqlError):  # of a view that cannot be read: there are no tables below it
                if program.table(name) is None and (view := program.view(name)) is not None:
                    yield from ((table, write) for table in tables_of(view.plan))

    async def _written(self, tables: Collection[str], wait_s: float) -> None:
        """Wait until no transaction has changed or locked the tables, and no statement writes them."""
        loop = asyncio.get_running_loop()
        late = loop.time() + wait_s
        while True:
            while self._are_written(tables):
                if loop.time() > late:
                    raise SqlError(*LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction")
                await asyncio.sleep(LOOK_S)
            async with self._service.coordinator.alone(sorted(tables), max(late - loop.time(), 0.0)):
                if not self._are_written(tables):
                    return

    def _are_written(self, tables: Collection[str]) -> bool:
        """True if a running statement may write one of the tables."""
        if any(table.lower() in tables for table in self._executor.staging.unanswered()):
            return True
        return any(table in tables for command in self._processes.writes(self._running)
                   for table in self._may_write(command))

    # ------------------------------------------------------------ statements
    async def admit_write(self, command: Any, transaction: SessionTransaction, variables: Mapping[str, Any]) -> None:
        """Wait until the session may run a statement that writes or locks rows."""
        if self._locks.busy:
            await self.admit(self._may_write(command), True, transaction, variables)
        self._running.writes_to = command

    async def admit_read(self, command: sql.Select, transaction: SessionTransaction, variables: Mapping[str, Any]
                         ) -> None:
        """Wait until the session may run a SELECT."""
        if self.matter:
            await self.admit(self._read(command), False, transaction, variables)

    async def admit(self, tables: Collection[str], write: bool, transaction: SessionTransaction,
                    variables: Mapping[str, Any]) -> None:
        """Wait until the session may read or write the tables."""
        self._running.tell("Waiting for table metadata lock")
        await self._locks.admit(self._holder, tables, write, float(variables["lock_wait_timeout"]),
                                transaction.has_parts)
        self._running.tell("")

    @staticmethod
    def _read(command: sql.Select) -> Collection[str]:
        if command.view is not None:
            return tables_of(command.view.plan)
        return () if command.batch is None else tables_of(command.batch.plan)

    def _may_write(self, command: Any) -> Collection[str]:
        """The tables that a statement may write or lock, in small letters.  The first is its own."""
        if isinstance(command, sql.LockingSelect):
            return [t.table.name.lower() for t in command.locked if t.exclusive]
        if not isinstance(command, Insert | Update | Delete):
            return [name.lower() for name in sql.tables_changed(command)]
        found = dict.fromkeys([command.table.lower()])
        if not isinstance(command, Insert) or command.on_duplicate in ("replace", "update"):
            children = [t for t in self._executor.program.tables() if t.foreign_keys]
            for parent in (grows := list(found)):
                more = [t.name.lower() for t in children if any(k.refers_to(parent) for k in t.foreign_keys)]
                grows += [name for name in more if name not in found]
                found.update(dict.fromkeys(more))
        return list(found)
