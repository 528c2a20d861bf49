"""LOCK TABLES of one session: waits for others, and admits its statements while tables are locked.

Keeps true: a statement is admitted before it reads or writes, and `RunningStatement.writes_to` or `reads` then has the
tables.  So LOCK TABLES waits for it, or it waits for LOCK TABLES.  A statement that waits holds up no LOCK TABLES.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from functools import partial
from typing import Any

from noria.core.errors import SqlError
from noria.core.statements import Delete, Insert, Update
from noria.dataflow.transactions.wait_graph import Weight
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.server.answering.executor import Executor
from noria.server.answering.locks import Tables, Use
from noria.server.sessions.running import Processes, RunningStatement
from noria.server.sessions.transactions.transaction import SessionTransaction
from noria.server.sessions.transactions.transaction_service import TransactionService
from noria.sql import commands as sql


class LockedTables:
    """See the module.  holder: the session's number."""

    def __init__(self, holder: int, executor: Executor, processes: Processes, running: RunningStatement,
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
        self._running.set_state("Waiting for table metadata lock")
        await self._locks.lock(self._holder, list(self._with_tables(command)), wait_s, self._uses,
                               self.exclusive_access)

    def _with_tables(self, command: sql.LockTables) -> Iterable[tuple[str, bool]]:
        program = self._executor.program
        for name, write in command.tables:
            yield name, write
            with suppress(SqlError):  # of a view that cannot be read: there are no tables below it
                if program.table(name) is None and (view := program.view(name)) is not None:
                    yield from ((table, write) for table in tables_of(view.plan))

    def exclusive_access(self, tables: Sequence[str], wait_s: float) -> AbstractAsyncContextManager[None]:
        """Wait until no transaction has changed or locked the tables (`ClientTransactions.exclusive_access`)."""
        return self._service.coordinator.exclusive_access(tables, wait_s, self._holder)

    async def enter_exclusive(self, stack: AsyncExitStack, tables: Sequence[str], wait_s: float) -> None:
        """Enter `exclusive_access` when the transactions have ended, too, that have read the tables by now.  While only
        these are waited for, others may write."""
        loop = asyncio.get_running_loop()
        late, readers = loop.time() + wait_s, self._locks.readers(self._holder, tables)
        await stack.enter_async_context(self.exclusive_access(tables, wait_s))
        if any(self._locks.still_reads(*one) for one in readers.items()):
            await stack.aclose()
            await self._locks.until_readers_end(self._holder, readers, max(late - loop.time(), 0.0))
            await stack.enter_async_context(self.exclusive_access(tables, max(late - loop.time(), 0.0)))

    def _uses(self, wanted: Tables) -> Iterator[Use]:
        """The tables that running statements write, or read although they are to be locked for WRITE."""
        yield from ((table, None) for table in self._executor.staging.unanswered() if table.lower() in wanted)
        for number, running in self._processes.using(self._running):
            if running.writes_to is not None:
                yield from ((table, number) for table in self._may_write(running.writes_to) if table in wanted)
            if running.reads is not None:
                yield from ((table, number) for table in running.reads() if wanted.get(table.lower(), False))

    # ------------------------------------------------------------ statements
    async def admit_write(self, command: Any, transaction: SessionTransaction, variables: Mapping[str, Any]) -> None:
        """Wait until the session may run a statement that writes or locks rows."""
        if self._locks.busy:
            also = self._read(command.select) if isinstance(command, sql.SelectedWrite) else ()
            await self.admit(self._may_write(command), True, transaction, variables, also=also)
        self._running.writes_to = command

    async def admit_read(self, command: sql.Select, transaction: SessionTransaction, variables: Mapping[str, Any]
                         ) -> None:
        """Wait until the session may run a SELECT."""
        if self.matter:
            await self.admit(self._read(command), False, transaction, variables)
        self._note(partial(self._read, command), transaction)

    async def admit_read_of(self, view: ViewDef, transaction: SessionTransaction, variables: Mapping[str, Any]) -> None:
        """Wait until the session may read a view."""
        if self.matter:
            await self.admit(tables_of(view.plan), False, transaction, variables)
        self._note(partial(tables_of, view.plan), transaction)

    async def admit_locking(self, command: sql.LockingSelect, transaction: SessionTransaction,
                            variables: Mapping[str, Any]) -> None:
        """Wait until the session may run a SELECT that locks rows."""
        if self._locks.busy:
            await self.admit(self._may_write(command), True, transaction, variables, also=self._read(command.select))
        self._running.writes_to = command
        self._note(partial(self._read, command.select), transaction)

    def _note(self, reads: Callable[[], Collection[str]], transaction: SessionTransaction) -> None:
        """Note what the statement, and its transaction, have read from now on."""
        self._running.reads = reads
        if transaction.counts:
            transaction.note_read(reads())

    async def admit(self, tables: Collection[str], write: bool, transaction: SessionTransaction,
                    variables: Mapping[str, Any], weight: Weight = Weight.STATEMENT, also: Collection[str] = ()
                    ) -> None:
        """Wait until the session may read or write the tables.  also: tables that it reads.  A transaction that is a
        deadlock's victim is rolled back."""
        self._running.set_state("Waiting for table metadata lock")
        try:
            await self._locks.admit(self._holder, tables, write, float(variables["lock_wait_timeout"]),
                                    transaction.has_begun, weight, transaction.work, also)
        except SqlError as e:
            raise transaction.abandon_on_deadlock(e) from None
        self._running.set_state("")

    @staticmethod
    def _read(command: sql.Select | sql.LockingSelect | tuple[sql.SelectItems, ...]) -> Collection[str]:
        if isinstance(command, tuple):
            return ()  # its queries are admitted one by one
        command = command.select if isinstance(command, sql.LockingSelect) else command
        if command.view is not None:
            return tables_of(command.view.plan)
        return () if command.batch is None else tables_of(command.batch.plan)

    def _may_write(self, command: Any) -> Collection[str]:
        """The tables that a statement may write or lock, in small letters.  The first is its own."""
        if isinstance(command, sql.LockingSelect):
            return [t.table.name.lower() for t in command.locked if t.exclusive]
        if isinstance(command, sql.SelectedWrite):
            names, insert = command.tables, command.insert
        elif isinstance(command, Insert | Update | Delete):
            names, insert = (command.table,), command if isinstance(command, Insert) else None
        else:
            return [name.lower() for name in sql.tables_changed(command)]
        found = dict.fromkeys(name.lower() for name in names)
        if insert is None or insert.on_duplicate in ("replace", "update"):
            children = [t for t in self._executor.program.tables() if t.foreign_keys]
            for parent in (grows := list(found)):
                more = [t.name.lower() for t in children if any(k.refers_to(parent) for k in t.foreign_keys)]
                grows += [name for name in more if name not in found]
                found.update(dict.fromkeys(more))
        return list(found)
