"""Fills missing keys of views: keys that clients miss while others are being filled share a packet and an upquery.

    add       a client misses a key: it leaves with the others of this turn of the loop, or behind those under way
    soon      done when the key is filled, or late: after SOON_S the client must wait by other means
    answered  done when the worker has answered

A client waits for `soon` without a task of its own. There is no other timer: if fewer than `FILL_PACKETS` are under
way, a key leaves at once.

Keeps true: while a key is under way, no second request for it leaves (ONE-REQUEST). A lost worker answers nothing, so
its keys are read again, each by itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from noria.core.errors import SqlError
from noria.dataflow.messages.packets import FillKeys
from noria.runtime.link.change_queue import WorkerUnavailable

FILL_PACKETS = 2  # under way for one view at one worker; further keys share the next one
FILL_TOGETHER = 128  # keys of one packet: an upquery of some milliseconds
SOON_S = 0.02  # a client that waits longer can be stopped, and is listed with what it waits for

Key = tuple[Any, ...]


class FillingWorker(Protocol):
    """The link of one worker."""

    async def ask(self, body: FillKeys, retry: bool = False) -> Any: ...


class KeyFill:
    """One packet. `soon`: True once its keys are filled; False if they are late, or must be read by themselves.
    `answered`: True or False when that is known."""

    __slots__ = ("answered", "keys", "soon", "timer")

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.keys: list[Key] = []
        self.soon: asyncio.Future[bool] = loop.create_future()
        self.answered: asyncio.Future[bool] = loop.create_future()
        self.timer = loop.call_later(SOON_S, self._late)

    def _late(self) -> None:
        if not self.soon.done():
            self.soon.set_result(False)

    def answer(self, filled: bool) -> None:
        self.timer.cancel()
        self.answered.set_result(filled)
        if not self.soon.done():
            self.soon.set_result(filled)


class _ViewFills:
    """The keys of one view at one worker: those that wait, and those under way."""

    def __init__(self) -> None:
        self.by_key: dict[Key, KeyFill] = {}
        self.waiting: deque[KeyFill] = deque()
        self.flying = 0
        self.leaves = False  # at the end of this turn of the loop


class KeyFills:
    """See the module. `workers`: returns all workers by number."""

    def __init__(self, workers: Callable[[], Sequence[FillingWorker]]):
        self._workers = workers
        self._views: dict[tuple[int, str, int], _ViewFills] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def find(self, worker: int, view: str, definition: int, key: Key) -> KeyFill | None:
        """The packet that the key waits for or is in; None if there is none."""
        fills = self._views.get((worker, view, definition))
        return None if fills is None else fills.by_key.get(key)

    def add(self, worker: int, view: str, definition: int, limit_ms: int, key: Key) -> KeyFill:
        """Let the worker fill a key that `find` does not find."""
        place = worker, view, definition
        fills = self._views.get(place)
        if fills is None:
            fills = self._views[place] = _ViewFills()
        loop = asyncio.get_running_loop()
        if not fills.waiting or len(fills.waiting[-1].keys) >= FILL_TOGETHER:
            fills.waiting.append(KeyFill(loop))
        fill = fills.by_key[key] = fills.waiting[-1]
        fill.keys.append(key)
        if not fills.leaves:
            fills.leaves = True
            loop.call_soon(self._leave, place, fills, limit_ms)
        return fill

    def _leave(self, place: tuple[int, str, int], fills: _ViewFills, limit_ms: int) -> None:
        fills.leaves = False
        while fills.waiting and fills.flying < FILL_PACKETS:
            fills.flying += 1
            task = asyncio.ensure_future(self._ask(place, fills, fills.waiting.popleft(), limit_ms))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, place: tuple[int, str, int], fills: _ViewFills, fill: KeyFill, limit_ms: int) -> None:
        worker, view, definition = place
        filled = False
        try:
            with suppress(WorkerUnavailable, SqlError):
                reply = await self._workers()[worker].ask(FillKeys(0, view, definition, limit_ms, tuple(fill.keys)))
                filled = reply.result() is True
        finally:
            for key in fill.keys:
                fills.by_key.pop(key, None)
            fills.flying -= 1
            fill.answer(filled)
            if fills.waiting:
                self._leave(place, fills, limit_ms)
            elif not fills.flying:
                self._views.pop(place, None)


__all__ = ["KeyFill", "KeyFills"]
