"""The sessions of a server.

A MySQL client has one session while it is connected.  An HTTP request, or a call of the embedded database, has its own
session, which ends with it (`Sessions.run`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from math import isfinite
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import INVALID_CHARACTER_STRING, WRONG_ARGUMENTS
from noria.server.answering.executor import Executor
from noria.server.logins import LoginGuard
from noria.server.outcomes import Client, Failed, Later, Outcome
from noria.server.sessions import inspection
from noria.server.sessions.explain import Explainer
from noria.server.sessions.running import Processes
from noria.server.sessions.session import Session
from noria.server.sessions.transaction_reads import TransactionService

_PARAMETERS = (int, float, Decimal, str, bytes, bytearray, date, time, timedelta, type(None))


class Sessions:
    """Implements `outcomes.Backend`.  guard: guards the logins of this process."""

    def __init__(self, executor: Executor):
        self._executor = executor
        self._explainer = Explainer(executor)
        self.processes = Processes()
        self.guard = LoginGuard()
        self.replies = executor.replies
        self._transactions = TransactionService(executor)

    def connect(self, client: Client) -> Session:
        return Session(self._executor, self.processes, self._explainer, client, self.guard, self._transactions)

    async def run(self, text: str, parameters: Sequence[Any], found_rows: bool = False, database: str = ""
                  ) -> list[Outcome]:
        """Run the statements of a text in a session of their own and return their outcomes.  Raises the SqlError of the
        first statement that fails.  found_rows: as in `Client`.  database: "" for the server's default one."""
        database = database or self._executor.program.catalog.default_database
        session = self.connect(Client("root", database, self.processes.number(), "localhost", found_rows))
        try:
            outcomes = await complete(session, text, parameters)
            if session.in_transaction:
                raise not_supported("a transaction over several requests", "each request is a session of its own, so "
                                    "this one was rolled back: send BEGIN … COMMIT as one text")
            if len(outcomes) == 1 and session.database and session.database.lower() != database.lower():
                raise not_supported("USE in a request of its own, which is the whole session",
                                    "name the database with each request (HTTP: \"database\"; Python: db.use)")
            await session.see_own()  # the client's next request has another session, which would not wait
            return outcomes
        finally:
            session.close()

    def views(self) -> list[dict[str, Any]]:
        """Describe every named and ad-hoc view for /views."""
        catalog = self._executor.program.catalog
        return [inspection.view_about(v, catalog) for v in (*catalog.views(), *catalog.adhoc())]


async def complete(session: Session, text: str, parameters: Sequence[Any]) -> list[Outcome]:
    """Run a text and wait for all its outcomes.  Raises the first error."""
    _check(text, parameters)
    if parameters:
        prepared = session.prepare(text)
        if prepared.parameters != len(parameters):
            raise SqlError(*WRONG_ARGUMENTS,
                           f"the statement has {prepared.parameters} parameters, {len(parameters)} were "
                           "given")
        answer: Any = session.execute(prepared.handle, parameters)
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


def _check(text: str, parameters: Sequence[Any]) -> None:
    """Raise SqlError 1210 for a value that a statement cannot have, and 1300 for a text that is not valid Unicode."""
    for i, value in enumerate(parameters, 1):
        if not isinstance(value, _PARAMETERS):
            raise SqlError(*WRONG_ARGUMENTS,
                           f"Incorrect arguments to EXECUTE: parameter {i} is a {type(value).__name__}; "
                           "give numbers, texts, bytes, dates, times or NULL")
        if isinstance(value, (float, Decimal)) and not isfinite(value):
            raise SqlError(*WRONG_ARGUMENTS, f"Incorrect arguments to EXECUTE: parameter {i} is {value}, no number")
    for said in (text, *parameters):
        if isinstance(said, str) and not said.isascii():
            _check_text(said)


def _check_text(said: str) -> None:
    try:
        said.encode()
    except UnicodeEncodeError as e:
        raise SqlError(*INVALID_CHARACTER_STRING,
                       f"Invalid utf8mb4 character string: {said[e.start : e.end]!r} at character "
                       f"{e.start + 1}") from None
