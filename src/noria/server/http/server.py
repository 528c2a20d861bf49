"""uvicorn in the node's own event loop: started with a bound socket, stopped without signals."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette

STOP_S = 5  # a request that takes longer than this after a stop is cut off


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The node handles signals."""
        yield


class HttpServer:
    def __init__(self, app: Starlette):
        self._server = _Server(uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=STOP_S,
            timeout_keep_alive=75, h11_max_incomplete_event_size=64 * 1024))
        self._task: asyncio.Task[None] | None = None
        self.address = ("", 0)

    async def start(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((host, port))
            bound.listen(1024)  # whoever learns the address may connect at once
        except OSError:
            bound.close()
            raise
        found, number = bound.getsockname()[:2]
        self.address = (str(found), int(number))
        self._task = asyncio.create_task(self._server.serve(sockets=[bound]))

    async def stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task
