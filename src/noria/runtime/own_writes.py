"""What each of several workers has of the writes that were answered, so that a session reads its own.

Keeps true: after `catch_up(writes)` every worker that is up has all that came of these writes; one that comes up later
begins with everything.  Nobody waits for what is known to be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from noria.dataflow.packets import Ask, Done, Packet
from noria.runtime.link import LinkState

At = tuple[tuple[int, int], ...]  # (worker, which of its writes)


class Asked(Protocol):
    """What is needed of one worker's link."""

    state: LinkState

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class OwnWrites:
    """depth: how many exchanges rows may pass on their way to any view."""

    def __init__(self, links: Sequence[Asked], depth: Callable[[], int]):
        self._links, self._depth = links, depth
        self._answered = [0] * len(links)
        self._has = [[0] * len(links) for _ in links]

    def wrote(self, workers: Iterable[int]) -> At:
        """These have answered a write."""
        for w in workers:
            self._answered[w] += 1
        return tuple((w, self._answered[w]) for w in workers)

    def lost(self, worker: int) -> None:
        self._has[worker] = [0] * len(self._links)

    async def catch_up(self, writes: Mapping[int, int]) -> None:
        lacking = [v for v, link in enumerate(self._links) if link.state is LinkState.UP
                   and any(self._has[v][w] < number for w, number in writes.items() if v != w)]
        if self._depth():
            await asyncio.gather(*map(self.worker_catches_up, lacking))

    async def worker_catches_up(self, worker: int) -> None:
        """With all that was answered until now."""
        answered = tuple(self._answered)
        reply: Done = await self._links[worker].ask(Ask(0, "caught up", str(self._depth())), True)
        if reply.error is not None:
            raise reply.error
        self._has[worker] = list(map(max, self._has[worker], answered))
