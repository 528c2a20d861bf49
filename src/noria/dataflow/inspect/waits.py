"""Describes what a worker's requests wait for, to diagnose a worker that does not answer.

Each line names a missing state, index, row or message, and the worker that must build or send it. Call `of_worker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Protocol

from noria.core.limits import WAITS_SHOWN
from noria.dataflow.cluster.peers import Peers
from noria.dataflow.cluster.pending_gathers import Gather
from noria.dataflow.messages.packets import Envelope


class WaitingRequests(Protocol):
    """The requests of a worker that wait (`worker/deferred.py`)."""

    def waiting(self) -> Iterator[tuple[Envelope, list[str]]]: ...

    def progress(self) -> list[dict[str, object]]: ...


def of_worker(peers: Peers | None, deferred: WaitingRequests) -> list[str]:
    """The lines for requests, builds and rows of other workers, at most WAITS_TOLD."""
    lines = chain(_built(deferred), () if peers is None else _of_peers(peers))
    return list(islice(lines, WAITS_SHOWN))


def _built(deferred: WaitingRequests) -> Iterator[str]:
    for e, builds in deferred.waiting():
        yield f"{type(e.body).__name__} {getattr(e.body, 'what', '')}: waits for {', '.join(builds) or 'nothing built'}"
    for build in deferred.progress():
        yield f"{build['what']}: {build['state']}, {build['rows']} of {build['of']} rows; {build['why']}".rstrip("; ")


def _of_peers(peers: Peers) -> Iterator[str]:
    yield f"the program is of version {peers.version}"
    for sender, bodies in peers.ahead.items():
        yield f"{len(bodies)} messages of worker {sender} wait for version {bodies[0][1].version}"
    exchanges = peers.exchanges
    for g in exchanges.gathers():
        yield from _gathered(g)
    if parked := [*exchanges.waiting.requesters()]:
        yield f"parked: {_by_worker(parked)}"
    if exchanges.holding_for:
        yield f"nothing is evicted for want of memory while requests of workers {sorted(exchanges.holding_for)} need it"
    for r in exchanges.marks.rounds():
        yield f"a mark of depth {r.depth} waits for workers {sorted(r.missing)}"


def _gathered(g: Gather) -> Iterator[str]:
    lacking = {w: int((mask & ~g.answered[w]).sum()) for w, mask in g.requested.items()}
    cols = ", ".join(g.node.fields[c].name for c in g.cols)
    what = f"{g.keys.shape[1]} keys of {cols}" if g.cols else "all rows"
    yield (f"node {g.node.id} gathers {what}; lacks {', '.join(f'{n} of worker {w}' for w, n in lacking.items())}"
           + (f"; again of lost workers {sorted(g.lost)}" if g.lost else ""))


def _by_worker(requesters: Iterable[int]) -> str:
    return ", ".join(f"{n} for {f'worker {w}' if w >= 0 else 'requests here'}"
                     for w, n in sorted(Counter(requesters).items()))
