"""Sends large replies in chunks.  The next chunk is encoded once the client has read enough of the earlier ones.

Keeps true: each turn of the event loop encodes one chunk of one connection, however many connections wait.  A
connection whose client does not read holds one chunk.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

Ready = Callable[[bytes | None], None]


class StreamTurns:
    """A queue of connections that wait for a chunk.  Each turn of the loop serves one."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def add(self, do: Callable[[], None]) -> None:
        self._waiting.append(do)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        do = self._waiting[0]
        try:
            do()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)


class EncodedStream:
    """A stream (`outcomes.Stream`) whose chunks are encoded in this process."""

    def __init__(self, chunks: Iterator[bytes]):
        self._chunks: Iterator[bytes] = chunks

    def pull(self, ready: Ready) -> None:
        ready(next(self._chunks, None))

    def close(self) -> None:
        self._chunks = iter(())
