"""Slots for work that must not all run at once, with a queue of bounded length.

Keeps true: at most `slots` are in use.  Slots are assigned in the order of arrival; only work that is tried again has
priority.  A full queue raises an error at once.  A cancelled waiter leaves nothing behind.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """Assigns slots, within one event loop.  full: makes the error for a full queue."""

    def __init__(self, slots: int, queue: int, full: Callable[[], Exception]):
        self.slots, self.free = slots, slots
        self._queue, self._full = queue, full
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def must_wait(self) -> bool:
        return bool(self._waiting) or not self.free

    async def take(self) -> Callable[[], None]:
        """Wait for a slot; return the function that releases it, once however often it is called."""
        if not self.must_wait():
            return self._taken(1)
        if len(self._waiting) >= self._queue:
            raise self._full()
        return await self._wait(1, self._waiting.append)

    async def take_all(self) -> Callable[[], None]:
        """Wait, before all other waiters, until nothing else runs; return the function that releases all slots."""
        if self.free == self.slots:
            return self._taken(self.slots)
        return await self._wait(self.slots, self._waiting.appendleft)

    async def _wait(self, wanted: int, put: Callable[[tuple[int, asyncio.Future[None]]], None]) -> Callable[[], None]:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (wanted, turn)
        put(entry)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(entry)
            else:  # it was cancelled when it had already got the slots
                self.free += wanted
            self._next()
            raise
        return self._releaser(wanted)

    def _taken(self, wanted: int) -> Callable[[], None]:
        self.free -= wanted
        return self._releaser(wanted)

    def _releaser(self, wanted: int) -> Callable[[], None]:
        held = [wanted]

        def release() -> None:
            if held:
                self.free += held.pop()
                self._next()

        return release

    def _next(self) -> None:
        while self._waiting and self._waiting[0][0] <= self.free:
            wanted, turn = self._waiting.popleft()
            if not turn.done():
                self.free -= wanted
                turn.set_result(None)
