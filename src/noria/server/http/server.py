"""Runs uvicorn in the node's own event loop: started with a bound socket, stopped without signals.

`HttpConnection` is uvicorn's HTTP protocol with two additions: TLS on the same port (the first byte of a connection
decides), and deadlines for stalled clients.

Keeps true:

* A connection ends if a head takes longer than `HTTP_HEAD_S`.  It also ends if a body, or the reading of its answer,
  moves fewer than `STALL_BYTES` in `STALL_S`.
* A rejected body is discarded for at most `HTTP_LINGER_S`.
* Answers without a handler are JSON, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import h11
import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol

from noria.core import limits
from noria.server.tls import HANDSHAKE, Certificates, TlsTransport

log = logging.getLogger(__name__)
STOP_S = 5  # a request that takes longer than this after a stop is cut off


@dataclass(frozen=True)
class HttpLimits:
    """The limits of a connection; see `core/limits.py` for the reasons."""

    connections: int = limits.HTTP_CONNECTIONS
    head_s: float = limits.HTTP_HEAD_S
    idle_s: float = limits.HTTP_IDLE_S
    linger_s: float = limits.HTTP_LINGER_S
    stall_s: float = limits.STALL_S
    stall_bytes: int = limits.STALL_BYTES


class HttpConnection(H11Protocol):
    """One connection.  `_timer`: the deadline of the current wait; `_stalled`: runs while the client does not read."""

    def __init__(self, certificates: Certificates | None, bounds: HttpLimits, **config: Any) -> None:
        super().__init__(**config)
        self._certificates, self._bounds = certificates, bounds
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._waits_for = ""  # "head", "body" or "" for neither
        self._received = self._unread = 0
        self._begun = False

    # ------------------------------------------------------------ events of the loop
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) > self._bounds.connections:
            self._refuse(503, "too many connections: close some, or wait for others to")
            return
        self._wait("head")

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            if self._certificates is not None and data[0] == HANDSHAKE:
                self._secure(data, self._certificates)
                return
        if self.transport.is_closing():
            return
        self._received += len(data)
        super().data_received(data)
        self._look(True)

    def _secure(self, data: bytes, certificates: Certificates) -> None:
        secured = TlsTransport(self.transport, self, certificates.context)
        self.transport, self.flow, self.scheme = secured, FlowControl(secured), "https"
        secured.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._timer, self._stalled, self.timeout_keep_alive_task):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look(False)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.transport.get_write_buffer_size()
        self._stalled = self.loop.call_later(self._bounds.stall_s, self.reads)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()

    def send_400_response(self, msg: str) -> None:
        """Reject bytes that are no request, or a head that is too large."""
        too_large = len(self.conn.trailing_data[0]) > limits.HTTP_HEAD_BYTES
        self._refuse(431 if too_large else 400, f"a request's head has at most {limits.HTTP_HEAD_BYTES} bytes"
                     if too_large else "this is no HTTP request")

    def _refuse(self, status: int, message: str) -> None:
        """Send an error without a handler, and close the connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # the handler's answer is discarded
            self.cycle.message_event.set()
        body = json.dumps({"error": {"code": 1105, "sqlstate": "HY000", "message": message}}).encode()
        headers = [("content-type", "application/json"), ("content-length", str(len(body))), ("connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):  # amid another answer
            for event in (h11.Response(status_code=status, headers=headers), h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    # ------------------------------------------------------------ deadlines
    def _look(self, came: bool) -> None:
        """Set the deadline for the client's next part: a head or a body.  came: bytes arrived, so a head has begun if
        no request is running."""
        theirs = self.conn.their_state
        if theirs is h11.SEND_BODY:
            self._wait("refused" if self.conn.our_state is h11.DONE else "body")
        elif theirs is h11.IDLE and (came or self.conn.trailing_data[0]):
            self._wait("head")
        else:
            self._wait("")

    def _wait(self, what: str) -> None:
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what:
            then: Callable[[], None] = partial(self.goes_on, self._received) if what == "body" else self.late
            self._timer = self.loop.call_later(self._seconds(what), then)

    def _seconds(self, what: str) -> float:
        return {"head": self._bounds.head_s, "body": self._bounds.stall_s, "refused": self._bounds.linger_s}[what]

    def late(self) -> None:
        """End a connection whose head, or whose rejected body, took too long."""
        log.info("an HTTP client ends: %s", f"the {self._waits_for} took too long" if self._waits_for else "idle")
        self.transport.abort() if self._waits_for == "head" else self.transport.close()

    def goes_on(self, received: int) -> None:
        """Abort if the body grew by fewer than `stall_bytes` since the last call, unless reading is paused."""
        if self._received - received < self._bounds.stall_bytes and not self.flow.read_paused:
            log.info("an HTTP client ends: its body does not go on")
            self.transport.abort()
            return
        self._timer = self.loop.call_later(self._bounds.stall_s, partial(self.goes_on, self._received))

    def reads(self) -> None:
        """Abort if the client read fewer than `stall_bytes` of its answer since the last call."""
        left = self.transport.get_write_buffer_size()
        if self._unread - left < self._bounds.stall_bytes:
            log.info("an HTTP client ends: it does not read its answer")
            self.transport.abort()
            return
        self._unread = left
        self._stalled = self.loop.call_later(self._bounds.stall_s, self.reads)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do not handle signals: the node does."""
        yield


class HttpServer:
    """A server for an application, on a socket that is bound already.  certificates: None without TLS."""

    def __init__(self, app: Starlette, certificates: Certificates | None = None, bounds: HttpLimits | None = None):
        bounds = bounds or HttpLimits()
        # proxy_headers=False: a client must not choose the address and scheme that the server sees.
        self._server = _Server(uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", ws="none", proxy_headers=False,
            http=cast(Any, partial(HttpConnection, certificates, bounds)), timeout_graceful_shutdown=STOP_S,
            timeout_keep_alive=cast(Any, bounds.idle_s), h11_max_incomplete_event_size=limits.HTTP_HEAD_BYTES))
        self._task: asyncio.Task[None] | None = None
        self.address = ("", 0)

    @property
    def connections(self) -> set[Any]:
        return self._server.server_state.connections

    async def start(self, bound: socket.socket) -> None:
        """Serve on a listening socket.  Clients that connected to it before are answered, too."""
        found, number = bound.getsockname()[:2]
        self.address = (str(found), int(number))
        self._task = asyncio.create_task(self._server.serve(sockets=[bound]))

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
