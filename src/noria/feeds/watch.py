"""Wakes those who wait for a feed when its worker writes, by Linux's inotify instead of polling."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from pathlib import Path

from asyncinotify import Inotify, Mask

from noria.core.limits import FEED_LOOK_S


class WatcherClosed(Exception):
    """The watch was closed."""


class FeedWatcher:
    """Watches the feeds' files of one directory."""

    def __init__(self, directory: Path):
        self._directory, self._task, self._closed = directory, None, False
        self._waiting: defaultdict[str, set[asyncio.Future[None]]] = defaultdict(set)

    _task: asyncio.Task[None] | None

    def listen(self, path: Path) -> asyncio.Future[None]:
        """Return a future that is done at the file's next change, or after FEED_LOOK_S.  Call this before you read the
        file, so that no change is missed.  Raises Closed."""
        if self._closed:
            raise WatcherClosed
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._watch())
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        name = f"{path.name}-wal"
        self._waiting[name].add(future)
        timer = loop.call_later(FEED_LOOK_S, _done, future)

        def over(_: asyncio.Future[None]) -> None:
            timer.cancel()
            self._waiting[name].discard(future)

        future.add_done_callback(over)
        return future

    async def _watch(self) -> None:
        """Wake those who wait.  If inotify fails (too many watches, no directory), their timers wake them."""
        with contextlib.suppress(OSError), Inotify() as changes:
            changes.add_watch(self._directory, Mask.MODIFY | Mask.CREATE | Mask.MOVED_TO)
            async for change in changes:
                for future in list(self._waiting.pop(str(change.name), ())):
                    _done(future)

    async def close(self) -> None:
        """Stop watching.  Present and later waits raise `WatcherClosed`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        for future in [f for futures in self._waiting.values() for f in futures]:
            if not future.done():
                future.set_exception(WatcherClosed())


def _done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
