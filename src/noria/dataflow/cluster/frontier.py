"""When has a worker all that the others had committed?  Reads that must see their session's own writes ask for it.

A mark is a message like any other, so whoever answers one has sent all that came of its ticks before, and whoever gets
the answer has it.  Rows pass as many exchanges as a path of the graph has: so a worker asked by a mark of depth d first
catches up with depth d itself.

Keeps true: what a change that was committed before `catch_up(d)` makes of this worker's states beyond at most d
exchanges is there when it is answered; a state that lost a worker's rows is then whole again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache

from noria.dataflow.graph.nodes import Node
from noria.dataflow.messages.peer_messages import Mark, Marked, Message


@dataclass(frozen=True)
class _Round:
    """Marks that were sent: their depth, who has not answered, and for whom it is (-1: a request of this worker's
    own)."""

    depth: int
    missing: set[int]
    then: Callable[[], None]
    asker: int


class Marks:
    """send: puts a message last into the channel to a worker; park: has the second called, between ticks, when the
    first says so; first: marks of this life of the worker have greater numbers; whole: is there no state that lost
    rows?"""

    def __init__(self, others: list[int], send: Callable[[int, Message], None],
                 park: Callable[[Callable[[], bool], Callable[[], None], int], None], first: int,
                 whole: Callable[[], bool]):
        self._others, self._send, self._park, self._whole, self._next = others, send, park, whole, first
        self._rounds: dict[int, _Round] = {}

    def catch_up(self, depth: int, then: Callable[[], None], asker: int = -1, of: Collection[int] = ()) -> None:
        """`then` is called, between ticks, when this worker has caught up.  of: with whom, beyond one exchange; none
        given: with all."""
        others = [w for w in self._others if not of or w in of]
        if not depth or not others:
            self._park(self._whole, then, asker)
            return
        self._next += 1
        self._rounds[self._next] = _Round(depth, set(others), then, asker)
        for w in others:
            self._send(w, Mark(self._next, depth - 1))

    def asked(self, sender: int, mark: Mark) -> None:
        self.catch_up(mark.depth, lambda: self._send(sender, Marked(mark.ask)), sender)

    def answered(self, sender: int, answer: Marked) -> None:
        found = self._rounds.get(answer.ask)
        if found is None:  # of another life of this worker
            return
        found.missing.discard(sender)
        if not found.missing:
            del self._rounds[answer.ask]
            self._park(self._whole, found.then, found.asker)

    def lost(self, worker: int) -> None:
        """It starts again, and knows of no mark; what it asked is forgotten."""
        self._rounds = {n: r for n, r in self._rounds.items() if r.asker != worker}
        for number, r in self._rounds.items():
            if worker in r.missing:
                self._send(worker, Mark(number, r.depth - 1))

    def rounds(self) -> Iterable[_Round]:
        return self._rounds.values()

    def idle(self) -> bool:
        return not self._rounds


def exchanges_above(node: Node) -> int:
    """How many exchanges rows may pass on their way to a node."""
    @cache
    def above(n: Node) -> int:
        return max(map(above, n.parents), default=0) + n.op.remote

    return above(node)
