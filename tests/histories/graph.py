"""The graph of dependencies between moments, and its cycles by name.

    ww    a value was appended after another moment's
    wr    a moment read another one's value
    rw    a moment did not read a value that was appended later
    time  a moment had ended before another one began

A cycle is an anomaly, since no order of its moments explains what they read.  Its name depends on its rw edges:

    none, ww only            dirty write (G0)
    none                     circular information flow (G1c)
    one, of one key          lost update if the reader wrote it, else non-repeatable read, or phantom of a set
    one                      read skew (G-single)
    several, none adjacent   long fork
    several                  write skew (G2)

Keeps true: every cycle has a name, and a graph without a cycle has none.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from histories.direct import NON_REPEATABLE, PHANTOM, Anomaly
from histories.history import History, Key, Kind, Value
from histories.moments import Moment

WW, WR, RW, TIME = "ww", "wr", "rw", "time"
DIRTY_WRITE, CIRCULAR, LOST_UPDATE = "dirty write", "circular information flow", "lost update"
READ_SKEW, LONG_FORK, WRITE_SKEW = "read skew", "long fork", "write skew"
IN_TIME = ", in real time"  # the cycle needs the clock


class Edge(NamedTuple):
    kind: str
    key: Key | None
    to: int


class Step(NamedTuple):
    """An edge and where it begins."""

    at: int
    edge: Edge


@dataclass
class Graph:
    """`moments`: the nodes; further nodes stand for points in time."""

    moments: Sequence[Moment]
    edges: list[list[Edge]] = field(default_factory=list)
    component: list[int] = field(default_factory=list)

    def add(self, kind: str, key: Key | None, a: int, b: int) -> None:
        if a != b:
            self.edges[a].append(Edge(kind, key, b))


def graph_of(history: History, moments: Sequence[Moment], clock: bool = True) -> Graph:
    """`clock`: with the edges of time."""
    graph = Graph(moments, [[] for _ in moments])
    writer = {(k, v): n for n, m in enumerate(moments) for k, v in m.writes}
    for key, order in history.order.items():
        if key.kind is Kind.LIST:
            _appended(graph, key, [n for v in order if (n := writer.get((key, v))) is not None])
    for n, moment in enumerate(moments):
        for key, values in moment.reads:
            _read(graph, writer, history.order.get(key, ()), n, key, values)
    if clock:
        _timed(graph)
    graph.component = _components(graph.edges)
    return graph


def _appended(graph: Graph, key: Key, writers: Sequence[int]) -> None:
    for a, b in itertools.pairwise(writers):
        graph.add(WW, key, a, b)


def _read(graph: Graph, writer: dict[tuple[Key, Value], int], order: Sequence[Value], n: int, key: Key,
          values: Sequence[Value]) -> None:
    found = set(values)
    last = values[-1:] if key.kind is Kind.LIST else values  # ww edges lead to the last from those before it
    for v in last:
        if (w := writer.get((key, v))) is not None:
            graph.add(WR, key, w, n)
    later = (w for v in order if v not in found and (w := writer.get((key, v))) is not None and w != n)
    if key.kind is Kind.LIST:
        later = (w for w in [next(later, None)] if w is not None)
    for w in later:
        graph.add(RW, key, n, w)


def _timed(graph: Graph) -> None:
    _chained(graph, [n for n, m in enumerate(graph.moments) if m.alone is None], range(len(graph.moments)))
    for key in {m.alone for m in graph.moments if m.alone is not None}:
        _chained(graph, [n for n, m in enumerate(graph.moments) if m.alone == key],
                 [n for n, m in enumerate(graph.moments) if any(k == key for k, _ in m.reads)])


def _chained(graph: Graph, before: Sequence[int], after: Sequence[int]) -> None:
    """Edges of time between moments.  One node for each end, in a chain: as many edges as moments, not their square."""
    ends = sorted((graph.moments[n].ended, n) for n in before if graph.moments[n].ended != float("inf"))
    first = len(graph.edges)
    graph.edges.extend([] for _ in ends)
    for i, (_, n) in enumerate(ends):
        graph.edges[n].append(Edge(TIME, None, first + i))
        if i:
            graph.edges[first + i - 1].append(Edge(TIME, None, first + i))
    times = [t for t, _ in ends]
    for n in after:
        if (ended := bisect_left(times, graph.moments[n].began)) > 0:
            graph.edges[first + ended - 1].append(Edge(TIME, None, n))


def _components(edges: Sequence[Sequence[Edge]]) -> list[int]:
    """The strongly connected component of each node (Tarjan), without recursion."""
    number, low = [-1] * len(edges), [0] * len(edges)
    component, stack, count = [-1] * len(edges), list[int](), 0
    for root in range(len(edges)):
        if number[root] >= 0:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if at == 0:
                number[node] = low[node] = count
                count += 1
                stack.append(node)
            elif at > 0:
                low[node] = min(low[node], low[edges[node][at - 1].to])
            for i in range(at, len(edges[node])):
                to = edges[node][i].to
                if number[to] < 0:
                    work += [(node, i + 1), (to, 0)]
                    break
                if component[to] < 0:
                    low[node] = min(low[node], number[to])
            else:
                if low[node] == number[node]:
                    while component[node] < 0:
                        component[stack.pop()] = node
    return component


# ---------------------------------------------------------------- cycles
def cycles(graph: Graph, most: int = 200) -> Iterator[Anomaly]:
    """For each edge that closes a cycle the cycle with the strongest name.  Each set of moments once, `most` in all."""
    told: set[tuple[str, frozenset[int]]] = set()
    for start, edge in _closing(graph):
        ways = (_way(graph, edge.to, start, kinds, edge.kind == RW) for kinds in _KINDS[edge.kind])
        way = next((w for w in ways if w is not None), None)
        if way is None:
            continue  # only edges of weaker kinds lead back, and the cycle is found from one of them
        cycle = [Step(start, edge), *way]
        name, nodes = _name(graph, cycle), frozenset(s.at for s in cycle if s.at < len(graph.moments))
        if (name, nodes) not in told:
            told.add((name, nodes))
            yield Anomaly(name, _text(graph, cycle))
        if len(told) == most:
            return


def _closing(graph: Graph) -> Iterator[tuple[int, Edge]]:
    """Edges within a component, but those of time."""
    for start, out in enumerate(graph.edges):
        for edge in out:
            if graph.component[start] == graph.component[edge.to] and edge.kind != TIME:
                yield start, edge


_KINDS: dict[str, tuple[Collection[str], ...]] = {
    WW: ((WW,), (WW, TIME)),
    WR: ((WW, WR), (WW, WR, TIME)),
    RW: ((WW,), (WW, WR), (WW, WR, TIME), (WW, WR, RW), (WW, WR, RW, TIME)),
}


def _way(graph: Graph, start: int, end: int, kinds: Collection[str], after_rw: bool) -> list[Step] | None:
    """The shortest way: without two adjacent rw edges if there is one."""
    if RW not in kinds:
        return _shortest(graph, start, end, kinds, True, False)
    found = _shortest(graph, start, end, kinds, False, after_rw)
    return found if found is not None else _shortest(graph, start, end, kinds, True, after_rw)


def _shortest(graph: Graph, start: int, end: int, kinds: Collection[str], adjacent: bool, after_rw: bool
              ) -> list[Step] | None:
    """Breadth first.  A place is a node and, if rw edges may not be adjacent, whether an rw edge led to it."""
    first = (start, after_rw and not adjacent)
    came: dict[tuple[int, bool], tuple[tuple[int, bool], Step]] = {}
    queue, known = deque([first]), {first}
    while queue:
        place = queue.popleft()
        node, was_rw = place
        if node == end and not was_rw:
            way = list[Step]()
            while place != first:
                place, step = came[place]
                way.append(step)
            return way[::-1]
        for edge in graph.edges[node]:
            if edge.kind in kinds and graph.component[edge.to] == graph.component[start] and not (
                    was_rw and edge.kind == RW):
                after = (edge.to, edge.kind == RW and not adjacent)
                if after not in known:
                    known.add(after)
                    came[after] = place, Step(node, edge)
                    queue.append(after)
    return None


def _name(graph: Graph, cycle: Sequence[Step]) -> str:
    steps = [s for s in cycle if s.edge.kind != TIME]
    late = IN_TIME if len(steps) < len(cycle) else ""
    kinds = [s.edge.kind for s in steps]
    if RW not in kinds:
        return (DIRTY_WRITE if set(kinds) == {WW} else CIRCULAR) + late
    if kinds.count(RW) == 1:
        return _with_one(graph, steps) + late
    around = [s.edge.kind for s in cycle]
    adjacent = any(a == b == RW for a, b in zip(around, around[1:] + around[:1], strict=True))
    return (WRITE_SKEW if adjacent else LONG_FORK) + late


def _with_one(graph: Graph, steps: Sequence[Step]) -> str:
    keys = {s.edge.key for s in steps}
    [reader] = [s.at for s in steps if s.edge.kind == RW]
    if len(keys) > 1:
        return READ_SKEW
    [key] = keys
    if key in {k for k, _ in graph.moments[reader].writes}:
        return LOST_UPDATE
    return NON_REPEATABLE if key is not None and key.kind is Kind.LIST else PHANTOM


def _text(graph: Graph, cycle: Sequence[Step]) -> str:
    lines = [f"\n  [{s.at}] {graph.moments[s.at]}\n    --{s.edge.kind} {s.edge.key or ''}-->" for s in cycle
             if s.at < len(graph.moments)]
    return "".join(lines) + f"\n  [{cycle[0].at}]"
