"""The joint data-flow graph: nodes, edges, and what the layout decided for each node.

Keeps true: `nodes` is in topological order (parents before children); an edge stands in both its ends.  What a
node does is its operator (`ops/`, one file each); what it keeps is decided by `layout.py` for the whole graph.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.dataflow.graph.partition import ONE, Partition, Parts, alike
from noria.dataflow.graph.protocols import BaseStore, State
from noria.dataflow.graph.story import More
from noria.dataflow.graph.work import Work
from noria.state.ranges import Ranges
from noria.state.table import Columns as Columns

if TYPE_CHECKING:
    from noria.dataflow.backfill.read_ahead import ReadAhead
    from noria.dataflow.cluster.pending import Gather
    from noria.dataflow.cluster.remote_scan import Piece
    from noria.dataflow.engine.engine import Engine
    from noria.dataflow.ops.gate import Gate


class Untraceable(Exception):
    """No index above can answer these columns: the node that wanted them must be full (section 4.5)."""

    def __init__(self, node: Node, why: str):
        super().__init__(why)
        self.node, self.why = node, why


class Remote(Exception):
    """Rows of other workers are missing here, and are being gathered: the request is run again when these are over."""

    def __init__(self, gathers: tuple[Gather | Piece, ...]):
        super().__init__()
        self.gathers = gathers


class Mode(Enum):
    """How a read of upstream state treats missing keys."""

    STORED = "stored"  # what is stored is all that matters
    FILL = "fill"  # the key must be complete: pull it
    CHECK = "check"  # it must be complete already: a missing key breaks HOLE-CLOSED


@dataclass(frozen=True)
class Need:
    """A pull by some columns asks parent `port` for `cols`.  primary: the port the pull comes from (joins), or
    None; find: also find stored rows of that parent by these columns."""

    port: int
    cols: Columns
    primary: int | None = None
    find: Columns | None = None


@dataclass(frozen=True)
class Pattern:
    """Rows that agree with one of n value tuples in some columns: what an eviction carries (rule R7).  source:
    for each tuple, the ordinal of the key it came from."""

    cols: Columns
    values: Codes  # shape (len(cols), n)
    source: Codes


class Puller(Protocol):
    """On whose behalf operators read what is above them: the engine, which fills what its states miss, or a one-shot
    query (`oneshot.py`), whose operators keep nothing."""

    work: Work | None

    @property
    def symbols(self) -> Symbols: ...

    @property
    def store(self) -> BaseStore: ...

    @property
    def tick_number(self) -> int: ...

    def texts_of(self, base: Node) -> Collection[int] | None:
        """The columns of a base table whose texts are looked at; None: all."""

    def fetch(self, node: Node, cols: Columns, keys: Codes, mode: Mode) -> tuple[Batch, Codes]:
        """node's rows whose cols equal a key, with the key's ordinal; keys may repeat, NULL equals NULL."""

    def looked_up(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """`fetch` of a base table, from the store."""

    def note(self, kind: str, node: Node, cols: Columns, rows: Batch | Codes | None, more: More | None = None) -> None:
        """An event for whoever follows them."""

    def stream(self, node: Node) -> Iterator[Batch]:
        """All rows of a node, in slices."""

    def everything(self, node: Node) -> Batch:
        """All rows of a node."""

    def driver(self, node: Node) -> int:
        """The side of an inner join that is read, the other being looked up, where all its rows are wanted."""


class Gathered(Protocol):
    """What an operator keeps of rows that come in slices."""

    def add(self, rows: Batch) -> None: ...

    def rows(self) -> Batch:
        """The operator's rows of all that came; nothing is added any more."""

    def __len__(self) -> int: ...

    def memory(self) -> int:
        """Bytes."""

    def held(self) -> Iterator[Codes]:
        """Every text id that is kept, and other numbers."""


class Operator:
    """What a node does.  Subclasses state their algebra: outputs accumulate to the relational operator applied
    to the accumulated inputs (DELTA-SUM)."""

    stateful = False
    remote = False  # do its rows come from other workers, too?
    adhoc = False  # is it the reader of an ad-hoc view?
    saves = False  # can its full state outlast an orderly end (`saving.py`)?
    drops = False  # base tables: are deltas that memory does not cover dropped?

    def fields(self) -> tuple[Field, ...]:
        raise NotImplementedError

    def describe(self) -> str:
        raise NotImplementedError

    def needs(self, node: Node, cols: Columns) -> list[Need]:
        """What a pull by output columns asks of the parents; raises Untraceable."""
        raise NotImplementedError

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        """Where the rows of the inputs must be, and where those of the output are then."""
        return alike(inputs)

    def in_parts(self) -> tuple[Operator, Operator] | None:
        """Of several workers: one over each worker's rows, whose output rows stay there, and one over all of these,
        which together do what this does; None where they do not, or nothing is gained."""
        return None

    def lookups(self) -> list[Columns | None]:
        """By which columns ticks look each input up (None: not at all); empty: none of them."""
        return []

    def finds(self, cols: Columns) -> bool:
        """Can an index over the stored rows have these output columns?  Stateful operators only."""
        return True

    def drivers(self) -> tuple[int, ...]:
        """The inputs of which any may be read in slices, the others being looked up; empty: all are read."""
        return (0,) if self.lookups() else ()

    def full_needs(self, node: Node) -> list[Need]:
        """What ticks pull when something below is full."""
        primary = 0 if len(node.parents) > 1 else None
        return [Need(port, cols, primary) for port, cols in enumerate(self.lookups()) if cols is not None]

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        """A pattern on input `port` as patterns on the output (rules R8, R9)."""
        raise NotImplementedError

    def tick(self, engine: Engine, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        """One tick: input deltas by port to the output delta; state is updated on the way."""
        raise NotImplementedError

    def fetch(self, engine: Puller, node: Node, cols: Columns, keys: Codes, mode: Mode) -> tuple[Batch, Codes]:
        """The output rows whose `cols` equal a key, and for each row the ordinal of its key."""
        raise NotImplementedError

    def stream(self, engine: Puller, node: Node) -> Iterator[Batch]:
        """All output rows, in slices; everything above is full."""
        raise NotImplementedError

    def size(self, engine: Engine, node: Node) -> int:
        """Rows on disk of a base table, those stored of a full state; nothing for all others."""
        return 0

    def gate(self, node: Node) -> Gate:
        """What lets the node's rows pass in slices.  Stateful operators only."""
        raise NotImplementedError

    def saved(self, node: Node) -> Batch:
        """What `restore` makes the full state of."""
        raise NotImplementedError

    def restore(self, engine: Engine, node: Node, rows: Batch) -> None:
        """Make an empty full state what it was when its rows were saved."""
        raise NotImplementedError

    def from_end(self, engine: Engine, node: Node, source: Node) -> bool:
        """Fill a full state with rows of its input, `source`, from the end of an index of the tables, if that is enough
        for it and little."""
        return False

    def ahead(self, node: Node, cols: Columns) -> ReadAhead | None:
        """What reads the node's rows through once, for many lookups by these columns; None but for base tables."""
        return None

    def values_between(self, engine: Engine, cols: Columns, low: int, high: int) -> Codes:
        """The distinct values of one column on disk, ascending.  Base tables only."""
        raise NotImplementedError

    def reach(self, engine: Engine, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int:
        """`BaseStore.reach`.  Base tables only."""
        raise NotImplementedError

    def recompute(self, engine: Puller, node: Node, inputs: Sequence[Batch]) -> Batch:
        """The operator on whole relations, without any state: what `validate` compares with."""
        raise NotImplementedError

    # ---- stateful operators only (`ops/stateful.py`)
    def gathered(self, engine: Puller, node: Node) -> Gathered:
        """`recompute` of the only input, which comes in slices; of what a plan has, so not of a `Keep` or a reader."""
        raise NotImplementedError

    def whole(self, engine: Puller, node: Node, slices: Iterator[Batch]) -> Batch:
        """The same at once."""
        gathered = self.gathered(engine, node)
        for rows in slices:
            gathered.add(rows)
            if engine.work is not None:
                engine.work.product(len(gathered), node.width)
        return gathered.rows()

    def presence(self, node: Node) -> list[Columns]:
        """The indexes whose keys are present or missing."""
        return node.indexes

    def make_state(self, engine: Engine, node: Node) -> None:
        """Make, change or drop node.state so that it fits node.full and node.indexes."""
        raise NotImplementedError

    def looks_at(self, node: Node) -> frozenset[int] | None:
        """The columns of its input on which its rows depend, as far as anybody below looks at them; None: all."""
        return None

    def begin(self, engine: Engine, node: Node, rows: int, keys: int) -> None:
        """Before the first slice of a full node's first state.  rows: about so many will come; keys: at least so many
        different ones, as far as is known."""

    def finish(self, engine: Engine, node: Node) -> None:
        """After the last one."""

    def fill(self, engine: Engine, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make keys present; `rows` are what the parent has for them."""
        raise NotImplementedError

    def everything(self, engine: Puller, node: Node) -> Batch:
        """All output rows of a full node."""
        raise NotImplementedError

    def forget(self, engine: Engine, node: Node) -> None:
        """Drop the whole state: every key missing, or a full state to be built again."""
        raise NotImplementedError


class Step(NamedTuple):
    """A stateless node that a pull passes, the port it leaves by, and the port that a join pulls first."""

    node: Node
    port: int
    primary: int | None


class User(NamedTuple):
    """Who depends on keys of an index: the keys of an index of a node below, by a path of stateless ones, nearest to
    the user last."""

    node: Node
    cols: Columns
    path: tuple[Step, ...]


@dataclass(eq=False)
class Node:
    """One operator in the graph.  full, indexes, users, primaries, full_below, through are the layout's.
    parts: where its rows are, of those of all workers."""

    id: int
    op: Operator
    parents: tuple[Node, ...]
    children: list[tuple[Node, int]] = field(default_factory=list)
    fields: tuple[Field, ...] = ()
    full: bool = False
    why_full: str = ""
    indexes: list[Columns] = field(default_factory=list)
    users: dict[Columns, list[User]] = field(default_factory=dict)
    primaries: frozenset[int] = frozenset()
    full_below: bool = False
    driver: int = 0  # of a join: the side that is read where all its rows are wanted
    kept: bool = False  # a base table that joins look up in
    pulled: frozenset[Columns] = frozenset()
    coarser: dict[Columns, list[Columns]] = field(default_factory=dict)  # indexes over some of an index's columns
    state: State | None = None
    live: bool = False
    stash: list[Batch] | None = None  # input deltas kept back while the first state is computed elsewhere
    inert: bool = False  # below such a node: no deltas until it can be built
    ranges: dict[Columns, Ranges] = field(default_factory=dict)  # of indexes that ranges are read by
    parts: Parts = ONE
    thin: bool = False  # of an exchange: does it keep what it asked for only until that is used?
    elsewhere: bool = False  # are all its rows at another worker?
    through: dict[int, list[User]] = field(default_factory=dict)  # of a join, by primary: who pulls through it
    reuse: str = ""  # what a node that several plans share stands for
    stands_for: tuple[float, ...] = ()  # each of these alone: which part of the columns it would have
    stats: NodeStats = field(default_factory=lambda: NodeStats())

    @property
    def width(self) -> int:
        return len(self.fields)

    @property
    def stored(self) -> State:
        """The state of a node that has one."""
        assert self.state is not None, self
        return self.state

    def folds(self) -> list[bool]:
        return [f.type.folds for f in self.fields]

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        """Keys that are not complete here.  A key (a, b) is where its a is present (the thesis' "Partial Key
        Subsumption"); of the ranges of a single column see `ranged`."""
        state = self.stored
        out = state.missing(cols, keys)
        for few in self.coarser.get(cols, ()):
            if out.any():
                some = np.flatnonzero(out)
                part = np.ascontiguousarray(keys[[cols.index(c) for c in few]][:, some])
                out[some] = state.missing(few, part)
        return out

    def users_of(self, cols: Columns) -> list[User]:
        """Who depends on keys of an index: also those that rest on it for keys of more columns."""
        finer = [c for c, few in self.coarser.items() if cols in few]
        return [u for c in (cols, *finer) for u in self.users.get(c, ())]

    def narrowed(self, rows: Batch) -> Batch:
        """Rows of a base table with this node's columns, the first ones: others were added since."""
        if rows.width == self.width:
            return rows
        return Batch(np.ascontiguousarray(rows.columns[: self.width]), rows.weights)

    def clear_ranges(self) -> None:
        """No interval is filled."""
        for r in self.ranges.values():
            r.clear()

    def __repr__(self) -> str:
        return f"n{self.id} {self.op.describe()}"


@dataclass
class NodeStats:
    """Counters since the node was made.  asked: keys that pulls and reads asked its partial state for; pull_depth:
    the most states that one of its misses filled, each for the sake of the one below; timed_*: of some ticks."""

    rows_in: int = 0
    rows_out: int = 0
    ticks: int = 0
    asked: int = 0
    misses: int = 0
    evictions: int = 0
    pull_depth: int = 0
    timed_ticks: int = 0
    timed_ns: int = 0

    def tick_ms(self) -> float:
        """Time of all ticks, from those that were timed."""
        return self.timed_ns * self.ticks / max(self.timed_ticks, 1) / 1e6


class Graph:
    """All nodes, in topological order."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.next_id = 0

    def add(self, op: Operator, parents: Sequence[Node] = ()) -> Node:
        node = Node(self.next_id, op, tuple(parents), fields=op.fields())
        self.next_id += 1
        self.nodes.append(node)
        for port, p in enumerate(parents):
            p.children.append((node, port))
        return node

    def move(self, leaf: Node, parents: Sequence[Node]) -> None:
        """Put a leaf under other parents: it stands last then."""
        self.remove(leaf)
        leaf.parents = tuple(parents)
        self.nodes.append(leaf)
        for port, p in enumerate(parents):
            p.children.append((leaf, port))

    def remove(self, node: Node) -> None:
        """Take a node without children out."""
        assert not node.children, f"{node} still has children"
        for p in set(node.parents):
            p.children = [(c, port) for c, port in p.children if c is not node]
        self.nodes.remove(node)
        node.users, node.through = {}, {}  # they refer to it in turn: a cycle, whose memory would wait for a collection


def ancestors(n: Node) -> list[Node]:
    """n and everything above it, in topological order."""
    found: dict[Node, None] = {}
    _with_ancestors(n, found)
    return list(found)


def here(n: Node) -> list[Node]:
    """n and everything above it as far as this worker goes: exchanges, and nothing above them."""
    found: dict[Node, None] = {}
    _with_ancestors(n, found, across=False)
    return list(found)


def _with_ancestors(n: Node, found: dict[Node, None], across: bool = True) -> None:
    for p in n.parents if across or not n.op.remote else ():
        _with_ancestors(p, found, across)
    found[n] = None


def nearest(n: Node) -> set[Node]:
    """The closest nodes above that have a state or rows on disk."""
    found: set[Node] = set()
    for p in n.parents:
        found |= {p} if p.op.stateful else nearest(p)
    return found


def looked_at(node: Node) -> frozenset[int] | None:
    """The columns of a node that anybody below looks at; None: all."""
    wanted = [child.op.looks_at(child) for child, _ in node.children]
    return None if None in wanted else frozenset(c for w in wanted if w is not None for c in w)


def folded_keys(symbols: Symbols, folds: Sequence[bool], keys: Codes) -> Codes:
    """Key arrays with CI text folded."""
    if not any(folds):
        return keys
    return np.stack([symbols.folded(k) if f else k for k, f in zip(keys, folds, strict=True)])


def distinct(keys: Codes) -> Codes:
    """The distinct columns of a key array."""
    if keys.shape[1] < 2:
        return keys
    if keys.shape[0] == 1:
        return np.unique(keys[0])[None, :]
    return np.ascontiguousarray(np.unique(keys, axis=1))


def under_each(rows: Batch, keys: int, work: Work | None) -> tuple[Batch, Codes]:
    """All rows under each of so many empty keys, with the ordinal of the key."""
    n = len(rows)
    if work is not None:
        work.product(n * keys, rows.width)
    return rows.take(np.tile(np.arange(n), keys)), np.repeat(np.arange(keys), n)
