"""A client's session: its variables, warnings, last generated id, transaction state; statements to the executor.

Every statement commits by itself.  BEGIN ... COMMIT is accepted with a warning that says so; ROLLBACK after a
write inside it is error 1235, because the write stands.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from noria.core.errors import VIEW_CHANGED, SqlError, not_supported
from noria.core.limits import OFF_LOOP_CHARACTERS, OFF_LOOP_ROWS, VIEW_BINDS
from noria.core.statements import Delete, Insert, Update
from noria.core.types import Field
from noria.runtime.link import WorkerGone
from noria.server import chatter, zones
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
from noria.sql.shape import split

if TYPE_CHECKING:
    from noria.server.executor import Executor

Warning_ = tuple[str, int, str]
_WRITES = (Insert, Update, Delete)
_DEFINITIONS = (sql.CreateTable, sql.DropTable, sql.CreateView, sql.DropView)


class Session:
    """Implements `mysql.backend.Session`; `run_text` drives it for HTTP and the embedded API, which want rows and
    no encoded packets."""

    def __init__(self, executor: Executor, client: Client, encoded: bool = True):
        self._executor, self._client, self._encoded = executor, client, encoded
        self.user, self.address, self.connection_id = client.user, client.address, client.connection_id
        self.running = Running(executor.give_up)
        self.reset()
        self.database = client.database
        executor.processes.add(self)

    # ------------------------------------------------------------ state
    def reset(self) -> None:
        self.database = self._client.database
        self.variables: dict[str, Any] = dict(chatter.VARIABLES)
        self.user_variables: dict[str, Any] = {}
        self.warnings: Sequence[Warning_] = ()
        self.last_insert_id = 0
        self.row_count = -1
        self.wrote = False  # since BEGIN
        self.offset = timedelta()  # of the session's clock from UTC
        self._set_status(AUTOCOMMIT)

    def _set_status(self, status: int) -> None:
        self.status = status
        self.reply_form = status << 1 | self._client.deprecate_eof  # replies kept for one form fit no other

    def close(self) -> None:
        """The client is gone: so is what it asked, but for a write that has been sent on."""
        self.running.leave()
        self._executor.processes.remove(self)

    def kill(self, number: int) -> None:
        """End another session's statement and its connection."""
        self._executor.processes.kill(number, True)

    def _limit_ms(self, text: str) -> int:
        hinted = hinted_ms(text)
        return int(self.variables["max_execution_time"]) if hinted is None else hinted

    def use(self, database: str) -> None:
        self.database = database

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        return chatter.list_fields(table, pattern, self._executor.program)

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
        if isinstance(answer, Outcome):
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
        statements = self._executor.statements
        for binds in itertools.count(1):
            try:
                long = len(text) > OFF_LOOP_CHARACTERS
                command = await statements.parse_beside(text) if long else statements.parse(text)
            except SqlError as e:
                self._note_error(e)
                raise
            try:
                return await self.run(command)
            except SqlError as e:
                if e.code != VIEW_CHANGED or binds == VIEW_BINDS:
                    raise
            await self._executor.program.settled()
        raise AssertionError("counting ends by a return or an error")

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
                if isinstance(answer, Ok | ResultSet | Encoded | Failed):
                    return answer
                return self._bound_anew(answer, compiled, values)
            command = compiled.bind(values)
            if isinstance(command, _WRITES):
                self.warnings = ()
                return self._begin_write(command)
            return self._bound_anew(self.run(command), compiled, values)
        except SqlError as e:
            self._note_error(e)
            raise

    async def _bound_anew(self, answer: Awaitable[Outcome], compiled: Compiled, values: Sequence[Any]) -> Outcome:
        """The answer; where a view that it needs was redefined meanwhile, that of the statement as it is now."""
        for _ in range(VIEW_BINDS):
            try:
                return await answer
            except SqlError as e:
                if e.code != VIEW_CHANGED:
                    raise
            await self._executor.program.settled()
            compiled = self._executor.statements.prepare(compiled.text)
            answer = self.run(compiled.bind(values))
        return await answer

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
            change = await self._executor.program.define(command)
            self.warnings = change.warnings
            return Ok(warnings=len(change.warnings))
        if isinstance(command, sql.SelectItems):
            return chatter.select_items(command, self)
        if isinstance(command, sql.Kill):
            self._executor.processes.kill(command.number, command.connection)
            return Ok()
        if isinstance(command, sql.Show) and command.what == "processlist":
            return chatter.processlist(self._executor.processes.rows(command.full))
        if isinstance(command, sql.Show) and command.what.startswith("noria "):
            return await self._executor.explainer.show(command)
        if isinstance(command, sql.Show):
            return chatter.show(command, self._executor.program, self)
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
        return Later(self._executor.submit(command, self.offset), partial(self._written, command))

    def _written(self, command: Insert | Update | Delete, done: asyncio.Future[Any]) -> Ok:
        try:
            result = self._executor.result_of(done)
        except WorkerGone as e:
            raise self._noted(SqlError(1105, "HY000", str(e))) from e
        except SqlError as e:
            self._note_error(e)
            raise
        self.wrote = self.wrote or bool(self.status & IN_TRANSACTION)
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
            self._transaction(command.what)
        elif isinstance(command, sql.DropDatabase):
            raise not_supported("DROP DATABASE", "there is one database; drop its tables and views")
        return Ok(warnings=len(self.warnings))  # CREATE DATABASE, FLUSH and the like: there is nothing to do

    def _assign(self, command: sql.SetVariable) -> None:
        for a in command.assignments:
            value = a.value
            if isinstance(value, sql.Item):
                value = chatter.select_items(sql.SelectItems((value,)), self).rows[0][0]
            if a.scope == "user":
                self.user_variables[a.name] = value
                continue
            if a.scope == "global":
                raise not_supported("SET GLOBAL", "set the variable in each session, or start the server with options")
            kept, warnings = changes(a.name, value, chatter.VARIABLES)
            self.variables.update(kept)
            self.offset = zones.offset_of(self.variables["time_zone"])
            for warning in warnings:
                self._warn(1235, warning)

    def _transaction(self, what: str) -> None:
        if what == "begin":
            self.wrote = False
            self._set_status(self.status | IN_TRANSACTION)
            self._warn(1235, "every statement commits by itself: this transaction is not atomic and cannot be undone")
        elif what == "commit" or not self.wrote:
            self.wrote = False
            self._set_status(self.status & ~IN_TRANSACTION)
        else:
            self.wrote = False
            self._set_status(self.status & ~IN_TRANSACTION)
            raise not_supported("ROLLBACK of what was written", "every statement has committed by itself")

    def _warn(self, code: int, message: str) -> None:
        self.warnings = (*self.warnings, ("Warning", code, message))


def _info(command: Insert | Update | Delete, matched: int, affected: int) -> str:
    """The line that MySQL's OK packet carries."""
    if isinstance(command, Update):
        return f"Rows matched: {matched}  Changed: {affected}  Warnings: 0"
    if isinstance(command, Insert) and len(command.rows) > 1:
        return f"Records: {len(command.rows)}  Duplicates: {max(0, affected - len(command.rows))}  Warnings: 0"
    return ""


async def run_text(session: Session, text: str, parameters: Sequence[Any]) -> list[Outcome]:
    """A text with its parameters, for HTTP and the embedded API; raises the first error."""
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
