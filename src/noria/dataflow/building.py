"""First states and indexes over many rows, built in slices while everything else goes on (sections 4.5 and 5).

A full node's first state is a series of ticks of its own: gates (`ops.gate`) let the rows of what it derives from pass
slice by slice, through copies of the stateless operators on the way, which get all deltas besides.  So no snapshot is
kept and nothing must be caught up with: at every moment the state is its operators applied to what has passed.

Keeps true:
* a node is built when everything that it derives from is whole; until its own state is, it is *inert*: in no tick of
  the graph, and no view over it is read
* of a join one side passes a gate, the larger one if it may; the other is there from the beginning, and meets nothing
  before rows of the first have passed
* a partial node whose lookups need an index is inert until the index is there; it keeps nothing, so it misses nothing
* a partial node in use that must become full stays as it is until its full state is there, built beside it; until then
  what needs it full is *dormant*: in no layout
* what is in use looks up by indexes that are there: what a new layout wants of it besides, it does when they are
* what a build cannot go on for ends this build, with its error, and nothing else
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from noria.core.batch import Batch, concat
from noria.core.errors import InvariantViolation, SqlError
from noria.core.limits import BUILD_AT_ONCE_ROWS, BUILD_SLICE_MS
from noria.dataflow import ranged
from noria.dataflow.graph import Columns, Node, Operator, ancestors, nearest
from noria.dataflow.protocols import IndexBuild, State, StoreBroken
from noria.dataflow.work import Work

if TYPE_CHECKING:
    from noria.dataflow.engine import Engine
    from noria.dataflow.ops.gate import Gate

Lookups = tuple[frozenset[int], bool]  # a node's `primaries` and `full_below`
FIRST_ROWS = 256  # of a slice; then as many as take BUILD_SLICE_MS
MOST_ROWS = 65_536


@dataclass(frozen=True)
class Progress:
    """What is being built: rows done, of how many as far as is known, and what it waits for or why it ended."""

    what: str
    done: int
    total: int
    waits: str = ""
    failed: bool = False


class Build:
    """rows: of the next slice; error: why it does not go on."""

    def __init__(self) -> None:
        self.rows = FIRST_ROWS
        self.error: SqlError | None = None

    def step(self, engine: Engine) -> bool:
        """One slice; True when it is whole."""
        raise NotImplementedError

    def counts(self, engine: Engine) -> tuple[int, int]:
        """Rows done, and of how many."""
        raise NotImplementedError

    def what(self) -> str:
        raise NotImplementedError


class FirstState(Build):
    """The state of one full node, from what is above it.  Begun, it is in every tick, after the graph."""

    def __init__(self, node: Node):
        super().__init__()
        self.node = node
        self._shadow: Node | None = None  # does what the node will do, below `_way`
        self._way: list[Node] = []  # copies of stateless nodes, and gates, in topological order
        self._gates: list[tuple[Node, Gate]] = []
        self.sources: set[Node] = set()

    @property
    def begun(self) -> bool:
        return self._shadow is not None

    def _begin(self, engine: Engine) -> Node:
        n = self.node
        (parent,) = n.parents
        shadow = Node(n.id, n.op, (self._driven(engine, parent),), fields=n.fields, full=True, full_below=n.full_below)
        self._shadow = shadow
        self._state(engine, shadow)
        gates = [gate for _, gate in self._gates]
        expected = sum(g.total(engine) for g in gates)
        n.op.begin(engine, shadow, expected, expected if all(g.source.parents for g in gates) else 0)
        (top,) = shadow.parents
        for rows in top.op.stream(engine, top):  # what is there of no rows at all, as GROUP_CONCAT without groups
            n.op.tick(engine, shadow, [rows])
        return shadow

    @property
    def state(self) -> State | None:
        """What is being filled."""
        return None if self._shadow is None else self._shadow.state

    def refit(self) -> None:
        """After a new layout: the node's state may have other indexes."""
        if self._shadow is not None:
            n, shadow = self.node, self._shadow
            shadow.state, shadow.indexes, shadow.ranges = n.state, n.indexes, n.ranges

    def _state(self, engine: Engine, shadow: Node) -> None:
        self.refit()

    def _driven(self, engine: Engine, n: Node) -> Node:
        """A copy of the way to n, with gates where it begins."""
        if n.op.stateful:
            gate = n.op.gate(n)
            self.sources.add(n)
            node = self._copied(n, gate, (n,))
            self._gates.append((node, gate))
            return node
        drivers = set(n.op.drivers() or range(len(n.parents)))
        if n.op.drivers():  # the largest: what it looks up meets few rows
            drivers = {max(drivers, key=lambda port: _rows(engine, n.parents[port]))}
        return self._copied(n, n.op, tuple(self._driven(engine, p) if port in drivers else self._plain(p)
                                           for port, p in enumerate(n.parents)))

    def _plain(self, n: Node) -> Node:
        """What the other side of a join looks up in: n as it is."""
        if n.op.stateful:
            self.sources.add(n)
            return n
        return self._copied(n, n.op, tuple(map(self._plain, n.parents)))

    def _copied(self, n: Node, op: Operator, parents: tuple[Node, ...]) -> Node:
        node = Node(n.id, op, parents, fields=n.fields, full_below=True)
        self._way.append(node)
        return node

    def tick(self, engine: Engine, deltas: Mapping[Node, Batch]) -> None:
        """Output deltas of sources, or what passes a gate."""
        out = dict(deltas)
        for n in self._way:
            mine = [out.get(p) for p in n.parents]
            if any(d is not None for d in mine):
                made = n.op.tick(engine, n, mine)
                if made is not None and len(made):
                    out[n] = made
        shadow = self._shadow
        assert shadow is not None
        delta = out.get(shadow.parents[0])
        if delta is not None:
            if shadow.ranges:
                ranged.admit(engine, shadow, [delta])
            shadow.op.tick(engine, shadow, [delta])

    def step(self, engine: Engine) -> bool:
        shadow = self._shadow or self._begin(engine)
        for node, gate in self._gates:
            if not gate.open:
                rows = gate.advance(engine, self.rows)
                if len(rows):
                    self.tick(engine, {node: rows})
                break
        if not all(gate.open for _, gate in self._gates):
            return False
        shadow.op.finish(engine, shadow)
        return True

    def counts(self, engine: Engine) -> tuple[int, int]:
        gates = [gate for _, gate in self._gates]
        return sum(g.done for g in gates), sum(g.total(engine) for g in gates)

    def what(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}"


class Promotion(FirstState):
    """The full state that a partial one in use is to become: built beside it, then put in its place."""

    def __init__(self, node: Node, indexes: list[Columns]):
        super().__init__(node)
        self._indexes = indexes

    def refit(self) -> None:
        """Its indexes are those of the layout in which the node is full."""

    def _state(self, engine: Engine, shadow: Node) -> None:
        shadow.indexes = self._indexes
        shadow.op.make_state(engine, shadow)

    def put(self) -> None:
        """The node is full from now on."""
        assert self._shadow is not None
        n = self.node
        n.full, n.state, n.ranges, n.indexes = True, self._shadow.state, {}, self._indexes


class Delivered(Build):
    """The state of one full node from input rows as of a snapshot, then from the deltas kept back since."""

    def __init__(self, node: Node, rows: Iterator[Batch]):
        super().__init__()
        self.node = node
        self.state = node.state
        self._batches, self.rest = rows, Batch.empty(0)
        self._done = self._begun = 0

    def step(self, engine: Engine) -> bool:
        n = self.node
        if not self._begun:
            self._begun = 1
            n.op.begin(engine, n, 0, 0)
        if not len(self.rest):
            batch = next(self._batches, None)
            if batch is None:
                return self._finish(engine)
            self.rest = batch
            return False
        part, self.rest = _split(self.rest, self.rows)
        n.op.tick(engine, n, [part])
        self._done += len(part)
        return False

    def _finish(self, engine: Engine) -> bool:
        """The deltas in one: a group that is pulled again has those of the whole tick."""
        n = self.node
        stash, n.stash = concat(n.stash or [], n.parents[0].width), None
        if len(stash):
            n.op.tick(engine, n, [stash])
        n.op.finish(engine, n)
        return True

    def counts(self, engine: Engine) -> tuple[int, int]:
        return self._done, self._done

    def what(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}, computed by Spark"


class NewIndex(Build):
    """An index of a base table."""

    def __init__(self, base: Node, columns: Columns, build: IndexBuild):
        super().__init__()
        self.base, self.columns, self.build = base, columns, build

    def step(self, engine: Engine) -> bool:
        return self.build.over or self.build.step(self.rows)

    def counts(self, engine: Engine) -> tuple[int, int]:
        return self.build.done, self.build.total

    def what(self) -> str:
        by = ", ".join(self.base.fields[c].name for c in self.columns)
        return f"index of {self.base.op.describe()} by {by}"


@dataclass
class Builds:
    """All that is being built, taking turns.  at_once_rows: what derives from no more rows is built by whoever asks;
    state_bytes: what one state may take (0: any); unforeseen: notes a defect, and gives the error to answer with."""

    engine: Engine
    at_once_rows: int = BUILD_AT_ONCE_ROWS
    state_bytes: int = 0
    unforeseen: Callable[[Exception], SqlError] | None = None
    states: dict[Node, FirstState | Delivered] = field(default_factory=dict)
    indexes: dict[tuple[Node, Columns], NewIndex] = field(default_factory=dict)
    _turns: deque[Build] = field(default_factory=deque)
    promised: set[tuple[Node, Columns]] = field(default_factory=set)  # lookups in base tables that these will make
    dormant: set[Node] = field(default_factory=set)  # new nodes that wait until what they need is full
    _later: dict[Node, Lookups] = field(default_factory=dict)  # how nodes in use will look up, with the index for it

    # -------------------------------------------------------------- what is to be built
    def index(self, base: Node, table: str, columns: Columns) -> None:
        """The base table is to be looked up by these columns."""
        store = self.engine.store
        if (base, columns) in self.indexes:  # or failed, until whoever wants it is dropped
            return
        if store.row_count(table) <= self.at_once_rows:
            store.add_index(table, columns, self.engine.work)
            return
        build = store.begin_index(table, columns)
        if build is not None:
            self.indexes[base, columns] = made = NewIndex(base, columns, build)
            self._turns.append(made)

    def state(self, build: FirstState | Delivered) -> None:
        """The node is full and has no state yet."""
        self.states[build.node] = build
        self._turns.append(build)

    def promote(self, wanted: Mapping[Node, list[Columns]]) -> None:
        """These partial nodes are to be full, with these indexes; no others are."""
        for n, build in list(self.states.items()):
            if isinstance(build, Promotion) and n not in wanted:
                self._turns.remove(self.states.pop(n))
        for n, indexes in wanted.items():
            if n not in self.states:
                self.state(Promotion(n, indexes))

    def waits(self, node: Node) -> bool:
        """Is something that the node derives from not there yet?"""
        above = ancestors(node)[:-1]
        return self._lacks_index(above) or any(a.op.stateful and (a.inert or a.stash is not None) for a in above)

    def _lacks_index(self, nodes: list[Node]) -> bool:
        return bool(self.indexes) and not {base for base, _ in self.indexes}.isdisjoint(nodes)

    def finish_indexes(self, node: Node) -> None:
        """Those that a node must have now."""
        above = set(ancestors(node))
        for made in [m for m in self.indexes.values() if m.base in above]:
            made.rows = MOST_ROWS
            while not made.step(self.engine):
                if self.engine.work is not None:
                    self.engine.work.check()
            self._whole(made)

    def again(self, table: str) -> None:
        """Rows came to the table beside all deltas."""
        base = self.engine.bases.get(table)
        for made in self.indexes.values():
            if made.base is base:
                made.build.again()

    # -------------------------------------------------------------- the graph has changed
    def relaid(self, before: Mapping[Node, Lookups]) -> None:
        """After a layout: forget what nobody wants any more, and say who is in ticks.  before: of nodes in use, what
        made them look something up."""
        nodes = set(self.engine.graph.nodes)
        for n in [n for n in self.states if n not in nodes]:
            self._turns.remove(self.states.pop(n))
        for (base, columns), made in list(self.indexes.items()):
            if base not in nodes or (columns not in base.pulled and (base, columns) not in self.promised):
                self._forget_index(made)
        for state in self.states.values():
            if isinstance(state, FirstState):
                state.refit()
        self._later = {n: (n.primaries, n.full_below) for n, old in before.items()
                       if n in nodes and old != (n.primaries, n.full_below) and self._lacks_index(ancestors(n))}
        for n in self._later:
            n.primaries, n.full_below = before[n]
        self.settle()

    def _forget_index(self, made: NewIndex) -> None:
        made.build.give_up()
        del self.indexes[made.base, made.columns]
        self._turns.remove(made)

    def settle(self) -> None:
        """Who is inert: what is being built, what waits for that, and what works for these only; who looks up what."""
        nodes = self.engine.graph.nodes
        for n in [n for n in self._later if not self._lacks_index(ancestors(n))]:
            n.primaries, n.full_below = self._later.pop(n)
        for n in nodes:
            if n.op.stateful and n.parents:
                new, build = n.inert or not n.live, self.states.get(n)
                own = build is not None and not isinstance(build, Promotion)
                n.inert = n in self.dormant or (n.stash is None and (own or (new and self.waits(n))))
            n.live = n.live or not n.inert
        for n in reversed(nodes):
            if not n.op.stateful:
                n.inert = n in self.dormant or (bool(n.children) and all(c.inert for c, _ in n.children))

    # -------------------------------------------------------------- building
    def __bool__(self) -> bool:
        """Is there something that can go on?"""
        return any(map(self._can, self._turns))

    def _can(self, build: Build) -> bool:
        if build.error is not None:
            return False
        if not isinstance(build, FirstState) or build.begun:
            return True
        whole = all(m.full or not m.parents for m in nearest(build.node))
        return whole and not self.waits(build.node)

    def sources(self) -> set[Node]:
        """The nodes whose output deltas `tick` wants."""
        return {n for s in self._begun() for n in s.sources}

    def _begun(self) -> Iterator[FirstState]:
        return (s for s in self.states.values() if isinstance(s, FirstState) and s.begun and s.error is None)

    def tick(self, deltas: Mapping[Node, Batch]) -> None:
        """What sources put out in a tick."""
        for state in list(self._begun()):
            mine = {n: d for n, d in deltas.items() if n in state.sources}
            if mine:
                self._try(state, lambda state=state, mine=mine: state.tick(self.engine, mine))  # type: ignore[misc]

    def next(self) -> Build | None:
        """Whose turn it is; None where nothing can go on."""
        for _ in range(len(self._turns)):
            if self._can(self._turns[0]):
                return self._turns[0]
            self._turns.rotate(-1)
        return None

    def step(self) -> None:
        """One slice of the next in turn."""
        build = self.next()
        if build is not None:
            self._turns.rotate(-1)
            self._slice(build)

    def all(self) -> None:
        """Everything that can go on, to its end."""
        while self:
            self.step()

    def _slice(self, build: Build) -> None:
        clock = self.engine.clock
        start = 0 if clock is None else clock()
        if self._try(build, lambda: build.step(self.engine)):
            self._whole(build)
        elif clock is not None:
            took = (clock() - start) / 1e6
            if took > BUILD_SLICE_MS:
                build.rows = max(build.rows // 2, 1)
            elif took < BUILD_SLICE_MS / 2:
                build.rows = min(build.rows * 2, MOST_ROWS)

    def _try(self, build: Build, step: Callable[[], bool | None]) -> bool:
        engine = self.engine
        outer, engine.work = engine.work, Work()
        try:
            whole = bool(step())
            state = build.state if isinstance(build, FirstState | Delivered) else None
            if state is not None:
                Work(state_bytes=self.state_bytes).grown(state.memory(), build.what())
        except SqlError as error:
            build.error = error
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            if self.unforeseen is None:
                raise
            build.error = self.unforeseen(bug)
        finally:
            engine.work = outer
        return build.error is None and whole

    def _whole(self, build: Build) -> None:
        self._turns.remove(build)
        if isinstance(build, NewIndex):
            del self.indexes[build.base, build.columns]
        elif isinstance(build, FirstState | Delivered):
            del self.states[build.node]
        if not isinstance(build, Promotion):
            self.settle()
            return
        build.put()
        self._try(build, self.engine.relayout)
        if build.error is not None:  # what waits for it will not be there
            self.states[build.node] = build

    def held(self) -> Iterator[Batch]:
        """Rows that are in no state yet."""
        return (s.rest for s in self.states.values() if isinstance(s, Delivered))

    def apart(self) -> Iterator[tuple[Node, State]]:
        """States that are no node's yet."""
        return ((n, s.state) for n, s in self.states.items() if isinstance(s, Promotion) and s.state is not None)

    # -------------------------------------------------------------- what is told of it
    def of_view(self, view: str) -> list[Build]:
        """What a view waits for."""
        if self.engine.ready(view):
            return []
        above = ancestors(self.engine.readers[view])
        states: list[Build] = [self.states[n] for n in above if n in self.states]
        return states + [m for m in self.indexes.values() if m.base in above]

    def error_of(self, view: str) -> SqlError | None:
        """Why the view will not be there."""
        return next((b.error for b in self.of_view(view) if b.error is not None), None)

    def progress(self, build: Build) -> Progress:
        done, total = build.counts(self.engine)
        waits = "" if build.error is None else build.error.message
        if build.error is None and not self._can(build):
            waits = "waits for what it derives from"
        return Progress(build.what(), done, max(done, total), waits, build.error is not None)


def _rows(engine: Engine, n: Node) -> int:
    """Of all that a node derives from."""
    return sum(m.op.size(engine, m) for m in ({n} if n.op.stateful else nearest(n)))


def _split(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    if len(batch) <= rows:
        return batch, Batch.empty(batch.width)
    cut = [Batch(batch.columns[:, s].copy(), batch.weights[s].copy()) for s in (slice(rows), slice(rows, None))]
    return cut[0], cut[1]
