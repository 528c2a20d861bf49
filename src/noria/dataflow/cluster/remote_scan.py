"""One-shots over several workers: they read the other workers' rows of base tables (section 4.4's pulls over section
6.2's shards).

Such a one-shot runs on one worker. It reads the others' rows of a table as it reads its own: under keys if an
index exists, otherwise all rows. It requests missing rows and ends with `RemoteRowsNeeded`. When they have arrived,
it runs again from the start with all rows received so far.

Keeps true: received rows are dropped with the one-shot. No worker sends more rows than the one-shot may still
read. Requests to a lost worker are sent again. The rows of one worker are as of one moment; different workers'
moments may differ.

Run a `RemoteOneShot` with a `RemoteTableReads`. `RemoteScan` sends its requests and answers those of other workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError, read_limit_error, view_changed
from noria.core.limits import NULL_CODE
from noria.core.types import TableDef
from noria.dataflow.cluster.pending_gathers import end
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import Columns, Node, RemoteRowsNeeded
from noria.dataflow.graph.partition import owners
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.messages.peer_messages import Message, TableLookup, TableLookupReply, packed, unpacked
from noria.dataflow.messages.transaction_packets import Within
from noria.dataflow.oneshot.oneshot import OneShot
from noria.dataflow.ops.stateful.base import SCAN_ROWS, Base
from noria.dataflow.ops.stateful.top import Top
from noria.dataflow.ops.stateless.filter import Filter
from noria.state.rows import probe
from noria.state.rows.netting import netted


@dataclass(eq=False)
class RemoteTableRead:
    """A request to one worker for rows of a table, and its answer. `over`, `error` and `then` are as in `Gather`."""

    table: TableDef
    worker: int
    request: TableLookup
    rows: Batch | None = None
    over: bool = False
    error: SqlError | None = None
    then: list[Callable[[], None]] = field(default_factory=list)


class RemoteScan:
    """This worker's requests to others, and its answers to theirs. `send`: appends a message to the channel to a
    worker. `first`: its requests have greater numbers."""

    def __init__(self, engine: Engine, worker: int, workers: int, send: Callable[[int, Message], None], first: int):
        self.worker, self.workers = worker, workers
        self._engine, self._send, self._next = engine, send, first
        self._under_way: dict[int, RemoteTableRead] = {}
        self.deltas: Callable[[Within | None], Mapping[str, Batch]] = lambda within: {}  # of transactions, by table
        self.symbols = engine.symbols

    # ------------------------------------------------------------ requests to other workers
    def request_rows(self, table: TableDef, worker: int, cols: Columns, keys: Codes, rows: int,
                     texts: Collection[int] | None, within: Within | None) -> RemoteTableRead:
        """Request a worker's rows of a table under distinct folded keys; without `cols` all rows."""
        self._next += 1
        parcel = packed(Batch.of(keys), [table.fields[c] for c in cols], self.symbols)
        read = RemoteTableRead(table, worker,
                               TableLookup(self._next, table.name, table.table_id, len(table.fields), cols, parcel,
                                           rows, None if texts is None else tuple(texts), within))
        self._under_way[self._next] = read
        self._send(worker, read.request)
        return read

    def answered(self, answer: TableLookupReply) -> None:
        read = self._under_way.pop(answer.number, None)
        if read is None:
            return  # requested in another life
        read.error = answer.error
        if answer.rows is not None:
            read.rows = unpacked(answer.rows, read.table.fields, self.symbols)
        end(read)

    def lost(self, worker: int) -> None:
        """Send requests again to a worker that was restarted and has forgotten them."""
        for read in self._under_way.values():
            if read.worker == worker:
                self._send(worker, read.request)

    # ------------------------------------------------------------ requests of other workers
    def serve(self, requester: int, request: TableLookup) -> None:
        """Answer a request for rows. Its error is sent to the requester."""
        reply, error = None, None
        try:
            table = self._engine.store.tables().get(request.table)
            if table is None or table.table_id != request.table_id or len(table.fields) < request.width:
                raise view_changed(request.table)
            rows = self._cut(table, request, self._rows(table, request))
            reply = packed(rows, table.fields[: request.width], self.symbols)
        except SqlError as e:
            error = e
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            if self._engine.builds.on_defect is None:
                raise
            error = self._engine.builds.on_defect(bug)
        self._send(requester, TableLookupReply(request.number, reply, error))

    def _rows(self, table: TableDef, request: TableLookup) -> Batch:
        delta = self.deltas(request.within).get(table.name)
        if delta is None:
            return self._stored(table, request)
        rows = self._stored(table, replace(request, texts=None))  # all columns, since equal rows are added up
        if request.cols:
            fields = [table.fields[c] for c in request.cols]
            keys = self._folded(table, request.cols, unpacked(request.keys, fields, self.symbols).columns)
            changed = self._folded(table, request.cols, delta.columns[list(request.cols)])
            delta = delta.take(probe.pairs(keys, changed)[1])
        return netted(concat([rows, delta], rows.width))

    def _stored(self, table: TableDef, request: TableLookup) -> Batch:
        store, cols = self._engine.store, request.cols
        if not cols:
            return self._scanned(table, request)
        keys = self._folded(table, cols, unpacked(request.keys, [table.fields[c] for c in cols], self.symbols).columns)
        if not store.finds(table.name, cols):  # this worker lacks the requester's index
            rows = self._scanned(table, request)
            return rows.take(probe.pairs(keys, self._folded(table, cols, rows.columns[list(cols)]))[1])
        if store.row_count(table.name) > request.rows and not store.within(table.name, cols, keys, request.rows):
            raise read_limit_error(request.rows)
        return store.lookup(table.name, cols, keys, request.texts)[0]

    def _folded(self, table: TableDef, cols: Columns, values: Codes) -> Codes:
        folds = [table.fields[c].type.folds for c in cols]
        return np.ascontiguousarray(folded_keys(self.symbols, folds, values))

    def _cut(self, table: TableDef, request: TableLookup, rows: Batch) -> Batch:
        """Keep the requested columns. Texts that the requester does not read become NULL."""
        columns = rows.columns[: request.width].copy()
        if request.texts is not None:
            for at, f in enumerate(table.fields[: request.width]):
                if f.type.is_text and at not in request.texts and at not in request.cols:
                    columns[at] = NULL_CODE
        return Batch(columns, rows.weights)

    def _scanned(self, table: TableDef, request: TableLookup) -> Batch:
        store, after = self._engine.store, None
        texts = None if request.texts is None else {*request.texts, *request.cols}
        if store.row_count(table.name) > request.rows:
            raise read_limit_error(request.rows)
        parts = []
        while True:
            rows, after = store.scan(table.name, after, SCAN_ROWS, texts)
            parts.append(rows)
            if after is None:
                return concat(parts, len(table.fields))


class RemoteTableReads:
    """The requests of one one-shot to other workers, with the answers so far. `within`: its transaction."""

    def __init__(self, scan: RemoteScan, within: Within | None = None):
        self._scan, self._within = scan, within
        self._reads: dict[tuple[int, int, int, Columns, frozenset[int] | None, bytes], RemoteTableRead] = {}

    def held(self) -> Iterator[Codes]:
        """Every text id of keys and rows; other numbers may be among them."""
        for (*_, keys), read in self._reads.items():
            yield np.frombuffer(keys, np.int64)
            if read.rows is not None:
                yield from read.rows.columns

    @property
    def workers(self) -> int:
        return self._scan.workers

    def under(self, table: TableDef, cols: Columns, keys: Codes, rows: int, texts: Collection[int] | None
              ) -> list[Batch]:
        """The other workers' rows under distinct folded keys of shape (columns, keys); without `cols` all rows.

        `rows`: the limit for each worker. Raises `RemoteRowsNeeded` until all have arrived, or the error of a worker
        that failed.
        """
        reads = [self._read(table, w, cols, mine, rows, texts)
                 for w, mine in self._whose(table, cols, keys) if w != self._scan.worker]
        for read in reads:
            if read.error is not None:
                raise read.error
        if missing := tuple(p for p in reads if not p.over):
            raise RemoteRowsNeeded(missing)
        return [p.rows for p in reads if p.rows is not None]

    def _read(self, table: TableDef, worker: int, cols: Columns, keys: Codes, rows: int, texts: Collection[int] | None
              ) -> RemoteTableRead:
        read_texts = None if texts is None else frozenset(texts)  # two versions of a table may read different ones
        place = (table.table_id, len(table.fields), worker, cols, read_texts, keys.tobytes())
        if place not in self._reads:
            self._reads[place] = self._scan.request_rows(table, worker, cols, keys, rows, texts, self._within)
        return self._reads[place]

    def _whose(self, table: TableDef, cols: Columns, keys: Codes) -> Iterator[tuple[int, Codes]]:
        """Which workers may have rows of which keys: one worker per key if the key determines it (narrow),
        otherwise all (broad: R3)."""
        by = table.sharded_by
        if by == ():
            yield 0, keys
        elif by is None or not set(by) <= set(cols):
            yield from ((w, keys) for w in range(self.workers))
        else:
            values = keys[[cols.index(c) for c in by]]
            whose = owners(values, [table.fields[c] for c in by], self.workers, self._scan.symbols)
            yield from ((w, np.ascontiguousarray(keys[:, whose == w])) for w in np.unique(whose).tolist())


class RemoteOneShot(OneShot):
    """A one-shot over the rows of all workers. It uses no state of this worker, since states hold only this
    worker's part."""

    def __init__(self, engine: Engine, rows: int, texts: Mapping[Node, Collection[int]], remote: RemoteTableReads,
                 own: Mapping[str, Batch] | None = None):
        super().__init__(engine, {}, rows, own, texts)
        self._remote = remote

    def read_between(self, top: Node, key: Columns, low: int, high: int, first: int | None = None,
                     descending: bool = False) -> tuple[Batch, Codes]:
        """Return all rows between, even if fewer would suffice."""
        return self.range_rows(top, key, low, high)

    def _in_order(self, node: Node, op: Top) -> None:
        """Nothing to do: the indexes have this worker's rows only."""

    def _by_condition(self, node: Node, op: Filter) -> None:
        """Nothing to do, likewise."""

    def _count(self, table: str) -> int:
        return self.store.row_count(table) * self._remote.workers

    def _with_others(self, node: Node, cols: Columns, keys: Codes, rows: Batch, ordinal: Codes) -> tuple[Batch, Codes]:
        rows, ordinal = super()._with_others(node, cols, keys, rows, ordinal)
        folded = self.folded(node, cols, keys)
        far = self._far(node, cols, folded)
        more, whose = self._matching(node, cols, folded, far)
        return concat([rows, more], node.width), np.concatenate([ordinal, whose])

    def _scanned(self, node: Node) -> Iterator[Batch]:
        yield from super()._scanned(node)
        yield self._far(node, (), np.empty((0, 1), np.int64))

    def _far(self, node: Node, cols: Columns, keys: Codes) -> Batch:
        assert isinstance(node.op, Base)
        table = self.store.tables()[node.op.table.name]  # the node's own may have older columns
        rows = concat([node.narrowed(b) for b in self._remote.under(table, cols, keys, max(self._left, 0),
                                                                    self.texts_of(node))], node.width)
        self._spend(len(rows))
        return rows
