"""What front ends and the controller say to each other, one message after the other in each direction.  A far front end
is one on another host, which has no shared memory.

Keeps true: a connection has one request under way at most; its `Reply` names the connection.  What changed of the
program (`Version`, `Forget`) is told before any reply that was made after the change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from noria.core import limits
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Own
from noria.server.answering.hits import Known
from noria.server.outcomes import Client

Form = tuple[bool, bool]  # binary rows, no EOF packets: how results are encoded


# ---------------------------------------------------------------- controller to front end
@dataclass(frozen=True, slots=True)
class Begin:
    """Serve.  views: the directory of each worker's; first, step: connections have the numbers first, first + step…;
    version: of the program; reply_bytes: what kept replies may take."""

    host: str
    port: int
    views: tuple[str, ...]
    first: int
    step: int
    version: int
    reply_bytes: int
    user: str
    password: str | None = field(repr=False)
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_require: bool = False
    log_level: int = logging.INFO
    max_connect_errors: int = limits.MAX_CONNECT_ERRORS


@dataclass(frozen=True, slots=True)
class Version:
    """Nothing that was known of the program under another version is answered by any more: to be acknowledged."""

    version: int


@dataclass(frozen=True, slots=True)
class Forget:
    """This view's reader is no more, or is another one."""

    view: str


@dataclass(frozen=True, slots=True)
class Bound:
    """Kept replies may take so many bytes."""

    reply_bytes: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """Block addresses after so many broken connections from now on.  flush: unblock those that are blocked."""

    max_connect_errors: int
    flush: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """Of a connection's request.  answer: outcomes with their rows encoded, `Large`, what was prepared, fields, or
    None; status, keepable, unseen: of the session (`outcomes.Session`); taught: the statement, if it can be answered
    from shared memory; seen: the view's part at this worker has all that is unseen."""

    connection: int
    answer: Any
    error: SqlError | None
    status: int
    keepable: bool
    unseen: Own
    taught: Known | None = None
    seen: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Large:
    """In the place of an answer of many rows: its packets come in pieces, each when it is asked for (`More`)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Of a connection's large answer; None: the one before was the last."""

    connection: int
    packets: bytes | None


@dataclass(frozen=True, slots=True)
class Some:
    """Rows of many keys: as `Rows` of a worker has them; and of each key, is it missing?"""

    rows: pa.Table
    missing: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Looked:
    """Of a `Look`, for each view the rows of each of its keys; None for a key that the session is to be asked for."""

    number: int
    found: Sequence[Sequence[list[Any] | None] | Some]


@dataclass(frozen=True, slots=True)
class Beat:
    """The controller is there, for a far front end."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A far front end may not join: why."""

    why: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Somebody killed the connection."""

    connection: int


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the certificate again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Take no more clients, hang up on idle ones and on the others once they have their answer, and end; a far one ends
    only the line."""


# ---------------------------------------------------------------- front end to controller
@dataclass(frozen=True, slots=True)
class Join:
    """First of all: which of the front ends it is; a far one is given a number.  release: that of a far one."""

    number: int
    release: str = ""

    @property
    def is_far(self) -> bool:
        return bool(self.release)


@dataclass(frozen=True, slots=True)
class Ready:
    """Clients are served, at this address; else why not."""

    host: str = ""
    port: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    version: int


@dataclass(frozen=True, slots=True)
class Count:
    """What it did since the last time: SELECTs it answered, kept replies it gave and lookups in shared memory by view,
    logins by its `LoginGuard`; and what it has: clients, bytes of kept replies; of a far one, bytes that no other
    process of its host shares, and it is said every second, so that it is known to be there."""

    selects: int
    kept: Mapping[str, int]
    lookups: Mapping[str, int]
    connections: int
    reply_bytes: int
    private_bytes: int = 0
    logins: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """Of a far one: the rows of those keys that are present, of views that it was taught to read under this version of
    the program.  asked: a view, its definition, and keys."""

    number: int
    version: int
    asked: Sequence[tuple[str, int, Sequence[tuple[Any, ...]]]]


@dataclass(frozen=True, slots=True)
class Touch:
    """An ad-hoc view is in use."""

    view: str


@dataclass(frozen=True, slots=True)
class Open:
    """A client has logged in."""

    client: Client


@dataclass(frozen=True, slots=True)
class Close:
    """The client is gone."""

    connection: int


@dataclass(frozen=True, slots=True)
class More:
    """The client has read what it was sent of a large answer.  Answer: `Piece`."""

    connection: int


@dataclass(frozen=True, slots=True)
class Request:
    """cleared: its last statement was answered from shared memory, so there are no warnings any more."""

    connection: int
    cleared: bool


@dataclass(frozen=True, slots=True)
class Query(Request):
    """A text.  learn: whether it can be answered from shared memory; lacks: where its own writes were missing."""

    text: str
    multi: bool
    form: Form
    learn: bool
    lacks: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Prepare(Request):
    statement: int  # of the connection
    text: str


@dataclass(frozen=True, slots=True)
class Execute(Request):
    statement: int
    values: Sequence[Any]
    form: Form
    learn: bool
    lacks: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ListFields(Request):
    table: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Kill(Request):
    number: int


@dataclass(frozen=True, slots=True)
class CloseStatement:
    connection: int
    statement: int


@dataclass(frozen=True, slots=True)
class Use:
    connection: int
    database: str


@dataclass(frozen=True, slots=True)
class Reset:
    connection: int
