"""Transactions over several requests, as of HTTP clients: their sessions, by token.

    a request ends within a transaction ──► token ──► requests with it, one at a time ──► COMMIT, ROLLBACK or idle

Keeps true: a token is a secret of the user who began the transaction; to others it is unknown.  A session is kept only
while it is within a transaction, so whatever ends that also ends the token.  A transaction that the server rolled back
is reported to each later request with its token.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from typing import Any, Literal

import pyarrow as pa

from noria.accounts.checks import Need, writes
from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import (
    CLIENT_INTERACTION_TIMEOUT,
    CON_COUNT_ERROR,
    DBACCESS_DENIED,
    LOCK_DEADLOCK,
    QUERY_INTERRUPTED,
    TOO_MANY_USER_CONNECTIONS,
    UNKNOWN_ERROR,
    Code,
)
from noria.core.limits import (
    ENDED_TRANSACTIONS,
    HTTP_TRANSACTION_IDLE_S,
    HTTP_TRANSACTIONS,
    HTTP_TRANSACTIONS_OF_USER,
)
from noria.core.values import python_values
from noria.server.answering.executor import Executor
from noria.server.answering.keys import key_of
from noria.server.answering.result_finish import of_all
from noria.server.outcomes import Client, Ok, Outcome, ResultSet
from noria.server.rows import arrow_rows
from noria.server.sessions.requests import check_kept, complete
from noria.server.sessions.running import Processes
from noria.server.sessions.session import Session
from noria.sql import commands as sql


@dataclass(frozen=True)
class Caller:
    """Who sends a request.  token: of the transaction to which the request belongs; None for none.  database: of names
    without one; "" for the transaction's, or else the server's default one.

    account: as in `Client`."""

    user: str = "root"
    token: str | None = None
    database: str = ""
    account: str = ""
    address: str = "localhost"

    @property
    def owner(self) -> str:
        """Whose the tokens are: two accounts of one name have different ones."""
        return self.account or self.user


class TokenRefused(SqlError):
    """A request's token cannot be used, or no other transaction can be held."""

    def __init__(self, kind: Literal["unknown", "ended", "busy", "many"], code: Code, message: str):
        super().__init__(code.number, code.state, message)
        self.kind = kind


@dataclass(eq=False)
class _HeldTransaction:
    """A session within a transaction.  busy: it runs a request.  idle: ends it otherwise."""

    session: Session
    owner: str
    busy: bool = True
    idle: asyncio.TimerHandle | None = None


class HeldTransactions:
    """See the module.  connect: opens a session.  idle_s: after so long without a request a transaction is rolled back;
    it may be infinite."""

    def __init__(self, executor: Executor, processes: Processes, connect: Callable[[Client], Session]):
        self._executor, self._processes, self._connect = executor, processes, connect
        self.idle_s: float = HTTP_TRANSACTION_IDLE_S
        self.most, self.most_of_user = HTTP_TRANSACTIONS, HTTP_TRANSACTIONS_OF_USER
        self._held: dict[str, _HeldTransaction] = {}
        self._ended: OrderedDict[str, tuple[str, TokenRefused]] = OrderedDict()  # by token: whose, and why
        processes.end_held = self._killed

    def __len__(self) -> int:
        return len(self._held)

    # ------------------------------------------------------------ requests
    async def run(self, caller: Caller, text: str, parameters: Sequence[Any], found_rows: bool = False
                  ) -> tuple[list[Outcome], str | None]:
        """Run the statements of a text.  Return their outcomes, and the token if a transaction is open after them.
        Raises the SqlError of the first statement that fails, and TokenRefused.  found_rows: as in `Client`."""
        if caller.token is None:
            return await self._run_first(caller, text, parameters, found_rows)
        with self._turn(caller) as session:
            session.count_found(found_rows)
            if caller.database:
                session.use(caller.database)
            outcomes = await complete(session, text, parameters)
            if session.in_transaction:
                return outcomes, caller.token
            await session.wait_for_own_writes()  # the client's next request has another session, which would not wait
            return outcomes, None

    async def _run_first(self, caller: Caller, text: str, parameters: Sequence[Any], found_rows: bool
                         ) -> tuple[list[Outcome], str | None]:
        database = caller.database or self._executor.program.catalog.default_database
        session = self._open(caller, database, found_rows)
        token = None
        try:
            outcomes = await complete(session, text, parameters)
            if session.in_transaction:
                token = self._hold(session, caller.owner)
            else:
                check_kept(session, outcomes, database)
                await session.wait_for_own_writes()
            return outcomes, token
        finally:
            if token is None:
                session.close()

    def _open(self, caller: Caller, database: str, found_rows: bool) -> Session:
        """Open a session in a database: the caller's, or else the default one, if he may see that."""
        client = Client(caller.user, database, self._processes.number(), caller.address, found_rows,
                        account=caller.account)
        try:
            return self._connect(client)
        except SqlError as e:
            if caller.database or e.code != DBACCESS_DENIED.number:
                raise
            return self._connect(replace(client, database=""))

    async def insert(self, caller: Caller, table: str, rows: pa.Table, on_duplicate: str) -> int:
        """Insert rows of an Arrow table (`Executor.insert`)."""
        if caller.token is not None:
            with self._turn(caller) as session:
                session.permits.require(*writes(self._place(session, table), on_duplicate))
                return await self._inserted(session, self._full(session, table), rows, on_duplicate)
        if not self._executor.program.foreign_keys.has_any:
            return await self._executor.insert(table, rows, on_duplicate)
        database = caller.database or self._executor.program.catalog.default_database
        session = self._open(caller, database, False)
        try:
            affected = await self._inserted(session, table, rows, on_duplicate)
            await session.wait_for_own_writes()
            return affected
        finally:
            session.close()

    async def _inserted(self, session: Session, table: str, rows: pa.Table, on_duplicate: str) -> int:
        command = self._executor.insert_of(table, rows, on_duplicate)
        if command is None:
            return 0
        done = await session.run_made(lambda: command, f"INSERT INTO {table}")
        assert isinstance(done, Ok)
        return done.affected

    async def lookup(self, caller: Caller, view: str, keys: pa.Table) -> pa.Table:
        """Look up many keys of a named view (`Executor.lookup`)."""
        if caller.token is None:
            return await self._executor.lookup(view, keys)
        with self._turn(caller) as session:
            session.permits.require(Need(("SELECT",), self._place(session, view)))
            return await self._looked_up(session, self._full(session, view), keys)

    async def _looked_up(self, session: Session, name: str, keys: pa.Table) -> pa.Table:
        name = self._executor.program.catalog.resolved(name)

        def select(values: Sequence[Any]) -> sql.Select:
            view = self._executor.program.view(name)
            if view is None or view.internal:
                raise unknown_table(name)
            made = of_all(view, keys.num_columns)
            if view.asks is None:
                key_of(values if view.key else (), view.key_fields)  # raises an error for a value that is no key
            return sql.bound_select(made, values)

        ordinals: list[int] = []
        rows: list[Any] = []
        fields = None
        every = [*zip(*map(python_values, keys.columns), strict=True)] if keys.num_columns else [()] * len(keys)
        for i, values in enumerate(every):
            found = await session.run_made(partial(select, values), f"SELECT * FROM {name}")
            assert isinstance(found, ResultSet)
            fields = found.fields
            rows += found.rows
            ordinals += [i] * len(found.rows)
        if fields is None:
            return await self._executor.lookup(name, keys)  # no keys: the columns only
        return arrow_rows(fields, rows).append_column("__key", pa.array(ordinals, pa.int64()))

    def _full(self, session: Session, name: str) -> str:
        """The name of a table or view with its database; the session's, if it has none."""
        catalog = self._executor.program.catalog
        return catalog.databases.full(catalog.databases.resolved(name, session.database or catalog.default_database))

    def _place(self, session: Session, name: str) -> tuple[str, str]:
        catalog = self._executor.program.catalog
        return catalog.databases.split(catalog.databases.resolved(name, session.database or catalog.default_database))

    def leave(self, caller: Caller) -> None:
        """Roll back the transaction of a client that is gone, also within a request: it knows no outcome."""
        held = None if caller.token is None else self._held.get(caller.token)
        if caller.token is not None and held is not None and held.owner == caller.owner:
            self._end(caller.token, _rolled_back(LOCK_DEADLOCK, "its client disconnected within a request"))

    # ------------------------------------------------------------ tokens
    def _hold(self, session: Session, owner: str) -> str:
        """Keep a session, and return its token."""
        if len(self._held) >= self.most:
            raise TokenRefused("many", CON_COUNT_ERROR, f"Too many connections: {self.most} transactions are open over "
                                                        "HTTP (HTTP_TRANSACTIONS); end some, or wait")
        if sum(h.owner == owner for h in self._held.values()) >= self.most_of_user:
            raise TokenRefused("many", TOO_MANY_USER_CONNECTIONS, f"User {owner} already has more than "
                               f"'max_user_connections' active connections: {self.most_of_user} transactions are open "
                               "over HTTP (HTTP_TRANSACTIONS_OF_USER); end some, or wait")
        token = secrets.token_urlsafe(24)
        held = self._held[token] = _HeldTransaction(session, owner)
        self._rest(token, held)
        return token

    def _rest(self, token: str, held: _HeldTransaction) -> None:
        """Wait for the transaction's next request."""
        held.busy = False
        if isfinite(self.idle_s):
            held.idle = asyncio.get_running_loop().call_later(self.idle_s, self._is_idle, token)

    def _is_idle(self, token: str) -> None:
        self._end(token, _rolled_back(CLIENT_INTERACTION_TIMEOUT, f"it had no request for {self.idle_s:g} s"))

    @contextmanager
    def _turn(self, caller: Caller) -> Iterator[Session]:
        """Let one request use the session of its token.  Afterwards the session is kept if it is still within the
        transaction."""
        token = caller.token
        assert token is not None
        held = self._found(token, caller.owner)
        held.busy = True
        if held.idle is not None:
            held.idle.cancel()
        why = TokenRefused("ended", UNKNOWN_ERROR, "the transaction of this token has ended: begin another one")
        try:
            yield held.session
        except SqlError as e:
            if not held.session.in_transaction:
                why = TokenRefused("ended", Code(e.code, e.state), e.message)
            raise
        except BaseException:
            self._end(token, _rolled_back(LOCK_DEADLOCK, "a request of it did not end"))
            raise
        finally:
            if self._held.get(token) is held:
                self._rest(token, held) if held.session.in_transaction else self._end(token, why)

    def _found(self, token: str, owner: str) -> _HeldTransaction:
        held = self._held.get(token)
        if held is None or held.owner != owner:
            whose, why = self._ended.get(token, ("", None))
            if why is not None and whose == owner:
                raise TokenRefused("ended", Code(why.code, why.state), why.message)
            raise TokenRefused("unknown", UNKNOWN_ERROR, "there is no transaction of this token: begin one with BEGIN, "
                                                         "and send the token of its answer")
        if held.busy:
            raise TokenRefused("busy", UNKNOWN_ERROR, "a request of this transaction is running: send them one after "
                                                      "the other")
        return held

    def _end(self, token: str, why: TokenRefused) -> None:
        """Forget a session, which rolls its transaction back if it is open."""
        held = self._held.pop(token)
        if held.idle is not None:
            held.idle.cancel()
        self._ended[token] = held.owner, why
        if len(self._ended) > ENDED_TRANSACTIONS:
            self._ended.popitem(last=False)
        held.session.close()

    def _killed(self, number: int) -> bool:
        """End the session with this number, as KILL does.  Return False if it is none of these."""
        for token, held in self._held.items():
            if held.session.connection_id == number:
                self._end(token, _rolled_back(QUERY_INTERRUPTED, "it was killed"))
                return True
        return False


def _rolled_back(code: Code, why: str) -> TokenRefused:
    return TokenRefused("ended", code, f"the transaction of this token was rolled back, because {why}: begin it again")
