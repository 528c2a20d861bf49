"""A front end on another host than the server: `noria front-end`.

It serves MySQL clients like a front end beside the controller.  Its line to the controller passes through the server's
tunnel (`runtime/transport/tunnel.py`), once both ends have proved that they know the secret.  The server looks keys up
for it in the workers' shared memory (`far_lookups.py`).

    seeks the server ──Begin──► serves ──line lost, Stop──► away: seeks the server again; SIGTERM ends it from anywhere

Keeps true: no message from the other end is parsed before that end has proved itself.  A session ends with its line,
and its client gets an error for its next statement.  Every answer is from the server, under the server's current
version of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import uvloop

from noria import __version__
from noria.core.errors import SqlError
from noria.core.errors.codes import SERVER_SHUTDOWN
from noria.core.limits import FRONT_SILENT_S
from noria.dataflow.messages.packets import Envelope, SessionWrites
from noria.runtime.link.link import Link
from noria.runtime.transport import handshake, wire
from noria.runtime.transport.handshake import (
    ConnectionRefused,
    HandshakeClosed,
    NotAuthenticated,
    SharedCredentials,
)
from noria.runtime.worker.resources import private_bytes, raise_open_files
from noria.server.answering.hits import KeyLookup, KnownSelect, wanted
from noria.server.answering.replies import ReplyCache
from noria.server.fronts import messages
from noria.server.fronts.far_lookups import FarLookups, Rows
from noria.server.fronts.message_codec import KINDS, MESSAGES
from noria.server.fronts.process import CLIENTS_STOP_S, REPORT_S, NoLink
from noria.server.fronts.remote import Handle, Lacks, RemoteSession, RemoteSessions, scope_of
from noria.server.fronts.replica import Replica
from noria.server.listening import CannotListen, listening
from noria.server.mysql import MysqlServer, listen
from noria.server.outcomes import Client, PendingOutcome, ResultSet
from noria.server.settings import SettingsError, check_tls, is_loopback
from noria.server.tls import Certificates

log = logging.getLogger("noria.front")
WISH = b"front clients"
AGAIN_S = 0.3  # between two tries to reach the server
_AWAY = (OSError, TimeoutError, asyncio.IncompleteReadError, ConnectionRefused, NotAuthenticated, wire.WireError)


class FarCannotServe(Exception):
    """The front end cannot serve, and another attempt would not help."""


@dataclass(frozen=True)
class FarSettings:
    """The settings of `noria front-end`.  controller: the address of the server's tunnel."""

    controller: tuple[str, int]
    credentials: SharedCredentials
    mysql_host: str = "127.0.0.1"
    mysql_port: int = 3307
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_require: bool = False
    tls_ca: Path | None = None

    def __post_init__(self) -> None:
        check_tls(self.tls_cert, self.tls_key, self.tls_require, self.tls_ca)


# ---------------------------------------------------------------- sessions
class FarSession(RemoteSession):
    """Implements `outcomes.Session`.  After `lost`, each request of its client fails with the error."""

    def __init__(self, front: FarFront, client: Client, closed: Callable[[int], None]):
        super().__init__(front, client, closed)
        self._far, self._over = front, False
        self._error: SqlError | None = None

    def _here(self, known: KnownSelect, values: Sequence[Any], there: Callable[[Lacks], PendingOutcome[Any]]
              ) -> ResultSet | PendingOutcome[Any]:
        """Return the answer from the controller's shared memory, or ask its session."""
        if not self.keepable or self._error is not None:
            return there(None)
        try:
            want = wanted(self._far.link, known, values, self.unseen)
        except SqlError:
            return there(None)
        if isinstance(want, ResultSet):
            self._answered(known, len(want.rows))
            return want
        if not isinstance(want, KeyLookup):
            return there(want)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        rows = self._far.looks.rows(want.reader, want.key)
        rows.add_done_callback(partial(self._looked, known, want, there, answer))
        return PendingOutcome(answer, lambda done: done.result())

    def _looked(self, known: KnownSelect, want: KeyLookup, there: Callable[[Lacks], PendingOutcome[Any]],
                answer: asyncio.Future[Any], found: asyncio.Future[Rows]) -> None:
        if self._over or answer.done():  # the client has disconnected
            answer.cancel()
            return
        rows = found.result()
        if rows is not None:
            with contextlib.suppress(SqlError):  # the session reports the error
                shown = want.answer(rows)
                answer.set_result(shown)
                self._answered(known, len(shown.rows))
                return
        try:
            later = there(None)
        except SqlError as e:
            answer.set_exception(e)
            return
        later.future.add_done_callback(lambda done: _set_outcome(answer, partial(later.then, done)))

    def _request(self, *arguments: Any) -> PendingOutcome[Any]:
        self._check()
        return super()._request(*arguments)

    def _check(self) -> None:
        if self._error is not None:
            self._far.hang_up_soon(self._connection)
            raise self._error

    def lost(self, error: SqlError) -> None:
        pending, self._pending_reply, self._error = self._pending_reply, None, error
        if pending is not None and not pending.done():
            pending.set_exception(error)
            self._far.hang_up_soon(self._connection)

    def close(self) -> None:
        self._over = True
        if self._error is None:
            super().close()

    def close_statement(self, handle: Handle) -> None:
        if self._error is None:
            super().close_statement(handle)

    def reset(self) -> None:
        self._check()
        super().reset()


class FarSessions(RemoteSessions):
    """Implements `outcomes.Backend`."""

    def __init__(self, front: FarFront):
        super().__init__(front)
        self._far = front

    def connect(self, client: Client) -> RemoteSession:
        self._far.check()
        return super().connect(client)

    def _session(self, client: Client) -> RemoteSession:
        return FarSession(self._far, client, self._closed)

    def lost(self, error: SqlError, all_of_them: bool = True) -> None:
        """End the sessions of a lost line with this error.  all_of_them: False keeps those that wait for an answer."""
        for number, session in list(self._open.items()):
            if all_of_them or not session.waits:
                del self._open[number]
                cast(FarSession, session).lost(error)

    def waits(self) -> bool:
        """True if a session waits for an answer."""
        return any(session.waits for session in self._open.values())


# ---------------------------------------------------------------- the front end
class FarFront:
    """Implements `remote.Front`.  on_ready: called once with the address, when clients are served."""

    replica: Replica
    link: Link

    def __init__(self, settings: FarSettings, on_ready: Callable[[tuple[str, int]], None]):
        self._settings, self._on_ready = settings, on_ready
        self.replies = ReplyCache(0)  # it keeps none: without shared memory it would not notice a change
        self.selects = 0
        self.sessions = FarSessions(self)
        self.looks = FarLookups(self.send, lambda: self.replica.version)
        self._writer: asyncio.StreamWriter | None = None
        self._server: MysqlServer | None = None
        self._serving: Awaitable[None] | None = None
        self._certificates: Certificates | None = None
        self._last_id = 0
        self._error: SqlError | None = self._away_error("it has not been reached yet")
        self._stopping = False  # the server is
        self._why = ""
        self._message_handlers: dict[type, Callable[[Any], object]] = {
            messages.Version: self._version, messages.Forget: self._forget,
            messages.ChangeAccounts: self._change_accounts, messages.Heartbeat: lambda m: None,
            messages.BlockHosts: lambda m: self.sessions.hosts(m), messages.SetReplyLimit: lambda m: None,
            messages.Reload: lambda m: None, messages.Reply: lambda m: self.sessions.replied(m),
            messages.ReplyChunk: lambda m: self.sessions.receive_chunk(m),
            messages.LookupReply: lambda m: self.looks.take(m),
            messages.HangUp: lambda m: self.hang_up_soon(m.connection), messages.Refuse: self._refused,
            messages.StopServing: self._stopped}

    # ------------------------------------------------------------ life
    async def run(self) -> None:
        """Serve until cancelled.  Raises `FarCannotServe` only before it has served for the first time."""
        while True:
            try:
                await self._line(*await self._connected())
            except _AWAY as e:
                if isinstance(e, NotAuthenticated) and not isinstance(e, HandshakeClosed) and self._server is None:
                    raise FarCannotServe(str(e)) from e
                self._away(str(e) or type(e).__name__)
            await asyncio.sleep(AGAIN_S)

    async def _connected(self) -> handshake.Streams:
        return await handshake.connected(*self._settings.controller, self._settings.credentials, WISH)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to the server until it ends, which raises an exception."""
        self._writer, messages_of, self._stopping = writer, wire.FrameDecoder(MESSAGES, KINDS), False
        reporting = asyncio.ensure_future(self._report())
        try:
            self.send(messages.RegisterFrontEnd(0, __version__))
            while True:
                async with asyncio.timeout(FRONT_SILENT_S):
                    data = await reader.read(handshake.READ_BYTES)
                if not data:
                    raise ConnectionError("it has closed the connection")
                for item in messages_of.feed(data):
                    await self._take(item)
                if self._stopping and not self.sessions.waits():
                    raise ConnectionError("it was stopped")
        except TimeoutError:
            raise ConnectionError(f"nothing was heard of it for {FRONT_SILENT_S} s") from None
        finally:
            reporting.cancel()
            self._writer = None
            writer.transport.abort()

    async def _take(self, item: wire.Item) -> None:
        if not isinstance(item, Envelope):
            raise wire.WireError(f"what it said cannot be read: {item}")
        body: Any = item.body
        if isinstance(body, messages.StartServing):
            await self._begin(body)
        else:
            self._message_handlers[type(body)](body)

    def send(self, message: Any) -> None:
        if self._writer is not None:
            self._writer.write(wire.encode(Envelope(0, 0, 0, message), MESSAGES))

    def _away(self, why: str) -> None:
        """End every session, because the server is unreachable."""
        host, port = self._settings.controller
        if why != self._why:
            log.warning("the server at %s:%d is not reached: %s; it is tried again all the time", host, port, why)
        self._why, self._error = why, self._away_error(why)
        self.looks.over()
        self.sessions.lost(self._error)

    def _away_error(self, why: str) -> SqlError:
        host, port = self._settings.controller
        since = time.strftime("%H:%M:%S", time.gmtime())
        return SqlError(*SERVER_SHUTDOWN,
                        f"The server at {host}:{port}, which this front end serves for, is not reached "
                        f"since {since} UTC ({why}); it is sought all the time: connect again soon")

    def check(self) -> None:
        """Raise an SqlError while the server is unreachable."""
        if self._error is not None:
            raise self._error

    def _refused(self, message: messages.Refuse) -> None:
        if self._server is None:
            raise FarCannotServe(f"the server refuses it: {message.why}")
        raise ConnectionError(message.why)

    def _stopped(self, message: messages.StopServing) -> None:
        """Reject new statements, because the server stops.  Running ones are still answered."""
        self._stopping, self._error = True, self._away_error("it was stopped")
        self.sessions.lost(self._error, all_of_them=False)

    async def stop(self) -> None:
        """Accept no more clients; running statements are answered first."""
        if self._server is not None:
            await self._server.stop(CLIENTS_STOP_S)

    # ------------------------------------------------------------ clients
    async def _begin(self, begin: messages.StartServing) -> None:
        self.replica = Replica(begin.version, len(begin.views), databases=begin.databases)
        self.link = cast(Link, NoLink(self.replica))
        self._logins = begin.logins
        self.sessions.guard.set_most_errors(begin.max_connect_errors)
        passed = max(0, self._last_id + 1 - begin.first + begin.step - 1) // begin.step
        ids = self._ids(begin.first + passed * begin.step, begin.step)
        if self._server is None:
            self._server = await self._listen(begin, ids)
            self._on_ready(self._server.address)
        else:
            self._server.ids = ids
            self._server.admit(begin.logins)
        self._error, self._why = None, ""
        self.send(messages.FrontEndReady(*self._server.address))
        log.info("serves for the server at %s:%d", *self._settings.controller)

    def _ids(self, first: int, step: int) -> Any:
        for number in itertools.count(first, step):
            self._last_id = number
            yield number

    async def _listen(self, begin: messages.StartServing, ids: Any) -> MysqlServer:
        s = self._settings
        if begin.logins.everyone and not is_loopback(s.mysql_host):
            raise FarCannotServe(f"--mysql-host {s.mysql_host} is not a loopback address, so clients of other hosts "
                                 f"could "
                                 "connect: give the server a password with --password-file FILE, or use 127.0.0.1")
        self._certificates = Certificates.of(s.tls_cert, s.tls_key, s.tls_ca)
        bound = listening(s.mysql_host, s.mysql_port, "--mysql-host, --mysql-port")
        return await listen(bound, self.sessions, begin.logins, None, self._certificates, s.tls_require, ids,
                            self.sessions.guard)

    def reload(self) -> None:
        """Read the certificate again."""
        if self._certificates is not None:
            self._certificates.reload()

    def hang_up_soon(self, connection: int) -> None:
        """Disconnect a client after the current reply is written to it."""
        assert self._server is not None
        asyncio.get_running_loop().call_soon(self._server.hang_up, connection)

    def _change_accounts(self, message: messages.ChangeAccounts) -> None:
        self._logins = message.logins
        if self._server is not None:
            self._server.admit(message.logins)
        self.sessions.changed_accounts()

    def scope_of(self, client: Client) -> str:
        return scope_of(self._logins, client)

    # ------------------------------------------------------------ the program
    def _version(self, message: messages.Version) -> None:
        self.replica.changed(message.version, message.databases)
        self.send(messages.Acknowledge(message.version))

    def _forget(self, message: messages.Forget) -> None:
        self.replica.forget(message.view)

    def hit(self, known: KnownSelect, values: Sequence[Any], unseen: SessionWrites) -> ResultSet | Lacks:
        return None  # this host has no shared memory of the workers

    # ------------------------------------------------------------ counts
    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_S)
            selects, self.selects = self.selects, 0
            clients = 0 if self._server is None else len(self._server.connections)
            self.send(messages.Counters(selects, {}, {}, clients, 0, private_bytes(os.getpid()),
                                        self.sessions.guard.taken()))


def _set_outcome(answer: asyncio.Future[Any], result: Callable[[], Any]) -> None:
    if answer.done():
        return
    try:
        answer.set_result(result())
    except asyncio.CancelledError:
        answer.cancel()
    except Exception as e:
        answer.set_exception(e)


# ---------------------------------------------------------------- the process
def serve(settings: FarSettings, log_level: str) -> int:
    """Serve until SIGTERM; return the exit status."""
    os.umask(0o077)
    logging.basicConfig(level=log_level.upper(), stream=sys.stderr,
                        format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    raise_open_files()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(settings))
    except (FarCannotServe, CannotListen, SettingsError) as e:
        print(f"noria front-end: {e}", file=sys.stderr)
        return 1
    return 0


def _ready(address: tuple[str, int]) -> None:
    print(f"noria front-end ready mysql={address[0]}:{address[1]}", flush=True)


async def _serve(settings: FarSettings) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    front = FarFront(settings, _ready)
    loop.add_signal_handler(signal.SIGHUP, front.reload)
    running, stopping = asyncio.ensure_future(front.run()), asyncio.ensure_future(stop.wait())
    await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        running.result()
    await front.stop()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


__all__ = ["FarCannotServe", "FarFront", "FarSettings", "serve"]
