"""The controller's end of the line to one front end: the sessions of its connections, and its messages.

Keeps true: the controller reads from a front end only while the front end reads its replies.  A front end that reads
nothing for FRONT_UNREAD_S is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, cast

from noria.core.errors import SqlError, internal_error
from noria.core.errors.codes import DBACCESS_DENIED
from noria.core.limits import FRONT_UNREAD_S
from noria.dataflow.messages.packets import Envelope
from noria.plan.view import ViewDef
from noria.runtime.transport import wire
from noria.runtime.transport.heartbeats import Computing
from noria.runtime.transport.shard_owner import Process
from noria.server.answering.executor import Executor
from noria.server.answering.statements import CachedStatement
from noria.server.fronts import messages
from noria.server.fronts.far_lookups import looked
from noria.server.fronts.message_codec import KINDS, MESSAGES
from noria.server.mysql.chunks import chunks_of, is_large
from noria.server.mysql.rows import encode_result
from noria.server.mysql.streaming import StreamTurns
from noria.server.outcomes import Client, Encoded, Outcome, PendingOutcome, ResultSet, RowEncoding
from noria.server.sessions.session import Session
from noria.server.sessions.sessions import Sessions

log = logging.getLogger("noria")
ACKNOWLEDGE_S = 2.0  # a front end that has not processed a change by then, and does not compute, is ended
LOOK_S = 0.25  # between two checks of that


class ClientSession:
    """A connection's session, its prepared statements, and the rest of its current large answer.

    denied: answers its first request, because it may not see the database with which it logged in."""

    def __init__(self, session: Session, denied: SqlError | None = None):
        self.session, self.denied = session, denied
        self.statements: dict[int, CachedStatement] = {}
        self.chunks: Iterator[bytes] = iter(())  # the unsent chunks of a large answer


class FrontEnds(Protocol):
    """The owner of the lines (`controller.Fronts`).  clock: seconds; turns: chunks of large answers take turns."""

    executor: Executor
    sessions: Sessions
    clock: Callable[[], float]
    turns: StreamTurns

    def joined(self, line: FrontEndLink, join: messages.RegisterFrontEnd) -> None:
        """A front end has connected."""

    def served(self, line: FrontEndLink, ready: messages.FrontEndReady) -> None:
        """A front end listens."""

    def opened(self, line: FrontEndLink, client: Client) -> None:
        """A client has connected to the front end."""

    def answered(self, line: FrontEndLink, reads: int) -> None:
        """The front end has answered reads by itself."""

    def kill(self, process: Process) -> None:
        """End the front end's process."""

    def left(self, line: FrontEndLink) -> None:
        """The line is lost."""


class FrontEndLink(asyncio.Protocol):
    """The line to one front end.

    version: the program's version that it has processed.  process: its process, if it is on this host.

    readers: the views that a far one may read, by name.  last_message_at: the time of its last message.
    """

    def __init__(self, fronts: FrontEnds):
        self._fronts, self._executor = fronts, fronts.executor
        self._reader = wire.FrameDecoder(MESSAGES, KINDS)
        self.number: int | None = None
        self.is_far = False
        self.readers: dict[str, ViewDef] = {}
        self.last_message_at = fronts.clock()
        self.private_bytes = 0
        self._stuck: asyncio.TimerHandle | None = None  # runs while the front end does not read
        self.process: Process | None = None
        self.version, self.reply_bytes, self.connections = -1, 0, 0
        self.held: dict[int, ClientSession] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._holding: list[tuple[int, asyncio.Future[None]]] = []
        self._reads_held = 0  # the number of the last `HoldReads` that it has processed
        self._bugs = itertools.count(1)
        self._message_handlers: dict[type, Callable[[Any], object]] = {
            messages.FrontEndReady: lambda m: fronts.served(self, m), messages.Acknowledge: self._acknowledged,
            messages.ReadsHeld: self._held_reads,
            messages.Counters: self._counted, messages.Touch: self._touched, messages.Open: self._open,
            messages.LookupKeys: self._look,
            messages.NextChunk: self._more,
            messages.Close: lambda m: self._close(m.connection),
            messages.CloseStatement: lambda m: self.held[m.connection].statements.pop(m.statement, None),
            messages.Reset: lambda m: self.held[m.connection].session.reset()}
        self._request_handlers: dict[type, Callable[[ClientSession, Any], Any]] = {
            messages.RunQuery: self._query, messages.PrepareStatement: self._prepare, messages.Execute: self._execute,
            messages.LoadFile: lambda held, m: held.session.load(m.text, m.data),
            messages.ListFields: lambda held, m: held.session.list_fields(m.table, m.pattern),
            messages.KillSession: lambda held, m: held.session.kill(m.number),
            messages.UseDatabase: lambda held, m: held.session.use(m.database)}

    # ------------------------------------------------------------ the line
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not wire.same_user(peer := transport.get_extra_info("socket")):
            self._transport.abort()
            return
        self.process = wire.other_end(peer)

    def data_received(self, data: bytes) -> None:
        self.last_message_at = self._fronts.clock()
        try:
            for item in self._reader.feed(data):
                if not isinstance(item, Envelope):
                    raise wire.WireError(str(item))
                self._take(item.body)
        except wire.WireError as e:
            log.error("front end %s is ended, for what it said cannot be read: %s", self.number, e)
            self.end()

    def _take(self, body: Any) -> None:
        if self.number is None:
            if not isinstance(body, messages.RegisterFrontEnd):
                raise wire.WireError(f"{body!r} before it joined")
            self.is_far = body.is_far
            self._fronts.joined(self, body)
        elif isinstance(body, messages.ClientRequest):
            self._handle_request(body)
        else:
            self._message_handlers[type(body)](body)

    def pause_writing(self) -> None:
        self._transport.pause_reading()
        self._watch_reader()

    def resume_writing(self) -> None:
        self.last_message_at = self._fronts.clock()
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_silent_for(self) -> float:
        """Seconds since its last message; 0 while the controller does not read from it."""
        return 0.0 if self._stuck is not None else self._fronts.clock() - self.last_message_at

    def _watch_reader(self) -> None:
        self._stuck = asyncio.get_running_loop().call_later(FRONT_UNREAD_S, self._reads,
                                                            self._transport.get_write_buffer_size())

    def _reads(self, unread: int) -> None:
        """End a front end that has read nothing since the last call."""
        if self._transport.get_write_buffer_size() < unread:
            self._watch_reader()
            return
        log.error("front end %s has read nothing for %d s and is ended", self.number, FRONT_UNREAD_S)
        self.end()

    def connection_lost(self, error: Exception | None) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
        self._fronts.left(self)
        for number in list(self.held):
            self._close(number)
        for _, reached in (*self._waiting, *self._holding):
            if not reached.done():
                reached.set_result(None)
        self._waiting.clear()
        self._holding.clear()

    def send(self, message: Any) -> None:
        self._transport.write(wire.encode(Envelope(0, self.number or 0, 0, message), MESSAGES))

    def refuse(self, why: str) -> None:
        """Send a refusal as the last message, and close the line."""
        log.warning("a front end on another host may not join: %s", why)
        self.send(messages.Refuse(why))
        self._transport.close()

    def end(self) -> None:
        """End the front end at once; another process replaces it.  One on another host notices the lost line."""
        self._transport.abort()
        if self.process is not None and not self.is_far:
            self._fronts.kill(self.process)

    # ------------------------------------------------------------ the program
    def forget(self, view: str) -> None:
        self.readers.pop(view, None)
        self.send(messages.Forget(view))

    def changed(self, version: int) -> None:
        self.readers.clear()
        self.send(messages.Version(version, self._executor.program.catalog.database_names()))

    def _look(self, look: messages.LookupKeys) -> None:
        executor = self._executor
        current = look.version == executor.program.version and not executor.locks.reads_wait
        readers = self.readers if current else {}
        found = looked(executor.reads, readers, look.lookups)
        self.send(messages.LookupReply(look.number, found))

    def _acknowledged(self, message: messages.Acknowledge) -> None:
        self.version = message.version
        self._waiting = _past(self._waiting, self.version)

    def _held_reads(self, message: messages.ReadsHeld) -> None:
        self._reads_held = message.number
        self._holding = _past(self._holding, message.number)

    async def reached(self, version: int) -> None:
        """Wait until the front end has this version or is gone.  If it neither gets the version within
        ACKNOWLEDGE_S nor computes, end it."""
        if self.version < version:
            await self._answered(version, self._waiting)

    async def holds_reads(self, number: int) -> None:
        """Likewise for a `HoldReads`."""
        if self._reads_held < number:
            await self._answered(number, self._holding)

    async def _answered(self, number: int, waiting: list[tuple[int, asyncio.Future[None]]]) -> None:
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append((number, reached))
        computing, waited = Computing(self.process), 0.0
        while not reached.done():
            before = self._fronts.clock()
            await asyncio.wait((reached,), timeout=LOOK_S)
            waited += min(self._fronts.clock() - before, LOOK_S)  # if this loop was blocked, answers are unread
            if not reached.done() and waited >= ACKNOWLEDGE_S and not computing.goes_on():
                log.error("front end %s does not take in a change of the program or a lock and is ended", self.number)
                self.end()
                return

    def _touched(self, message: messages.Touch) -> None:
        view = self._executor.program.adhoc_named(message.view)
        if view is not None:
            self._executor.program.touch(view)

    def _counted(self, count: messages.Counters) -> None:
        executor = self._executor
        executor.selects += count.selects
        executor.replies.had_elsewhere(count.kept)
        executor.reads.had_elsewhere(count.lookups)
        self.reply_bytes, self.connections = count.reply_bytes, count.connections
        self.private_bytes = count.private_bytes
        self._fronts.sessions.guard.add(count.logins)
        self._fronts.answered(self, count.selects + sum(count.kept.values()))

    # ------------------------------------------------------------ sessions
    def _open(self, message: messages.Open) -> None:
        self._fronts.opened(self, message.client)
        client, denied = replace(message.client, keeps=False), None
        try:
            session = self._fronts.sessions.connect(client)
        except SqlError as e:
            if e.code != DBACCESS_DENIED.number:  # its database was dropped meanwhile
                self.send(messages.HangUp(client.connection_id))
                return
            session, denied = self._fronts.sessions.connect(replace(client, database="")), e
        self.held[client.connection_id] = ClientSession(session, denied)

    def _close(self, connection: int) -> None:
        held = self.held.pop(connection, None)
        if held is not None:
            held.session.close()

    def _handle_request(self, request: messages.ClientRequest) -> None:
        held = self.held[request.connection]
        if request.answered is not None:
            held.session.warnings = ()
            if request.answered >= 0:
                held.session.found_rows = request.answered
        reply = partial(self._send_outcome, request, held)
        if held.denied is not None:
            self._failed(request, held, held.denied)
            self.send(messages.HangUp(request.connection))
            return
        try:
            answer = self._request_handlers[type(request)](held, request)
        except Exception as e:
            self._failed(request, held, e)
            return
        if isinstance(answer, PendingOutcome):
            answer.future.add_done_callback(lambda done: reply(partial(answer.then, done)))
        elif inspect.isawaitable(answer):
            task = asyncio.ensure_future(_awaited(answer))
            task.add_done_callback(lambda done: reply(done.result))
        else:
            reply(lambda: answer)

    def _send_outcome(self, request: messages.ClientRequest, held: ClientSession, result: Callable[[], Any]) -> None:
        """Send the session's answer, unless the client has disconnected."""
        try:
            answer = result()
            if isinstance(request, messages.RunQuery | messages.Execute):
                answer = self._encoded(answer, held, request.form)
        except (Exception, asyncio.CancelledError) as e:
            self._failed(request, held, e)
            return
        self._reply(request, held, answer, None)

    def _failed(self, request: messages.ClientRequest, held: ClientSession, error: BaseException) -> None:
        if self.held.get(request.connection) is not held:
            return  # the client has disconnected
        if not isinstance(error, SqlError):
            number = f"F{request.connection}.{next(self._bugs)}"
            log.error("internal error %s: a request could not be answered", number, exc_info=error)
            error = internal_error(number)
        self._reply(request, held, None, error)

    def _reply(self, request: messages.ClientRequest, held: ClientSession, answer: Any, error: SqlError | None) -> None:
        if self.held.get(request.connection) is not held or self._transport.is_closing():
            return
        session = held.session
        taught = seen = None
        if error is None:
            taught = self._taught(request, held)
            if taught is not None and self.is_far:
                self.readers[taught.reader.name] = taught.reader
            lacks = request.lacks if isinstance(request, messages.RunQuery | messages.Execute) else None
            seen = lacks if lacks is not None and self._executor.has(*lacks, session.unseen) else None
        self.send(messages.Reply(request.connection, answer, error, session.status, session.keepable, session.unseen,
                                 taught, seen, session.namespace))

    # ------------------------------------------------------------ statements
    def _query(self, held: ClientSession, request: messages.RunQuery) -> Any:
        return held.session.query(request.text, request.multi, RowEncoding(*request.form))

    def _prepare(self, held: ClientSession, request: messages.PrepareStatement) -> Any:
        prepared = held.session.prepare(request.text)
        held.statements[request.statement] = prepared.handle
        return prepared.parameters, prepared.fields, prepared.number

    def _execute(self, held: ClientSession, request: messages.Execute) -> Any:
        compiled = held.statements[request.statement]
        return held.session.execute(compiled, request.values, RowEncoding(*request.form))

    def _taught(self, request: messages.ClientRequest, held: ClientSession) -> Any:
        """Return the statement in the form with which the front end can answer it the next time, or None."""
        statements = self._executor.statements
        if isinstance(request, messages.RunQuery):
            known = statements.known(request.text, held.session.namespace) if request.learn else None
            return None if known is None else self._executor.taught(known[0])
        if isinstance(request, messages.PrepareStatement) or (isinstance(request, messages.Execute) and request.learn):
            compiled = held.statements[request.statement]
            if compiled.version != self._executor.program.version:
                with contextlib.suppress(SqlError):  # the next execution reports it
                    compiled = held.session.prepare(compiled.text).handle
                    held.statements[request.statement] = compiled
            return self._executor.taught(compiled)
        return None

    def _encoded(self, answer: Any, held: ClientSession, form: messages.Form) -> Any:
        """Return the outcomes with encoded rows, or `LargeReply` if they are sent in chunks."""
        outcomes: Sequence[Outcome] = (answer,) if isinstance(answer, Outcome) else answer
        if any(map(is_large, outcomes)):
            held.chunks = chunks_of(outcomes, *form, held.session.status, sending=held.session.sending())
            return messages.LargeReply()
        encoded = [_result(o, form, held.session.status) if isinstance(o, ResultSet) else o for o in outcomes]
        return encoded[0] if isinstance(answer, Outcome) else encoded

    def _more(self, request: messages.NextChunk) -> None:
        """Queue the next chunk of a large answer."""
        held = self.held.get(request.connection)
        if held is not None:
            self._fronts.turns.add(partial(self._send_chunk, request.connection, held))

    def _send_chunk(self, connection: int, held: ClientSession) -> None:
        if self.held.get(connection) is not held or self._transport.is_closing():
            return
        try:
            self.send(messages.ReplyChunk(connection, next(held.chunks, None)))
        except Exception:  # the protocol has no error packet between rows for this
            log.exception("connection %d: a large reply could not be made and is cut off", connection)
            self.send(messages.HangUp(connection))


def _past(waiting: list[tuple[int, asyncio.Future[None]]], number: int) -> list[tuple[int, asyncio.Future[None]]]:
    """Answer those who wait for numbers up to this one; return the others."""
    for wanted, reached in waiting:
        if wanted <= number and not reached.done():
            reached.set_result(None)
    return [(wanted, reached) for wanted, reached in waiting if not reached.done()]


def _result(result: ResultSet, form: messages.Form, status: int) -> Encoded:
    return Encoded(encode_result(result.fields, result.rows, *form, status, len(result.warnings)))


async def _awaited(answer: Any) -> Any:
    return await answer


