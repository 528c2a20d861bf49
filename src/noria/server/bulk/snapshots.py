"""Snapshots of the base tables that queries share.

Keeps true: a query's snapshot holds every write that was acknowledged before the query arrived.  At most one snapshot
is made at a time, and all queries that arrive meanwhile share the next one.  A snapshot is used again while nothing was
written since.  Its directory exists while a query uses it and at most SNAPSHOT_KEEP_S longer.  `close` removes a
snapshot that nobody uses.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from noria.core.errors import SqlError
from noria.core.errors.codes import UNKNOWN_ERROR
from noria.core.limits import (
    SNAPSHOT_AHEAD_BYTES,
    SNAPSHOT_AHEAD_S,
    SNAPSHOT_KEEP_S,
    SNAPSHOT_LOOK_MS,
    SNAPSHOT_WAIT_S,
)
from noria.dataflow.messages.packets import Done, Inspect, Snapshot
from noria.runtime.link.link import Link, WorkerUnavailable
from noria.server.bulk.job_directories import remove_directory


async def ahead(link: Link) -> None:
    """Let the workers write most of their unflushed rows to disk in the background, so that the next snapshot is quick.
    Ends after SNAPSHOT_AHEAD_S, even if rows are left."""
    loop, least = asyncio.get_running_loop(), 0
    until = loop.time() + SNAPSHOT_AHEAD_S
    while loop.time() < until:
        reply: Done = await link.ask(Inspect(0, "flush ahead", str(least)))
        if reply.result():
            break
        least = SNAPSHOT_AHEAD_BYTES
        await asyncio.sleep(SNAPSHOT_LOOK_MS / 1000)


async def taken(link: Link, packet: Snapshot) -> Any:
    """Make a snapshot for one job and return the value of the workers' reply.

    If cancelled, this returns when no worker is making the snapshot any more, so its files can be removed.
    """
    await ahead(link)
    request = asyncio.ensure_future(link.ask(packet))
    try:
        reply: Done = await asyncio.shield(request)
    except asyncio.CancelledError:
        await asyncio.wait((request,))
        raise
    return reply.result()


class _SharedSnapshot:
    """One snapshot.  users: the number of queries that use it.  requested: True once the workers have the request.

    changes: the link's number of changes at the request; None if a change was unanswered, so the snapshot may lack it.
    """

    def __init__(self, path: Path):
        self.path = path
        self.users = 0
        self.requested = False
        self.changes: int | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.taken: asyncio.Task[None]

    def failed(self) -> bool:
        return self.taken.done() and (self.taken.cancelled() or self.taken.exception() is not None)


class Snapshots:
    """Makes shared snapshots below a directory.  taken: the number of snapshots requested so far."""

    def __init__(self, link: Link, directory: Path):
        self._link, self._directory = link, directory
        self._numbers = itertools.count(1)
        self._newest: _SharedSnapshot | None = None
        self.taken = 0

    async def close(self) -> None:
        """Remove the snapshot that is kept for later queries.  A snapshot in use is removed after its last user."""
        kept, self._newest = self._newest, None
        if kept is None or kept.users or not kept.taken.done():
            return
        if kept.timer is not None:
            kept.timer.cancel()
        await asyncio.to_thread(remove_directory, kept.path)

    @asynccontextmanager
    async def use(self) -> AsyncIterator[str]:
        """Provide the path of a checkpoint that holds every write acknowledged by now.  It exists within the block.
        Raises SqlError if no worker makes a snapshot within SNAPSHOT_WAIT_S."""
        snapshot = self._fitting()
        snapshot.users += 1
        try:
            await asyncio.shield(snapshot.taken)
            yield str(snapshot.path)
        finally:
            snapshot.users -= 1
            self._left(snapshot)

    def _fitting(self) -> _SharedSnapshot:
        newest = self._newest
        changes = self._link.stats.changes
        if newest is not None and not newest.failed() and (not newest.requested or newest.changes == changes):
            return newest
        fresh = self._newest = _SharedSnapshot(self._place())
        fresh.taken = asyncio.create_task(self._take(fresh, newest))
        if newest is not None:
            self._left(newest)
        return fresh

    async def _take(self, fresh: _SharedSnapshot, before: _SharedSnapshot | None) -> None:
        if before is not None:
            with suppress(Exception):  # its own users get the error
                await asyncio.shield(before.taken)
        try:
            async with asyncio.timeout(SNAPSHOT_WAIT_S):
                reply = await self._checkpoint(fresh)
        except TimeoutError:
            raise SqlError(*UNKNOWN_ERROR, f"no worker took a snapshot of the tables within {SNAPSHOT_WAIT_S} s; "
                                           "try again") from None
        reply.result()

    async def _checkpoint(self, fresh: _SharedSnapshot) -> Done:
        """Request a checkpoint.  If the worker dies, remove its unfinished files and request one from its successor."""
        while True:
            await self._link.up()
            try:
                await ahead(self._link)
                fresh.requested, fresh.changes = True, self._link.stats.changes if self._link.is_idle() else None
                self.taken += 1
                reply: Done = await self._link.ask(Snapshot(0, str(fresh.path)))
                return reply
            except WorkerUnavailable:
                await asyncio.to_thread(remove_directory, fresh.path)
                fresh.path = self._place()

    def _place(self) -> Path:
        return self._directory / f"shared-{next(self._numbers)}"

    def _left(self, snapshot: _SharedSnapshot) -> None:
        """Remove the snapshot if nobody uses it.  The newest one is kept for SNAPSHOT_KEEP_S."""
        if snapshot.users:
            return
        if not snapshot.taken.done():
            snapshot.taken.add_done_callback(lambda _: self._left(snapshot))
        elif snapshot is self._newest and snapshot.changes is not None and not snapshot.failed():
            if snapshot.timer is not None:
                snapshot.timer.cancel()
            snapshot.timer = asyncio.get_running_loop().call_later(SNAPSHOT_KEEP_S, self._forget, snapshot)
        else:
            self._forget(snapshot)

    def _forget(self, snapshot: _SharedSnapshot) -> None:
        if snapshot.users:
            return
        if self._newest is snapshot:
            self._newest = None
        asyncio.get_running_loop().run_in_executor(None, remove_directory, snapshot.path)
