"""Limits the bytes that all large results together may use in a front end. Call `ResultMemory.lease`, then
`MemoryLease.cover`.

Keeps true: reserved bytes are returned when their `MemoryLease` is dropped, however that happens. Waiting results are
served in order of arrival. A result larger than the limit has the memory alone. Large results leave a quarter of it
to small ones.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from noria.core.limits import RESULT_SHARE, RESULTS_BYTES


class ResultMemory:
    """The memory for results. `limit`: bytes."""

    def __init__(self, limit: int = RESULTS_BYTES):
        self._limit = limit
        self.reserved = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def lease(self) -> MemoryLease:
        """An empty lease."""
        return MemoryLease(self)

    async def reserve(self, nbytes: int) -> None:
        """Wait until so many bytes are reserved for the caller."""
        if self._fits(nbytes) and (not self._waiting or self._is_small(nbytes)):
            self.reserved += nbytes
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((nbytes, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(nbytes)
            else:
                self._waiting = deque(w for w in self._waiting if w[1] is not turn)
                self._look()
            raise

    def release(self, nbytes: int) -> None:
        """Return reserved bytes, and serve the results that now fit."""
        self.reserved -= nbytes
        self._look()

    def _look(self) -> None:
        """Serve the waiting results that fit, in order."""
        while self._waiting and self._fits(self._waiting[0][0]):
            nbytes, turn = self._waiting.popleft()
            if not turn.done():
                self.reserved += nbytes
                turn.set_result(None)

    def _is_small(self, nbytes: int) -> bool:
        return nbytes <= RESULT_SHARE * self._limit

    def _fits(self, nbytes: int) -> bool:
        limit = self._limit if self._is_small(nbytes) else self._limit * 3 // 4
        return not self.reserved or self.reserved + nbytes <= limit


class MemoryLease:
    """Reserved bytes of the memory for results, until this object is dropped. Parts of one result share a lease.
    Once the first part has memory, the others do not wait: they could be waiting for each other."""

    def __init__(self, room: ResultMemory):
        self._room, self._held = room, [0]
        self._turn = asyncio.Lock()
        weakref.finalize(self, _release_lease, room, self._held)

    @property
    def nbytes(self) -> int:
        return self._held[0]

    async def cover(self, nbytes: int) -> None:
        """Reserve so many more bytes; waits if these are the first."""
        async with self._turn:
            if self._held[0]:
                self._room.reserved += nbytes
            else:
                await self._room.reserve(nbytes)
            self._held[0] += nbytes


def _release_lease(room: ResultMemory, held: list[int]) -> None:
    room.release(held[0])
