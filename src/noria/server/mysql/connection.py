"""The MySQL protocol on sockets: one `Connection` per client, on any asyncio loop (uvloop in production).

A command that the backend answers at once is read, answered and written in one call of `data_received`, without a task
or a queue.  While a command waits for its answer, the client's next commands remain unparsed bytes.  They are answered
in order.

Keeps true:

* The server stops reading from a client that does not read its replies.  The bytes held for a client are bounded
  (`limits.MAX_PACKET_BYTES` and a read-ahead).
* A client that breaks the protocol, falls silent, stops within a packet or no longer reads loses only its own
  connection.
* After a request for TLS all bytes are TLS.
* A bug during a command is that command's error, and is logged.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from noria.accounts.logins import Logins
from noria.core import limits
from noria.core.errors import SqlError, internal_error
from noria.core.errors.codes import CON_COUNT_ERROR
from noria.server.logins import LoginGuard
from noria.server.mysql import auth, codec
from noria.server.mysql.auth import Account
from noria.server.mysql.session import Conversation, PendingReply, Reply, TlsState
from noria.server.mysql.streaming import StreamTurns
from noria.server.outcomes import Backend, Stream
from noria.server.tls import Certificates, TlsTransport

log = logging.getLogger(__name__)

MOST_BUGS = 100  # after so many internal errors the connection is closed
_WRITE_BYTES = 256 * 1024  # replies to pipelined commands are written in chunks of about this size


@dataclass(frozen=True)
class MysqlLimits:
    """The limits of a connection; see `core/limits.py` for the reasons."""

    packet_bytes: int = limits.MAX_PACKET_BYTES
    connections: int = limits.MYSQL_CONNECTIONS
    handshake_s: float = limits.MYSQL_HANDSHAKE_S
    idle_s: float = limits.MYSQL_IDLE_S
    stall_s: float = limits.STALL_S
    stall_bytes: int = limits.STALL_BYTES
    write_s: float = limits.MYSQL_WRITE_S


class MysqlServer:
    """A listening server and its connections.  certificates: None without TLS."""

    def __init__(self, backend: Backend, users: Mapping[str, Account] | Logins, bounds: MysqlLimits,
                 certificates: Certificates | None = None, tls_required: bool = False,
                 ids: Iterator[int] | None = None, guard: LoginGuard | None = None) -> None:
        self.backend, self.bounds, self.certificates = backend, bounds, certificates
        self.guard = guard or LoginGuard()
        offered = TlsState.REQUIRED if tls_required else TlsState.OFFERED
        self.tls_state = TlsState.NONE if certificates is None else offered
        self.key = auth.ServerKey()
        self.directory = auth.Directory(users, self.key)
        self.connections: set[Connection] = set()
        self.turns = StreamTurns()
        self.ids = ids or itertools.count(1)
        self._server: asyncio.Server | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    def admit(self, users: Mapping[str, Account] | Logins) -> None:
        """Let other accounts log in from now on."""
        self.directory.accounts = users

    async def start(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), sock=bound, backlog=limits.BACKLOG)

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the listening socket."""
        assert self._server is not None
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Accept no more clients.  Disconnect idle clients now, and the others once they have their answer."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.finish()

    def abort(self) -> None:
        """Disconnect all clients at once, answered or not."""
        for connection in tuple(self.connections):
            connection.abort()

    def hang_up(self, number: int) -> bool:
        """Close the connection with this number.  Return False if none has it."""
        found = next((c for c in self.connections if c.number == number), None)
        if found is not None:
            found.kill()
        return found is not None

    async def wait_closed(self) -> None:
        """Wait until the last client has disconnected."""
        await self._empty.wait()
        if self._server is not None:
            await self._server.wait_closed()

    async def stop(self, within_s: float) -> None:
        """Close, and disconnect the clients that are not answered within this time."""
        self.close()
        try:
            await asyncio.wait_for(self.wait_closed(), within_s)
        except TimeoutError:
            self.abort()

    def joined(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._empty.clear()

    def left(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if not self.connections:
            self._empty.set()


async def listen(bound: socket.socket, backend: Backend, users: Mapping[str, Account] | Logins,
                 bounds: MysqlLimits | None = None,
                 certificates: Certificates | None = None, tls_required: bool = False,
                 ids: Iterator[int] | None = None, guard: LoginGuard | None = None) -> MysqlServer:
    """Serve the backend to MySQL clients of a listening socket.

    users: the accounts; or name -> `auth.account(password)`, where "" admits users without an account of their own.

    ids: the numbers of connections, by default from 1.  guard: may be shared by several servers.
    """
    server = MysqlServer(backend, users, bounds or MysqlLimits(), certificates, tls_required, ids, guard)
    if (any(e.plugin == auth.SHA2 for e in users.known) if isinstance(users, Logins) else
            any(a.salted is not None for a in users.values())):
        await asyncio.get_running_loop().run_in_executor(None, server.key.prepare)
    await server.start(bound)
    return server


class Connection(asyncio.Protocol):
    """One client's socket: bytes to the conversation and back."""

    _transport: asyncio.Transport
    _conversation: Conversation
    _loop: asyncio.AbstractEventLoop
    _waiting: PendingReply  # the reply that needs the result of `_pending`

    def __init__(self, server: MysqlServer) -> None:
        self._server = server
        self._unframer = codec.Unframer(min(limits.MYSQL_HANDSHAKE_BYTES, server.bounds.packet_bytes))
        self._pending: asyncio.Future[Any] | None = None
        self._full = False  # the client does not read its replies
        self._client_sent = True  # the client sent bytes since the last `look`
        self._finishing = self._admitted = False
        self._bugs = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None  # runs while a packet is incomplete
        self._unread: asyncio.TimerHandle | None = None  # runs while the client does not read
        self._received = 0  # bytes received, without commands that arrived in one read
        self._stream: Stream | None = None  # the large reply that is being sent
        self._pulls = False  # its next chunk is requested

    # --- Events of the loop ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server, peer = self._server, transport.get_extra_info("peername")
        address = str(peer[0]) if peer else "localhost"
        self._conversation = Conversation(server.backend, server.directory, next(server.ids), address, auth.nonce(),
                                          server.guard, server.tls_state)
        failure = self._refusal()
        server.joined(self)
        if failure is not None:
            self._transport.write(codec.frame(codec.error(failure), 0))
            self._conversation.judged = True
            self._hang_up()
            return
        self._transport.write(self._conversation.greeting())
        self._set_timer(server.bounds.handshake_s, self.look)

    def _refusal(self) -> SqlError | None:
        """Return why this connection is refused, or None."""
        if len(self._server.connections) >= self._server.bounds.connections:
            return SqlError(*CON_COUNT_ERROR, "Too many connections; close some, or wait for others to")
        try:
            self._server.guard.check_host(self._conversation.address)
        except SqlError as blocked:
            return blocked
        return None

    def data_received(self, data: bytes) -> None:
        conversation = self._conversation
        if (self._pending is None and conversation.ready and self._unframer.clean
                and not self._full and len(data) > 4
                and int.from_bytes(data[:4], "little") == len(data) - 4 < codec.MAX_PAYLOAD):
            # Nearly every read is one complete command, numbered 0 (the header's fourth byte).
            self._client_sent = True
            try:
                reply = conversation.command(data[4:])
            except Exception as bug:
                self._bug(bug)
                return
            if type(reply) is not bytes:
                self._begin(reply)
                return
            self._transport.write(reply)
            if conversation.closed:
                self._hang_up()
            return
        self._client_sent = True
        self._received += len(data)
        self._unframer.feed(data)
        self._pump()
        if self._stalled is None and not self._unframer.clean and self._admitted:
            self._stalled = self._loop.call_later(self._server.bounds.stall_s, self.goes_on, self._received)

    def eof_received(self) -> None:
        """Do nothing: the client will send nothing more, and the transport closes itself."""

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._stalled, self._unread):
            if timer is not None:
                timer.cancel()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._conversation.close()
        self._server.left(self)
        if not self._conversation.judged and not self._finishing:
            self._server.guard.interrupted(self._conversation.address)

    def pause_writing(self) -> None:
        self._full = True
        self._transport.pause_reading()
        self._watch_reader()

    def resume_writing(self) -> None:
        self._full = False
        if self._unread is not None:
            self._unread.cancel()
        self._pull_soon()
        self._pump()
        self._regulate()

    # --- Commands in order -----------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Answer the complete packets, until one must wait.  Many small replies are sent with one write."""
        out: list[bytes] = []
        size, waiting, conversation = 0, None, self._conversation
        secret = conversation.tls_state is TlsState.TLS
        try:
            while waiting is None and not self._full and not conversation.closed:
                reply = self._next_reply()
                if reply is None:
                    break
                if not isinstance(reply, bytes):
                    waiting = reply
                else:
                    out.append(reply)
                    size += len(reply)
                if not secret and conversation.tls_state is TlsState.TLS:
                    self._secure()
                    return
                if conversation.ready and not self._admitted:
                    self._admit()
                if size > _WRITE_BYTES:
                    self._transport.write(b"".join(out))
                    out, size = [], 0
        except Exception as bug:
            self._transport.write(b"".join(out))
            self._bug(bug)
            return
        if out:
            self._transport.write(b"".join(out))
        if waiting is not None:
            self._begin(waiting)
        if conversation.closed:
            self._hang_up()
        self._regulate()

    def _next_reply(self) -> Reply | None:
        """Return the reply to the next complete packet; None if no packet is complete or a command waits."""
        if self._pending is not None:
            return None
        try:
            packet = self._unframer.next()
        except SqlError as failure:
            return self._conversation.refuse(failure)
        return None if packet is None else self._conversation.receive(packet)

    def _secure(self) -> None:
        """Decrypt all bytes from now on, because the client requested TLS.  Bytes received with the request are TLS,
        too."""
        certificates = self._server.certificates
        assert certificates is not None
        secured = TlsTransport(self._transport, self, certificates.context)
        self._transport = secured
        secured.data_received(self._unframer.take_all())

    def _admit(self) -> None:
        """Apply the bounds of a logged-in client: packet size and idle time."""
        self._admitted = True
        self._server.guard.connected(self._conversation.address)
        self._unframer.limit = self._server.bounds.packet_bytes
        self._set_timer(self._server.bounds.idle_s, self.look)

    def _begin(self, reply: Reply) -> None:
        """Wait for a reply that is not known yet, or begin to send a large one."""
        if isinstance(reply, PendingReply):
            self._wait(reply)
        elif not isinstance(reply, bytes):
            self._send(reply)

    def _wait(self, waiting: PendingReply) -> None:
        awaitable = waiting.awaitable
        if not asyncio.isfuture(awaitable):
            awaitable = asyncio.ensure_future(_awaited(awaitable))
        self._pending, self._waiting = awaitable, waiting
        awaitable.add_done_callback(self._reply_ready)

    def _reply_ready(self, done: asyncio.Future[Any]) -> None:
        self._pending, waiting = None, self._waiting
        if self._conversation.closed:
            if not done.cancelled() and done.exception() is not None:
                log.info("a statement of a client that is gone failed: %r", done.exception())
            return
        try:
            try:
                reply = waiting.encode(done)
            except SqlError as failure:
                reply = waiting.refuse(failure)
        except (Exception, asyncio.CancelledError) as bug:
            self._bug(bug)
            return
        if not isinstance(reply, bytes):
            self._begin(reply)
            return
        self._transport.write(reply)
        if self._conversation.ready and not self._admitted:
            self._admit()
        if self._unread is not None and self._full:  # this reply added unread bytes: measure from now on
            self._unread.cancel()
            self._watch_reader()
        if self._finishing or self._conversation.closed:
            self._hang_up()
        elif not self._unframer.clean:
            self._pump()

    # --- Large replies ---------------------------------------------------------------------------------------

    def _send(self, stream: Stream) -> None:
        """Send a reply in chunks.  The client's next commands wait for its end."""
        self._stream, self._pending = stream, self._loop.create_future()
        self._pull_soon()

    def _pull_soon(self) -> None:
        """Request the next chunk, if the client has read enough."""
        if self._stream is not None and not self._pulls and not self._full:
            self._pulls = True
            self._server.turns.add(self._pull)

    def _pull(self) -> None:
        if self._stream is None:
            self._pulls = False
            return
        try:
            self._stream.pull(self._sent)
        except Exception:  # the protocol has no error packet between rows for this
            log.exception("connection %d: a large reply could not be made and is cut off", self.number)
            self.abort()

    def _sent(self, chunk: bytes | None) -> None:
        """Write the next chunk; None: the reply is complete."""
        self._pulls = False
        if self._stream is None or self._transport.is_closing():
            return
        if chunk is not None:
            self._transport.write(chunk)
            self._pull_soon()
            return
        self._stream = self._pending = None
        if self._finishing:
            self._hang_up()
        elif not self._unframer.clean:
            self._pump()
        self._regulate()

    def _regulate(self) -> None:
        """Read from the client, unless it does not read its replies or is far ahead of its answers."""
        ahead = self._pending is not None and self._unframer.buffered > limits.MYSQL_READ_AHEAD_BYTES
        if self._transport.is_closing():
            return
        if self._full or ahead:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- Ends ------------------------------------------------------------------------------------------------

    @property
    def number(self) -> int:
        return self._conversation.connection_id

    def finish(self) -> None:
        """Hang up once the running command has its answer, because the server closes."""
        self._finishing = True
        if self._pending is None:
            self._hang_up()

    def kill(self) -> None:
        """End the connection (KILL).  A large reply is cut off; any other reply is sent first."""
        if self._stream is not None:
            self.abort()
        else:
            self.finish()

    def abort(self) -> None:
        self._conversation.close()
        self._transport.abort()

    def _hang_up(self) -> None:
        self._conversation.close()
        self._transport.close()

    def _bug(self, bug: BaseException) -> None:
        """Log an internal error under a number and send the client an error with this number.  A client that has not
        logged in is disconnected."""
        bugs = next(self._bugs)
        number = f"M{self.number}.{bugs}"
        log.error("internal error %s: a command could not be answered", number, exc_info=bug)
        self._transport.write(self._conversation.refuse(internal_error(number)))
        if self._conversation.closed or self._finishing or bugs > MOST_BUGS:
            self._hang_up()
        elif not self._unframer.clean:
            self._loop.call_soon(self._pump)

    def _set_timer(self, seconds: float, then: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, then)

    def look(self) -> None:
        """Abort a client that has not logged in in time, or sent nothing since the last call.  It gets no error, which
        it would not read."""
        if not self._admitted or not (self._client_sent or self._pending):
            log.info("connection %d: %s", self._conversation.connection_id,
                     "silent for too long" if self._admitted else "no login in time")
            self.abort()
            return
        self._client_sent = False
        self._set_timer(self._server.bounds.idle_s, self.look)


    def goes_on(self, received: int) -> None:
        """Abort a client whose incomplete packet does not grow.  It may wait for an answer, or for its own reading."""
        self._stalled = None
        if self._unframer.clean:
            return
        moves = self._received - received >= self._server.bounds.stall_bytes
        if not moves and self._pending is None and not self._full:
            log.info("connection %d: a packet has begun and does not go on", self._conversation.connection_id)
            self.abort()
            return
        self._stalled = self._loop.call_later(self._server.bounds.stall_s, self.goes_on, self._received)

    def _watch_reader(self) -> None:
        self._unread = self._loop.call_later(self._server.bounds.write_s, self.reads,
                                             self._transport.get_write_buffer_size())

    def reads(self, unread: int) -> None:
        """Abort a client that has read less than `stall_bytes` of its replies since the last call."""
        left = self._transport.get_write_buffer_size()
        if unread - left < self._server.bounds.stall_bytes:
            log.info("connection %d: its client does not read its replies", self._conversation.connection_id)
            self.abort()
            return
        self._watch_reader()


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
