"""The messages between front ends and the controller.  A far front end is on another host, without shared memory.

Keeps true: a connection has at most one running request, and its `Reply` names the connection.  Changes of the program
(`Version`, `Forget`) are sent before any later reply.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from noria.accounts.logins import Logins
from noria.core import limits
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import SessionWrites
from noria.server.answering.hits import KnownSelect
from noria.server.outcomes import Client
from noria.sql.text.databases import HOME

Form = tuple[bool, bool]  # binary rows, no EOF packets: how results are encoded


# ---------------------------------------------------------------- controller to front end
@dataclass(frozen=True, slots=True)
class StartServing:
    """Start to serve.  Answer: `FrontEndReady`.  The settings are those of `Settings`.

    views: the directory of each worker's views.  version: of the program.  reply_bytes: the limit of kept replies.

    Connections are numbered `first`, `first + step` and so on.
    """

    host: str
    port: int
    views: tuple[str, ...]
    first: int
    step: int
    version: int
    reply_bytes: int
    logins: Logins
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_require: bool = False
    tls_ca: Path | None = None
    log_level: int = logging.INFO
    max_connect_errors: int = limits.MAX_CONNECT_ERRORS
    databases: tuple[str, ...] = (HOME,)  # their folded names; the first is that of clients that name none


@dataclass(frozen=True, slots=True)
class Version:
    """The program has this version.  Forget all statements of older ones.  Answer: `Acknowledge`.  databases: as in
    `StartServing`."""

    version: int
    databases: tuple[str, ...] = (HOME,)


@dataclass(frozen=True, slots=True)
class ChangeAccounts:
    """The accounts that may log in from now on.  All sessions may have other rights: their namespaces are unknown until
    their next `Reply`.  A `Version` follows."""

    logins: Logins


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget this view's statements and replies: its reader was dropped or replaced."""

    view: str


@dataclass(frozen=True, slots=True)
class HoldReads:
    """A table is locked for WRITE, or is about to be.  Answer no more SELECTs here until `wait` is False: the sessions
    know which must wait.  Answer: `ReadsHeld`.  Far front ends do not receive this."""

    number: int
    wait: bool


@dataclass(frozen=True, slots=True)
class SetReplyLimit:
    """The new limit of kept replies."""

    reply_bytes: int


@dataclass(frozen=True, slots=True)
class BlockHosts:
    """Block addresses after so many broken connections in a row.  flush: unblock all addresses."""

    max_connect_errors: int
    flush: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a connection's request.

    answer: outcomes with encoded rows, `LargeReply`, a prepared statement, fields, or None.  The values `status`,
    `keepable`, `unseen` and `namespace` are the session's (`outcomes.Session`).

    taught: the statement, if shared memory can answer it.  seen: (view, worker) whose shard has all unseen writes.
    """

    connection: int
    answer: Any
    error: SqlError | None
    status: int
    keepable: bool
    unseen: SessionWrites
    taught: KnownSelect | None = None
    seen: tuple[str, int] | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class LargeReply:
    """The answer has many rows.  Its packets are sent in chunks on request (`NextChunk`)."""


@dataclass(frozen=True, slots=True)
class ReplyChunk:
    """A chunk of a connection's large answer.  packets: None after the last chunk."""

    connection: int
    packets: bytes | None


@dataclass(frozen=True, slots=True)
class KeyRowsReply:
    """The rows of many keys, in the form of a worker's `Rows`.  missing: one flag for each key."""

    rows: pa.Table
    missing: Sequence[bool]


@dataclass(frozen=True, slots=True)
class LookupReply:
    """The answer to a `LookupKeys`: for each view the rows of each key.  None for a key: only the session can
    answer."""

    number: int
    found: Sequence[Sequence[list[Any] | None] | KeyRowsReply]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life from the controller to a far front end, each second."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Reject a far front end, with the reason.  The line is closed."""

    why: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close a client's connection, because it was killed or its answer failed."""

    connection: int


@dataclass(frozen=True, slots=True)
class Reload:
    """Read the certificate's files again.  A far front end has its own certificate and ignores this."""


@dataclass(frozen=True, slots=True)
class StopServing:
    """Accept no more clients.  Disconnect idle ones now, the others after their answer; then end.  A far front end ends
    only the line."""


# ---------------------------------------------------------------- front end to controller
@dataclass(frozen=True, slots=True)
class RegisterFrontEnd:
    """The first message.  number: of a front end on this host.  release: that of a far one, "" for others."""

    number: int
    release: str = ""

    @property
    def is_far(self) -> bool:
        return bool(self.release)


@dataclass(frozen=True, slots=True)
class FrontEndReady:
    """Clients are served at this address.  failure: why they cannot be served, else ""."""

    host: str = ""
    port: int = 0
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The program's version was processed: no later answer uses an older one."""

    version: int


@dataclass(frozen=True, slots=True)
class ReadsHeld:
    """The `HoldReads` with this number was processed."""

    number: int


@dataclass(frozen=True, slots=True)
class Counters:
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
class LookupKeys:
    """A far front end's lookup of keys in views that it knows under this version of the program.  Answer:
    `LookupReply`.

    lookups: (view, its definition, keys).
    """

    number: int
    version: int
    lookups: Sequence[tuple[str, int, Sequence[tuple[Any, ...]]]]


@dataclass(frozen=True, slots=True)
class Touch:
    """An ad-hoc view was read, so it counts as recently used."""

    view: str


@dataclass(frozen=True, slots=True)
class Open:
    """A client has logged in: open its session."""

    client: Client


@dataclass(frozen=True, slots=True)
class Close:
    """A client has disconnected: close its session."""

    connection: int


@dataclass(frozen=True, slots=True)
class NextChunk:
    """Send the next chunk of a large answer: the client has read the earlier ones.  Answer: `ReplyChunk`."""

    connection: int


@dataclass(frozen=True, slots=True)
class ClientRequest:
    """A request of a connection.  Answer: `Reply`.

    answered: None if the session has answered the connection's last statement.  Else the front end has, so the session
    has no warnings, and this is its number of rows.  -1: they were not counted.
    """

    connection: int
    answered: int | None


@dataclass(frozen=True, slots=True)
class RunQuery(ClientRequest):
    """Run a text.  learn: fill `Reply.taught`.  lacks: (view, worker) that may lack the session's own writes."""

    text: str
    multi: bool
    form: Form
    learn: bool
    lacks: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class LoadFile(ClientRequest):
    """Run a LOAD DATA LOCAL with the client's file."""

    text: str
    data: bytes


@dataclass(frozen=True, slots=True)
class PrepareStatement(ClientRequest):
    """Prepare a text.  statement: its number within the connection."""

    statement: int
    text: str


@dataclass(frozen=True, slots=True)
class Execute(ClientRequest):
    """Run a prepared statement.  learn, lacks: as in `RunQuery`."""

    statement: int
    values: Sequence[Any]
    form: Form
    learn: bool
    lacks: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ListFields(ClientRequest):
    table: str
    pattern: str


@dataclass(frozen=True, slots=True)
class KillSession(ClientRequest):
    number: int


@dataclass(frozen=True, slots=True)
class CloseStatement:
    connection: int
    statement: int


@dataclass(frozen=True, slots=True)
class UseDatabase(ClientRequest):
    database: str


@dataclass(frozen=True, slots=True)
class Reset:
    connection: int
