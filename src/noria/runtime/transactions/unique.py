"""Checks, before a table with rows gets a UNIQUE index, that each value exists once among all workers.
Call `UniqueIndexCheck.compare`, then `end`.

    each worker has checked its own rows (`CheckRowsFit`) ─► records writes ─► slices of all workers' values, in
    order, and the recorded writes are compared ─► the last recorded writes, while nothing is written

Keeps true: two rows with one value are detected, whenever they were written. The later row is in a slice or
recorded, and is searched for at all other workers after it was written. At most some thousand values are in
memory. A value that occurs twice is checked again while nothing is written: its row may have been moving
between two workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from noria.core.errors import SqlError, view_changed
from noria.core.limits import COMPARED_LAST
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, UniqueEntries
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.transactions.two_phase_commit import PlanningLink

_BYTES = 16  # of an entry's hash
Still = Callable[[], AbstractAsyncContextManager[Any]]  # while it lasts nothing is written


@dataclass(frozen=True)
class UniqueIndexCheck:
    """The future index of these columns of the table. Methods raise the SqlError that prevents it."""

    links: Sequence[PlanningLink]
    table: TableDef
    columns: tuple[int, ...]

    async def compare(self, still: Still) -> None:
        """Compare all values while the table is written."""
        await self._all("begin")
        after = b""
        while True:
            edge = min((e for e in await self._all("edge", after) if e), default=b"")
            await self._slice(after, edge, still)
            await self.catch_up(still)
            if not edge:
                return
            after = edge

    async def _slice(self, after: bytes, edge: bytes, still: Still) -> None:
        hashes = await self._all("within", after, edge)
        each, counts = np.unique(np.frombuffer(b"".join(hashes), f"V{_BYTES}"), return_counts=True)
        for hash in each[counts > 1].tolist():
            entry = max(await self._all("like", after, edge, hash))
            if entry:
                await self._look_again(entry, still)

    async def catch_up(self, still: Still) -> None:
        """Compare recorded writes until few are left."""
        for worker in range(len(self.links)):
            left = COMPARED_LAST + 1
            while left > COMPARED_LAST:
                entries, left = await self._request(worker, "noted")
                await self._look_for(worker, entries, still)

    async def _look_for(self, worker: int, entries: Sequence[bytes], still: Still) -> None:
        """Search for these entries at the other workers."""
        if entries:
            others = [w for w in range(len(self.links)) if w != worker]
            for held in await asyncio.gather(*(self._request(w, "held", *entries) for w in others)):
                for n in held:
                    await self._look_again(entries[n], still)

    async def _look_again(self, entry: bytes, still: Still) -> None:
        async with still():
            held = await self._all("held", entry)
            if sum(map(len, held)) > 1:
                await self._request(max(w for w, h in enumerate(held) if h), "named", entry)

    async def end(self) -> None:
        """Compare the last recorded writes. Nothing may be written meanwhile."""
        for worker in range(len(self.links)):
            left = 1
            while left:
                entries, left = await self._request(worker, "noted")
                await self._look_for(worker, entries, _still)

    async def _all(self, what: str, *arguments: bytes) -> list[Any]:
        return list(await asyncio.gather(*(self._request(w, what, *arguments) for w in range(len(self.links)))))

    async def _request(self, worker: int, what: str, *arguments: bytes) -> Any:
        """Send a request to one worker. SqlError 1412 if it is lost: its next life has not checked its rows, and writes
        must not wait for that."""
        try:
            reply: Done = await self.links[worker].ask(UniqueEntries(0, self.table, self.columns, what, arguments))
        except WorkerUnavailable:
            raise view_changed(self.table.name) from None
        if reply.error is not None:
            raise reply.error
        return reply.value


async def compared(fits: Done, unique: Iterable[UniqueIndexCheck], still: Still) -> Done:
    """Combine the workers' checks of their own rows with the comparison among workers."""
    try:
        for u in unique if fits.error is None else ():
            await u.compare(still)
    except SqlError as error:
        return replace(fits, error=error)
    return fits


@asynccontextmanager
async def _still() -> AsyncIterator[None]:
    """A context for a moment at which writes are already paused."""
    yield
