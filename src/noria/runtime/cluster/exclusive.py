"""Blocks other writes of a table while one caller writes it or copies its rows. Call `ExclusiveWrites.unwritten` or
`copied`.

Keeps true: no write of the table is under way when the context begins, and none begins before it ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from noria.core.statements import Move
from noria.core.types import TableDef
from noria.runtime.cluster.copying import copy_rows
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.pending_changes import PendingChanges
from noria.runtime.cluster.program_state import ProgramState
from noria.runtime.link.change_queue import Change
from noria.runtime.link.one_worker_link import ExclusiveWriter
from noria.runtime.link.pauses import Pauses
from noria.runtime.transactions.read_your_writes import ReadYourWrites

Begin = Callable[[Change, asyncio.Future[Any]], None]


class PastPauses:
    """An `ExclusiveWriter`: writes past the pause of its table."""

    def __init__(self, begin: Begin, moved: Callable[[Mapping[int, Move]], asyncio.Future[Any]]):
        self._begin, self.moved = begin, moved

    def submit(self, body: Change) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._begin(body, future)
        return future


class ExclusiveWrites:
    """Pauses the writes of one table. `past`: writes it nevertheless. `submit`: writes other tables."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, read_your_writes: ReadYourWrites,
                 pauses: Pauses,
                 pending: PendingChanges, past: PastPauses, submit: Callable[[Change], asyncio.Future[Any]]):
        self._links, self._program, self._read_your_writes = links, program, read_your_writes
        self._pauses, self._pending, self._past, self._submit = pauses, pending, past, submit

    @asynccontextmanager
    async def unwritten(self, table: str) -> AsyncIterator[ExclusiveWriter]:
        """See `Link.unwritten`."""
        with self._pauses.of(table):
            if waited := self._pending.under_way():
                await asyncio.wait(waited)
            yield self._past

    @asynccontextmanager
    async def copied(self, table: TableDef, other: TableDef) -> AsyncIterator[None]:
        """Copy all rows of the table into the other one and the states that derive from it. Nobody writes the
        table until the context ends. SqlError if a row does not fit."""
        async with self.unwritten(table.name):
            await copy_rows(self._links, self._submit, table, other)
            await self._read_your_writes.catch_up({}, self._program.routes.depth, range(len(self._links)))
            yield
