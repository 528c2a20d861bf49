"""The full state of an exchange, gathered from every worker.

    at each worker that has rows    `BackfillSender`: rows pass slice by slice (`scan.py`); each slice is a chunk
    at the worker that owns them    `BackfillReceiver`: adds each chunk to the state on arrival

Keeps true: at every moment a requester has exactly its rows that have passed at a worker. Deltas of passed rows are
sent as chunks; after the last chunk, as the exchange's updates (rule R4). A worker is at most AHEAD slices ahead of
the requester.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.dataflow.backfill.build import Backfill, BackfillRuntime
from noria.dataflow.backfill.scan import ScanBackfill
from noria.dataflow.graph.nodes import Columns, Node
from noria.dataflow.graph.protocols import State

AHEAD = 4  # slices
CHUNK_ROWS = 16_384  # at most: the requester applies a chunk in one step
Counts = tuple[int, int]  # rows that have passed at a worker, and of how many


class BackfillSender(ScanBackfill):
    """The rows of this worker for an exchange at one requester, which may be itself.

    `number`: the requester's number of the request. `ready`: whether it can begin. `send`: called with rows, of which
    some may be the requester's, whether the requester must request the next chunk, and the progress. It returns False
    if none of the rows were the requester's. `over`: called after the last rows. `fail`: called if there are no rows.
    """

    def __init__(self, node: Node, requester: int, number: int, ready: Callable[[], bool],
                 send: Callable[[Batch, bool, Counts], bool], over: Callable[[], None],
                 fail: Callable[[SqlError], None]):
        super().__init__(node)
        self.requester, self.number = requester, number
        self.ahead = AHEAD  # slices that may be sent before the requester requests one
        self._ready, self._send, self._over, self.fail = ready, send, over, fail
        self._in_slice = False

    def can(self) -> bool:
        try:
            return self.ahead > 0 if self.begun else self._ready()
        except SqlError:  # the next step raises it
            return True

    def _begin(self, engine: BackfillRuntime) -> None:
        self._ready()
        super()._begin(engine)
        assert self._top is not None
        for rows in engine.stream(self._top):  # output that exists without input rows
            if len(rows):
                self._receive(engine, rows)

    def step(self, engine: BackfillRuntime) -> bool:
        self._in_slice, self.rows = True, min(self.rows, CHUNK_ROWS)
        try:
            return super().step(engine)
        finally:
            self._in_slice = False

    def _receive(self, engine: BackfillRuntime, rows: Batch) -> None:
        if self._send(rows, self._in_slice, self.counts(engine)):
            self.ahead -= self._in_slice

    def _finish(self, engine: BackfillRuntime) -> None:
        self._over()

    def describe(self) -> str:
        return f"rows of n{self.node.id}, {self.node.op.describe()}, for worker {self.requester}"


class BackfillReceiver(Backfill):
    """The full state of an exchange: the rows of all workers that this one owns, requested by
    `Exchanges.gather_full_state`.

    `indexes`: those of a state that will replace the state in use; None if there is none.
    """

    def __init__(self, node: Node, indexes: list[Columns] | None = None):
        super().__init__()
        self.node, self.indexes = node, indexes
        self._shadow: Node | None = None
        self.passed: dict[int, Counts] = {}  # by worker

    @property
    def has_partial_state(self) -> bool:
        """Whether a partial state is in use meanwhile."""
        return self.indexes is not None

    @property
    def state(self) -> State | None:
        """The state being filled."""
        return None if self._shadow is None else self._shadow.state

    def refit(self) -> None:
        """After a layout, use the node's present state and indexes."""
        if self._shadow is not None and self.indexes is None:
            self._shadow.state, self._shadow.indexes = self.node.state, self.node.indexes

    def restart(self, engine: BackfillRuntime) -> None:
        """Drop the rows that have arrived and begin again."""
        if self._shadow is not None and self.indexes is None:
            self.node.op.forget(engine, self.node)
        self._shadow, self.passed = None, {}

    def _begun(self, engine: BackfillRuntime) -> Node:
        n = self.node
        self._shadow = shadow = Node(n.id, n.op, n.parents, fields=n.fields, full=True, all_remote=n.all_remote)
        if self.indexes is not None:
            shadow.indexes = self.indexes
            n.op.make_state(engine, shadow)
        self.refit()
        n.op.begin(engine, shadow, 0, 0)
        return shadow

    def add(self, engine: BackfillRuntime, rows: Batch) -> None:
        """Add a chunk, or an update from a worker whose last chunk has arrived."""
        shadow = self._shadow or self._begun(engine)
        shadow.op.tick(engine, shadow, [rows])

    def step(self, engine: BackfillRuntime) -> bool:
        """Complete the state: all rows have arrived."""
        n, shadow = self.node, self._shadow or self._begun(engine)
        n.op.finish(engine, shadow)
        if self.indexes is not None:
            n.full, n.state, n.ranges, n.indexes = True, shadow.state, {}, self.indexes
        return True

    def counts(self, engine: BackfillRuntime) -> Counts:
        return sum(done for done, _ in self.passed.values()), sum(of for _, of in self.passed.values())

    def describe(self) -> str:
        return f"first state of n{self.node.id}, {self.node.op.describe()}, from all workers"
