"""Runs a request on all workers as of one moment, behind the same statements. The method is Chandy and Lamport's: the
markers are places in the queues of statements. Call `ConsistentCut.each`.

A place is reserved in the queues of all workers at once. So each statement, even one over several workers, is
before the cut everywhere or after it everywhere. A worker receives the request when its own place is reached. By then
everything before it is answered there, and every prepared group is decided. So no worker waits for the work of
another.

Keeps true: the cut contains everything acknowledged before it. If a statement was submitted after another was
acknowledged, the cut never contains only the later one. A failed or cancelled cut leaves no place in a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from noria.core.limits import HEARTBEAT_MS
from noria.dataflow.messages.packets import Done, Snapshot
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.cluster.program_state import LEADER, ProgramState
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.link import LinkState
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.transactions.two_phase_commit import TwoPhaseCommits
from noria.storage.tables.shards import shard_path

T = TypeVar("T")


class ConsistentCut:
    """One cut. `name`: of its places, unique in the queues."""

    def __init__(self, links: Sequence[SomeLink], name: str):
        self._links, self._name = links, name

    async def each(self, ask: Callable[[SomeLink], Awaitable[Any]], rest: Callable[[], Awaitable[None]] | None = None
                   ) -> list[Any]:
        """Return the answers of all workers. `rest`: runs when all places are reached, before any worker
        receives the request. Then no worker runs a later statement before all have answered, because its updates would
        reach a worker that has not. WorkerUnavailable if a worker is down or lost before that."""
        _look(self._links)
        places = [link.reserve_place(self._name) for link in self._links]
        try:
            if rest is not None:
                await _all(_while_there((link,), place) for link, place in zip(self._links, places, strict=True))
                await _while_there(self._links, rest())  # `rest` may wait for a lost worker's next life
                return await _all(ask(link) for link in self._links)
            return await _all(self._one(*at, ask) for at in zip(self._links, places, strict=True))
        finally:
            for link in self._links:
                link.release_place(self._name)

    async def _one(self, link: SomeLink, place: asyncio.Future[Any], ask: Callable[[SomeLink], Awaitable[Any]]) -> Any:
        await _while_there((link,), place)
        try:
            return await ask(link)
        finally:
            link.release_place(self._name)


class Snapshots:
    """Checkpoints of all workers, as of one cut. `one_moment`: held by what all workers do at one moment."""

    def __init__(self, links: Sequence[SomeLink], program: ProgramState, groups: TwoPhaseCommits,
                 read_your_writes: ReadYourWrites, one_moment: asyncio.Lock):
        self._links, self._program, self._groups, self._read_your_writes = links, program, groups, read_your_writes
        self._one_moment = one_moment

    async def make(self, body: Snapshot) -> Done:
        """Make a checkpoint of each worker in its own directory."""
        workers = len(self._links)
        async with self._one_moment, self._program.changing:
            Path(body.path).mkdir(mode=0o700)
            replies: list[Done] = await ConsistentCut(self._links, self._groups.name()).each(
                lambda link: link.ask(replace(body, path=shard_path(body.path, link.worker, workers))),
                partial(self._read_your_writes.catch_up, {}, self._program.routes.depth,
                        range(workers)) if body.views else None)
        for r in replies:
            if r.error is not None:
                return r
        views = {name: [r.value["views"][name] for r in replies if name in r.value["views"]]
                 for name in replies[LEADER].value["views"]}
        return replace(replies[LEADER], value={"watermark": sum((r.value["watermark"] for r in replies), ()),
                                               "views": views})


def _look(links: Iterable[SomeLink]) -> None:
    for link in links:
        if link.state is not LinkState.UP:
            raise WorkerUnavailable(f"worker {link.worker}: {link.why}")


async def _while_there(links: Sequence[SomeLink], work: Awaitable[T]) -> T:
    """Return the result of `work`. WorkerUnavailable, and `work` is cancelled, if one of these workers is lost
    first."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            _look(links)
            await asyncio.wait((task,), timeout=HEARTBEAT_MS / 1000)
        return task.result()
    finally:
        task.cancel()


async def _all(works: Iterable[Awaitable[Any]]) -> list[Any]:
    """Return the results of all. If one fails, the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
