"""The transport of one transaction: each request carries its token.

Keeps true: nothing is sent once the transaction has ended, and no request reads outside of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from noria.client.transport import StatementAnswer, Transport
from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import UNKNOWN_ERROR

LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def begun_by(isolation: str | None, read_only: bool) -> str:
    """Return the statements that begin a transaction.

    >>> begun_by("read committed", True)
    'SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION READ ONLY'
    """
    if isolation is not None and isolation.upper() not in LEVELS:
        raise ValueError(f"isolation is one of {', '.join(LEVELS)}, not {isolation!r}")
    level = "" if isolation is None else f"SET TRANSACTION ISOLATION LEVEL {isolation.upper()}; "
    return f"{level}START TRANSACTION{' READ ONLY' if read_only else ''}"


class TransactionTransport:
    """Implements `Transport` within the transaction that `text` begins.  is_open: until COMMIT, ROLLBACK or a
    definition.  One that the server rolled back is open until a request learns it."""

    def __init__(self, transport: Transport, text: str):
        self._transport, self.place = transport, transport.place
        self._token, self.is_open = transport.begin(text), True

    @property
    def database(self) -> str:
        return self._transport.database

    @database.setter
    def database(self, name: str) -> None:
        self._transport.database = name

    def sql(self, text: str, parameters: list[Any], found_rows: bool = False, transaction: str | None = None
            ) -> StatementAnswer:
        answer = self._transport.sql(text, parameters, found_rows, self._its_token())
        self.is_open = answer.transaction is not None
        return answer

    def insert(self, table: str, rows: pa.Table, on_duplicate: str, transaction: str | None = None) -> int:
        return self._transport.insert(table, rows, on_duplicate, self._its_token())

    def lookup(self, view: str, keys: pa.Table, transaction: str | None = None) -> pa.Table:
        return self._transport.lookup(view, keys, self._its_token())

    def begin(self, text: str) -> str:
        raise not_supported("a transaction within another one", "use `with tx.savepoint()`")

    def roll_back(self, transaction: str = "") -> None:
        if self.is_open:
            self.is_open = False
            self._transport.roll_back(self._token)

    def commit(self) -> None:
        """Commit, unless the transaction has ended.  Raises the SqlError of a transaction that is lost."""
        if self.is_open:
            token, self.is_open = self._token, False
            self._transport.sql("COMMIT", [], False, token)

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        return self._transport.describe(kind, name)

    def attachment(self) -> dict[str, Any]:
        raise not_supported("shared memory within a transaction", "it has the last commits: use lookup()")

    def changes(self, name: str, since: str) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        raise not_supported("a feed within a transaction", "it has the last commits: read it with the database's own "
                                                           "table or view")

    def close(self) -> None:
        self.roll_back()

    def _its_token(self) -> str:
        if not self.is_open:
            raise SqlError(*UNKNOWN_ERROR, "the transaction has ended: begin another one")
        return self._token
