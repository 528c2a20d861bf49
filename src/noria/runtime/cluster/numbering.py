"""AUTO_INCREMENT values of tables over several workers: assigned where rows are routed
(`write_routing.AutoIncrementValues`), learned from the workers, whose tables store the highest value.

Keeps true: before a value is assigned, the highest values of all workers are known here. A worker that is away is
asked when it is back. Values in a statement count once it is done. A value is assigned twice only after TRUNCATE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Inspect, Packet, Wrote
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.link.changes import WorkerGone
from noria.runtime.routing.write_routing import AutoIncrementValues, RoutedWrite

How = Callable[[SomeLink, Packet], Awaitable[Any]]


class AutoIncrement:
    """The numbers of all tables. `later`: runs a coroutine in the background. `writes`: whether a table is being
    written."""

    def __init__(self, links: Sequence[SomeLink], later: Callable[[Coroutine[Any, Any, Any]], object],
                 writes: Callable[[str], bool]):
        self.numbers = AutoIncrementValues()
        self._links, self._later, self._writes = links, later, writes
        self._reaching: set[tuple[int, str]] = set()  # workers that are away, by table of which they may have values

    async def look(self, tables: Iterable[TableDef], how: How = lambda link, body: link.ask(body, True)) -> None:
        """Learn the highest values of these tables from all workers."""
        for table in [t for t in tables if t.auto_increment is not None]:
            for reply in await asyncio.gather(*(how(link, Inspect(0, "table", table.name)) for link in self._links)):
                self._reached(table, reply)

    def _reached(self, table: TableDef, reply: Done) -> int:
        """Record a worker's highest value; 0 if the table no longer exists."""
        value: int = 0 if reply.error is not None else reply.value["auto_increment"]
        self.numbers.reached(table, value)
        return value

    def expecting(self, parts: RoutedWrite, table: TableDef, wrote: Callable[[], Wrote]) -> Callable[[], Wrote]:
        """Wrap the result of a write that has its own value: nobody is assigned that value until the write is
        over."""
        self.numbers.expect(table, parts.brings)

        def came() -> Wrote:
            done = True  # unknown if a worker is gone: assume it is done
            try:
                reply = wrote()
                done = reply.results[0].error is None
                return reply
            except SqlError:
                done = False
                raise
            finally:
                self.numbers.ended(table, parts.brings, done)

        return came

    def after(self, write: asyncio.Future[Any], table: TableDef, emptied: bool) -> Coroutine[Any, Any, Wrote]:
        """Return the reply of a write that may have changed the column, once the new value is known here.
        `emptied`: after a TRUNCATE values restart, unless others were assigned values since or write the table."""
        before = self.numbers.last.get(table.table_id, 0)

        async def replied() -> Wrote:
            reply: Wrote = await write
            if reply.results[0].error is None:
                still = before == self.numbers.last.get(table.table_id, 0)
                found = await self._found(table)
                still = still and before == self.numbers.last.get(table.table_id, 0)
                if emptied and still and len(found) == len(self._links) and not self._writes(table.name):
                    self.numbers.begin_anew(table, max(found))
                else:
                    self.numbers.reached(table, max(found, default=0))
            return reply

        return replied()

    async def _found(self, table: TableDef) -> list[int]:
        """The highest values of the workers that are up; the others are asked when they are back."""
        found = []
        replies = await asyncio.gather(*(link.ask(Inspect(0, "table", table.name)) for link in self._links),
                                       return_exceptions=True)
        for link, reply in zip(self._links, replies, strict=True):
            if isinstance(reply, Done) and reply.error is None:
                found.append(int(reply.value["auto_increment"]))
            elif isinstance(reply, WorkerGone) and (link.worker, table.name) not in self._reaching:
                self._reaching.add((link.worker, table.name))
                self._later(self._reach(link, table))
        return found

    async def _reach(self, link: SomeLink, table: TableDef) -> None:
        try:
            self._reached(table, await link.ask(Inspect(0, "table", table.name), True))
        finally:
            self._reaching.discard((link.worker, table.name))
