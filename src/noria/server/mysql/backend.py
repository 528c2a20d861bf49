"""Who answers statements, as the MySQL front end sees it: protocols for the executor to implement.

Keeps true: the MySQL layer never looks into SQL; it hands over texts and parameter values and encodes the
outcome.  A `Session` belongs to one connection, which asks one thing at a time and waits for its answer.

A method may raise `SqlError`, or return a value, or (where the signature says so) an awaitable of it or `Later`.
Answering at once is the fast way: the reply leaves in the same turn of the event loop.  `Later` is the next best:
a future settles it and no task is made; every write takes it.

The two `*_raw` hooks serve the packet cache (DESIGN section 5).  They get bytes as they came from the client
and return a complete reply, framed and numbered from 1, as `encode_result` makes it, or None.  A
reply's bytes depend on `Client.deprecate_eof`, on text or binary rows and on the session's status: all
three belong to the key under which a reply is kept.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from noria.core.errors import SqlError
from noria.core.types import Field

IN_TRANSACTION = 0x0001
AUTOCOMMIT = 0x0002
"""Bits of a session's `status`."""


@dataclass(frozen=True, slots=True)
class Client:
    """An authenticated client, as its handshake described it."""

    user: str
    database: str  # as asked for at connect, "" for none
    connection_id: int
    address: str
    found_rows: bool  # an UPDATE's affected rows are the matched ones, not the changed ones
    deprecate_eof: bool
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ok:
    """A statement without rows.  `info` is the line that clients print ("Records: 3  Duplicates: 0 ...")."""

    affected: int = 0
    last_insert_id: int = 0
    warnings: int = 0
    info: str = ""


@dataclass(frozen=True, slots=True)
class ResultSet:
    """Rows as tuples of Python values (int, float, Decimal, str, bytes, date, datetime, bool, None)."""

    fields: Sequence[Field]
    rows: Sequence[Sequence[object]]
    warnings: int = 0


@dataclass(frozen=True, slots=True)
class Encoded:
    """A complete reply made by `encode_result` for this session: sent as it is."""

    packets: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """The statement failed; the same as raising the error, but can follow other statements' outcomes."""

    error: SqlError


Outcome = Ok | ResultSet | Encoded | Failed


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that comes with a future: `then` makes the outcome of it once it is done, or raises SqlError."""

    future: Future[Any]
    then: Callable[[Future[Any]], Outcome]


Answer = Outcome | Sequence[Outcome]
"""Of a text with several statements: one outcome for each that ran, in order; none follows a `Failed`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement.  `handle` is the backend's own; the MySQL layer only passes it back."""

    handle: Any
    parameters: int
    fields: Sequence[Field] = ()
    warnings: int = 0


class Session(Protocol):
    """One client's session: variables, the database in use, prepared statements."""

    @property
    def status(self) -> int:
        """AUTOCOMMIT, IN_TRANSACTION: what every reply tells the client."""

    def query_raw(self, sql: bytes) -> bytes | None:
        """The cached reply to this text, or None.  Must be quick and must not raise."""

    def query(self, sql: str, multi: bool) -> Answer | Awaitable[Answer] | Later:
        """Run a text.  `multi`: may it hold several statements?  (If not, a second one is error 1064.)"""

    def prepare(self, sql: str) -> Prepared | Awaitable[Prepared]: ...

    def execute_raw(self, handle: Any, parameters: bytes) -> bytes | None:
        """The cached reply to this execution, or None.  `parameters` says everything about the values: NULL
        bitmap, a byte 1, types and values as in COM_STMT_EXECUTE (empty: no parameters)."""

    def execute(self, handle: Any, values: Sequence[object], parameters: bytes | None
                ) -> Outcome | Awaitable[Outcome] | Later:
        """Run a prepared statement.  `parameters` is what `execute_raw` was just asked with, so that the
        reply can be kept under it (None: values came in pieces; the reply must not be kept)."""

    def close_statement(self, handle: Any) -> None: ...

    def use(self, database: str) -> None:
        """Make this the default database, as USE does."""

    def list_fields(self, table: str, pattern: str) -> Sequence[Field]:
        """Columns of a table or view whose names match a LIKE pattern ("" is all): COM_FIELD_LIST."""

    def reset(self) -> None:
        """Back to the state after connect.  The prepared statements have been closed one by one before."""

    def kill(self, number: int) -> None:
        """End the statement and the connection of this number: COM_PROCESS_KILL."""

    def close(self) -> None:
        """The client is gone.  May come while an awaitable of this session is still running: what was begun
        is finished or given up as the backend sees fit, and its outcome is dropped."""


class Backend(Protocol):
    def connect(self, client: Client) -> Session:
        """A session for a client whose password was right.  SqlError (1049: no such database, 1044: not
        allowed) refuses it."""
