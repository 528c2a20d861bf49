"""Reads views whose keys are at several workers. Call `ScatteredReads.read`.

Keeps true: each worker receives only its own keys. A read that arrives before the program is known waits for it,
or fails with `WorkerUnavailable`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from noria.dataflow.messages.packets import Inspect, Query, Read, Rows
from noria.plan.view import ViewDef
from noria.runtime.cluster.absent_workers import why_of
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.program_state import LEADER, ProgramState
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.result_memory import MemoryLease
from noria.runtime.routing.answers import combined_replies
from noria.runtime.routing.scatter_gather import merged, split


class ScatteredReads:
    """Splits reads by worker and merges the rows."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState):
        self._links, self._program = links, program

    async def read(self, body: Read | Query, retry: bool, lease: MemoryLease | None) -> Rows:
        view = body.view if isinstance(body, Query) else await self._view(body.view, retry)
        if view is None:
            reply: Rows = await self._links[LEADER].ask(body, retry)  # worker 0 reports that the view does not exist
            return reply
        parts = split(body, self._program.routes, view)
        if len(parts) == 1:
            ((worker, part),) = parts.items()
            only: Rows = await self._links[worker].ask(part, retry, lease)
            return only
        replies: list[Rows] = await asyncio.gather(*(self._links[w].ask(part, retry, lease)
                                                     for w, part in parts.items()))
        return merged(parts, dict(zip(parts, replies, strict=True)))

    async def analyze(self, body: Inspect, retry: bool) -> Any:
        """Measure a read at all workers that have a part of it."""
        assert isinstance(body.read, Read)
        view = await self._view(body.read.view, retry)
        parts = {LEADER: body.read} if view is None else split(body.read, self._program.routes, view)
        return combined_replies(body, await asyncio.gather(*(
            self._links[worker].ask(replace(body, read=read), retry) for worker, read in parts.items())))

    async def _view(self, name: str, patient: bool) -> ViewDef | None:
        """The view's definition, once the program is known; None if the program has no such view."""
        program = self._program
        while (view := program.mirror.views.get(name)) is None and not program.known.is_set():
            if not patient:
                raise WorkerUnavailable(why_of(self._links))
            await program.known.wait()
        return view
