"""Determines when a worker has all effects of other workers' earlier commits, so that a session reads its own writes.

A `Marker` is a message in the same channels as updates. So a worker that answers one has sent all results of its
earlier ticks before the answer. Rows pass as many exchanges as their path through the graph has. So a worker that
receives a mark of depth d first catches up with depth d itself.

Keeps true: let a change be committed before `catch_up(d)`. When `catch_up` calls `then`, this worker's states have
every effect of the change beyond at most d exchanges. A state that lost a worker's rows is complete again by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages.peer_messages import Marker, MarkerReply, Message


@dataclass(frozen=True)
class _MarkerRound:
    """Marks under way: their depth, the workers that have not answered, and the worker they are for (-1: this
    one)."""

    depth: int
    missing: set[int]
    then: Callable[[], None]
    requester: int


class FrontierRequests:
    """The marks that this worker has sent and answers.

    `send`: appends a message to the channel to a worker. `park`: calls its second argument, between ticks, once
    the first returns True. `first`: marks of this life have greater numbers. `complete`: returns whether no state
    lacks rows of a lost worker.
    """

    def __init__(self, others: list[int], send: Callable[[int, Message], None],
                 park: Callable[[Callable[[], bool], Callable[[], None], int], None], first: int,
                 complete: Callable[[], bool]):
        self._others, self._send, self._park, self._complete, self._next = others, send, park, complete, first
        self._rounds: dict[int, _MarkerRound] = {}

    def catch_up(self, depth: int, then: Callable[[], None], requester: int = -1, of: Collection[int] = ()) -> None:
        """Call `then`, between ticks, when this worker has caught up. `of`: the workers to catch up with; empty:
        all."""
        others = [w for w in self._others if not of or w in of]
        if not depth or not others:
            self._park(self._complete, then, requester)
            return
        self._next += 1
        self._rounds[self._next] = _MarkerRound(depth, set(others), then, requester)
        for w in others:
            self._send(w, Marker(self._next, depth - 1))

    def serve(self, sender: int, mark: Marker) -> None:
        """Answer a mark when this worker has caught up to its depth."""
        self.catch_up(mark.depth, lambda: self._send(sender, MarkerReply(mark.number)), sender)

    def answered(self, sender: int, answer: MarkerReply) -> None:
        current = self._rounds.get(answer.number)
        if current is None:  # sent in another life of this worker
            return
        current.missing.discard(sender)
        if not current.missing:
            del self._rounds[answer.number]
            self._park(self._complete, current.then, current.requester)

    def lost(self, worker: int) -> None:
        """Handle a restart of a worker, which has forgotten all marks: send it those it has not answered again,
        and drop its own requests."""
        self._rounds = {n: r for n, r in self._rounds.items() if r.requester != worker}
        for number, r in self._rounds.items():
            if worker in r.missing:
                self._send(worker, Marker(number, r.depth - 1))

    def rounds(self) -> Iterable[_MarkerRound]:
        return self._rounds.values()

    def idle(self) -> bool:
        return not self._rounds


def exchanges_above(node: Node) -> int:
    """The largest number of exchanges on a path to the node."""
    @cache
    def above(n: Node) -> int:
        return max(map(above, n.parents), default=0) + n.op.remote

    return above(node)
