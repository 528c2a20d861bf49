"""One moment of all workers: what is asked of each behind the same statements (the markers of Chandy and Lamport, in
the queues that statements wait in).

A place is taken in the queues of all workers at once, so each statement, also one of several workers, is before it
everywhere or behind it everywhere.  A worker is asked when its own place is reached: all before it is answered then,
and what is prepared there is decided.  So no worker waits for what another one is at.

Keeps true: what was acknowledged before the cut is in it; of two statements, the second submitted when the first was
acknowledged, it has not the second alone; whoever fails or is cancelled leaves no place behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from noria.core.limits import HEARTBEAT_MS
from noria.runtime.cluster.joining import SomeLink
from noria.runtime.link.changes import WorkerGone
from noria.runtime.link.link import LinkState

T = TypeVar("T")


class Cut:
    """name: of the places, unique in the queues."""

    def __init__(self, links: Sequence[SomeLink], name: str):
        self._links, self._name = links, name

    async def each(self, ask: Callable[[SomeLink], Awaitable[Any]], rest: Callable[[], Awaitable[None]] | None = None
                   ) -> list[Any]:
        """The answers of all workers.  rest: where all must have reached their places, and this be done, before any is
        asked.  WorkerGone: one is not there, or is lost before that."""
        _look(self._links)
        places = [link.hold(self._name) for link in self._links]
        try:
            if rest is not None:
                await _all(_while_there((link,), place) for link, place in zip(self._links, places, strict=True))
                await _while_there(self._links, rest())  # which may wait for a lost one's next life, and all for that
            return await _all(self._one(*at, ask) for at in zip(self._links, places, strict=True))
        finally:
            for link in self._links:
                link.let_go(self._name)

    async def _one(self, link: SomeLink, place: asyncio.Future[Any], ask: Callable[[SomeLink], Awaitable[Any]]) -> Any:
        await _while_there((link,), place)
        try:
            return await ask(link)
        finally:
            link.let_go(self._name)


def _look(links: Iterable[SomeLink]) -> None:
    for link in links:
        if link.state is not LinkState.UP:
            raise WorkerGone(f"worker {link.worker}: {link.why}")


async def _while_there(links: Sequence[SomeLink], work: Awaitable[T]) -> T:
    """What comes of it; WorkerGone, and it is given up, where one of these is lost first."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            _look(links)
            await asyncio.wait((task,), timeout=HEARTBEAT_MS / 1000)
        return task.result()
    finally:
        task.cancel()


async def _all(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Of what fails nothing goes on."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
