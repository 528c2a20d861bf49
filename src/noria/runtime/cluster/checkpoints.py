"""Checkpoints of the states of several workers, all as of one cut. `ClusterCheckpoints.start` makes them from then on,
and `finish` makes the last one at an orderly end.

    cut → each worker begins to save → all have written → each keeps its new checkpoint

At the cut, each worker has all effects of the statements before it and none of a later one (`consistent_cut.py`). So
a start of all workers restores the states, and each applies the rows that it has written since (`starting.py`).

Keeps true: a checkpoint is kept only if each worker has written the same states. If a worker is lost in between, or if
the workers' checkpoints are of different cuts, nothing is restored: states are built from the tables.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from noria.core.errors import SqlError
from noria.core.limits import CHECKPOINT_LOOK_S, CHECKPOINT_MOST_S, CHECKPOINT_REST, CHECKPOINT_S, SAVE_S
from noria.dataflow.messages.packets import Done, Inspect, KeepStates, Packet, SaveStates
from noria.runtime.cluster.consistent_cut import ConsistentCut
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.program_state import ProgramState
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.link import LinkState
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits

log = logging.getLogger(__name__)
POLL_S = 0.2


class ClusterCheckpoints:
    """`epoch`: of this front end. `one_moment`: held by what all workers do at one moment."""

    def __init__(self, links: Sequence[SomeLink], epoch: int, program: ProgramState, groups: TwoPhaseCommits,
                 read_your_writes: ReadYourWrites, one_moment: asyncio.Lock,
                 clock: Callable[[], float] = time.monotonic):
        self._links, self._epoch, self._program, self._groups = links, epoch, program, groups
        self._read_your_writes, self._one_moment, self._clock = read_your_writes, one_moment, clock
        self._cuts = 0
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Make checkpoints from now on, whenever one is due."""
        self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        wait_s: float = CHECKPOINT_LOOK_S
        while True:
            await asyncio.sleep(wait_s)
            wait_s, began = CHECKPOINT_LOOK_S, self._clock()
            try:
                if await self.save_if_due():
                    wait_s = max(CHECKPOINT_S, CHECKPOINT_REST * (self._clock() - began))
            except Exception as e:  # a lost worker, a defect: the workers serve without
                wait_s = CHECKPOINT_S
                log.info("the states of %d workers were not saved: %r", len(self._links), e)

    async def finish(self) -> None:
        """Make no more checkpoints; save now what is not saved."""
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running
        with suppress(WorkerUnavailable, SqlError, OSError, TimeoutError):
            await asyncio.wait_for(self.save_if_due(at_end=True), 3 * SAVE_S)

    async def save_if_due(self, at_end: bool = False) -> bool:
        """Save states if that is due at a worker and possible at all. Returns whether that was tried."""
        if any(link.state is not LinkState.UP for link in self._links):
            return False
        each = await self._status()
        names = tuple(sorted({name for status in each for name in status["names"]}))
        due = any(status["due"] for status in each) if names else not all(status["empty"] for status in each)
        if not due or not all(status["can"] for status in each):
            return False
        self._cuts += 1
        cut, kept = f"{self._epoch}.{self._cuts} of {len(self._links)}", False
        try:
            if await self._saved(cut, names, at_end) and names:
                kept = await self._written(cut)
        finally:
            with suppress(WorkerUnavailable, SqlError):
                await self._ask(lambda: KeepStates(0, cut, kept))
        return True

    async def _saved(self, cut: str, names: tuple[str, ...], at_end: bool) -> bool:
        """Whether all workers have begun to save the same states as of one cut."""
        body = SaveStates(0, cut, names, at_end)
        depth, everyone = self._program.routes.depth, range(len(self._links))
        async with self._one_moment, self._program.changing:
            digests = await ConsistentCut(self._links, self._groups.name()).each(
                lambda link: link.ask(body), partial(self._read_your_writes.catch_up, {}, depth, everyone))
        values = {done.result() for done in digests}
        return len(values) == 1 and values != {""}

    async def _written(self, cut: str) -> bool:
        """Wait until all workers have written their states. Returns False if one has failed."""
        until = self._clock() + CHECKPOINT_MOST_S
        while self._clock() < until:
            each = await self._status()
            if all(status["written"] == cut for status in each):
                return True
            if not all(status["written"] == cut or status["writing"] for status in each):
                return False
            await asyncio.sleep(POLL_S)
        return False

    async def _status(self) -> list[dict[str, Any]]:
        return await self._ask(lambda: Inspect(0, "checkpoint"))

    async def _ask(self, body: Callable[[], Packet]) -> list[Any]:
        """The answers of all workers."""
        replies: list[Done] = await asyncio.gather(*(link.ask(body()) for link in self._links))
        return [reply.result() for reply in replies]
