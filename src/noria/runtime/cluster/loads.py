"""Ingests bulk loads at several workers. Call `BulkLoads.begin`.

Keeps true: all workers have accepted their parts of a load before any ingests one. All ingest theirs or none. No
other change is under way meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from noria.core.limits import HEARTBEAT_MS
from noria.dataflow.messages.packets import Done, Ingest
from noria.runtime.cluster.absent_workers import state_of, why_of
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.numbering import AutoIncrement
from noria.runtime.cluster.pending_changes import PendingChanges
from noria.runtime.cluster.program_state import ProgramState
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.link import LinkState
from noria.runtime.link.pauses import ALL, Pauses
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits
from noria.storage.tables.shards import spread_families


class BulkLoads:
    """Ingests loads. `one_moment`: held by what all workers do at one moment."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, groups: TwoPhaseCommits,
                 read_your_writes: ReadYourWrites,
                 numbering: AutoIncrement, pauses: Pauses, pending: PendingChanges, one_moment: asyncio.Lock):
        self._links, self._program, self._groups, self._read_your_writes = links, program, groups, read_your_writes
        self._numbering, self._pauses, self._pending, self._one_moment = numbering, pauses, pending, one_moment
        self._tasks: set[asyncio.Future[Any]] = set()  # loads, which wait until no other change is under way

    def begin(self, body: Ingest) -> asyncio.Task[Done]:
        task = asyncio.ensure_future(self._ingest(body))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _ingest(self, body: Ingest) -> Done:
        """Ingest a load at all workers or at none, as a group, after all have accepted their parts."""
        workers = range(len(self._links))
        async with self._nothing_else():
            spread = spread_families(self._program.mirror.tables.get(body.table))
            checks: list[Done] = await asyncio.gather(*(link.ask(body.check_of(link.worker, spread))
                                                        for link in self._links))
            for r in checks:
                if r.error is not None:
                    return r
            outcome = await self._groups.begin({w: (body.of(w),) for w in workers}, patient=True,
                                               idempotency_key=body.idempotency_key)
            results = outcome.all()
            wrong = next((r.error for r in results if r.error is not None), None)
            table = self._program.mirror.tables.get(body.table)
            if table is not None and wrong is None:
                self._numbering.numbers.reached(table, body.auto_increment)
        await self._read_your_writes.catch_up({}, self._program.routes.depth, workers)
        if table is not None:
            await self._numbering.look([table])
        return Done(0, sum(r.affected for r in results), wrong)

    @asynccontextmanager
    async def _nothing_else(self) -> AsyncIterator[None]:
        """Pause all changes and wait until none is under way."""
        async with self._one_moment:
            with self._pauses.of(ALL):
                await self._others_over()
                yield

    async def _others_over(self) -> None:
        """Wait until no other change is under way. WorkerUnavailable if a worker is not up."""
        while True:
            if state_of(self._links) is not LinkState.UP:
                raise WorkerUnavailable(why_of(self._links))
            if not (waited := self._pending.under_way() - self._tasks):
                return
            await asyncio.wait(waited, timeout=HEARTBEAT_MS / 1000)
