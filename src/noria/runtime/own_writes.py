"""What each of several workers has of the writes that were answered, so that a session reads its own.

Keeps true: after `catch_up(writes)` every worker that is up has all that came of these writes; one that comes up later
begins with everything.  Nobody waits for what is known to be there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from noria.dataflow.packets import Ask, Done, Packet
from noria.runtime.link import LinkState

At = tuple[tuple[int, int], ...]  # (worker, which of its writes)


class Asked(Protocol):
    """What is needed of one worker's link."""

    state: LinkState

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class OwnWrites:
    """Depths: how many exchanges rows pass at most on their way to what is read."""

    def __init__(self, links: Sequence[Asked]):
        self._links = links
        self._answered = [0] * len(links)
        self._has: dict[int, list[list[int]]] = {}  # by depth and worker: of each worker, up to which of its writes

    def wrote(self, workers: Iterable[int]) -> At:
        """These have answered a write."""
        for w in workers:
            self._answered[w] += 1
        return tuple((w, self._answered[w]) for w in workers)

    def lost(self, worker: int) -> None:
        for has in self._has.values():
            has[worker] = [0] * len(self._links)

    def has(self, worker: int, depth: int, writes: Mapping[int, int]) -> bool:
        """Is all there that came of these writes?"""
        return not depth or all(
            w == worker or any(d >= depth and has[worker][w] >= number for d, has in self._has.items())
            for w, number in writes.items())

    async def catch_up(self, writes: Mapping[int, int], depth: int, readers: Iterable[int]) -> None:
        """With these writes, or with all (none given)."""
        lacking = [v for v in readers if self._links[v].state is LinkState.UP
                   and not (writes and self.has(v, depth, writes))]
        await asyncio.gather(*(self._catch_up(v, depth, [w for w in writes if w != v]) for v in lacking))

    async def _catch_up(self, worker: int, depth: int, writers: Sequence[int]) -> None:
        """writers: whose writes are wanted; none: of all.  Beyond one exchange rows may come by way of any."""
        answered = tuple(self._answered)
        some = ",".join(map(str, writers)) if depth == 1 else ""
        reply: Done = await self._links[worker].ask(Ask(0, "caught up", f"{depth} {some}"), True)
        if reply.error is not None:
            raise reply.error
        has = self._has.setdefault(depth, [[0] * len(self._links) for _ in self._links])[worker]
        for w, number in enumerate(answered):
            if not some or w in writers:
                has[w] = max(has[w], number)
