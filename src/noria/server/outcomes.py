"""The interface between fronts (MySQL, HTTP, the embedded database) and sessions.

A front passes statements, as texts or prepared with values; the session returns outcomes.

Keeps true: nothing here depends on how a front writes to its clients.  A `Session` belongs to one client, which sends
one request at a time and waits for its answer.  Each outcome carries its own warnings.

A method may raise `SqlError`, return a value, or, if its signature says so, return an awaitable or `PendingOutcome`.
An immediate value is fastest: the reply is sent in the same turn of the event loop.  All writes return a
`PendingOutcome`, which is next: a future completes it without a task.  So it is with a `PendingRead`, as a rule.

A front may keep a reply (design/decisions.md, 5) if the `version` of its `ResultSet` names one entry of a view.  It may
send the reply again while the entry has that version, for the same request in a `keepable` session of the same
`status`.
"""

from __future__ import annotations

from asyncio import Future, wait
from collections.abc import Awaitable, Callable, Collection, Generator, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from noria.core.errors import SqlError
from noria.core.types import Field
from noria.dataflow.messages.packets import SessionWrites

T_co = TypeVar("T_co", covariant=True)
IN_TRANSACTION = 0x0001
NO_ESCAPES = 0x0200  # SERVER_STATUS_NO_BACKSLASH_ESCAPES: clients then escape no backslash
AUTOCOMMIT = 0x0002
"""Bits of a session's `status`, with the values that MySQL's protocol has for them."""

Warning_ = tuple[str, int, str]
"""Level ("Error", "Warning", "Note"), MySQL's number, text."""


@dataclass(frozen=True, slots=True)
class Client:
    """An authenticated client, as its front describes it to `Backend.connect`."""

    user: str
    database: str  # from the connect request, "" for none
    connection_id: int
    address: str
    found_rows: bool  # matched rows count as affected, even if unchanged (`sessions/counting.py`)
    keeps: bool = False  # the front keeps replies: results must say on which entry they stand
    attributes: Mapping[str, str] = field(default_factory=dict)
    account: str = ""  # user@host of the account that it proved; "": a session that may do everything


class Entry(Protocol):
    """A view's entry for one key, on which a result depends."""

    def watch(self) -> Callable[[], int]:
        """Return a function that reads the entry's current version.  It differs once the entry changed or is gone."""

    def stamp(self) -> None:
        """Note that the key was read, so that it is not evicted soon."""

    def has(self, writes: SessionWrites) -> bool:
        """True if the entry shows all effects of these writes (`Session.unseen`)."""

    @property
    def view(self) -> Hashable:
        """The view of the entry.  If it is dropped, all replies that stand on it are forgotten together."""


LATEST, EARLIEST = 2**62, -1  # later and earlier than every tick


class ReadVersion(NamedTuple):
    """The entry on which a result depends, a version of the entry that is not newer than the rows, and the tick that
    published this version (LATEST: unknown)."""

    entry: Entry
    version: int
    tick: int = LATEST


@dataclass(frozen=True, slots=True)
class Ok:
    """A statement without rows.  `info` is the line that clients print ("Records: 3  Duplicates: 0 ...")."""

    affected: int = 0
    last_insert_id: int = 0
    warnings: Sequence[Warning_] = ()
    info: str = ""


@dataclass(slots=True)
class ResultSet:
    """Rows as tuples of Python values (int, float, Decimal, str, bytes, date, datetime, bool, None).  stands: None if a
    front must not keep the reply.  Nobody changes a ResultSet.  It is not a frozen class, because that would triple the
    time to create one, in every read."""

    fields: Sequence[Field]
    rows: Sequence[Sequence[object]]
    warnings: Sequence[Warning_] = ()
    version: ReadVersion | None = None


@dataclass(frozen=True, slots=True)
class RowEncoding:
    """How a front encodes rows.  A session in another process encodes them in this form."""

    binary: bool
    deprecate_eof: bool


@dataclass(frozen=True, slots=True)
class Encoded:
    """A result as packets of the front's `RowEncoding`, numbered from 1."""

    packets: bytes


class Stream(Protocol):
    """The packets of a large reply, in pieces."""

    def pull(self, ready: Callable[[bytes | None], None]) -> None:
        """Pass the next piece to `ready`, now or later.  None: no piece is left."""

    def close(self) -> None:
        """Discard the rest of the reply."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A complete answer as packets of the front's `RowEncoding`, numbered from 1, in pieces."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class FailedStatement:
    """The statement failed.  Unlike a raised error, this can follow the outcomes of earlier statements of a text."""

    error: SqlError


Outcome = Ok | ResultSet | Encoded | Streamed | FailedStatement


@dataclass(frozen=True, slots=True)
class PendingOutcome(Generic[T_co]):
    """An answer that waits for a future.  Once that is done, `then` turns it into the outcome, or raises SqlError."""

    future: Future[Any]
    then: Callable[[Future[Any]], T_co]


@dataclass(frozen=True, slots=True)
class PendingRead(Generic[T_co]):
    """An answer that waits for a future, as a rule.  Once that is done, `then` returns the outcome, or an awaitable if
    it takes longer, or raises SqlError.  A front may as well await this object."""

    future: Future[Any]
    then: Callable[[Future[Any]], T_co | Awaitable[T_co]]

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self._outcome().__await__()

    async def _outcome(self) -> T_co:
        await wait((self.future,))
        found = self.then(self.future)
        return await found if isawaitable(found) else found


Answer = Outcome | Sequence[Outcome]
"""Of a text with several statements: one outcome for each that ran, in order; none follows a `FailedStatement`."""


@dataclass(frozen=True, slots=True)
class PreparedHandle:
    """A prepared statement.  handle: private to the session; a front only passes it back.

    number: identifies a statement whose replies may be kept, since it looks up one key, which the values alone
    determine; else None.
    """

    handle: Any
    parameters: int
    fields: Sequence[Field] = ()
    number: int | None = None


Stopped = Callable[[], SqlError | None]  # returns why a reply must end early; None: it continues


def never() -> None:
    """A `Stopped` that never ends a reply."""


NEVER: AbstractContextManager[Stopped] = nullcontext(never)


class Session(Protocol):
    """One client's session: variables, the default database, prepared statements.

    warnings: of the last statement.  A front that sends a kept reply sets it to ().  found_rows: the answer of
    FOUND_ROWS().  A front that has sent a kept reply sets it before a statement that may ask for it.
    """

    warnings: Sequence[Warning_]
    found_rows: int

    @property
    def scope(self) -> str:
        """The text of its rights, a part of the key of kept replies.  "": it may do everything."""

    @property
    def status(self) -> int:
        """The bits AUTOCOMMIT, IN_TRANSACTION and NO_ESCAPES, which every reply contains."""

    @property
    def keepable(self) -> bool:
        """True if this session and others may share kept replies."""

    @property
    def as_of(self) -> int:
        """Kept replies may be sent if they are current and no later tick than this has published them.  LATEST: all
        current ones; EARLIEST: none."""

    @property
    def read_views(self) -> Collection[str] | None:
        """The names of the views whose kept replies may be sent.  None: of all."""

    @property
    def namespace(self) -> str:
        """Under which database the session's texts are known: "" for `noria` (`sql/text/databases.py`)."""

    @property
    def unseen(self) -> SessionWrites:
        """The session's writes whose effects some worker may lack.  The session's answers must contain them."""

    def query(self, sql: str, multi: bool,
              form: RowEncoding | None) -> Answer | Awaitable[Answer] | PendingOutcome[Answer]:
        """Run a text.  multi: it may contain several statements; if False, a second one is error 1064."""

    def load(self, sql: str, data: bytes) -> Awaitable[Answer] | PendingOutcome[Answer]:
        """Run a LOAD DATA LOCAL.  data: the file, which the client has sent."""

    def prepare(self, sql: str) -> PreparedHandle | PendingOutcome[PreparedHandle]: ...

    def execute(self, handle: Any, values: Sequence[object], form: RowEncoding | None
                ) -> Outcome | Awaitable[Outcome] | PendingOutcome[Outcome]:
        """Run a prepared statement."""

    def sending(self) -> AbstractContextManager[Stopped]:
        """Enter this context while a large reply of the last statement is sent.  It provides a `Stopped`, which KILL
        QUERY sets."""

    def close_statement(self, handle: Any) -> None: ...

    def use(self, database: str) -> PendingOutcome[None] | None:
        """Make this the session's database, as the statement USE does.  Raises error 1049."""

    def list_fields(self, table: str, pattern: str) -> Sequence[Field] | PendingOutcome[Sequence[Field]]:
        """Return the columns of a table or view whose names match a LIKE pattern ("": all).  For COM_FIELD_LIST."""

    def reset(self) -> None:
        """Restore the state after connect.  The front has closed the prepared statements before."""

    def kill(self, number: int) -> PendingOutcome[None] | None:
        """End the statement and the connection of this number (COM_PROCESS_KILL)."""

    def close(self) -> None:
        """End the session, since its client is gone.  An awaitable of the session may still be running.  The session
        finishes or cancels it, and its outcome is dropped."""


class Replies(Protocol):
    """The replies that fronts keep, by request (`answering.replies`)."""

    def get(self, key: Hashable, unseen: SessionWrites, as_of: int = LATEST, views: Collection[str] | None = None
            ) -> bytes | None:
        """Return the kept reply, or None.  Must be quick and must not raise."""

    def put(self, key: Hashable, packets: bytes, entry: Entry, version: int, tick: int) -> None: ...


class Backend(Protocol):
    """The sessions, as a front uses them."""

    @property
    def replies(self) -> Replies: ...

    def connect(self, client: Client) -> Session:
        """Open a session for an authenticated client.  Raises SqlError 1049 if its database does not exist."""
