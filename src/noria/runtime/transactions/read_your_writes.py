"""Tracks which workers have the effects of a session's writes, so that the session reads its own writes.

A write's answer lists the workers to which its tick sent messages, with the last message number of each; the
other workers need not wait. The frontier in shared memory (`worker/frontier.py`) shows up to which message a worker
has all effects. That suffices where rows pass one exchange. Beyond one, rows travel through other workers, even those
of a worker's own writes. Then the worker that is to catch up sends marks (`dataflow/cluster/frontier_requests.py`).

The same holds for a write that a restarting worker makes before it has its graph (`changes.InFlightPacket`). Its tick
sends nothing, and the others receive the rows when they gather that worker's again.

Keeps true: after `catch_up(writes)` a read of these workers sees all effects of these writes. A restarted worker
has all effects from the beginning. Nobody waits for effects that are known to be present.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from noria.dataflow.messages.packets import Done, Inspect, Packet, Recipients, SessionWrites


class FrontierLink(Protocol):
    """The operations needed of one worker's link."""

    def frontier_of(self, worker: int) -> int: ...

    async def ask(self, body: Packet, retry: bool = False) -> Any: ...


class ReadYourWrites:
    """The writes whose effects each worker is known to have. A depth is the largest number of exchanges on the path to
    the state that is read."""

    def __init__(self, links: Sequence[FrontierLink]):
        self._links = links
        self._answered = [0] * len(links)
        self._has: dict[int, list[list[int]]] = {}  # by depth and worker: of each worker, up to which of its writes

    def wrote(self, sent: Mapping[int, Recipients]) -> SessionWrites:
        """Record a write's answers; returns the record that the session keeps. `sent`: for each worker, the messages
        that its tick sent."""
        for w in sent:
            self._answered[w] += 1
        return {w: (self._answered[w], t) for w, t in sent.items() if t is None or t}

    def lost(self, worker: int) -> None:
        for has in self._has.values():
            has[worker] = [0] * len(self._links)

    def has(self, worker: int, depth: int, writes: SessionWrites) -> bool:
        """Whether the worker has all effects of these writes."""
        return not depth or not any(self._lacks(worker, depth, w, writes) for w in writes)

    def _lacks(self, worker: int, depth: int, writer: int, writes: SessionWrites) -> bool:
        number, sent = writes[writer]
        if writer == worker and depth == 1:
            return False
        if any(d >= depth and has[worker][writer] >= number for d, has in self._has.items()):
            return False
        return depth > 1 or not has_received(worker, sent, lambda: self._links[worker].frontier_of(writer))

    async def catch_up(self, writes: SessionWrites, depth: int, readers: Iterable[int]) -> None:
        """Wait until the readers have the effects of these writes, or of all earlier ones if `writes` is empty.
        Also waits for a worker that is down: its published views are readable meanwhile and lack these writes."""
        lacking = [v for v in readers if not (writes and self.has(v, depth, writes))]
        await asyncio.gather(*(self._catch_up(v, depth, writes) for v in lacking))

    async def _catch_up(self, worker: int, depth: int, writes: SessionWrites) -> None:
        lacking = [w for w in writes if self._lacks(worker, depth, w, writes)]
        sent = {w: writes[w][1] for w in lacking}
        if depth == 1 and lacking and None not in sent.values():
            await self._ask(worker, "frontier", ",".join(f"{w}:{last}" for w, t in sent.items() for v, last in t or ()
                                                      if v == worker))
            return
        answered = tuple(self._answered)
        some = lacking if depth == 1 else []  # beyond one exchange, rows may travel through any worker
        await self._ask(worker, "caught up", f"{depth} {','.join(map(str, some))}")
        has = self._has.setdefault(depth, [[0] * len(self._links) for _ in self._links])[worker]
        for w, number in enumerate(answered):
            if not some or w in some:
                has[w] = max(has[w], number)

    async def _ask(self, worker: int, what: str, argument: str) -> None:
        reply: Done = await self._links[worker].ask(Inspect(0, what, argument), True)
        if reply.error is not None:
            raise reply.error


def has_received(worker: int, sent: Recipients, frontier: Callable[[], int]) -> bool:
    """Whether the worker has all effects that a write sent it directly. `frontier`: the last message of the writer
    whose effects it has."""
    return sent is not None and all(w != worker or frontier() >= last for w, last in sent)


def merged_writes(writes: SessionWrites, more: SessionWrites) -> SessionWrites:
    """Combine two records of what a session has written."""
    out = dict(writes)
    for w, (number, sent) in more.items():
        before = out.get(w, (0, ()))[1]
        both = None if sent is None or before is None else _latest(before, sent)
        out[w] = number, both
    return out


def _latest(before: Sequence[tuple[int, int]], later: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    last = dict(before)
    for w, number in later:
        last[w] = max(number, last.get(w, 0))
    return tuple(last.items())
