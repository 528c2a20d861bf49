"""Assigns AUTO_INCREMENT values for tables over several workers, where rows are routed
(`write_routing.AutoIncrementValues`). The workers store the highest value of their rows and report it.

Keeps true: before a value is assigned, the highest values of all workers are known here. A worker that is down reports
its value when it is up again. Values in a statement count once it is done. A value is assigned twice only after
TRUNCATE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any

from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Done, Inspect, Packet, Wrote
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.routing.write_routing import AutoIncrementValues, RoutedWrite

How = Callable[[SomeLink, Packet], Awaitable[Any]]


class AutoIncrement:
    """The numbers of all tables. `later`: runs a coroutine in the background. `writes`: whether a table is being
    written."""

    def __init__(self, links: Sequence[SomeLink], later: Callable[[Coroutine[Any, Any, Any]], object],
                 writes: Callable[[str], bool]):
        self.numbers = AutoIncrementValues()
        self._links, self._later, self._writes = links, later, writes
        self._reaching: set[tuple[int, str]] = set()  # workers that are down, and tables of which they may have values

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

        def finish() -> Wrote:
            done = True  # unknown if a worker was lost: assume it is done
            try:
                reply = wrote()
                done = reply.results[0].error is None
                return reply
            except SqlError:
                done = False
                raise
            finally:
                self.numbers.ended(table, parts.brings, done)

        return finish

    def after(self, write: asyncio.Future[Any], table: TableDef, emptied: bool) -> Coroutine[Any, Any, Wrote]:
        """Return the reply of a write that may have changed the column, once the new value is known here.
        `emptied`: after a TRUNCATE values restart, unless others were assigned values since or write the table."""
        before = self.numbers.last.get(table.table_id, 0)

        async def replied() -> Wrote:
            reply: Wrote = await write
            if reply.results[0].error is None:
                still = before == self.numbers.last.get(table.table_id, 0)
                highest = await self._highest_values(table)
                still = still and before == self.numbers.last.get(table.table_id, 0)
                if emptied and still and len(highest) == len(self._links) and not self._writes(table.name):
                    self.numbers.begin_anew(table, max(highest))
                else:
                    self.numbers.reached(table, max(highest, default=0))
            return reply

        return replied()

    async def _highest_values(self, table: TableDef) -> list[int]:
        """The highest values of the workers that are up; the others report theirs when they are up again."""
        highest = []
        replies = await asyncio.gather(*(link.ask(Inspect(0, "table", table.name)) for link in self._links),
                                       return_exceptions=True)
        for link, reply in zip(self._links, replies, strict=True):
            if isinstance(reply, Done) and reply.error is None:
                highest.append(int(reply.value["auto_increment"]))
            elif isinstance(reply, WorkerUnavailable) and (link.worker, table.name) not in self._reaching:
                self._reaching.add((link.worker, table.name))
                self._later(self._reach(link, table))
        return highest

    async def _reach(self, link: SomeLink, table: TableDef) -> None:
        try:
            self._reached(table, await link.ask(Inspect(0, "table", table.name), True))
        finally:
            self._reaching.discard((link.worker, table.name))
