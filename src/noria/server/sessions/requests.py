"""Runs one request: a text with values, in a session, from its check to its outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from inspect import isawaitable
from math import isfinite
from typing import Any

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import INVALID_CHARACTER_STRING, WRONG_ARGUMENTS
from noria.server.outcomes import FailedStatement, Outcome, PendingOutcome
from noria.server.sessions.session import Session

_PARAMETERS = (int, float, Decimal, str, bytes, bytearray, date, time, timedelta, type(None))


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
    if isinstance(answer, PendingOutcome):
        await asyncio.wait((answer.future,))
        answer = answer.then(answer.future)
    elif isawaitable(answer):
        answer = await answer
    outcomes = list(answer) if isinstance(answer, Sequence) else [answer]
    for outcome in outcomes:
        if isinstance(outcome, FailedStatement):
            raise outcome.error
    return outcomes


def check_kept(session: Session, outcomes: Sequence[Outcome], database: str) -> None:
    """Raise SqlError if a later request must miss what this one did, since the session ends with it.  database: where
    the session began."""
    if len(outcomes) == 1 and session.database and session.database.lower() != database.lower():
        raise not_supported("USE in a request of its own, which is the whole session",
                            "name the database with each request (HTTP: \"database\"; Python: db.use)")
    if session.user_locks:
        raise not_supported("a lock of GET_LOCK over several requests without a transaction", "the session ended with "
                            "the request, so the lock was released: begin a transaction before, or release it in the "
                            "same request")


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
