"""One-shots over a table too large to read at once: its rows are read in slices, between packets.

    a slice       rows of the table in key order, reduced to the lookup's keys → filters and projections →
                  the state of the first stateful operator above (groups, first rows), or else the rows
    at the end    the rest of the query over these, as in any one-shot

Keeps true: all rows are those of the tick at which the scan began, with the rows that only its reader has. A write to
rows that the scan has not reached is recorded, and undone when the scan reads them. Writes to rows that it has passed
do not affect it. No node is in the graph. The rows kept, and those to undo, are bounded in bytes.

`Scans.begin` begins a scan for a query, and `Scans.step` runs one slice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError, interrupted, read_limit_error, view_changed
from noria.core.limits import BUILD_SLICE_MS, NULL_CODE, ONE_SHOT_BYTES, ONE_SHOT_SCAN_ROWS, ONE_SHOTS_BYTES
from noria.dataflow.backfill.pace import Pace, SliceCost, no_time
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.keys import distinct
from noria.dataflow.graph.nodes import Columns, Node, Untraceable
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages.envelopes import error_reply, number_of
from noria.dataflow.messages.packets import Envelope, Packet
from noria.dataflow.oneshot.oneshot import OneShot
from noria.dataflow.ops.stateful.base import Base
from noria.dataflow.ops.stateless.stateless import Stateless
from noria.state.rows import probe
from noria.state.rows.netting import netted

FIRST_ROWS, MOST_ROWS = 1_024, 65_536  # of a slice


@dataclass(frozen=True)
class QueryLookup:
    """The lookup of a query: keys as codes of shape (key columns, keys), as for `OneShot.read`, or a range of
    codes of the only key column."""

    key: Columns
    keys: Codes
    nulls: bool = False
    key_range: tuple[int, int] | None = None


class Scan:
    """A query under way. `rows`: the size of the next slice. `over`: whether all rows have been read."""

    def __init__(self, engine: Engine, shot: OneShot, top: Node, lookup: QueryLookup):
        self._engine, self._shot, self._top, self._lookup = engine, shot, top, lookup
        path = _path(top)
        assert path is not None
        self._base = path[0]
        self._table = self._engine.store.tables()[_table_of(self._base)]  # the node's own may have older columns
        keeps = next((i for i, n in enumerate(path) if i and not isinstance(n.op, Stateless)), len(path))
        self._maps = path[1:keeps]
        self._keeper = path[keeps] if keeps < len(path) and path[keeps].op.stateful else None
        self._among = _traced(top, lookup.key)
        shot.ignore_states()
        self.rows, self.done, self.over, self._stale = FIRST_ROWS, 0, False, False
        self.cost = SliceCost()
        self._begin()

    @staticmethod
    def can(engine: Engine, top: Node, rows: int = ONE_SHOT_SCAN_ROWS) -> bool:
        """Whether the query reads a single table with a primary key that has at most `rows` rows."""
        path = _path(top)
        if path is None:
            return False
        known = engine.store.tables().get(_table_of(path[0]))
        return known is not None and bool(known.primary_key) and (
            engine.store.row_count(known.name) <= min(rows, ONE_SHOT_SCAN_ROWS))

    def _begin(self) -> None:
        self._after: bytes | None = None
        self._ahead: list[tuple[list[bytes], Batch]] = []  # positions, ascending; rows to add when they are reached
        if (own := self._shot.own_rows(self._table.name)) is not None:
            places, order = self._placed(own)
            self._ahead.append((places, self._base.narrowed(own).take(order)))
        self._kept = None if self._keeper is None else self._keeper.op.partial_result(self._shot, self._keeper)
        self._rows: list[Batch] = []

    def restart(self) -> None:
        """After a bulk load, read all rows again as of now. If the reader has rows of its own, the scan fails."""
        self._stale |= self._shot.own_rows(self._table.name) is not None
        if not self.over:
            self._begin()

    def reads(self, table: str) -> bool:
        return self._table.name == table

    def check_table(self) -> None:
        """After a change of the program, check whether the table is unchanged."""
        was, now = self._table, self._engine.store.tables().get(self._table.name)
        self._stale |= now is None or (now.table_id, now.keyed, now.columns) != (was.table_id, was.keyed, was.columns)

    # -------------------------------------------------------------- one tick
    def tick(self, inputs: Mapping[str, Batch]) -> None:
        """Record writes to rows that the scan has not reached, to undo them later."""
        delta = inputs.get(self._table.name)
        if self.over or delta is None or not len(delta):
            return
        places, order = self._placed(delta)
        passed = 0 if self._after is None else bisect_right(places, self._after)
        if passed < len(places):
            self._ahead.append((places[passed:], self._base.narrowed(delta).take(order[passed:]).negated()))

    def _placed(self, delta: Batch) -> tuple[list[bytes], Codes]:
        """The positions of rows in the table, ascending, and the rows' numbers in this order."""
        places = self._engine.store.positions(self._table.name, delta)
        assert places is not None
        order = sorted(range(len(places)), key=places.__getitem__)
        return [places[i] for i in order], np.array(order, np.int64)

    # -------------------------------------------------------------- one slice
    def step(self) -> bool:
        """Read one slice. Returns whether it was the last. SqlError 1412 if the table has changed, 3024 if too
        many bytes are kept."""
        name = self._table.name
        self.check_table()
        if self._stale:
            raise view_changed(name)
        texts = self._shot.texts_of(self._base)
        scanned, up_to = self._engine.store.scan(name, self._after, self.rows, texts)
        self.done += len(scanned)
        rows = self._without_later_writes(self._base.narrowed(scanned), up_to)
        self._after, self.over = up_to, up_to is None
        rows = self._matching(rows)
        for node in self._maps:
            rows = node.op.recompute(self._shot, node, [rows])
        if self._kept is not None:
            self._kept.add(rows)
        elif len(rows):
            self._rows.append(rows)
        if self.memory() > ONE_SHOT_BYTES:
            raise read_limit_error(self.done)
        return self.over

    def _without_later_writes(self, rows: Batch, up_to: bytes | None) -> Batch:
        """Undo, in a slice that ends at `up_to`, the writes since the scan began."""
        reached_rows, ahead = [], list[tuple[list[bytes], Batch]]()
        for places, back in self._ahead:
            reached = len(places) if up_to is None else bisect_right(places, up_to)
            if reached:
                reached_rows.append(back.take(np.arange(reached)))
                places, back = places[reached:], back.take(np.arange(reached, len(back)))
            if places:
                ahead.append((places, back))
        self._ahead = ahead
        if not reached_rows:
            return rows
        return netted(concat([self._blank(rows), *map(self._blank, reached_rows)], rows.width))

    def _blank(self, rows: Batch) -> Batch:
        """Replace unused texts by NULL: some of them may not have been read."""
        texts = self._shot.texts_of(self._base)
        if texts is None:
            return rows
        columns = rows.columns.copy()
        for c, f in enumerate(self._base.fields):
            if f.type.is_text and c not in texts:
                columns[c] = NULL_CODE
        return Batch(columns, rows.weights)

    def _matching(self, rows: Batch) -> Batch:
        """The rows of the table that may have the lookup's keys, as far as their columns show it."""
        if not self._among or not len(rows):
            return rows
        columns = rows.columns[list(self._among)]
        if self._lookup.key_range is not None:
            low, high = self._lookup.key_range
            return rows.where((columns[0] >= low) & (columns[0] <= high))
        keys = self._lookup.keys
        if not self._lookup.nulls:
            keys = np.ascontiguousarray(keys[:, (keys != NULL_CODE).all(axis=0)])
        fold = partial(self._shot.folded, self._base, self._among)
        return rows.take(np.sort(probe.pairs(distinct(fold(keys)), fold(columns))[1]))

    def memory(self) -> int:
        """Bytes of the rows kept and of those to undo."""
        kept = 0 if self._kept is None else self._kept.memory()
        return kept + sum(b.columns.nbytes for b in self._rows) + sum(b.columns.nbytes for _, b in self._ahead)

    def held(self) -> Iterator[Codes]:
        """Every text id in use; other numbers may be among them."""
        for batch in (*self._rows, *(b for _, b in self._ahead)):
            yield from batch.columns
        if self._kept is not None:
            yield from self._kept.held()
        yield from self._lookup.keys

    # -------------------------------------------------------------- the end
    def answer(self) -> tuple[Batch, Codes]:
        """The rows of the lookup and the ordinals of their keys, as `OneShot.read` and `read_between` return
        them."""
        node = self._keeper or (self._maps or [self._base])[-1]
        rows = concat(self._rows, node.width) if self._kept is None else self._kept.rows()
        self._shot.set_rows(node, rows)
        if self._lookup.key_range is not None:
            return self._shot.range_rows(self._top, self._lookup.key, *self._lookup.key_range)
        return self._shot.read(self._top, self._lookup.key, self._lookup.keys, self._lookup.nulls)


def _table_of(base: Node) -> str:
    assert isinstance(base.op, Base)
    return base.op.table.name


def _path(top: Node) -> list[Node] | None:
    """The nodes from the only table up to the top; None if the query reads several tables."""
    path = [top]
    while path[-1].parents:
        if len(path[-1].parents) > 1:
            return None
        path.append(path[-1].parents[0])
    return path[::-1]


def _traced(top: Node, key: Columns) -> Columns:
    """The table's columns that the key columns are copies of; empty if they are not copies."""
    node, cols = top, key
    while node.parents:
        try:
            (need,) = node.op.needs(node, cols)
        except Untraceable:
            return ()
        if len(need.cols) != len(cols):
            return ()
        node, cols = node.parents[0], need.cols
    return cols


# ------------------------------------------------------------------ all of them
@dataclass(eq=False)
class _PendingQuery:
    """A query that waits for its scan. `make_reply`: returns the reply for rows and ordinals. `nbytes`: bytes kept by
    the scan."""

    envelope: Envelope
    number: int
    scan: Scan
    make_reply: Callable[[Batch, Codes], Packet]
    limits: RequestLimits
    nbytes: int = 0


@dataclass
class Scans:
    """All scans, which take turns.

    Together they may keep ONE_SHOTS_BYTES. Beyond that only scans that keep little continue, and the oldest one
    while there is room for its result. `on_defect`: records a defect of a request and returns the error to
    answer with. `results`: bytes of results held.
    """

    engine: Engine
    environment: WorkerEnvironment
    on_defect: Callable[[str, Exception], SqlError]
    results: Callable[[], int] = lambda: 0
    _waiting: deque[_PendingQuery] = field(default_factory=deque)
    _oldest: deque[_PendingQuery] = field(default_factory=deque)  # the same queries, in order of arrival
    _replies: list[tuple[Envelope, Packet]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._waiting or self._replies)

    def begin(self, e: Envelope, shot: OneShot, top: Node, lookup: QueryLookup,
              make_reply: Callable[[Batch, Codes], Packet]) -> bool:
        """Begin a scan for a query. Returns False if a scan cannot answer it; otherwise the reply follows later."""
        if not Scan.can(self.engine, top):
            return False
        number = number_of(e)
        limits = shot.limits = RequestLimits(self.environment.clock, 0, partial(self.environment.cancelled, number),
                                         ONE_SHOT_BYTES)
        scan = Scan(self.engine, shot, top, lookup)
        query = _PendingQuery(e, number, scan, make_reply, limits)
        self._waiting.append(query)
        self._oldest.append(query)
        self.engine.scans.append(scan)
        return True

    def check_tables(self) -> None:
        """After a change of the program, check the tables of all scans."""
        for a in self._waiting:
            a.scan.check_table()

    def restart(self, table: str) -> None:
        for a in self._waiting:
            if a.scan.reads(table):
                a.scan.restart()

    # -------------------------------------------------------------- turns
    def can_continue(self) -> bool:
        """Whether any scan can continue."""
        return self._next() is not None

    def _next(self) -> _PendingQuery | None:
        """The next scan that may continue. A cancelled one is first, so that it ends."""
        cancelled = self.environment.cancelled
        cancelled_query = next((a for a in self._waiting if cancelled(a.number)), None)
        if cancelled_query is not None or not self._waiting:
            return cancelled_query
        results = self.results()
        room = ONE_SHOTS_BYTES - results - sum(a.nbytes for a in self._waiting)
        if room > 0:
            return self._waiting[0]
        little = ONE_SHOTS_BYTES // (4 * len(self._waiting))
        oldest = self._oldest[0] if results < ONE_SHOTS_BYTES else None
        return next((a for a in self._waiting if a is oldest or a.nbytes <= little), None)

    def step(self) -> int:
        """Run one slice of the next scan. Returns the rows read."""
        a = self._next()
        if a is None:
            return 0
        self._waiting.remove(a)
        self._waiting.append(a)
        before = a.scan.done
        self._slice(a)
        self.environment.began(0)
        return a.scan.done - before

    def _slice(self, a: _PendingQuery) -> None:
        self.environment.began(a.number)
        pace = Pace(self.environment.clock or no_time, self.environment.processor)
        reply: Packet | None = None
        outer, self.engine.limits = self.engine.limits, a.limits
        try:
            if self.environment.cancelled(a.number):
                raise interrupted()
            if a.scan.step():
                reply = a.make_reply(*a.scan.answer())
            a.nbytes = a.scan.memory()
        except SqlError as error:
            reply = error_reply(a.envelope, error)
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            reply = error_reply(a.envelope, self.on_defect(f"a slice of Query {a.number}", bug))
        finally:
            self.engine.limits = outer
        a.scan.rows = pace.next_rows(a.scan.rows, BUILD_SLICE_MS, MOST_ROWS, a.scan.cost)
        if reply is not None:
            self._waiting.remove(a)
            self._oldest.remove(a)
            self.engine.scans = [s for s in self.engine.scans if s is not a.scan]
            self._replies.append((a.envelope, reply))

    def answered(self) -> list[tuple[Envelope, Packet]]:
        """Return and clear the replies of finished queries."""
        replies, self._replies = self._replies, []
        return replies
