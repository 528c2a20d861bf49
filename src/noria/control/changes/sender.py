"""Sends the changes of the program to the worker, and its questions.

Keeps true:

* Changes happen one at a time: `lock` is held from a change's checks until the catalog has it.
* A change whose caller is cancelled is either undone or complete, so the worker's program and the catalog never differ.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from noria.control.catalog.catalog import ProgramCatalog
from noria.control.catalog.origin import current_origin
from noria.core import limits
from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL, OUT_OF_RESOURCES
from noria.dataflow.messages import packets
from noria.plan.view import ViewDef
from noria.runtime.link.link import Link

T = TypeVar("T")


class ChangeSender:
    """Sends changes over a link.  under_way: the views that the current change makes."""

    def __init__(self, link: Link, catalog: ProgramCatalog):
        self.link, self._catalog = link, catalog
        self.lock = asyncio.Lock()
        self.under_way: Sequence[ViewDef] = ()
        self._sent: tuple[asyncio.Task[Any] | None, asyncio.Future[Any]] | None = None  # the current change

    # ------------------------------------------------------------ changes
    async def migrate(self, steps: Iterable[packets.MigrationStep], recipe: tuple[str, ...], durable: bool = True,
                      limit_ms: int = 0) -> packets.Migrated:
        """Send a change of the program and return the reply.  Raises its error."""
        origin = current_origin() if durable else None
        reply: packets.Migrated = await self.change(packets.Migrate(tuple(steps), recipe, durable, limit_ms=limit_ms,
                                                                    note=origin))
        if reply.error is not None:
            raise reply.error
        return reply

    async def with_room(self, steps: tuple[packets.MigrationStep, ...], recipe: tuple[str, ...], durable: bool,
                        evicted: int = 0, limit_ms: int = 0, crowding: Sequence[str] = ()) -> packets.Migrated:
        """Add a view, or none, and drop at least `evicted` ad-hoc views.

        Those in `crowding` are dropped first, then the least recently used.  If memory, mappings or descriptors are
        lacking, more are dropped, until none is left.
        """
        adhoc = self._catalog.adhoc_defs
        while True:
            gone = [*crowding, *(n for n in adhoc if n not in crowding)][: max(len(crowding), evicted)]
            drops = tuple(packets.DropView(adhoc[n].name) for n in gone)
            try:
                reply = await self.migrate((*drops, *steps), recipe, durable, limit_ms)
            except SqlError as e:
                if e.code not in (OUT_OF_RESOURCES.number, DISK_FULL.number) or len(gone) == len(adhoc):
                    raise
                evicted = max(len(adhoc) // 4, 2 * evicted, 1)
                continue
            for n in gone:
                self._catalog.forget(n)
            return reply

    async def change(self, body: packets.Migrate | packets.Write) -> Any:
        """Send a change and return the reply; if the caller is cancelled, the worker gives the change up."""
        return await self.answered(self.link.submit(body))

    async def answered(self, sent: asyncio.Future[Any]) -> Any:
        """Wait for a change that was sent; it is the current one until then."""
        self._sent = asyncio.current_task(), sent
        try:
            return await sent
        finally:
            self._sent = None

    def unawaited(self, steps: Iterable[packets.MigrationStep], durable: bool = False) -> None:
        """Send a change that nothing waits for; the catalog has it already."""
        self.link.submit(packets.Migrate(tuple(steps), self._catalog.recipe(), durable))

    @contextmanager
    def making(self, views: Sequence[ViewDef]) -> Iterator[None]:
        """Remember the views of the current change: a worker may commit it and end before it answers."""
        self.under_way = views
        try:
            yield
        finally:
            self.under_way = ()

    # ------------------------------------------------------------ questions
    async def request(self, request: packets.Inspect | packets.CheckRowsFit | packets.Rehearse) -> Any:
        """The worker's answer, also after it has restarted.  Raises the answer's error."""
        reply: packets.Done = await self.link.ask(request, retry=True)
        return reply.result()

    async def stats(self) -> dict[str, Any]:
        reply: packets.Done = await self.link.ask(packets.Inspect(0, "stats"), retry=True)
        stats: dict[str, Any] = reply.value
        return stats

    async def history(self) -> Sequence[packets.RecordedChange]:
        """The last changes of the program, the oldest first."""
        reply: packets.Done = await self.link.ask(packets.Inspect(0, "history"), retry=True)
        found: Sequence[packets.RecordedChange] = reply.value
        return found

    # ------------------------------------------------------------ one change at a time
    async def wait_until_idle(self, attempt: int = 0) -> None:
        """Wait until no change is running.

        attempt: for a read that is bound again because its view was dropped or replaced.  After the first attempt, this
        also waits until all workers are up.
        """
        async with self.lock:
            pass
        if attempt:
            await self.link.up()

    async def complete_or_undo(self, change: asyncio.Task[T]) -> T:
        """The change's result.  If the caller is cancelled, a change that is not complete is undone.

        So the worker's program and the catalog never differ.
        """
        try:
            return await asyncio.shield(change)
        except asyncio.CancelledError:
            self.cancel(change)
            sent = self._is_sent(change)
            while self._sent is not None and self._is_sent(change):
                await asyncio.wait((self._sent[1],))  # the change, which waited first, has continued by then
            if sent and change.done():
                return await change
            if sent:  # the worker has made it, and there is more to wait for
                change.cancel()
            await asyncio.wait((change,), timeout=limits.GIVING_UP_S)
            raise

    def _is_sent(self, change: asyncio.Task[Any]) -> bool:
        return self._sent is not None and self._sent[0] is change

    def cancel(self, change: asyncio.Task[Any]) -> None:
        """Cancel a change: on the worker if it was sent."""
        if self._sent is not None and self._sent[0] is change:
            self.link.cancel(self._sent[1])
        else:
            change.cancel()
