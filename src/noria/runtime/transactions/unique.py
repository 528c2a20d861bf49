"""A UNIQUE index that a table with rows is about to have: is each of its values there once among all workers?

    each worker has looked at its own rows (`Fit`) ─► notes what is written ─► slices of all workers' values, in order,
    and what was noted meanwhile, are compared ─► with nothing written any more, what was noted last

Keeps true: two rows with one value are found, whenever they were written: the later one is in a slice, or noted, and
was looked for at all others after it was there.  No more than some thousand values are in memory.  A value that is met
twice is looked at again while nothing is written, because a row may have been on its way from one worker to another.
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
from noria.dataflow.messages.packets import Done, Entries
from noria.runtime.link.changes import WorkerGone
from noria.runtime.transactions.two_phase_commit import Asked

_BYTES = 16  # of an entry's hash
Still = Callable[[], AbstractAsyncContextManager[Any]]  # while it lasts nothing is written


@dataclass(frozen=True)
class Unique:
    """The index of these columns that the table is to have.  Methods raise the SqlError that keeps it from that."""

    links: Sequence[Asked]
    table: TableDef
    columns: tuple[int, ...]

    async def compare(self, still: Still) -> None:
        """While the table is written."""
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
        found = await self._all("within", after, edge)
        each, counts = np.unique(np.frombuffer(b"".join(found), f"V{_BYTES}"), return_counts=True)
        for hash in each[counts > 1].tolist():
            entry = max(await self._all("like", after, edge, hash))
            if entry:
                await self._look_again(entry, still)

    async def catch_up(self, still: Still) -> None:
        """Little is left of what was noted."""
        for worker in range(len(self.links)):
            left = COMPARED_LAST + 1
            while left > COMPARED_LAST:
                entries, left = await self._ask(worker, "noted")
                await self._look_for(worker, entries, still)

    async def _look_for(self, worker: int, entries: Sequence[bytes], still: Still) -> None:
        """At the other workers."""
        if entries:
            others = [w for w in range(len(self.links)) if w != worker]
            for held in await asyncio.gather(*(self._ask(w, "held", *entries) for w in others)):
                for n in held:
                    await self._look_again(entries[n], still)

    async def _look_again(self, entry: bytes, still: Still) -> None:
        async with still():
            held = await self._all("held", entry)
            if sum(map(len, held)) > 1:
                await self._ask(max(w for w, h in enumerate(held) if h), "named", entry)

    async def end(self) -> None:
        """With nothing written any more."""
        for worker in range(len(self.links)):
            left = 1
            while left:
                entries, left = await self._ask(worker, "noted")
                await self._look_for(worker, entries, _still)

    async def _all(self, what: str, *given: bytes) -> list[Any]:
        return list(await asyncio.gather(*(self._ask(w, what, *given) for w in range(len(self.links)))))

    async def _ask(self, worker: int, what: str, *given: bytes) -> Any:
        """SqlError 1412 where it is lost: its next life has not looked at its rows, so nobody waits for that, least of
        all while nothing is written."""
        try:
            reply: Done = await self.links[worker].ask(Entries(0, self.table, self.columns, what, given))
        except WorkerGone:
            raise view_changed(self.table.name) from None
        if reply.error is not None:
            raise reply.error
        return reply.value


async def compared(fits: Done, unique: Iterable[Unique], still: Still) -> Done:
    """What each worker has found of its own rows, and then all of them of each other's."""
    try:
        for u in unique if fits.error is None else ():
            await u.compare(still)
    except SqlError as error:
        return replace(fits, error=error)
    return fits


@asynccontextmanager
async def _still() -> AsyncIterator[None]:
    """It is already so."""
    yield
