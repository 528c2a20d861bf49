"""A node of the graph, the contract of its operator, and what an operator calls back (`GraphRuntime`).

The operator of a node (`ops/`, one file each) computes its rows. `layout.py` decides for the whole graph which nodes
store them, and records its decisions in the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.ranking import Order
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.dataflow.graph.partition import ONE, Partition, Parts, alike
from noria.dataflow.graph.protocols import BaseStore, State, ViewFactory
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.graph.stats import NodeStats
from noria.dataflow.graph.story import More
from noria.state.rows.ranges import Ranges
from noria.state.rows.table import Columns as Columns


class Untraceable(Exception):
    """No index above can answer these columns, so the node that requires them must be full (section 4.5)."""

    def __init__(self, node: Node, why: str):
        super().__init__(why)
        self.node, self.why = node, why


class RemoteRows(Protocol):
    """Requested rows of other workers. `over`: all rows have arrived, or `error` is the reason why none will. `then`:
    functions to call when it is over."""

    over: bool
    error: SqlError | None
    then: list[Callable[[], None]]


class RemoteRowsNeeded(Exception):
    """A request needs rows of other workers. They are being gathered, and the request runs again when all
    `gathers` are over."""

    def __init__(self, gathers: tuple[RemoteRows, ...]):
        super().__init__()
        self.gathers = gathers


class MissMode(Enum):
    """How a read of upstream state treats missing keys."""

    STORED = "stored"  # only stored rows matter
    FILL = "fill"  # the key must be complete: pull it
    CHECK = "check"  # it must be complete already: a missing key breaks HOLE-CLOSED


@dataclass(frozen=True)
class ParentPull:
    """A pull by some columns pulls `cols` from parent `port`. `primary`: of a join, the port that the pull reads
    first; None for other operators. `find`: that parent's stored rows must have an index by these columns, too."""

    port: int
    cols: Columns
    primary: int | None = None
    find: Columns | None = None


@dataclass(frozen=True)
class KeyPattern:
    """Rows that agree with one of n value tuples in some columns; evictions carry patterns downwards (rule R7).
    `source`: for each tuple, the ordinal of the evicted key it derives from."""

    cols: Columns
    values: Codes  # shape (len(cols), n)
    source: Codes


class UpstreamReader(Protocol):
    """The reader of upstream rows that operators call back.

    The engine fills the keys that its states miss. A one-shot (`oneshot.py`) reads through operators that keep
    nothing.
    """

    limits: RequestLimits | None

    @property
    def symbols(self) -> Symbols: ...

    @property
    def store(self) -> BaseStore: ...

    @property
    def tick_number(self) -> int: ...

    def texts_of(self, base: Node) -> Collection[int] | None:
        """The columns of a base table whose texts the caller reads. None: all."""

    def fetch(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """Return the node's rows whose cols equal a key, with the ordinal of the key. Keys may repeat; NULL
        equals NULL."""

    def looked_up(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """`fetch` of a base table, from the store."""

    def note(self, kind: str, node: Node, cols: Columns, rows: Batch | Codes | None, more: More | None = None) -> None:
        """Report an event to the trace or the story."""

    def stream(self, node: Node) -> Iterator[Batch]:
        """All rows of a node, in slices."""

    def all_rows(self, node: Node) -> Batch:
        """All rows of a node."""

    def driver(self, node: Node) -> int:
        """The side of an inner join that is streamed when all its rows are needed; the other side is looked up."""


class IndexRequests(Protocol):
    """The indexes of base tables that lookups need."""

    promised: set[tuple[Node, Columns]]

    @property
    def adhoc_bytes(self) -> int: ...

    def index(self, base: Node, table: str, columns: Columns) -> None:
        """Make lookups in the base table by these columns possible."""


class RemoteEvictions(Protocol):
    """The other workers, to which evictions are passed on."""

    def evict(self, node: Node, cols: Columns, p: KeyPattern) -> None: ...


class GraphRuntime(UpstreamReader, Protocol):
    """What the operators of the graph call back: reading upstream rows, and what else their states need."""

    @property
    def views(self) -> ViewFactory: ...

    @property
    def builds(self) -> IndexRequests: ...

    @property
    def exchanges(self) -> RemoteEvictions | None:
        """The other workers; None if this is the only one."""

    def first_rows(self, node: Node, order: Order, most: int) -> Batch | None:
        """The first rows of a node, if an index has them in order; else None."""

    def fill(self, node: Node, cols: Columns, keys: Codes) -> None:
        """Pull distinct missing keys from the parent and store them."""


class SequentialRead(Protocol):
    """A sequential read of a base table that replaces lookups (`backfill/read_ahead.py`). `done`: rows read."""

    over: bool
    done: int

    def possible(self) -> bool: ...

    def is_cheaper(self, engine: GraphRuntime, passed: int, total: int) -> bool: ...

    def total(self, engine: GraphRuntime) -> int: ...

    def step(self, engine: GraphRuntime, rows: int) -> None: ...


class PartialResult(Protocol):
    """The state of an operator that receives its input in slices."""

    def add(self, rows: Batch) -> None: ...

    def rows(self) -> Batch:
        """The operator's output for all added rows. Call it last: no rows are added afterwards."""

    def __len__(self) -> int: ...

    def memory(self) -> int:
        """Bytes in use."""

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""


class Operator:
    """The contract of an operator. Subclasses state their algebra: the outputs of all ticks add up to the
    relational operator applied to the sum of all inputs (DELTA-SUM)."""

    stateful = False
    remote = False  # whether it receives rows of other workers
    adhoc = False  # whether it is the reader of an ad-hoc view
    saves = False  # whether its full state is saved at an orderly end (`saving.py`)
    drops = False  # base tables: whether delta rows of missing keys are dropped
    _fields: tuple[Field, ...]  # of the output

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        raise NotImplementedError

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        """The pulls from the parents that a pull by output columns needs. Raises Untraceable if there is no plan."""
        raise NotImplementedError

    def also_from(self, node: Node, cols: Columns) -> list[ParentPull]:
        """Other parents whose columns have all values of these output columns, and perhaps more."""
        return []

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        """By which columns the inputs must be hashed over the workers, and by which the output is hashed then."""
        return alike(inputs)

    def in_parts(self) -> tuple[Operator, Operator] | None:
        """Split the operator in two for several workers: one over each worker's own rows, one over the outputs of
        all of these.

        None if the two do not compute the same rows or nothing is gained.
        """
        return None

    def lookups(self) -> list[Columns | None]:
        """For each input, the columns by which ticks look it up, or None. An empty list: ticks look up no input."""
        return []

    def finds(self, cols: Columns) -> bool:
        """Whether an index over the stored rows can have these output columns. Stateful operators only."""
        return True

    def drivers(self) -> tuple[int, ...]:
        """The inputs of which any one may be read in slices while the others are looked up. Empty: all inputs are
        read."""
        return (0,) if self.lookups() else ()

    def full_needs(self, node: Node) -> list[ParentPull]:
        """The pulls that a tick makes if a state below is full."""
        primary = 0 if len(node.parents) > 1 else None
        return [ParentPull(port, cols, primary) for port, cols in enumerate(self.lookups()) if cols is not None]

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        """Translate a pattern on input `port` into patterns on the output (rules R8, R9)."""
        raise NotImplementedError

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        """Run one tick: input deltas by port to the output delta. Updates the state."""
        raise NotImplementedError

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        """The output rows whose `cols` equal a key, and for each row the ordinal of its key."""
        raise NotImplementedError

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        """Yield all output rows in slices. Every state above must be full."""
        raise NotImplementedError

    def size(self, engine: GraphRuntime, node: Node) -> int:
        """Rows on disk of a base table, stored rows of a full state, 0 for other nodes."""
        return 0

    def gate(self, node: Node) -> RowGate:
        """The gate that lets the node's rows pass in slices. Stateful operators only."""
        raise NotImplementedError

    def saved(self, node: Node) -> Batch:
        """The rows from which `restore` makes the full state again."""
        raise NotImplementedError

    def restore(self, engine: GraphRuntime, node: Node, rows: Batch) -> None:
        """Restore an empty full state from the rows that `saved` returned."""
        raise NotImplementedError

    def from_end(self, engine: GraphRuntime, node: Node, source: Node) -> bool:
        """Fill a full state from the end of an index of the tables, if few rows of its input `source` suffice.
        Returns whether it did."""
        return False

    def ahead(self, node: Node, cols: Columns) -> SequentialRead | None:
        """A sequential read of the node's rows that replaces many lookups by these columns. None unless the node
        is a base table."""
        return None

    def values_between(self, engine: GraphRuntime, cols: Columns, low: int, high: int) -> Codes:
        """The distinct values of one column on disk between low and high, ascending. Base tables only."""
        raise NotImplementedError

    def reach(self, engine: GraphRuntime, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int:
        """See `BaseStore.reach`. Base tables only."""
        raise NotImplementedError

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        """The operator applied to complete relations, without state. `validate` compares states with it."""
        raise NotImplementedError

    # ---- stateful operators only (`ops/stateful/stateful.py`)
    def partial_result(self, engine: UpstreamReader, node: Node) -> PartialResult:
        """A state that computes `recompute` of the only input from slices. Only for operators of a plan: not a
        `Keep` or a reader."""
        raise NotImplementedError

    def recompute_sliced(self, engine: UpstreamReader, node: Node, slices: Iterator[Batch]) -> Batch:
        """`recompute` of an input that arrives in slices."""
        partial_result = self.partial_result(engine, node)
        for rows in slices:
            partial_result.add(rows)
            if engine.limits is not None:
                engine.limits.product(len(partial_result), node.width)
        return partial_result.rows()

    def presence(self, node: Node) -> list[Columns]:
        """The indexes that record for each key whether it is present or missing."""
        return node.indexes

    def make_state(self, engine: GraphRuntime, node: Node) -> None:
        """Create, change or drop node.state so that it agrees with node.full and node.indexes."""
        raise NotImplementedError

    def used_inputs(self, node: Node) -> frozenset[int] | None:
        """The input columns on which the rows depend that nodes below use. None: all."""
        return None

    def begin(self, engine: GraphRuntime, node: Node, rows: int, keys: int) -> None:
        """Prepare for the slices of a full node's first state. `rows`: about how many rows will arrive. `keys`: a
        lower bound of the distinct keys among them, as far as is known."""

    def finish(self, engine: GraphRuntime, node: Node) -> None:
        """Complete the first state after its last slice."""

    def fill(self, engine: GraphRuntime, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make keys present; `rows` are the parent's rows for these keys."""
        raise NotImplementedError

    def all_rows(self, engine: UpstreamReader, node: Node) -> Batch:
        """All output rows of a full node."""
        raise NotImplementedError

    def forget(self, engine: GraphRuntime, node: Node) -> None:
        """Drop all rows of the state: all keys of a partial state are missing then, and a full state must be built."""
        raise NotImplementedError


class RowGate(Protocol):
    """Lets the rows of a node pass in slices (`ops/stateful/gate.py`). `done`: the number of rows that have passed."""

    source: Node
    done: int

    @property
    def operator(self) -> Operator:
        """The operator below which only these rows are."""

    @property
    def open(self) -> bool:
        """Whether every row has passed."""

    def total(self, engine: GraphRuntime) -> int: ...

    def advance(self, engine: GraphRuntime, rows: int) -> Batch:
        """Let about `rows` more rows pass and return them."""


class PathStep(NamedTuple):
    """A stateless node on the path of a pull, the port by which the pull leaves it, and the port that a join
    pulls first."""

    node: Node
    port: int
    primary: int | None


class DependentIndex(NamedTuple):
    """An index of a node below that depends on keys of an index. `path`: the stateless nodes between, nearest to
    the user last."""

    node: Node
    cols: Columns
    path: tuple[PathStep, ...]


class NodeState(Enum):
    """Whether ticks update a node, and what it waits for otherwise."""

    NEW = "new"  # made, and not yet settled
    READY = "ready"
    WAITING = "waiting"  # for its first state, or for a state above
    BUFFERING = "buffering"  # its deltas are kept back while Spark computes the input of its first state
    RENEWED = "renewed"  # it was ready; its state is filled or built again


UNREADY = frozenset({NodeState.WAITING, NodeState.BUFFERING, NodeState.RENEWED})


@dataclass(eq=False)
class Node:
    """One operator in the graph. The layout sets full, indexes, users, primaries, full_below and through.
    `parts`: by which columns the node's rows are hashed over the workers."""

    id: int
    op: Operator
    parents: tuple[Node, ...]
    children: list[tuple[Node, int]] = field(default_factory=list)
    fields: tuple[Field, ...] = ()
    full: bool = False
    why_full: str = ""
    indexes: list[Columns] = field(default_factory=list)
    users: dict[Columns, list[DependentIndex]] = field(default_factory=dict)
    primaries: frozenset[int] = frozenset()
    full_below: bool = False
    driver: int = 0  # of a join: the side that is streamed
    kept: bool = False  # a base table that joins look up in
    pulled: frozenset[Columns] = frozenset()
    coarser: dict[Columns, list[Columns]] = field(default_factory=dict)  # indexes over some of an index's columns
    state: State | None = None
    live: bool = False  # whether it has been ready
    stash: list[Batch] | None = None  # input deltas kept back while the first state is computed elsewhere
    inert: bool = False  # no tick updates it until it can be built
    ranges: dict[Columns, Ranges] = field(default_factory=dict)  # of the indexes by which ranges are read
    parts: Parts = ONE
    thin: bool = False  # of an exchange: whether it stores answers only until they are used
    all_remote: bool = False  # whether all its rows are at another worker
    through: dict[int,
                  # of a join, by primary: nodes that pull through it
                  list[DependentIndex]] = field(default_factory=dict)
    reuse: str = ""  # description of a node that several plans share
    plan_shares: tuple[float, ...] = ()  # for each plan, the share of the columns it alone would have
    stats: NodeStats = field(default_factory=NodeStats)

    @property
    def width(self) -> int:
        return len(self.fields)

    @property
    def readiness(self) -> NodeState:
        """What `live`, `stash` and `inert` say together."""
        if self.stash is not None:
            return NodeState.BUFFERING
        if self.inert:
            return NodeState.RENEWED if self.live else NodeState.WAITING
        return NodeState.READY if self.live else NodeState.NEW

    @property
    def stored(self) -> State:
        """The state of a node that has one."""
        assert self.state is not None, self
        return self.state

    def folds(self) -> list[bool]:
        return [f.type.folds for f in self.fields]

    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        """Which keys are not complete here. A key (a, b) is complete if a is present (the thesis' "Partial Key
        Subsumption"). For ranges of a single column see `ranges`."""
        state = self.stored
        out = state.missing(cols, keys)
        for few in self.coarser.get(cols, ()):
            if out.any():
                some = np.flatnonzero(out)
                part = np.ascontiguousarray(keys[[cols.index(c) for c in few]][:, some])
                out[some] = state.missing(few, part)
        return out

    def users_of(self, cols: Columns) -> list[DependentIndex]:
        """The users of keys of an index, including those of finer indexes whose keys it answers for."""
        finer = [c for c, few in self.coarser.items() if cols in few]
        return [u for c in (cols, *finer) for u in self.users.get(c, ())]

    def narrowed(self, rows: Batch) -> Batch:
        """Cut rows of a base table to this node's columns, the first ones: the table may have more columns by
        now."""
        if rows.width == self.width:
            return rows
        return Batch(np.ascontiguousarray(rows.columns[: self.width]), rows.weights)

    def clear_ranges(self) -> None:
        """Mark every interval as not filled."""
        for r in self.ranges.values():
            r.clear()

    def __repr__(self) -> str:
        return f"n{self.id} {self.op.describe()}"
