"""A client's session: its variables, warnings, last generated id and transaction state; runs its statements.

    text ──shape known──► compiled ─┐
      └──parsed──► command ─────────┴─► rows at once │ a write's future │ a slower answer, which can be stopped

This module has the session's state, finds out what a text means, and answers SELECTs that shared memory has.
`session_reads`, `writes` and `definitions` have what may wait.

Keeps true: after a statement the session has the warnings of its outcome or its error.  A statement whose view was
dropped or redefined meanwhile is planned again, so no client gets errors about views that it does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from noria.core.errors import SqlError, definition_changed, is_redefined
from noria.core.errors.codes import PARSE_ERROR, UNKNOWN_ERROR
from noria.core.limits import OFF_LOOP_CHARACTERS, VIEW_BINDS
from noria.core.statements import Delete, Insert, Update
from noria.core.types import Field
from noria.dataflow.messages.packets import SessionWrites
from noria.runtime.link.link import WorkerUnavailable
from noria.runtime.transactions.read_your_writes import merged_writes
from noria.server.access.access import Access
from noria.server.access.permits import Permits
from noria.server.answering.executor import Executor
from noria.server.answering.first_answer import Unbegun
from noria.server.answering.hits import MissedKey
from noria.server.answering.statements import CachedStatement, Check
from noria.server.logins import LoginGuard
from noria.server.outcomes import (
    AUTOCOMMIT,
    EARLIEST,
    IN_TRANSACTION,
    LATEST,
    NO_ESCAPES,
    Answer,
    Client,
    Encoded,
    FailedStatement,
    Ok,
    Outcome,
    PendingOutcome,
    PreparedHandle,
    ResultSet,
    RowEncoding,
    Stopped,
    Streamed,
    Warning_,
)
from noria.server.sessions import definitions, missed_reads, own_statements, session_reads, writes
from noria.server.sessions.given import account_statements, local_load, recursion, temporary_statements
from noria.server.sessions.given.account_statements import ACCOUNT_STATEMENTS
from noria.server.sessions.given.temporary import TemporaryTables
from noria.server.sessions.inspect import information, inspection, showing
from noria.server.sessions.inspect.explain import Explainer
from noria.server.sessions.locked_tables import LockedTables
from noria.server.sessions.modes.sql_mode import SqlMode, mode_of
from noria.server.sessions.running import Processes, RunningStatement, hinted_ms
from noria.server.sessions.transactions.transaction import SessionTransaction
from noria.server.sessions.transactions.transaction_service import TransactionService
from noria.server.sessions.user_locks import UserLocks
from noria.server.sessions.variables import VARIABLES
from noria.sql import commands as sql
from noria.sql.sql_modes import in_default_dialect
from noria.sql.text.databases import NOWHERE, Names, any_of_group, in_dialect, in_scope, in_zone, namespace_of
from noria.sql.text.shape import split

A = TypeVar("A")
_WRITES = (Insert, Update, Delete)
_DEFINITIONS = (sql.CreateTable, sql.CreateTableAs, sql.AlterTable, sql.RenameTables, sql.Truncate, sql.DropTable,
                sql.CreateView, sql.CreatePlaceholderView, sql.DropView, sql.CreateDatabase, sql.AlterDatabase,
                sql.DropDatabase)


class Session:
    """Implements `outcomes.Session`.  database: "" if the client has named none; its names are then those of the
    server's default database."""

    def __init__(self, executor: Executor, processes: Processes, explainer: Explainer, client: Client,
                 guard: LoginGuard, transactions: TransactionService, user_locks: UserLocks, access: Access):
        self.guard, self.transactions, self._user_locks = guard, transactions, user_locks
        self.executor, self._processes, self._explainer, self.client = executor, processes, explainer, client
        self.user, self.address, self.connection_id = client.user, client.address, client.connection_id
        self.permits = Permits(access, client, executor.program.catalog)
        self._enter(client.database)
        self.running = RunningStatement(executor.give_up, executor.locks.wake)
        self._set_state = self.running.set_state
        self._locks = executor.locks
        self.locked = LockedTables(self.connection_id, executor, processes, self.running, transactions)
        self.text = ""  # the text of the last statement, for the program's history
        self._begin_anew()
        processes.add(self)

    # ------------------------------------------------------------ state
    def reset(self) -> None:
        """Roll the transaction back, and forget everything that the session has set."""
        self.transaction.abandon()
        self._user_locks.release_all(self.connection_id)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.variables: dict[str, Any] = dict(VARIABLES)
        self.permits.use_default_roles()
        self.user_variables: dict[str, Any] = {}
        self.prepared_texts: dict[str, str] = {}  # of PREPARE, by name
        self.warnings: Sequence[Warning_] = ()
        self.last_insert_id = 0
        self.row_count = -1
        self.temporary = TemporaryTables()
        self.local_file: bytes | None = None
        self.found_rows = 0  # of the last SELECT; a front sets it if it answers FOUND_ROWS() after a kept reply
        self.transaction = SessionTransaction(self.transactions, self.variables, self.connection_id)
        self.offset = timedelta()  # how far the session's clock is ahead of UTC
        self.unseen: SessionWrites = {}  # its writes whose effects some worker may lack
        self._locks.unlock(self.connection_id)
        self.set_status()

    def set_status(self) -> None:
        self.mode: SqlMode = mode_of(self.variables["sql_mode"])
        self.status = (AUTOCOMMIT if self.variables["autocommit"] else 0) | (
            IN_TRANSACTION if self.in_transaction else 0) | (0 if self.mode.escapes else NO_ESCAPES)

    @property
    def scope(self) -> str:
        return self.permits.scope

    @property
    def server_variables(self) -> Mapping[str, Any]:
        """The variables that all sessions share."""
        return {**self.guard.variables(), **self.permits.variables()}

    @property
    def keepable(self) -> bool:
        """True without an offset, because kept replies show TIMESTAMPs in UTC, and if a transaction and LOCK TABLES
        allow them."""
        own = self.offset or self.temporary
        return self.transaction.keepable and not own and not (self._locks.busy and self.locked.matter)

    @property
    def as_of(self) -> int:
        """See `outcomes.Session`: of a snapshot, only what no later tick has published."""
        if self.offset or self.locked.matter or self.temporary:
            return EARLIEST
        return LATEST if self.transaction.unchecked else self.transaction.kept_tick

    @property
    def read_views(self) -> Collection[str] | None:
        """See `outcomes.Session`: those that the transaction has counted as read."""
        return self.transaction.noted if self.transaction.counts else None

    @property
    def in_transaction(self) -> bool:
        """True within BEGIN … COMMIT, or if autocommit=0 and something is to be committed."""
        return self.transaction.open or self.transaction.has_parts

    @property
    def user_locks(self) -> int:
        """The number of locks of GET_LOCK that the session holds."""
        return self._user_locks.held(self.connection_id)

    def close(self) -> None:
        """Roll the transaction back, release the locks and stop the statement, because the client is gone.  A write
        that was sent by itself continues."""
        self.running.leave()
        self.transaction.abandon()
        self._user_locks.release_all(self.connection_id)
        self._locks.unlock(self.connection_id)
        self._processes.remove(self)

    def kill(self, number: int) -> None:
        """End another session's statement and its connection."""
        self._processes.kill(number, True, self)

    def use(self, database: str) -> None:
        self._enter(database)

    def _enter(self, database: str) -> None:
        """Read names in this database; "": in the server's default one.  Raises error 1049."""
        catalog = self.executor.program.catalog
        if database and self.permits.scope:
            self.permits.check_database(database)
        self.database = catalog.databases.named(database).name if database else ""
        self._database_namespace = namespace_of(database or catalog.default_database)

    def leave_database(self) -> None:
        """Have no database, since it was dropped."""
        self.database, self._database_namespace = "", NOWHERE

    @property
    def namespace(self) -> str:
        own = self._database_namespace
        own = own if "ONLY_FULL_GROUP_BY" in self.variables["sql_mode"] else any_of_group(own)
        own = in_dialect(own, self.mode.dialect) if self.mode.dialect else own
        own = in_zone(own, self.variables["time_zone"]) if self.offset else own
        return own + self.permits.suffix if self.permits.scope else own

    async def wait_for_own_writes(self) -> None:
        """Wait until all workers have this session's writes."""
        await session_reads.wait_for_own_writes(self)

    def count_found(self, found_rows: bool) -> None:
        """Decide whether found but unchanged rows count as affected from now on (`Client.found_rows`)."""
        self.client = replace(self.client, found_rows=found_rows)

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        catalog = self.executor.program.catalog
        name = Names.of(self.namespace, catalog.databases).internal("", table)
        self.permits.check_sees(name)
        return inspection.list_fields(name, pattern, self.permits.seen(catalog))

    # ------------------------------------------------------------ from a statement to its outcome
    def query(self, text: str, multi: bool,
              form: RowEncoding | None = None) -> Answer | Awaitable[Answer] | PendingOutcome[Answer]:
        if self.mode.dialect and len(text) > OFF_LOOP_CHARACTERS:
            return self._stoppable(self._translated(text, multi), text)
        text = in_default_dialect(text, self.namespace) if self.mode.dialect else text
        known = None if self.temporary.mentioned(text) else self.executor.statements.recognise(text, self.namespace)
        if known is None:
            return self._stoppable(self._each(text, multi), text)
        return self._begun(*known, text)

    async def _translated(self, text: str, multi: bool) -> Answer:
        return await self._each(await asyncio.to_thread(in_default_dialect, text, self.namespace), multi)

    def load(self, text: str, data: bytes) -> Awaitable[Answer]:
        return self._stoppable(local_load.with_file(self, self._each, text, data), text)

    def prepare(self, text: str) -> PreparedHandle:
        compiled = self._compiled(in_default_dialect(text, self.namespace), self.namespace)
        prepared = compiled.prepared
        return PreparedHandle(compiled, prepared.parameters, prepared.fields,
                              compiled.number if compiled.direct and compiled.one_key else None)

    def sending(self) -> AbstractContextManager[Stopped]:
        return self.running.sending()

    def close_statement(self, handle: Any) -> None:
        """Do nothing: sessions share statements by text, and the cache drops the oldest ones."""

    def execute(self, handle: Any, values: Sequence[object], form: RowEncoding | None = None
                ) -> Outcome | Awaitable[Outcome] | PendingOutcome[Outcome]:
        compiled: CachedStatement = handle
        known = compiled.version == self.executor.program.version and compiled.scope == self.permits.scope
        if not known or self.temporary.mentioned(compiled.text):
            compiled = self._current(compiled)
        return self._begun(compiled, values, compiled.text)

    async def run_made(self, make: Callable[[], sql.Command], text: str) -> Outcome:
        """Run a command that no text has.  make: makes it, again if a view was redefined meanwhile.  text: describes it
        for SHOW PROCESSLIST."""
        async def again() -> Outcome:
            return await self.run_command(make())

        return await self._stoppable(self._followed(again(), again), text)

    def _begun(self, compiled: CachedStatement, values: Sequence[Any], text: str
               ) -> Outcome | Awaitable[Outcome] | PendingOutcome[Outcome]:
        """Run a compiled statement.  Return rows at once if they are in shared memory, `PendingOutcome` for a write,
        else an awaitable that can be stopped."""
        first: Awaitable[Outcome]
        self.text = text
        try:
            plain = compiled.direct and not self.offset and not self.locked.matter
            if plain and (self.transaction.unchecked or not self.transaction.must_bypass_views(compiled)):
                lacks = self.executor.lacks(compiled, values, self.unseen) if self.unseen else None
                answer = session_reads.select_after_own_writes(self, compiled, values,
                                                               *lacks) if lacks is not None else (
                    self.executor.select(compiled, values, self.client.keeps, self._set_state))
                if isinstance(answer, ResultSet):
                    self.warnings = ()
                    self.found_rows = len(answer.rows)
                    self.transaction.note_answer(compiled)
                    return answer
                if self.transaction.unchecked:
                    assert compiled.view is not None, "a SELECT that is answered directly has a view"
                    in_time = partial(self._in_time, compiled, values, text, answer)
                    pending = missed_reads.begin(self, answer, compiled.view, text, in_time) if isinstance(
                        answer, MissedKey) else None
                    return in_time() if pending is None else pending
                if isinstance(answer, Coroutine | Unbegun):
                    answer.close()
                first = session_reads.within(self, compiled, values)
            elif plain:
                if (found := session_reads.as_of(self, compiled, values)) is not None:
                    return found
                first = session_reads.within(self, compiled, values)
            else:
                command = compiled.bind(values)
                if isinstance(command, sql.Transaction) and self.transaction.begin_at_once(command):
                    self._locks.unlock(self.connection_id)
                    self.set_status()
                    self.warnings = ()
                    return Ok()
                at_once = not (self.transaction.active or self.temporary or self._locks.busy)
                if isinstance(command, _WRITES) and at_once and self.executor.is_by_key(compiled, command) and (
                        not writes.may_be_lenient(self, command) and (checked := self.transaction.checked(command))):
                    later = writes.submit(self, checked)
                    self.running.write(later.future, text)
                    self.running.writes_to = command
                    return later
                first = self.run_command(command)
        except SqlError as e:
            if not is_redefined(e):
                raise self.noted(e) from None
            first = self._again(compiled, values)
        return self._stoppable(self._followed(first, partial(self._again, compiled, values)), text)

    def _in_time(self, compiled: CachedStatement, values: Sequence[Any], text: str, answer: Awaitable[ResultSet]
                 ) -> Awaitable[Outcome]:
        assert compiled.view is not None, "a SELECT that is answered directly has a view"
        first, again = session_reads.in_time(self, answer, compiled.view), partial(self._again, compiled, values)
        return self._stoppable(self._followed(first, again), text)

    async def _again(self, compiled: CachedStatement, values: Sequence[Any]) -> Outcome:
        return await self.run_command(self._current(compiled).bind(values))

    def _compiled(self, text: str, namespace: str) -> CachedStatement:
        """Prepare a text, with the session's own tables if it names one."""
        check = self._check
        if self.temporary.mentioned(text):
            if check is not None:
                check(text)
            return temporary_statements.planned(self, text)
        return self.executor.statements.prepare(text, namespace, check)

    @property
    def _check(self) -> Check:
        """Raises an SqlError if the session may not run a text; None if it may run all."""
        own = self.temporary
        return partial(self.permits.check, namespace=self.namespace, own=own) if self.permits.scope else None

    def _current(self, compiled: CachedStatement) -> CachedStatement:
        return self._compiled(compiled.text, in_scope(compiled.namespace, self.permits.scope))

    def planned(self, text: str) -> sql.PlannedStatement:
        return self._compiled(text, self.namespace).prepared

    async def _stoppable(self, answer: Awaitable[A], text: str) -> A:
        try:
            return await self.running.bounded(answer, text)
        except SqlError as e:
            raise self.noted(e) from e.__cause__

    async def _each(self, text: str, multi: bool) -> Answer:
        """Run the statements of a text one after the other.  Stop after the first that fails."""
        long = len(text) > OFF_LOOP_CHARACTERS
        statements = (await asyncio.to_thread(split, text) if long else split(text)) or [text]
        if len(statements) > 1 and not multi:
            raise SqlError(*PARSE_ERROR, "You have an error in your SQL syntax: several statements in one text; send "
                                         "them one by one, or connect with the multi-statements option")
        outcomes: list[Outcome] = []
        for one in statements:
            again = partial(self._parsed, one)
            try:
                outcomes.append(await self._followed(again(), again))
            except SqlError as e:
                if not outcomes:
                    raise
                outcomes.append(FailedStatement(e))
                break
        return outcomes[0] if len(outcomes) == 1 else outcomes

    async def _parsed(self, text: str) -> Outcome:
        self.text = text
        self.running.use_nothing()
        check = self._check
        if self.temporary.mentioned(text):
            if check is not None:
                check(text)
            return await self.run_command(temporary_statements.parsed(self, text))
        statements = self.executor.statements
        long = len(text) > OFF_LOOP_CHARACTERS
        return await self.run_command(await statements.parse_beside(text, self.namespace, check) if long else
                               statements.parse(text, self.namespace, check))

    async def _followed(self, first: Awaitable[Outcome], again: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """Return the outcome.  If the view was dropped or redefined meanwhile, plan the statement again (`again`).

        So an error names the table, or the rows are from the view's current definition.
        """
        outcome: Outcome | None = None
        try:
            for attempt in range(VIEW_BINDS):
                try:
                    outcome = await (again() if attempt else first)
                    break
                except WorkerUnavailable as e:
                    raise self.noted(SqlError(*UNKNOWN_ERROR, str(e))) from e
                except SqlError as e:
                    self.noted(e)
                    if not is_redefined(e):
                        raise
                await self.executor.program.wait_until_idle(attempt)
        finally:
            self.running.unlimited()
        if outcome is None:
            raise self.noted(definition_changed())
        return outcome

    def noted(self, error: SqlError) -> SqlError:
        """Return the error, and record it for SHOW WARNINGS.  It may have ended the transaction."""
        if self.temporary and not self.in_transaction and not self.transaction.active:
            self.temporary.rolled_back()
        self.set_status()
        self.warnings = (("Error", error.code, error.message),)
        return error

    # ------------------------------------------------------------ commands
    async def run_command(self, command: sql.Command) -> Outcome:
        command = session_reads.now(self, command)
        while isinstance(command, sql.Recursive):
            command = session_reads.now(self, await recursion.resolved(self, command))
        outcome = await self._outcome(command)
        if isinstance(outcome, ResultSet) and not isinstance(command, sql.CountedSelect):
            self.found_rows = len(outcome.rows)
        if not (isinstance(command, sql.Show) and command.what in ("warnings", "errors")):
            self.warnings = () if isinstance(outcome, Encoded | Streamed | FailedStatement) else outcome.warnings
        return outcome

    async def _outcome(self, command: sql.Command) -> Outcome:
        if self.temporary or isinstance(command, sql.CreateTemporary | sql.DropTemporary):
            done = await temporary_statements.run(self, command, self._select_items)
            if done is not None:
                return done
        if isinstance(command, sql.Select):
            return await session_reads.limited(self, session_reads.select(self, command))
        if isinstance(command, sql.CountedSelect):
            return await session_reads.limited(self, session_reads.select_counted(self, command))
        if isinstance(command, sql.LockingSelect):
            return await session_reads.limited(self, session_reads.select_locking(self, command))
        if isinstance(command, _WRITES):
            return await writes.run(self, command)
        if isinstance(command, sql.SelectedWrite):
            return await writes.run_selected(self, command, self._select_items)
        if isinstance(command, _DEFINITIONS):
            return await definitions.run(self, command, self._select_items)
        if isinstance(command, sql.SelectItems):
            return await self._select_items(command)
        if isinstance(command, sql.Do):
            await self._outcome(session_reads.now(self, command.command))
            return Ok()
        if isinstance(command, sql.Information):
            return await session_reads.limited(self, information.answer(
                command, self.permits.seen(self.executor.program.catalog), self.permits))
        if isinstance(command, sql.Kill):
            self._processes.kill(command.number, command.connection, self)
            return Ok()
        if isinstance(command, ACCOUNT_STATEMENTS):
            return await account_statements.run(self, command)
        if isinstance(command, sql.Show):
            return await showing.show(self, command, self._processes, self._explainer)
        if isinstance(command, sql.Explain):
            command = replace(command, command=session_reads.now(self, command.command))
            return await session_reads.limited(self, self._explainer.explain(command, self._set_state))
        if isinstance(command, sql.Transaction):
            await own_statements.transact(self, command, self._processes)
            return Ok()
        if isinstance(command, sql.LockTables):
            return await own_statements.lock(self, command)
        before = self.variables["autocommit"]
        outcome = await own_statements.run(self, command)
        if self.variables["autocommit"] and not before:  # also within BEGIN
            await self.commit()
        return outcome

    async def _select_items(self, command: sql.SelectItems) -> ResultSet:
        """Answer a SELECT without FROM.  GET_LOCK waits as long as it says, unless the client has set another limit."""
        hinted = hinted_ms(self.running.text)
        limit = int(self.variables["max_execution_time"]) if hinted is None else hinted
        if limit and limit != VARIABLES["max_execution_time"]:
            self.running.limit(limit)
        locks = partial(self._user_locks.evaluated, about=self, set_state=self._set_state)
        return inspection.select_items(await locks(await session_reads.computed(self, command, locks)), self)

    # ------------------------------------------------------------ the session's state
    async def commit(self, idempotency_key: str = "") -> None:
        """Commit the transaction.  idempotency_key: as in `Write`."""
        try:
            await self.transaction.commit(idempotency_key)
        finally:
            self.collect_own_writes()
        self.temporary.committed()

    def collect_own_writes(self) -> None:
        """Note what the transaction's commit has written, for the session's next reads."""
        if own := self.transaction.written:
            self.unseen, self.transaction.written = merged_writes(self.unseen, own), {}
        self.set_status()

    async def run_text(self, text: str, values: Sequence[Any]) -> Outcome:
        """Run a prepared statement's text with the values of its parameters."""
        return await self.run_command(self._compiled(text, self.namespace).bind(values))
