"""One-shot queries: a SELECT that no view answers is one upquery through operators that keep nothing (section 4.4).

A one-shot has its own nodes, outside the graph. It reads rows as a pull does: by key if the key traces to an
index, otherwise all rows, which are kept for this request only. If the graph has an equal node with a state, the
one-shot reads that state; it fills no keys.

Keeps true: it reads tables and states as they are between two ticks and changes none. It reads at most `rows`
rows, where a lookup counts as LOOKUP_ROWS. A query that would read more raises `ReadLimitExceeded` before it reads
them.

A reader may have rows of its own, the changes of its transaction (`delta`, by table and with signs). States that derive
from such a table are not used.

Make a `OneShot` for each query, and call `read` or `read_between`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import product

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.expressions.column_ranges import bounded, ranges_of
from noria.core.limits import MAX_INT, MIN_INT, NULL_CODE, ONE_SHOT_ROWS
from noria.core.ranking import Order
from noria.core.values import encode
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.keys import distinct, folded_keys, repeated_per_key
from noria.dataflow.graph.nodes import Columns, MissMode, Node, NodeState, Untraceable
from noria.dataflow.graph.protocols import TooManyRows
from noria.dataflow.graph.ranges import sources
from noria.dataflow.graph.request_limits import collect
from noria.dataflow.graph.story import More
from noria.dataflow.ops.stateful.base import Base
from noria.dataflow.ops.stateful.given import Given
from noria.dataflow.ops.stateful.keep import Keep
from noria.dataflow.ops.stateful.nothing import Nothing
from noria.dataflow.ops.stateful.top import Top
from noria.dataflow.ops.stateless.filter import Filter
from noria.dataflow.ops.stateless.join import Join
from noria.state.rows import probe
from noria.state.rows.netting import netted
from noria.state.rows.table import Table

LOOKUP_ROWS = 8  # a lookup on disk costs as much as scanning this many rows
HASHED_ROWS = 4_096  # more rows than this are indexed for the request that looks them up


class ReadLimitExceeded(Exception):
    """The query would read more rows than its limit."""


class OneShot:
    """A `UpstreamReader` for one query. `twins`: for the query's nodes, equal nodes of the graph. `texts`: for its base
    tables, the columns whose texts it reads."""

    def __init__(self, engine: Engine, twins: Mapping[Node, Node], rows: int, delta: Mapping[str, Batch] | None = None,
                 texts: Mapping[Node, Collection[int]] | None = None):
        self.symbols, self.store, self.limits = engine.symbols, engine.store, engine.limits
        self.tick_number = engine.tick_number
        self._engine, self._twins, self._left, self._most = engine, twins, rows, rows
        self._texts = texts or {}
        self._delta = delta or {}
        self._all_rows: dict[Node, Batch] = {}
        self._hashed: dict[Node, Table] = {}
        self._lookup_cost: defaultdict[Node, int] = defaultdict(int)

    @property
    def spent(self) -> int:
        """Rows read so far."""
        return min(self._most - self._left, self._most)

    # -------------------------------------------------------------- reads
    def read(self, top: Node, key: Columns, keys: Codes, nulls: bool = False) -> tuple[Batch, Codes]:
        """Rows of the query by key, with the ordinals of their keys. A key with a NULL has no rows, unless
        `nulls`: then NULL is looked up like any value."""
        at = np.arange(keys.shape[1])
        if not nulls:
            at = np.flatnonzero((keys != NULL_CODE).all(axis=0))
        rows, ordinal = self.fetch(top, key, np.ascontiguousarray(keys[:, at]), MissMode.FILL)
        return rows, at[ordinal]

    def read_between(self, top: Node, key: Columns, low: int, high: int, first: int | None = None,
                     descending: bool = False) -> tuple[Batch, Codes]:
        """Rows of the query whose only key column has a code from low to high. `first`: this many rows suffice,
        of the least codes (`descending`: of the greatest)."""
        if first == 0:
            return Batch.empty(top.width), np.empty(0, np.int64)
        if first is not None and (end := self._reach(top, key, low, high, first, descending)) is not None:
            return self._first(top, key, (low, high), end, first, descending)
        if self._reach(top, key, low, high, self._left // LOOKUP_ROWS + 1, False) == high:
            values = self._values(top, key, low, high)
            return self.fetch(top, key, values[None, :], MissMode.FILL)
        return self.range_rows(top, key, low, high)

    def range_rows(self, top: Node, key: Columns, low: int, high: int) -> tuple[Batch, Codes]:
        """`read_between` for all rows."""
        rows = self.all_rows(top)
        codes = rows.columns[key[0]]
        rows = rows.where((codes >= low) & (codes <= high))
        return rows, np.unique(rows.columns[key[0]], return_inverse=True)[1]

    # -------------------------------------------------------------- rows that the caller sets
    def ignore_states(self) -> None:
        """Use no state of the graph from now on, since later ticks change it."""
        self._twins = {}
        self._all_rows.clear()
        self._hashed.clear()

    def set_rows(self, node: Node, rows: Batch) -> None:
        """Set all rows of a node that the query needs."""
        self._all_rows[node] = rows

    # -------------------------------------------------------------- by key
    def looked_up(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """See `UpstreamReader`."""
        most = (self._left or 1) if self.store.row_count(table) > self._left else 0
        try:
            rows, ordinal = self.store.lookup(table, cols, keys, self.texts_of(base), most)
        except TooManyRows:
            raise ReadLimitExceeded from None
        return base.narrowed(rows), ordinal

    def fetch(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """See `UpstreamReader`."""
        if self.limits is not None:
            self.limits.check()
        once = tuple(dict.fromkeys(cols))
        if len(once) < len(cols):  # a repeated column must have one value
            folded = self.folded(node, cols, keys)
            at = np.flatnonzero((folded == folded[[cols.index(c) for c in cols]]).all(axis=0))
            keys = np.ascontiguousarray(keys[[cols.index(c) for c in once]][:, at])
            rows, ordinal = self.fetch(node, once, keys, mode)
            return rows, at[ordinal]
        if not cols:
            return repeated_per_key(self.all_rows(node), keys.shape[1], self.limits)
        if node in self._all_rows:
            return self._among(node, cols, keys)
        return self._stored(node, cols, keys, mode)

    def _stored(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """Read keys that the graph's equal node has present; derive the others."""
        twin, index = self._usable(node), None
        if twin is not None:
            index = next((i for i in twin.op.presence(twin) if set(i) == set(cols) and len(i) == len(cols)), None)
        if twin is None or index is None:
            return self._derived(node, cols, keys, mode)
        index_keys = np.ascontiguousarray(keys[[cols.index(c) for c in index]])
        missing = np.zeros(index_keys.shape[1], np.bool_) if twin.full else twin.missing(index, index_keys)
        present, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
        if not len(present):
            return self._derived(node, cols, keys, mode)
        rows, ordinal = twin.op.fetch(self, twin, index, np.ascontiguousarray(index_keys[:, present]), MissMode.STORED)
        rows, ordinal = self._with_others(node, cols, np.ascontiguousarray(keys[:, present]), rows, ordinal)
        self._spend(len(rows))
        if not len(rest):
            return rows, ordinal
        more, whose = self._derived(node, cols, np.ascontiguousarray(keys[:, rest]), mode)
        return concat([rows, more], node.width), np.concatenate([present[ordinal], rest[whose]])

    def _derived(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        if not node.parents:
            return self._looked_up(node, cols, keys)
        try:
            needs = node.op.needs(node, cols)
        except Untraceable:
            return self._among(node, cols, keys)
        if not node.op.stateful:
            return node.op.fetch(self, node, cols, keys, mode)
        (need,) = needs
        requested = self.folded(node, cols, keys)
        rows, _ = self.fetch(node.parents[0], need.cols, distinct(requested), mode)
        return self._matching(node, cols, requested, node.op.recompute(self, node, [rows]))

    def _looked_up(self, node: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """Look up rows of a base table, by an index as long as that is cheaper than a scan."""
        op, requested = node.op, self.folded(node, cols, keys)
        assert isinstance(op, Base)
        if isinstance(op, Nothing):
            return op.lookup(self, node, cols, keys)
        table = op.table.name
        some = distinct(requested)
        cost = self._lookup_cost[node] = self._lookup_cost[node] + LOOKUP_ROWS * some.shape[1]
        if not self.store.finds(table, cols) or cost > max(self._count(table), LOOKUP_ROWS):
            return self._among(node, cols, keys)
        self._spend(LOOKUP_ROWS * some.shape[1])
        if not op.table.primary_key and self.store.row_count(table) > self._left and not self.store.within(
                table, cols, some, self._left):
            raise ReadLimitExceeded
        rows, ordinal = op.lookup(self, node, cols, some)
        self._spend(len(rows))
        rows, ordinal = self._with_others(node, cols, some, rows, ordinal)
        return (rows, ordinal) if requested.shape[1] == 1 else self._matching(node, cols, requested, rows)

    def _count(self, table: str) -> int:
        """About how many rows the table has."""
        return self.store.row_count(table)

    def _with_others(self, node: Node, cols: Columns, keys: Codes, rows: Batch, ordinal: Codes) -> tuple[Batch, Codes]:
        """Add this reader's own rows to rows looked up in a base table."""
        delta = self._own(node)
        if delta is None:
            return rows, ordinal
        own, at = self._matching(node, cols, self.folded(node, cols, keys), delta)
        both = concat([_tagged(rows, ordinal), _tagged(own, at)], node.width + 1)
        both = netted(both)
        return Batch(np.ascontiguousarray(both.columns[:-1]), both.weights), both.columns[-1]

    def _among(self, node: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """Find the keys among all rows of the node."""
        rows = self.all_rows(node)
        if len(rows) <= HASHED_ROWS:
            return self._matching(node, cols, self.folded(node, cols, keys), rows)
        table = self._hashed.get(node)
        if table is None:
            table = self._hashed[node] = Table(node.width, node.folds(), self.symbols, full=True)
            table.apply(rows)
        table.fit(sorted({*table.indexes, cols}))
        return table.lookup(cols, keys, 0)

    def _matching(self, node: Node, cols: Columns, requested: Codes, rows: Batch) -> tuple[Batch, Codes]:
        """The rows with one of these folded keys, for each key."""
        ordinal, row = probe.pairs(requested, self.folded(node, cols, rows.columns[list(cols)]))
        if self.limits is not None:
            self.limits.product(len(row), node.width)
        return rows.take(row), ordinal

    def folded(self, node: Node, cols: Columns, keys: Codes) -> Codes:
        return np.ascontiguousarray(folded_keys(self.symbols, [node.fields[c].type.folds for c in cols], keys))

    # -------------------------------------------------------------- by range
    def _first(self, top: Node, key: Columns, key_range: tuple[int, int], end: int, first: int, descending: bool
               ) -> tuple[Batch, Codes]:
        """Read from one end of the range until `first` rows are read: rows on disk up to `end` may be filtered
        or joined away."""
        (low, high), target = key_range, first
        parts = [Batch.empty(top.width)]
        while True:
            values = self._values(top, key, *((end, high) if descending else (low, end)))
            parts.append(self.fetch(top, key, values[None, :], MissMode.FILL)[0])
            low, high = (low, end - 1) if descending else (end + 1, high)
            if low > high or sum(int(p.weights.sum()) for p in parts) >= first:
                rows = concat(parts, top.width)
                return rows, np.unique(rows.columns[key[0]], return_inverse=True)[1]
            target *= 2
            reached = self._reach(top, key, low, high, target, descending)
            assert reached is not None
            end = reached

    def _in_order(self, node: Node, op: Top) -> Batch | None:
        """The rows of a Top without groups, by `first`."""
        rows = None if op.group else self.first(node.parents[0], op.order, op.k)
        return None if rows is None else op.visible_rows(self, rows)

    def first(self, node: Node, order: Order, rows: int) -> Batch | None:
        """The node's first rows in an order, at least `rows` of them or all, with all rows that rank among them.

        They are read from the end of an index by the order's first column. None if there is no such index, or a
        NULL could rank before these rows.
        """
        if not order or not rows:
            return None
        column, descending = order[0]
        field = node.fields[column]
        if field.type.is_text or (field.nullable and not descending):
            return None
        end = self._reach(node, (column,), MIN_INT, MAX_INT, rows, descending)
        if end is None:
            return None
        rows_in_order, _ = self._first(node, (column,), (MIN_INT, MAX_INT), end, rows, descending)
        return None if field.nullable and int(rows_in_order.weights.sum()) < rows else rows_in_order

    def _reach(self, node: Node, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int | None:
        """A value up to which the tables have about `rows` rows, counted from low (`descending`: from high). The
        other end if they have fewer; None if no index shows it."""
        if isinstance(node.op, Nothing):
            return None
        if not node.parents:
            table, column = _table(node), cols[0]
            if not self.store.finds(table, cols):
                return None
            return self.store.reach(table, column, low, high, rows, descending)
        try:
            needs = sources(node, cols)
        except Untraceable:
            return None
        ends = [self._reach(node.parents[n.port], n.cols, low, high, rows, descending) for n in needs]
        known = [e for e in ends if e is not None]
        if len(known) < len(ends):
            return None
        return max(known) if descending else min(known)

    def _values(self, node: Node, cols: Columns, low: int, high: int) -> Codes:
        """The values from low to high that rows may have in a column, according to the tables' indexes."""
        if node.parents:
            parts = [self._values(node.parents[n.port], n.cols, low, high) for n in sources(node, cols)]
            return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))
        table, column = _table(node), cols[0]
        values = self.store.values_between(table, column, low, high)
        if table in self._delta:
            own = self._delta[table].columns[column]
            values = np.union1d(values, own[(own >= low) & (own <= high)])
        return values

    # -------------------------------------------------------------- by condition
    def _by_condition(self, node: Node, op: Filter) -> Batch | None:
        """The rows of a filter, from an index of its equalities or from a short range of an index. None if it has
        neither."""
        above = node.parents[0]
        cols, keys = self._points(above, op) or self._short_range(above, op) or ((), None)
        if keys is None:
            return None
        keys = distinct(self.folded(above, cols, keys))  # several texts may be equal
        return op.map(self, self.fetch(above, cols, keys, MissMode.FILL)[0])[0]

    def _points(self, node: Node, op: Filter) -> tuple[Columns, Codes] | None:
        """The indexed columns that a filter of the node compares with values, and these as keys."""
        types = [f.type for f in node.fields]
        points = bounded(op.predicate, types)
        for cols in (tuple(points), *((c,) for c in points)):
            keys = list(product(*(points[c] for c in cols)))
            if cols and LOOKUP_ROWS * len(keys) <= self._left and self._is_indexed(node, cols):
                codes = [[encode(key[i], types[c], self.symbols) for key in keys] for i, c in enumerate(cols)]
                return cols, np.array(codes, np.int64).reshape(len(cols), len(keys))
        return None

    def _short_range(self, node: Node, op: Filter) -> tuple[Columns, Codes] | None:
        """An indexed column that a filter of the node restricts to a range of few values, and these as keys."""
        for column, (low, high) in ranges_of(op.predicate, [f.type for f in node.fields]).items():
            if low > high:
                return (column,), np.empty((1, 0), np.int64)
            if self._reach(node, (column,), low, high, self._left // LOOKUP_ROWS + 1, False) == high:
                return (column,), self._values(node, (column,), low, high)[None, :]
        return None

    def _is_indexed(self, node: Node, cols: Columns) -> bool:
        """Whether rows of the node can be looked up by these columns without a scan."""
        if not node.parents:
            return not isinstance(node.op, Nothing) and self.store.finds(_table(node), cols)
        try:
            needs = sources(node, cols)
        except Untraceable:
            return False
        return all(self._is_indexed(node.parents[n.port], n.cols) for n in needs)

    # -------------------------------------------------------------- all rows
    def all_rows(self, node: Node) -> Batch:
        """See `UpstreamReader`. The rows are computed once."""
        if node not in self._all_rows:
            self._all_rows[node] = collect(self.stream(node), node.width, self.limits)
        return self._all_rows[node]

    def stream(self, node: Node) -> Iterator[Batch]:
        """See `UpstreamReader`."""
        twin = self._usable(node)
        if node in self._all_rows:
            yield self._all_rows[node]
        elif twin is not None and twin.full:
            self._spend(len(twin.stored))
            yield twin.op.all_rows(self, twin)
        elif isinstance(node.op, Nothing):
            yield from node.op.stream(self, node)
        elif not node.parents:
            yield from self._scanned(node)
        elif isinstance(node.op, Top) and (ordered := self._in_order(node, node.op)) is not None:
            yield ordered
        elif isinstance(node.op, Keep):
            yield from self.stream(node.parents[0])
        elif isinstance(node.op, Filter) and (few := self._by_condition(node, node.op)) is not None:
            yield few
        elif node.op.stateful:
            yield node.op.recompute_sliced(self, node, self.stream(node.parents[0]))
        else:
            yield from node.op.stream(self, node)

    def _scanned(self, node: Node) -> Iterator[Batch]:
        self._spend(self.store.row_count(_table(node)))
        rows, delta = node.op.stream(self, node), self._own(node)
        if delta is None:
            yield from rows
        else:
            yield netted(concat([*rows, delta], node.width))

    def own_rows(self, table: str) -> Batch | None:
        """The rows of a table that exist for this reader only, with the table's columns."""
        return self._delta.get(table)

    def _own(self, node: Node) -> Batch | None:
        """The rows of a base table that exist for this reader only."""
        delta = None if node.parents else self._delta.get(_table(node))
        return None if delta is None else node.narrowed(delta)

    def texts_of(self, base: Node) -> Collection[int] | None:
        """See `UpstreamReader`. None (all) for a table with own rows, since netting compares all columns."""
        return None if _table(base) in self._delta else self._texts.get(base)

    def driver(self, node: Node) -> int:
        """The side of an inner join with fewer rows, by estimate."""
        left, right = (self._about(p) for p in node.parents)
        return 0 if left <= right else 1

    def _about(self, node: Node) -> float:
        """An estimate of the rows of a node."""
        if isinstance(node.op, Given):
            return len(node.op.values)
        if isinstance(node.op, Nothing):
            return 0
        if not node.parents:
            return self.store.row_count(_table(node))
        above = [self._about(p) for p in node.parents]
        return above[0] / 4 if isinstance(node.op, Filter) else max(above) if isinstance(node.op, Join) else sum(above)

    # -------------------------------------------------------------- states of the graph, limits
    def _usable(self, node: Node) -> Node | None:
        """The graph's equal of the node, if its state has the same rows for this reader; otherwise None."""
        twin = self._twins.get(node)
        if twin is None or twin.state is None or twin.readiness is not NodeState.READY:
            return None
        if self._delta and node.parents and any(_table(b) in self._delta for b in ancestors(node) if not b.parents):
            return None
        return twin

    def _spend(self, rows: int) -> None:
        self._left -= rows
        if self._left < 0:
            raise ReadLimitExceeded

    def note(self, kind: str, node: Node, cols: Columns, rows: Batch | Codes | None, more: More | None = None) -> None:
        """Ignore the event: it does not concern the graph."""


def first_rows(engine: Engine, node: Node, order: Order, rows: int) -> Batch | None:
    """`OneShot.first` for a node in the graph, from the tables alone. None if that exceeds the rows of one
    request, or if rows of other workers are needed."""
    if any(n.op.remote for n in ancestors(node)):
        return None
    try:
        return OneShot(engine, {}, ONE_SHOT_ROWS).first(node, order, rows)
    except ReadLimitExceeded:
        return None


def _table(node: Node) -> str:
    """The name of a base table."""
    assert isinstance(node.op, Base)
    return node.op.table.name


def _tagged(rows: Batch, ordinal: Codes) -> Batch:
    """Append the ordinal of its key to each row."""
    return Batch(np.concatenate([rows.columns, ordinal[None, :]]), rows.weights)
