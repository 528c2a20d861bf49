"""A server on a thread of its own, which tests call through its event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Self

import uvloop


class ServerThread:
    """A context manager: `start` listens and returns the port, and `stop` closes the server."""

    def __init__(self) -> None:
        self.loop, self.port = uvloop.new_event_loop(), 0

    async def start(self) -> int:
        raise NotImplementedError

    async def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        started = threading.Event()

        def run() -> None:
            asyncio.set_event_loop(self.loop)
            self.port = self.loop.run_until_complete(self.start())
            started.set()
            self.loop.run_forever()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert started.wait(20)
        return self

    def __exit__(self, *exc: object) -> None:
        self.call(self.stop)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)
        self.loop.close()

    def call(self, function: Callable[[], Awaitable[Any]]) -> Any:
        """Run a coroutine function on the server's loop."""

        async def run() -> Any:
            return await function()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(30)
