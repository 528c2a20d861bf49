"""A client's session: its variables, warnings, last generated id, transaction state; statements to the executor.

Every statement commits by itself.  BEGIN ... COMMIT is accepted with a warning that says so; ROLLBACK after a
write inside it (or under autocommit=0) is error 1235, because the write stands, and so is ROLLBACK TO a savepoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from noria.core.errors import SqlError, is_gone, not_supported, unknown_table
from noria.core.limits import OFF_LOOP_CHARACTERS, OFF_LOOP_ROWS, VIEW_BINDS
from noria.core.statements import Delete, Insert, Update
from noria.core.types import Field
from noria.runtime.link import WorkerGone
from noria.server import inspection, zones
from noria.server.mysql import encode_result
from noria.server.mysql.backend import (
    AUTOCOMMIT,
    IN_TRANSACTION,
    Answer,
    Client,
    Encoded,
    Failed,
    Later,
    Ok,
    Outcome,
    Prepared,
    ResultSet,
)
from noria.server.mysql.variables import changes
from noria.server.running import Running, hinted_ms
from noria.server.statements import Compiled
from noria.sql import commands as sql
from noria.sql.statements.database import DATABASE, check_database, not_created, not_dropped
from noria.sql.text.shape import split

if TYPE_CHECKING:
    from noria.server.executor import Executor

Warning_ = tuple[str, int, str]
_WRITES = (Insert, Update, Delete)
_OUTCOMES = (Encoded, ResultSet, Ok, Failed)
_PARAMETERS = (int, float, Decimal, str, bytes, bytearray, date, time, timedelta, type(None))
_DEFINITIONS = (sql.CreateTable, sql.DropTable, sql.CreateView, sql.DropView)


class Session:
    """Implements `mysql.backend.Session`; `run_text` drives it for HTTP and the embedded API, which want rows and
    no encoded packets."""

    def __init__(self, executor: Executor, client: Client, encoded: bool = True):
        self._executor, self._client, self._encoded = executor, client, encoded
        self.user, self.address, self.connection_id = client.user, client.address, client.connection_id
        if client.database:
            check_database(client.database)
        self.running = Running(executor.give_up)
        self.reset()
        executor.processes.add(self)

    # ------------------------------------------------------------ state
    def reset(self) -> None:
        self.database = self._client.database
        self.variables: dict[str, Any] = dict(inspection.VARIABLES)
        self.user_variables: dict[str, Any] = {}
        self.warnings: Sequence[Warning_] = ()
        self.last_insert_id = 0
        self.row_count = -1
        self._written_rows = 0  # by statements since BEGIN, or since COMMIT under autocommit=0
        self._savepoints: dict[str, int] = {}  # and what was written when they were set
        self._read_only: bool | None = None  # as BEGIN said; None: as transaction_read_only says
        self._next_read_only: bool | None = None  # as SET TRANSACTION said of the next one
        self.offset = timedelta()  # of the session's clock from UTC
        self._executor.locks.unlock(self)
        self._set_status(AUTOCOMMIT)

    def _set_status(self, status: int) -> None:
        self.status = status
        self.reply_form = status << 1 | self._client.deprecate_eof  # replies kept for one form fit no other

    def close(self) -> None:
        """The client is gone: so are its locks and what it asked, but for a write that has been sent on."""
        self.running.leave()
        self._executor.locks.unlock(self)
        self._executor.processes.remove(self)

    def kill(self, number: int) -> None:
        """End another session's statement and its connection."""
        self._executor.processes.kill(number, True)

    def _limit_ms(self, text: str) -> int:
        hinted = hinted_ms(text)
        return int(self.variables["max_execution_time"]) if hinted is None else hinted

    def use(self, database: str) -> None:
        check_database(database)
        self.database = database

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        return inspection.list_fields(table, pattern, self._executor.program)

    # ------------------------------------------------------------ texts
    def query_raw(self, text: bytes) -> bytes | None:
        if self.offset:
            return None  # replies are kept as UTC shows them
        reply = self._executor.replies.get((text, self.reply_form))
        if reply is not None:
            self.warnings = ()
        return reply

    def query(self, text: str, multi: bool) -> Answer | Awaitable[Answer] | Later:
        known = self._executor.statements.recognise(text)
        if known is not None:
            compiled, literals = known
            key = (text.encode(), self.reply_form) if self._encoded else None
            return self._stoppable(self._run_compiled(compiled, literals, key, False), text, False)
        return self.running.bounded(self._query_parsed(text, multi), text)

    def _stoppable(self, answer: Outcome | Awaitable[Outcome] | Later, text: str, binary: bool
                   ) -> Outcome | Awaitable[Outcome] | Later:
        """An answer that is not there yet can be stopped."""
        if isinstance(answer, _OUTCOMES):
            return answer
        if isinstance(answer, Later):
            self.running.write(answer.future, text)
            return answer
        return self.running.bounded(self._light(answer, binary), text)

    async def _light(self, answer: Awaitable[Outcome], binary: bool) -> Outcome:
        """The answer in time; one of many rows encoded beside the loop."""
        outcome = await self.running.limited(answer, self._limit_ms(self.running.text))
        return await self._encoded_beside(outcome, binary)

    async def _encoded_beside(self, outcome: Outcome, binary: bool) -> Outcome:
        if not self._encoded or not isinstance(outcome, ResultSet) or len(outcome.rows) < OFF_LOOP_ROWS:
            return outcome
        return Encoded(await asyncio.to_thread(encode_result, outcome.fields, outcome.rows, binary,
                                               self._client.deprecate_eof, self.status, outcome.warnings))

    async def _query_parsed(self, text: str, multi: bool) -> Answer:
        long = len(text) > OFF_LOOP_CHARACTERS
        statements = (await asyncio.to_thread(split, text) if long else split(text)) or [text]
        if len(statements) > 1 and not multi:
            raise SqlError(1064, "42000", "You have an error in your SQL syntax: several statements in one text; send "
                                          "them one by one, or connect with the multi-statements option")
        outcomes: list[Outcome] = []
        for one in statements:
            try:
                outcomes.append(await self._encoded_beside(await self._run_text(one), False))
            except SqlError as e:
                if not outcomes:
                    raise
                outcomes.append(Failed(e))
                break
        return outcomes[0] if len(outcomes) == 1 else outcomes

    async def _run_text(self, text: str) -> Outcome:
        return await self._followed(None, lambda: self._parsed(text))

    async def _parsed(self, text: str) -> Outcome:
        statements = self._executor.statements
        long = len(text) > OFF_LOOP_CHARACTERS
        return await self.run(await statements.parse_beside(text) if long else statements.parse(text))

    async def _followed(self, answer: Awaitable[Outcome] | None, again: Callable[[], Awaitable[Outcome]]) -> Outcome:
        """The answer; planned anew where its view was dropped or redefined meanwhile, so that the client is told of
        the table, or has the rows from the view as it is now."""
        for _ in range(VIEW_BINDS):
            try:
                return await (again() if answer is None else answer)
            except WorkerGone as e:
                raise self._noted(SqlError(1105, "HY000", str(e))) from e
            except SqlError as e:
                self._note_error(e)
                if not is_gone(e):
                    raise
            await self._executor.program.settled()
            answer = None
        raise self._noted(SqlError(1412, "HY000", "Table definition has changed, please retry transaction"))

    def _note_error(self, error: SqlError) -> None:
        self.warnings = (("Error", error.code, error.message),)

    def _noted(self, error: SqlError) -> SqlError:
        self._note_error(error)
        return error

    # ------------------------------------------------------------ prepared statements
    def prepare(self, text: str) -> Prepared:
        compiled = self._executor.statements.prepare(text)
        return Prepared(compiled, compiled.prepared.parameters, compiled.prepared.fields)

    def close_statement(self, handle: Any) -> None:
        """Statements are shared by text and forgotten by age."""

    def execute_raw(self, handle: Any, parameters: bytes) -> bytes | None:
        if not handle.direct or self.offset:
            return None
        reply = self._executor.replies.get((handle.number, parameters, self.reply_form))
        if reply is not None:
            self.warnings = ()
        return reply

    def execute(self, handle: Any, values: Sequence[object], parameters: bytes | None
                ) -> Outcome | Awaitable[Outcome] | Later:
        compiled: Compiled = handle
        if compiled.version != self._executor.program.version:
            compiled = self._executor.statements.prepare(compiled.text)
        key = None if parameters is None else (handle.number, parameters, self.reply_form)
        return self._stoppable(self._run_compiled(compiled, values, key, True), compiled.text, True)

    def _run_compiled(self, compiled: Compiled, values: Sequence[Any], key: Any, binary: bool
                      ) -> Outcome | Awaitable[Outcome] | Later:
        try:
            if compiled.direct and not self.offset:
                self.warnings = ()
                answer = self._executor.select(compiled, values, key, binary, self._client.deprecate_eof, self)
                if isinstance(answer, _OUTCOMES):
                    return answer
                return self._followed(answer, partial(self._again, compiled.text, values))
            command = compiled.bind(values)
            if isinstance(command, _WRITES):
                self.warnings = ()
                return self._begin_write(command)
            return self._followed(self.run(command), partial(self._again, compiled.text, values))
        except SqlError as e:
            self._note_error(e)
            raise

    async def _again(self, text: str, values: Sequence[Any]) -> Outcome:
        return await self.run(self._executor.statements.prepare(text).bind(values))

    # ------------------------------------------------------------ commands
    async def run(self, command: sql.Command) -> Outcome:
        """One command; SqlError when it fails."""
        if not (isinstance(command, sql.Show) and command.what in ("warnings", "errors")):
            self.warnings = ()
        try:
            return await self._dispatch(command)
        except WorkerGone as e:
            raise self._noted(SqlError(1105, "HY000", str(e))) from e
        except SqlError as e:
            self._note_error(e)
            raise

    async def _dispatch(self, command: sql.Command) -> Outcome:
        if isinstance(command, sql.Timed):
            command = self._now(command)
        if isinstance(command, sql.Select):
            return await self.running.limited(self._select(command), self._limit_ms(self.running.text))
        if isinstance(command, _WRITES):
            later = self._begin_write(command)
            await self.running.written(later.future)
            return later.then(later.future)
        if isinstance(command, _DEFINITIONS):
            self._end_transaction()
            for name in command.names if isinstance(command, sql.DropTable) else ():
                self._executor.locks.check(self, name)
            change = await self._executor.program.define(command)
            self.warnings = change.warnings
            return Ok(warnings=len(change.warnings))
        if isinstance(command, sql.SelectItems):
            return inspection.select_items(command, self)
        if isinstance(command, sql.Kill):
            self._executor.processes.kill(command.number, command.connection)
            return Ok()
        if isinstance(command, sql.Show) and command.what == "processlist":
            return inspection.processlist(self._executor.processes.rows(command.full))
        if isinstance(command, sql.Show) and command.what.startswith("noria "):
            return await self._executor.explainer.show(command)
        if isinstance(command, sql.Show):
            return inspection.show(command, self._executor.program, self)
        if isinstance(command, sql.Explain):
            if isinstance(command.command, sql.Timed):
                command = replace(command, command=self._now(command.command))
            explained = self._executor.explainer.explain(command, self)
            return await self.running.limited(explained, self._limit_ms(self.running.text))
        return self._session_command(command)

    async def _select(self, command: sql.Select) -> ResultSet:
        if not self.offset:
            return await self._executor.select_bound(command, self)
        return zones.shown(await self._executor.select_bound(zones.in_utc(command, self.offset), self), self.offset)

    def _begin_write(self, command: Insert | Update | Delete) -> Later:
        self._executor.locks.check(self, command.table)
        if self.variables["transaction_read_only"] if self._read_only is None else self._read_only:
            raise SqlError(1792, "25006", "Cannot execute statement in a READ ONLY transaction.")
        if isinstance(command, Insert) and "NO_AUTO_VALUE_ON_ZERO" in self.variables["sql_mode"]:
            self._executor.refuse_zero(command)
        return Later(self._executor.submit(command, self.offset), partial(self._written, command))

    def _written(self, command: Insert | Update | Delete, done: asyncio.Future[Any]) -> Ok:
        try:
            result = self._executor.result_of(done)
        except WorkerGone as e:
            raise self._noted(SqlError(1105, "HY000", str(e))) from e
        except SqlError as e:
            self._note_error(e)
            raise
        if result.affected and (self.status & IN_TRANSACTION or not self.variables["autocommit"]):
            self._written_rows += result.affected
        if result.last_insert_id:
            self.last_insert_id = result.last_insert_id
        matched = isinstance(command, Update) and self._client.found_rows
        affected = result.matched if matched else result.affected
        self.row_count = affected
        return Ok(affected, result.last_insert_id, 0, _info(command, result.matched, result.affected))

    def _now(self, command: sql.Timed) -> sql.Command:
        """A SELECT that asks for the time, at this one."""
        return command.at(datetime.now(UTC).replace(tzinfo=None), self.offset)

    def _session_command(self, command: sql.Command) -> Ok:
        if isinstance(command, sql.SetVariable):
            self._assign(command)
        elif isinstance(command, sql.Use):
            self.database = command.database
        elif isinstance(command, sql.Transaction):
            _TRANSACTION[command.what](self, command)
        elif isinstance(command, sql.LockTables):
            self._lock(command)
        elif isinstance(command, sql.Nothing):
            for name in command.tables:
                self._known(name)
        elif isinstance(command, sql.CreateDatabase):
            self._create_database(command)
        elif isinstance(command, sql.DropDatabase):
            self._drop_database(command)
        return Ok(warnings=len(self.warnings))

    def _create_database(self, command: sql.CreateDatabase) -> None:
        refusal = not_created(command.name)
        if refusal.code != 1007 or not command.if_not_exists:
            raise refusal
        self.warnings = (*self.warnings, ("Note", refusal.code, refusal.message))

    def _drop_database(self, command: sql.DropDatabase) -> None:
        if command.name.lower() == DATABASE:
            raise not_supported("DROP DATABASE", "there is one database; drop its tables and views")
        refusal = not_dropped(command.name)
        if not command.if_exists:
            raise refusal
        self.warnings = (*self.warnings, ("Note", refusal.code, refusal.message))

    def _lock(self, command: sql.LockTables) -> None:
        for name, _ in command.tables:
            self._known(name)
        if command.tables:
            self._end_transaction()
        self._executor.locks.lock(self, command.tables)
        if any(write for _, write in command.tables):
            self._warn(1235, "a WRITE lock keeps other sessions from writing, not from reading")

    def _known(self, name: str) -> None:
        program = self._executor.program
        if program.table(name) is None and program.view(name) is None:
            raise unknown_table(name)

    def _assign(self, command: sql.SetVariable) -> None:
        for a in command.assignments:
            value = a.value
            if isinstance(value, sql.Item):
                value = inspection.select_items(sql.SelectItems((value,)), self).rows[0][0]
            if a.scope == "user":
                self.user_variables[a.name] = value
                continue
            if a.scope == "global":
                raise not_supported("SET GLOBAL", "set the variable in each session, or start the server with options")
            kept, warnings = changes(a.name, value, inspection.VARIABLES)
            if a.name == "transaction" and a.scope == "":
                self._next_read_only = kept.get("transaction_read_only", self._next_read_only)
                kept = {}
            if kept.get("autocommit") and not self.variables["autocommit"]:
                self._end_transaction()
            self.variables.update(kept)
            self._set_status(self.status & IN_TRANSACTION | (AUTOCOMMIT if self.variables["autocommit"] else 0))
            self.offset = zones.offset_of(self.variables["time_zone"])
            for warning in warnings:
                self._warn(1235, warning)

    # ------------------------------------------------------------ transactions
    def _end_transaction(self) -> None:
        self._written_rows, self._savepoints, self._read_only = 0, {}, None
        self._set_status(self.status & ~IN_TRANSACTION)

    def _begin(self, command: sql.Transaction) -> None:
        self._end_transaction()
        self._executor.locks.unlock(self)
        self._read_only, self._next_read_only = (True if command.read_only else self._next_read_only), None
        self._set_status(self.status | IN_TRANSACTION)
        self._warn(1235, "every statement commits by itself: this transaction is not atomic, sees no snapshot, and "
                         "cannot be undone")

    def _commit(self, command: sql.Transaction) -> None:
        self._end_transaction()
        if command.chain:
            self._begin(command)

    def _rollback(self, command: sql.Transaction) -> None:
        stands = self._written_rows
        self._commit(command)
        if stands:
            raise not_supported("ROLLBACK of what was written", "every statement has committed by itself")

    def _savepoint(self, command: sql.Transaction) -> None:
        self._savepoints.pop(command.name, None)
        if self.status & IN_TRANSACTION or not self.variables["autocommit"]:
            self._savepoints[command.name] = self._written_rows

    def _rollback_to(self, command: sql.Transaction) -> None:
        before = self._saved(command.name)
        names = list(self._savepoints)
        for later in names[names.index(command.name) + 1 :]:
            del self._savepoints[later]
        if before != self._written_rows:
            raise not_supported("ROLLBACK TO a savepoint of what was written since",
                                "every statement has committed by itself")

    def _release(self, command: sql.Transaction) -> None:
        self._saved(command.name)
        names = list(self._savepoints)
        for name in names[names.index(command.name) :]:
            del self._savepoints[name]

    def _saved(self, name: str) -> int:
        if name not in self._savepoints:
            raise SqlError(1305, "42000", f"SAVEPOINT {name} does not exist")
        return self._savepoints[name]

    def _warn(self, code: int, message: str) -> None:
        self.warnings = (*self.warnings, ("Warning", code, message))


_TRANSACTION = {"begin": Session._begin, "commit": Session._commit, "rollback": Session._rollback,
                "savepoint": Session._savepoint, "rollback to": Session._rollback_to, "release": Session._release}


def _info(command: Insert | Update | Delete, matched: int, affected: int) -> str:
    """The line that MySQL's OK packet carries."""
    if isinstance(command, Update):
        return f"Rows matched: {matched}  Changed: {affected}  Warnings: 0"
    if isinstance(command, Insert) and len(command.rows) > 1:
        return f"Records: {len(command.rows)}  Duplicates: {max(0, affected - len(command.rows))}  Warnings: 0"
    return ""


def _check_text(said: str) -> None:
    try:
        said.encode()
    except UnicodeEncodeError as e:
        raise SqlError(1300, "HY000", f"Invalid utf8mb4 character string: {said[e.start : e.end]!r} at character "
                                      f"{e.start + 1}") from None


async def run_text(session: Session, text: str, parameters: Sequence[Any]) -> list[Outcome]:
    """A text with its parameters, for HTTP and the embedded API; raises the first error."""
    for i, value in enumerate(parameters, 1):
        if not isinstance(value, _PARAMETERS):
            raise SqlError(1210, "HY000", f"Incorrect arguments to EXECUTE: parameter {i} is a {type(value).__name__}; "
                                          "give numbers, texts, bytes, dates, times or NULL")
        if isinstance(value, (float, Decimal)) and not isfinite(value):
            raise SqlError(1210, "HY000", f"Incorrect arguments to EXECUTE: parameter {i} is {value}, no number")
    for said in (text, *parameters):
        if isinstance(said, str) and not said.isascii():
            _check_text(said)
    if parameters:
        prepared = session.prepare(text)
        if prepared.parameters != len(parameters):
            raise SqlError(1210, "HY000", f"the statement has {prepared.parameters} parameters, {len(parameters)} were "
                                          "given")
        answer: Any = session.execute(prepared.handle, parameters, None)
    else:
        answer = session.query(text, True)
    if isinstance(answer, Later):
        await asyncio.wait((answer.future,))
        answer = answer.then(answer.future)
    elif asyncio.iscoroutine(answer):
        answer = await answer
    outcomes = list(answer) if isinstance(answer, Sequence) else [answer]
    for outcome in outcomes:
        if isinstance(outcome, Failed):
            raise outcome.error
    return outcomes


__all__ = ["ResultSet", "Session", "run_text"]
