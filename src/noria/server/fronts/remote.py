"""A client's session in a front end: answers known statements, and sends all others to the controller's session.

Keeps true: the controller's session has the same state as without front ends.  A read that is answered here changes one
thing in it: it clears the warnings.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

from noria.accounts.logins import Logins
from noria.core.types import Field
from noria.dataflow.messages.packets import SessionWrites
from noria.server.answering.hits import TOUCH_EVERY, KnownSelect
from noria.server.answering.replies import ReplyCache
from noria.server.fronts import messages
from noria.server.fronts.replica import Replica
from noria.server.logins import LoginGuard
from noria.server.outcomes import (
    AUTOCOMMIT,
    EARLIEST,
    LATEST,
    NEVER,
    Answer,
    Client,
    Outcome,
    PendingOutcome,
    PreparedHandle,
    ResultSet,
    RowEncoding,
    Stopped,
    Streamed,
    Warning_,
)
from noria.sql.text.databases import in_namespace, in_scope, modes_of, scope_in
from noria.sql.text.shape import shape_of

_NOT_COUNTED = -1
UNKNOWN_SCOPE = "?"  # nobody's: nothing is known under it
Lacks = tuple[str, int] | None  # the view and the worker that may lack the session's own writes


class Front(Protocol):
    """The parts of a front end that a session uses."""

    replica: Replica
    replies: ReplyCache
    selects: int

    def send(self, message: Any) -> None: ...

    def scope_of(self, client: Client) -> str:
        """The scope of a client's first session."""

    def hit(self, known: KnownSelect, values: Sequence[Any], unseen: SessionWrites) -> ResultSet | Lacks:
        """Answer as `hits.hit` does."""


@dataclass(slots=True)
class Handle:
    """A prepared statement of one connection."""

    number: int
    known: KnownSelect | None = None
    scope: str = ""  # of the session when `known` was learnt


class RemoteSessions:
    """Implements `outcomes.Backend`.  guard: guards the logins at this front end."""

    def __init__(self, front: Front):
        self._front = front
        self.replies = front.replies
        self.guard = LoginGuard()
        self._open: dict[int, RemoteSession] = {}
        self._hold = False

    def connect(self, client: Client) -> RemoteSession:
        session = self._open[client.connection_id] = self._session(client)
        session.hold(self._hold)
        self._front.send(messages.Open(client))
        return session

    def _session(self, client: Client) -> RemoteSession:
        return RemoteSession(self._front, client, self._closed)

    def _closed(self, connection: int) -> None:
        self._open.pop(connection, None)
        self._front.send(messages.Close(connection))

    def hold(self, wait: bool) -> None:
        """Let the controller's sessions answer all SELECTs, because a table is locked for WRITE; or none that is known
        here."""
        self._hold = wait
        for session in self._open.values():
            session.hold(wait)

    def changed_accounts(self) -> None:
        """Answer nothing here until the controller has said what each session may do."""
        for session in self._open.values():
            session.lose_rights()

    def replied(self, reply: messages.Reply) -> None:
        session = self._open.get(reply.connection)
        if session is not None:  # else the client has disconnected meanwhile
            session.replied(reply)

    def hosts(self, message: messages.BlockHosts) -> None:
        self.guard.set_most_errors(message.max_connect_errors)
        if message.flush:
            self.guard.flush_hosts()

    def receive_chunk(self, chunk: messages.ReplyChunk) -> None:
        session = self._open.get(chunk.connection)
        if session is not None:
            session.receive_chunk(chunk.packets)

    def __len__(self) -> int:
        return len(self._open)


class RemoteSession:
    """Implements `outcomes.Session`.

    Keeps true: `keepable` is False while reads are held, so that a lookup looks at one flag only.
    """

    def __init__(self, front: Front, client: Client, closed: Callable[[int], None]):
        self._front, self._connection, self._closed = front, client.connection_id, closed
        self._statements = 0
        self._pending_reply: Future[messages.Reply] | None = None
        self._learn: Callable[[KnownSelect], None] | None = None  # receives the statement in `Reply.taught`
        self._ready: Callable[[bytes | None], None] | None = None  # receives the next chunk of a large answer
        self._cleared, self.found_rows = False, _NOT_COUNTED
        self._enter(in_scope(front.replica.namespace(client.database), front.scope_of(client)))
        self._hold = False
        self._as_new()

    def _as_new(self) -> None:
        self.status, self._may_keep = AUTOCOMMIT, True
        self.unseen: SessionWrites = {}
        self.hold(self._hold)

    def _enter(self, namespace: str) -> None:
        self.namespace, self.scope = namespace, scope_in(namespace)

    def lose_rights(self) -> None:
        """See `RemoteSessions.changed_accounts`."""
        self._enter(in_scope(self.namespace, UNKNOWN_SCOPE))

    def hold(self, wait: bool) -> None:
        """See `RemoteSessions.hold`."""
        self._hold = wait
        self.keepable = self._may_keep and not wait

    @property
    def as_of(self) -> int:
        """See `outcomes.Session`."""
        return LATEST if self.keepable else EARLIEST

    @property
    def read_views(self) -> None:
        """See `outcomes.Session`: `as_of` excludes all within a transaction."""

    @property
    def waits(self) -> bool:
        """True while the session waits for the controller's answer."""
        return self._pending_reply is not None

    @property
    def warnings(self) -> Sequence[Warning_]:
        """Always empty: the controller's session has the warnings and answers SHOW WARNINGS."""
        return ()

    @warnings.setter
    def warnings(self, none: Sequence[Warning_]) -> None:
        self._cleared, self.found_rows = True, _NOT_COUNTED

    # ------------------------------------------------------------ statements
    def query(self, text: str, multi: bool,
              form: RowEncoding | None) -> Answer | Awaitable[Answer] | PendingOutcome[Answer]:
        found = None if self.scope == UNKNOWN_SCOPE or modes_of(self.namespace) else shape_of(text)
        key = None if found is None else in_namespace(self.namespace, found[0])
        known = None if key is None else self._front.replica.known(key)
        shape = key if known is None else None

        def there(lacks: Lacks) -> PendingOutcome[Answer]:
            request = messages.RunQuery(self._connection, self._rows_here(), text, multi, _form(form),
                                        shape is not None, lacks)
            return self._request(request, self._answer, lambda taught: self._front.replica.learn(taught, shape))

        return there(None) if found is None or known is None else self._here(known, found[1], there)

    def load(self, text: str, data: bytes) -> PendingOutcome[Answer]:
        return self._request(messages.LoadFile(self._connection, self._rows_here(), text, data), self._answer)

    def prepare(self, text: str) -> PendingOutcome[PreparedHandle]:
        self._statements += 1
        handle = Handle(self._statements)

        def then(reply: messages.Reply) -> PreparedHandle:
            parameters, fields, number = reply.answer
            return PreparedHandle(handle, parameters, fields, number)

        return self._request(messages.PrepareStatement(self._connection, self._rows_here(), handle.number, text), then,
                             partial(self._learnt, handle))

    def execute(self, handle: Handle, values: Sequence[object], form: RowEncoding | None
                ) -> Outcome | Awaitable[Outcome] | PendingOutcome[Outcome]:
        known = self._front.replica.valid(handle.known) if handle.scope == self.scope != UNKNOWN_SCOPE else None

        def there(lacks: Lacks) -> PendingOutcome[Outcome]:
            request = messages.Execute(self._connection, self._rows_here(), handle.number, values, _form(form),
                                       known is None, lacks)
            return self._request(request, self._answer, partial(self._learnt, handle))

        return there(None) if known is None else self._here(known, values, there)

    def _learnt(self, handle: Handle, taught: KnownSelect) -> None:
        handle.known, handle.scope = taught, self.scope
        self._front.replica.learn(taught)

    def _here(self, known: KnownSelect, values: Sequence[Any], there: Callable[[Lacks], PendingOutcome[Any]]
              ) -> ResultSet | PendingOutcome[Any]:
        """Return the answer from shared memory, or ask the controller's session."""
        if not self.keepable:
            return there(None)
        answer = self._front.hit(known, values, self.unseen)
        if not isinstance(answer, ResultSet):
            return there(answer)
        self._answered(known, len(answer.rows))
        return answer

    def _answered(self, known: KnownSelect, rows: int) -> None:
        """Count a statement that was answered here with so many rows."""
        self._front.selects += 1
        self._cleared, self.found_rows = True, rows
        known.uses += 1
        if known.reader is not None and known.reader.adhoc and known.uses % TOUCH_EVERY == 1:
            self._front.send(messages.Touch(known.reader.name))

    # ------------------------------------------------------------ other requests
    def sending(self) -> AbstractContextManager[Stopped]:
        """Do nothing here: the controller's session sends large replies."""
        return NEVER

    def close_statement(self, handle: Handle) -> None:
        self._front.send(messages.CloseStatement(self._connection, handle.number))

    def use(self, database: str) -> PendingOutcome[None]:
        return self._request(messages.UseDatabase(self._connection, self._rows_here(), database), lambda reply: None)

    def list_fields(self, table: str, pattern: str) -> PendingOutcome[Sequence[Field]]:
        return self._request(messages.ListFields(self._connection, self._rows_here(), table, pattern),
                             lambda reply: cast(Sequence[Field], reply.answer))

    def reset(self) -> None:
        self._front.send(messages.Reset(self._connection))
        self._cleared, self.found_rows = False, _NOT_COUNTED
        self._as_new()

    def kill(self, number: int) -> PendingOutcome[None]:
        return self._request(messages.KillSession(self._connection, self._rows_here(), number), lambda reply: None)

    def close(self) -> None:
        if self._pending_reply is not None:
            self._pending_reply.cancel()
        self._closed(self._connection)

    # ------------------------------------------------------------ question and answer
    def _answer(self, reply: messages.Reply) -> Any:
        return Streamed(_RemoteStream(self)) if isinstance(reply.answer, messages.LargeReply) else reply.answer

    def _rows_here(self) -> int | None:
        """`ClientRequest.answered`."""
        cleared, self._cleared = self._cleared, False
        found, self.found_rows = self.found_rows, _NOT_COUNTED
        return found if cleared or found >= 0 else None

    def _request(self, request: messages.ClientRequest, then: Callable[[messages.Reply], Any],
                 learn: Callable[[KnownSelect], None] | None = None) -> PendingOutcome[Any]:
        pending = self._pending_reply = asyncio.get_running_loop().create_future()
        self._learn = learn
        self._front.send(request)
        return PendingOutcome(pending, partial(_outcome_of, then))

    def pull(self, ready: Callable[[bytes | None], None]) -> None:
        """Request the next chunk of the answer from the controller (`outcomes.Stream`)."""
        self._ready = ready
        self._front.send(messages.NextChunk(self._connection))

    def receive_chunk(self, packets: bytes | None) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready(packets)

    def replied(self, reply: messages.Reply) -> None:
        pending, self._pending_reply = self._pending_reply, None
        if self.namespace != reply.namespace:
            self._enter(reply.namespace)
        if reply.taught is not None and self._learn is not None:  # at once: the next message may revoke it
            self._learn(reply.taught)
        if reply.seen is not None:
            self._front.replica.saw(*reply.seen, self.unseen)
        self.status, self._may_keep, self.unseen = reply.status, reply.keepable, dict(reply.unseen)
        self.hold(self._hold)
        if pending is not None and not pending.done():
            pending.set_result(reply)


class _RemoteStream:
    """A large answer (`outcomes.Stream`).  When the connection is closed, the controller drops its rest, too."""

    def __init__(self, session: RemoteSession):
        self.pull = session.pull

    def close(self) -> None:
        self.pull = lambda ready: None


def _outcome_of(then: Callable[[messages.Reply], Any], done: Future[messages.Reply]) -> Any:
    reply = done.result()
    if reply.error is not None:
        raise reply.error
    return then(reply)


def scope_of(logins: Logins, client: Client) -> str:
    """The scope of a client's first session, as the controller computes it."""
    if not client.account:
        return ""
    return next((e.scope for e in logins.known if e.name.plain == client.account), UNKNOWN_SCOPE)


def _form(form: RowEncoding | None) -> messages.Form:
    assert form is not None, "a MySQL connection's"
    return form.binary, form.deprecate_eof
