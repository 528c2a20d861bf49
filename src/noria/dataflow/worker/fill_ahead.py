"""Fills partial views that clients read, before they ask for the other keys, in large upqueries.

    many misses of a partial view ──► its key columns are traced to base tables
        ──► a slice of such a table ──► the keys of its rows that the view lacks ──► one upquery

Several workers each scan their own rows. A worker sends each other worker the keys that this one owns in the view.

Keeps true: memory used stays below a share of the limit, so that nothing is evicted for these keys. A key that no row
of the table has is not filled. A slice is as long as a turn permits; a key that takes longer, or more memory than one
request may, is left to its readers. Keys are filled as a read fills them, so whatever holds of reads holds here. At
most one upquery of this worker waits for other workers' rows, and no slice begins meanwhile.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation, SqlError
from noria.core.errors.codes import QUERY_TIMEOUT
from noria.core.limits import FILL_AHEAD_MISSES, FILL_AHEAD_SHARE, FILL_AHEAD_SLICE_MS, NULL_CODE
from noria.dataflow.backfill.pace import Pace, SliceCost
from noria.dataflow.cluster.exchanges import Exchanges
from noria.dataflow.engine import memory_limit
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.keys import distinct
from noria.dataflow.graph.nodes import Columns, Node, RemoteRowsNeeded, Untraceable
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.graph.published import view_of
from noria.dataflow.graph.ranges import sources
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages.peer_messages import EncodedRows, KeysToFill, unpacked

FIRST_ROWS, _MOST_ROWS = 16, 4_096  # of a slice
MOST_VIEWS = 10_000  # whose misses are counted
MOST_LARGE = 1_000  # keys of one view that are left to their readers; with more, the view is
READ_ROWS = 2_048  # that one upquery may look up: a key with more is popular, so its readers fill it
READ_MS = 50  # at most for one upquery; it takes FILL_AHEAD_SLICE_MS as a rule
MOST_RECEIVED = 32  # batches of keys of other workers that wait here; later ones are left to their readers
MOST_TRIES = 4  # of an upquery that waits for other workers' rows


@dataclass
class _Fill:
    """The filling of one view. `bases`: what is left to scan, each a base table's node with the columns of the key.
    `after`: the place in the first of these. `rows`: scanned so far; `present`: the view's keys after the last slice.
    `over`: all is scanned, or memory is short."""

    view: str
    bases: deque[tuple[Node, Columns]]
    total: int
    after: bytes | None = None
    rows: int = 0
    present: int = 0
    over: bool = False

    def percent(self) -> float:
        """How much of the tables was scanned."""
        return 100.0 if not self.bases else min(100.0 * self.rows / max(self.total, 1), 99.0)


class FillAhead:
    """See the module. `limit`: the worker's memory limit in bytes; 0: none, and nothing is filled beforehand.
    `rows`: of the next slice. `shards`: this worker among several."""

    def __init__(self, engine: Engine, limit: int, unforeseen: Callable[[Exception], object],
                 exchanges: Exchanges | None = None):
        self._engine, self.limit, self._unforeseen, self._exchanges = engine, limit, unforeseen, exchanges
        self._fills = WeakKeyDictionary[Node, _Fill]()  # by reader
        self._large = WeakKeyDictionary[Node, set[tuple[int, ...]]]()  # by reader: keys that are left to their readers
        self._misses = Counter[str]()  # by view, since its filling was last considered
        self._many = Counter[str]()  # those of views with FILL_AHEAD_MISSES or more
        self._current: Node | None = None
        self._received = deque[tuple[Node, EncodedRows]]()  # of other workers' slices: keys that this worker owns
        self._waits = False  # an upquery, for other workers' rows
        self.rows, self._cost = FIRST_ROWS, SliceCost()
        if exchanges is not None:
            exchanges.found_keys.receive = self.receive

    def missed(self, view: str, reads: int) -> None:
        """Count reads by key that shared memory could not answer. One read may be of many keys, as `noria verify`
        sends it."""
        if not self.limit:
            return
        if view not in self._misses and len(self._misses) > MOST_VIEWS:
            self._misses.clear()  # most are of views that were dropped
        self._misses[view] += reads
        if (misses := self._misses[view]) >= FILL_AHEAD_MISSES:
            self._many[view] = misses

    def receive(self, message: KeysToFill) -> None:
        """Take keys of another worker's slice, which this worker owns."""
        node = next((n for n in self._engine.readers.values() if n.id == message.node), None)
        if node is not None and self.limit and len(self._received) < MOST_RECEIVED:
            self._received.append((node, message.keys))

    def has_work(self) -> bool:
        """Whether a slice can be filled now."""
        return not self._waits and (bool(self._received) or self._current is not None or self._begins())

    def _begins(self) -> bool:
        """Choose the next view to fill, the one with the most misses. False if none has enough."""
        while self._many and self.limit:
            [(name, _)] = self._many.most_common(1)
            del self._many[name], self._misses[name]
            node = self._engine.readers.get(name)
            if node is None or not self._wants(name, node) or self._room() <= 0:
                continue
            fill = self._fills.get(node)
            if fill is None or fill.over:
                fill = self._fills[node] = self._begun(name, node)
            if not fill.over:
                self._current = node
                return True
        return False

    def step(self) -> int:
        """Fill one slice. Returns its units of work: the rows scanned, or the keys received."""
        if self._received:
            return self._fill_received(*self._received.popleft())
        node, self._current = self._current, None
        fill = None if node is None else self._fills.get(node)
        if node is None or fill is None or not self._can_read(fill.view, node):
            return 1
        fill.over = self._room() <= 0
        scanned = 0 if fill.over else self._slice(node, fill)
        self._current = None if fill.over else node
        fill.present = view_of(node).present_count()
        node.stats.filled_ahead = fill.percent()
        return max(scanned, 1)

    def _fill_received(self, node: Node, sent: EncodedRows) -> int:
        name, engine = self._name(node), self._engine
        if name is None or self._has_many_large(node) or not self._can_read(name, node) or self._room() <= 0:
            return 1
        keys = unpacked(sent, [node.fields[c] for c in engine.reads[node]], engine.symbols).columns
        self._guarded(node, lambda: self._fill(name, node, keys))
        return int(keys.shape[1])

    # ---------------------------------------------------------------- which views
    def _wants(self, name: str, node: Node) -> bool:
        """Whether the reader is partial and was not filled to the end, or has since lost most of its keys."""
        if not self._can_read(name, node):
            return False
        fill = self._fills.get(node)
        return fill is None or not fill.over or view_of(node).present_count() < fill.present // 2

    def _can_read(self, name: str, node: Node) -> bool:
        engine = self._engine
        return (engine.readers.get(name) is node and not node.full and node.live and node.state is not None
                and bool(engine.reads.get(node)) and engine.ready(name))

    def _begun(self, name: str, node: Node) -> _Fill:
        try:
            bases = list(dict.fromkeys(_origins(node, self._engine.reads[node], self._rows)))
        except Untraceable:
            bases = []
        return _Fill(name, deque(bases), sum(self._rows(base) for base, _ in bases), over=not bases)

    def _name(self, reader: Node) -> str | None:
        """The present name of a reader's view; None if it was dropped."""
        return next((name for name, node in self._engine.readers.items() if node is reader), None)

    def _table(self, base: Node) -> str | None:
        """The present name of a base table; None if it was dropped."""
        return next((name for name, bases in self._engine.bases.items() if base in bases), None)

    def _rows(self, base: Node) -> int:
        table = self._table(base)
        return 0 if table is None else self._engine.store.row_count(table)

    def _room(self) -> int:
        """How many bytes may still be used."""
        engine = self._engine
        return int(FILL_AHEAD_SHARE * self.limit) - engine.store.memory() - memory_limit.memory(engine)

    # ---------------------------------------------------------------- one slice
    def _slice(self, node: Node, fill: _Fill) -> int:
        """Scan the next rows and fill their keys. Returns the number of rows."""
        engine, (base, cols) = self._engine, fill.bases[0]
        if (table := self._table(base)) is None:
            fill.over = True
            return 0
        pace = Pace(engine.clock, engine.processor)
        rows, after = Batch.empty(0), fill.after

        def scan() -> None:
            nonlocal rows, after
            rows, after = engine.store.scan(table, fill.after, self.rows, frozenset(cols))
            self._fill(fill.view, node, self._own(node, np.ascontiguousarray(rows.columns[list(cols)])))

        if not self._guarded(node, scan):
            fill.over = True
            return 0
        self.rows = pace.next_rows(self.rows, FILL_AHEAD_SLICE_MS, _MOST_ROWS, self._cost)
        fill.rows, fill.after = fill.rows + len(rows), after
        if after is None:
            fill.bases.popleft()
        fill.over = not fill.bases or self._has_many_large(node)
        return len(rows)

    def _has_many_large(self, node: Node) -> bool:
        """Whether the whole view is left to its readers, because so many of its keys are."""
        return len(self._large.get(node, ())) > MOST_LARGE

    def _guarded(self, node: Node, fill: Callable[[], None]) -> bool:
        """Fill keys. False if the view's readers must meet an error first. The counts of misses stay as they were."""
        engine = self._engine
        counted = [(n.stats, n.stats.requested, n.stats.misses) for n in ancestors(node)]
        try:
            fill()
        except (InvariantViolation, StoreBroken):
            raise
        except SqlError:  # reads of the view will report it
            return False
        except Exception as bug:  # its readers will meet it; nothing that was filled in part is kept
            self._unforeseen(bug)
            engine.forget_partial(ancestors(node))
            return False
        finally:
            for stats, requested, misses in counted:
                stats.requested, stats.misses = requested, misses
        return True

    def _own(self, node: Node, keys: Codes) -> Codes:
        """The distinct keys that this worker owns; the others are sent to their owners."""
        keys = keys[:, (keys != NULL_CODE).all(axis=0)]
        if not keys.shape[1]:
            return keys
        keys = distinct(np.ascontiguousarray(keys))
        exchanges = self._exchanges
        return keys if exchanges is None else exchanges.found_keys.to_owners(node, self._engine.reads[node], keys)

    def _fill(self, view: str, node: Node, keys: Codes, tries: int = 1) -> None:
        """Fill those of these keys that are missing: all in one upquery, or if that is too large, half of them each.
        If they wait for other workers' rows, try all again then."""
        if not keys.shape[1]:
            return
        large = self._large.setdefault(node, set())
        missing = node.missing(self._engine.reads[node], np.ascontiguousarray(keys))
        if large:
            missing &= [tuple(key) not in large for key in keys.T.tolist()]
        parts = [keys[:, missing]]
        while parts:
            some = np.ascontiguousarray(parts.pop())
            half = some.shape[1] // 2
            try:
                if not some.shape[1] or self._read(view, some):
                    continue
            except RemoteRowsNeeded as remote:
                if tries < MOST_TRIES:
                    self._wait(remote, view, node, np.concatenate([*parts, some], axis=1), tries)
                return
            if half:
                parts += [some[:, half:], some[:, :half]]
            else:
                large.add(tuple(some[:, 0].tolist()))

    def _wait(self, remote: RemoteRowsNeeded, view: str, node: Node, keys: Codes, tries: int) -> None:
        """Fill these keys when other workers' rows have arrived."""
        assert self._exchanges is not None
        self._waits = True

        def again() -> None:
            self._waits = False
            if self._can_read(view, node):
                self._guarded(node, lambda: self._fill(view, node, keys, tries + 1))

        def failed(error: SqlError) -> None:
            self._waits = False

        self._exchanges.waiting.wait(remote, (self, tries), again, failed, held=lambda: keys)

    def _read(self, view: str, keys: Codes) -> bool:
        """Fill keys by one upquery. False if it is larger than one may be here."""
        engine = self._engine
        engine.limits = RequestLimits(engine.clock, READ_MS, processor=engine.processor)
        try:
            with engine.lookups.bounded(rows=READ_ROWS):
                engine.fill_keys(view, keys)
        except LongLookup:
            return False
        except SqlError as error:
            if error.code != QUERY_TIMEOUT.number:
                raise
            return False
        finally:
            engine.limits = None
        return True


def _origins(node: Node, cols: Columns, rows_of: Callable[[Node], int]) -> list[tuple[Node, Columns]]:
    """The base tables, with their columns, from which these columns of a node derive. Raises Untraceable, also if they
    derive from several tables together. `rows_of`: the rows of a base table. Of a join's sides, the one with fewer rows
    counts: the votes of a story repeat its key."""
    if not node.parents:
        return [(node, cols)]
    found = []
    for need in sources(node, cols):
        if len(need.cols) < len(cols):
            raise Untraceable(node, "its key derives from several tables together")
        found += _origins(node.parents[need.port], need.cols, rows_of)
    for other in node.op.also_from(node, cols):
        with suppress(Untraceable):
            there = _origins(node.parents[other.port], other.cols, rows_of)
            found = min(found, there, key=lambda bases: sum(rows_of(base) for base, _ in bases))
    return found
