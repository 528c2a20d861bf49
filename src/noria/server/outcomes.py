"""The interface between fronts (MySQL, HTTP, the embedded database) and sessions.

A front passes statements, as texts or prepared with values; the session returns outcomes.

Keeps true: nothing here depends on how a front writes to its clients.  A `Session` belongs to one client, which sends
one request at a time and waits for its answer.  Warnings are part of their outcome.

A method may raise `SqlError`, or return a value, or (if its signature says so) an awaitable of it or `Later`.  An
immediate value is fastest: the reply is sent in the same turn of the event loop.  `Later` is next: a future settles it
without a task.  Every write uses it.

A front may keep what it sent (DESIGN section 5), if a `ResultSet` `stands` on one entry of a view.  It may send it
again while the entry has that version, for the same request in a `keepable` session of the same `status`.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from noria.core.errors import SqlError
from noria.core.types import Field
from noria.dataflow.messages.packets import Own

T_co = TypeVar("T_co", covariant=True)
IN_TRANSACTION = 0x0001
AUTOCOMMIT = 0x0002
"""Bits of a session's `status`, with the values that MySQL's protocol has for them."""

Warning_ = tuple[str, int, str]
"""Level ("Error", "Warning", "Note"), MySQL's number, text."""


@dataclass(frozen=True, slots=True)
class Client:
    """An authenticated client, as its front knows it."""

    user: str
    database: str  # as asked for at connect, "" for none
    connection_id: int
    address: str
    found_rows: bool  # rows that a statement leaves as they are count as affected (`sessions/counting.py`)
    keeps: bool = False  # the front keeps replies: it wants to know what a result stands on
    attributes: Mapping[str, str] = field(default_factory=dict)


class Entry(Protocol):
    """A view's entry for one key, as a result depends on it."""

    def watch(self) -> Callable[[], int]:
        """A function that tells the version the entry shows now: another one when it changed or is gone."""

    def stamp(self) -> None:
        """Note that the key was read."""

    def has(self, writes: Own) -> bool:
        """Is there all that came of these writes (`Session.unseen`)?"""

    @property
    def view(self) -> Hashable:
        """What the entry is of: all its replies go together."""


class Standing(NamedTuple):
    """What a result stands on: an entry, and a version of it that is not newer than the rows."""

    entry: Entry
    version: int


@dataclass(frozen=True, slots=True)
class Ok:
    """A statement without rows.  `info` is the line that clients print ("Records: 3  Duplicates: 0 ...")."""

    affected: int = 0
    last_insert_id: int = 0
    warnings: Sequence[Warning_] = ()
    info: str = ""


@dataclass(slots=True)
class ResultSet:
    """Rows as tuples of Python values (int, float, Decimal, str, bytes, date, datetime, bool, None).  stands: None
    where it must not be kept.  (Nobody changes one; frozen, it would take thrice as long to make, for every read.)"""

    fields: Sequence[Field]
    rows: Sequence[Sequence[object]]
    warnings: Sequence[Warning_] = ()
    stands: Standing | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """How a front writes rows: a session in another process has them encoded there."""

    binary: bool
    deprecate_eof: bool


@dataclass(frozen=True, slots=True)
class Encoded:
    """A result as packets of the front's `Form`, numbered from 1."""

    packets: bytes


class Stream(Protocol):
    """The packets of a large reply, a piece at a time."""

    def pull(self, ready: Callable[[bytes | None], None]) -> None:
        """`ready` gets the next piece, now or later; None: that was the last one."""

    def close(self) -> None:
        """The rest is not wanted."""


@dataclass(frozen=True, slots=True)
class Streamed:
    """A whole answer as its front made it, numbered from 1, in pieces."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Failed:
    """The statement failed; the same as raising the error, but can follow other statements' outcomes."""

    error: SqlError


Outcome = Ok | ResultSet | Encoded | Streamed | Failed


@dataclass(frozen=True, slots=True)
class Later(Generic[T_co]):
    """An answer that comes with a future: `then` makes the outcome of it once it is done, or raises SqlError."""

    future: Future[Any]
    then: Callable[[Future[Any]], T_co]


Answer = Outcome | Sequence[Outcome]
"""Of a text with several statements: one outcome for each that ran, in order; none follows a `Failed`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement.  `handle` is the session's own; a front only passes it back.  `number` tells it from all
    others where the values alone say what it answers, whose replies may be kept; else None."""

    handle: Any
    parameters: int
    fields: Sequence[Field] = ()
    number: int | None = None


Stopped = Callable[[], SqlError | None]


def never() -> None:
    """Nobody stops it."""


NEVER: AbstractContextManager[Stopped] = nullcontext(never)


class Session(Protocol):
    """One client's session: variables, the database in use, prepared statements.

    warnings: of the last statement; a front that answers from what it kept sets it to ().
    """

    warnings: Sequence[Warning_]

    @property
    def status(self) -> int:
        """AUTOCOMMIT, IN_TRANSACTION: what every reply tells the client."""

    @property
    def keepable(self) -> bool:
        """May other sessions be given what this one is, and this one what others were?"""

    @property
    def unseen(self) -> Own:
        """Its writes that some worker may not know of yet: what it is given has them."""

    def query(self, sql: str, multi: bool, form: Form | None) -> Answer | Awaitable[Answer] | Later[Answer]:
        """Run a text.  `multi`: may it hold several statements?  (If not, a second one is error 1064.)"""

    def prepare(self, sql: str) -> Prepared | Later[Prepared]: ...

    def execute(self, handle: Any, values: Sequence[object], form: Form | None
                ) -> Outcome | Awaitable[Outcome] | Later[Outcome]:
        """Run a prepared statement."""

    def sending(self) -> AbstractContextManager[Stopped]:
        """While it lasts, a large reply of the last statement leaves; what it gives tells why that is to end, if it
        is: KILL QUERY."""

    def close_statement(self, handle: Any) -> None: ...

    def use(self, database: str) -> None:
        """Make this the default database, as USE does."""

    def list_fields(self, table: str, pattern: str) -> Sequence[Field] | Later[Sequence[Field]]:
        """Columns of a table or view whose names match a LIKE pattern ("" is all): COM_FIELD_LIST."""

    def reset(self) -> None:
        """Back to the state after connect.  The prepared statements have been closed one by one before."""

    def kill(self, number: int) -> Later[None] | None:
        """End the statement and the connection of this number: COM_PROCESS_KILL."""

    def close(self) -> None:
        """The client is gone.  May come while an awaitable of this session is still running: what was begun
        is finished or given up as the session sees fit, and its outcome is dropped."""


class Replies(Protocol):
    """What fronts keep, by what they were asked (`answering.replies`)."""

    def get(self, key: Hashable, unseen: Own) -> bytes | None:
        """Must be quick and must not raise."""

    def put(self, key: Hashable, packets: bytes, entry: Entry, version: int) -> None: ...


class Backend(Protocol):
    @property
    def replies(self) -> Replies: ...

    def connect(self, client: Client) -> Session:
        """A session for a client whose password was right.  SqlError (1049: no such database, 1044: not
        allowed) refuses it."""
