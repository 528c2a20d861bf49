"""Cycles among waits for locks of several kinds, under random interleavings, beside a slow reference."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from noria.dataflow.transactions.wait_graph import RowWait, Wait, WaitGraph, Weight

Edges = dict[int, set[int]]


def simple_cycles(edges: Edges, party: int) -> Iterator[tuple[int, ...]]:
    """All cycles through the party, by trying every path."""
    paths = [(party,)]
    while paths:
        path = paths.pop()
        for following in edges.get(path[-1], ()):
            if following == party:
                yield path
            elif following not in path:
                paths.append((*path, following))


class Rig:
    """Parties that lock resources, one at a time and in turn.  Locks with a letter of `rows` belong to a worker: `look`
    passes their waits to the graph."""

    def __init__(self, seed: int) -> None:
        self.rng, self.graph = random.Random(seed), WaitGraph()
        self.parties = range(self.rng.randint(2, 6))
        self.names = "abcdef"[: self.rng.randint(2, 6)]
        self.rows = self.names[: self.rng.randint(0, len(self.names) - 1)]
        self.queues: dict[str, list[int]] = {name: [] for name in self.names}  # the first one is the holder
        self.waits: dict[int, str] = {}
        self.worth = {p: (self.rng.choice(list(Weight)), self.rng.randint(0, 2)) for p in self.parties}

    def blockers(self, party: int) -> list[int]:
        queue = self.queues[self.waits[party]]
        return queue[: queue.index(party)]

    def edges(self, also: str) -> Edges:
        """Which party waits for which.  also: the resources of workers that count."""
        return {p: set(self.blockers(p)) for p, name in self.waits.items() if name not in self.rows or name in also}

    def step(self) -> None:
        party, name = self.rng.choice(self.parties), self.rng.choice(self.names)
        if party in self.waits:
            if self.rng.random() < 0.1:
                self.leave(party, self.waits[party])  # killed, or its time is over
        elif party in self.queues[name]:
            self.leave(party, name)
        else:
            self.queues[name].append(party)
            if self.queues[name][0] != party:
                self.begin(party, name)

    def begin(self, party: int, name: str) -> None:
        self.waits[party] = name
        if name in self.rows:
            return
        edges = self.edges("")
        victims = self.graph.begin(party, Wait(*self.worth[party], lambda: self.blockers(party)))
        self.check(victims, edges, [party])

    def look(self) -> None:
        """Pass the waits at workers to the graph."""
        rows = {p: RowWait(*self.worth[p], self.blockers(p)) for p, name in self.waits.items() if name in self.rows}
        edges = self.edges(self.rows)
        in_cycles = {p for p in self.graph if any(simple_cycles(edges, p))}
        cycles = list(self.graph.cycles(rows))
        assert {cycle[0] for cycle in cycles} == in_cycles
        for cycle in cycles:
            assert all(b in edges[a] for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True))
        self.check(self.graph.victims(rows, self.parties), edges, list(self.graph))

    def check(self, victims: list[int], edges: Edges, waiting: list[int]) -> None:
        """Each victim has, in turn, the least weight of a cycle; after them no cycle contains a waiting party."""
        for victim in victims:
            cycles = [c for p in waiting for c in simple_cycles(edges, p)]
            assert any(victim in c and self.worth[victim] == min(self.worth[p] for p in c) for c in cycles)
            del edges[victim]
        assert not any(c for p in waiting for c in simple_cycles(edges, p))
        for victim in victims:
            self.leave(victim, self.waits[victim])

    def leave(self, party: int, name: str) -> None:
        """Release a lock, or withdraw the wait for it."""
        queue = self.queues[name]
        queue.remove(party)
        self.over(party, name)
        if queue:
            self.over(queue[0], name)

    def over(self, party: int, name: str) -> None:
        if self.waits.get(party) == name:
            del self.waits[party]
            if party in self.graph:
                self.graph.end(party)


@pytest.mark.parametrize("seed", range(200))
def test_random_interleavings(seed: int) -> None:
    rig = Rig(seed)
    for n in range(300):
        rig.step()
        assert not any(any(simple_cycles(rig.edges(""), p)) for p in rig.parties), "a cycle was not ended"
        if n % 7 == 0:
            rig.look()
            assert not any(any(simple_cycles(rig.edges(rig.rows), p)) for p in rig.graph)
    for party in rig.parties:
        for name in rig.names:
            if party in rig.queues[name]:
                rig.leave(party, name)
    assert not rig.waits and not len(rig.graph)


def test_the_wait_of_least_weight_is_ended_and_among_equals_the_one_that_closes_the_cycle() -> None:
    graph = WaitGraph()
    assert graph.begin("a", Wait(Weight.DEFINITION, 0, lambda: ["b"])) == []
    assert graph.begin("b", Wait(Weight.USER_LOCK, 5, lambda: ["c"])) == []
    assert graph.begin("c", Wait(Weight.USER_LOCK, 5, lambda: ["a"])) == ["c"]
    graph.end("c")
    assert graph.begin("c", Wait(Weight.DEFINITION, 5, lambda: ["a"])) == ["b"]
    assert graph.begin("d", Wait(Weight.STATEMENT, 0, lambda: ["a", "b", "c"])) == []  # in no cycle
    assert graph.blockers() == set()


def test_a_victim_counts_no_more_before_it_has_ended() -> None:
    graph = WaitGraph()
    graph.begin("a", Wait(Weight.STATEMENT, 0, lambda: ["b"]))
    assert graph.begin("b", Wait(Weight.USER_LOCK, 0, lambda: ["a", "c"])) == ["a"]
    assert graph.begin("c", Wait(Weight.DEFINITION, 0, lambda: ["a"])) == []
    assert list(graph.cycles({})) == []


def test_a_row_wait_that_cannot_be_ended_is_no_victim() -> None:
    graph = WaitGraph()
    graph.begin("a", Wait(Weight.DEFINITION, 0, lambda: ["w"]))
    rows = {"w": RowWait(Weight.STATEMENT, 0, ["a"], ends=False)}
    assert graph.victims(rows, ["a", "w"]) == ["a"]


def test_one_wait_at_a_time() -> None:
    graph = WaitGraph()
    graph.begin("a", Wait(Weight.STATEMENT, 0, lambda: ["b"]))
    with pytest.raises(ValueError, match="waits already"):
        graph.begin("a", Wait(Weight.STATEMENT, 0, lambda: ["b"]))
