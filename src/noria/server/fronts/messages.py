"""The messages between front ends and the controller.  A far front end is on another host, without shared memory.

Keeps true: a connection has at most one request in flight; its `Reply` names the connection.  Changes of the program
(`Version`, `Forget`) are sent before any reply that was made after the change.
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
    """Start to serve.  views: the directory of each worker's views; version: of the program; reply_bytes: the limit of
    kept replies.  first, step: connections are numbered first, first + step and so on."""

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
    """The program has this version: answer nothing by an older one.  Answer: `Acknowledge`."""

    version: int


@dataclass(frozen=True, slots=True)
class Forget:
    """This view's reader was dropped or replaced."""

    view: str


@dataclass(frozen=True, slots=True)
class Bound:
    """The new limit of kept replies."""

    reply_bytes: int


@dataclass(frozen=True, slots=True)
class Hosts:
    """Block addresses after so many broken connections.  flush: unblock the blocked ones."""

    max_connect_errors: int
    flush: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a connection's request.

    answer: outcomes with encoded rows, `Large`, a prepared statement, fields, or None; status, keepable, unseen: those
    of the session (`outcomes.Session`).

    taught: the statement, if it can be answered from shared memory; seen: (view, worker) whose part of the view has all
    unseen writes.
    """

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
    """Stands for an answer of many rows, whose packets are sent in pieces on request (`More`)."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a connection's large answer; None: the previous one was the last."""

    connection: int
    packets: bytes | None


@dataclass(frozen=True, slots=True)
class Some:
    """Rows of many keys, as a worker's `Rows` has them, and for each key whether it is missing."""

    rows: pa.Table
    missing: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Looked:
    """The answer to a `Look`: for each view the rows of each key; None for a key that the session must be asked for."""

    number: int
    found: Sequence[Sequence[list[Any] | None] | Some]


@dataclass(frozen=True, slots=True)
class Beat:
    """A sign of life from the controller to a far front end."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """A far front end may not join, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close a connection, which was killed."""

    connection: int


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the certificate again."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Accept no more clients, disconnect idle ones, and the others after their answer; then end.  A far one ends only
    the line."""


# ---------------------------------------------------------------- front end to controller
@dataclass(frozen=True, slots=True)
class Join:
    """The first message: the front end's number (a far one gets one later) and a far one's release."""

    number: int
    release: str = ""

    @property
    def is_far(self) -> bool:
        return bool(self.release)


@dataclass(frozen=True, slots=True)
class Ready:
    """Clients are served at this address; or the reason why not."""

    host: str = ""
    port: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    version: int


@dataclass(frozen=True, slots=True)
class Count:
    """The counts since the last message: answered SELECTs; kept replies and lookups in shared memory, by view; logins.

    Also its current clients and bytes of kept replies.  A far one also reports its private bytes, and sends this each
    second as a sign of life.
    """

    selects: int
    kept: Mapping[str, int]
    lookups: Mapping[str, int]
    connections: int
    reply_bytes: int
    private_bytes: int = 0
    logins: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Look:
    """A far front end's lookup of present keys, in views that it was taught under this version of the program.

    asked: (view, its definition, keys).
    """

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
    """The client has disconnected."""

    connection: int


@dataclass(frozen=True, slots=True)
class More:
    """The client has read what it was sent of a large answer.  Answer: `Piece`."""

    connection: int


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a connection.  cleared: its last statement was answered here, so the session has no warnings."""

    connection: int
    cleared: bool


@dataclass(frozen=True, slots=True)
class Query(Request):
    """Run a text.  learn: return whether shared memory can answer it; lacks: where its own writes were missing."""

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
