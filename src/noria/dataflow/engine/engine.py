"""The engine of one worker: ticks, reads and migrations of its graph. No two calls run concurrently.

Keeps true: between two calls every invariant in docs/design/invariants.md holds. A tick walks the graph once in
topological order, so a read of upstream state during the tick sees states after the tick (rule R2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation
from noria.core.limits import NULL_CODE
from noria.core.ranking import Order
from noria.core.symbols import Symbols
from noria.dataflow.backfill.backfills import Backfills
from noria.dataflow.backfill.exchange_state import BackfillReceiver
from noria.dataflow.backfill.full_state import SparkBackfill, StateBackfill
from noria.dataflow.engine import renewal
from noria.dataflow.engine.lookups import SlicedLookups
from noria.dataflow.engine.outages import Outages
from noria.dataflow.engine.profile import Clock, ReadProfile
from noria.dataflow.engine.runtime import KeyRefill, SavedState, SlicedRead, WorkerExchanges
from noria.dataflow.graph import layout, ranges
from noria.dataflow.graph.graph import Graph, ancestors, local_ancestors, nearest
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import UNREADY, Columns, MissMode, Node
from noria.dataflow.graph.protocols import BaseStore, ViewFactory
from noria.dataflow.graph.published import view_of
from noria.dataflow.graph.request_limits import RequestLimits, collect
from noria.dataflow.graph.story import More, Story

Trace = Callable[..., None]  # called with the parts of an event (`story.format_event`)
TIMED_TICKS = 64  # one tick in 64 is timed, node by node: reading the clock twice costs a per cent of a tick


class Engine:
    """A graph with its states. Call `tick` with deltas, `read` for rows of a view, `relayout` after a change of
    the graph.

    `store`: the base tables. `views`: creates the states that readers publish. `trace`, if set, receives every
    delta, miss, fill and eviction (golden scripts); otherwise `story` does, with deltas of base tables only.
    `clock`, in nanoseconds, if set, times some ticks. `profile`, if set, measures every fetch. `work`, if set,
    bounds the current request.
    """

    def __init__(self, store: BaseStore, symbols: Symbols, views: ViewFactory):
        self.store, self.symbols, self.views = store, symbols, views
        self.graph = Graph()
        self.builds = Backfills(self)
        self.outages = Outages(self)
        self.lookups = SlicedLookups(self)
        self.held_by_transactions: Callable[[], Iterable[Codes]] = tuple  # codes that open transactions hold
        self.scans: list[SlicedRead] = []  # reads of tables in slices
        self.bases: dict[str, list[Node]] = {}  # of each table, one for each number of columns read
        self.readers: dict[str, Node] = {}
        self.reads: dict[Node, Columns] = {}  # the columns by which clients look a reader up
        self.ranged: set[Node] = set()  # readers whose only key column is read by ranges, too
        self.tick_number = 0
        self.story = Story(symbols)
        self.trace: Trace | None = None
        self.clock: Clock | None = None
        self.processor: Clock | None = None  # time that this thread has computed
        self.profile: ReadProfile | None = None
        self.limits: RequestLimits | None = None
        self.saved: SavedState | None = None  # states of an earlier life, until rows are written
        self.restored = 0  # the number of states restored
        self.texts_reserved = False  # texts of saved states that may yet be restored are not freed
        self.refill: KeyRefill | None = None  # keys of partial views, to be filled again
        self.exchanges: WorkerExchanges | None = None  # with several workers: the connection to the others
        self.first_rows: Callable[[Node, Order, int], Batch | None] = lambda *_: None  # `oneshot.first_rows`
        self.large: int | None = None  # the last argument of `relayout`
        self._filling = 0  # states being filled, each for the one before
        self._deepest = 0
        self._pulled: set[int] = set()  # numbers of nodes through which an exception left a pull

    # -------------------------------------------------------------- ticks
    def tick(self, inputs: Mapping[str, Batch], arrived: Mapping[Node, Batch] | None = None) -> None:
        """Apply deltas to the graph in one tick. `inputs`: deltas of base tables, which the store has already.
        `arrived`: rows that exchanges received from other workers."""
        self.tick_number += 1
        self.saved = None if inputs else self.saved
        for scan in self.scans:
            scan.tick(inputs)
        pending: dict[int, list[Batch | None]] = {n.id: [rows] for n, rows in (arrived or {}).items()}
        for table, delta in inputs.items():
            for base in self.bases.get(table, ()) if len(delta) else ():
                pending[base.id] = [mine := base.narrowed(delta)]
                if self.trace is None:
                    self.note("emits", base, (), mine)
        if pending and self.exchanges is None:
            self._walk(pending)
        elif pending and self.exchanges is not None:
            with self.exchanges.ticking():
                self._walk(pending)
        self.outages.contain_failures()

    def _walk(self, pending: dict[int, list[Batch | None]]) -> None:
        """Visit the graph once in topological order. `pending`: input deltas by node number and port."""
        sources = self.builds.sources() if self.builds.states or self.builds.served else ()
        watched: dict[Node, Batch] = {}
        tick = self._plain_tick if self.clock is None or self.tick_number % TIMED_TICKS else self._timed_tick
        for node in self.graph.nodes:
            deltas = pending.pop(node.id, None)
            if deltas is None or node.inert:
                continue
            if node.stash is not None:
                node.stash += [d for d in deltas if d is not None]
                continue
            if node.ranges:
                ranges.admit(self, node, deltas)
            if not node.parents and node in sources and deltas[0] is not None:
                watched[node] = deltas[0]  # all rows, even those of missing keys
            try:
                out = tick(node, deltas)
            except Exception as bug:
                self._raised(node, bug)
                continue
            stats = node.stats
            stats.ticks += 1
            for rows in deltas:
                if rows is not None:
                    stats.rows_in += len(rows)
            if out is None or not (rows_out := len(out)):
                continue
            stats.rows_out += rows_out
            if node.parents and node in sources:
                watched[node] = out
            if self.trace is not None:
                self.note("emits", node, (), out)
            for child, port in node.children:
                slots = pending.get(child.id)
                if slots is None:
                    slots = pending[child.id] = [None] * len(child.parents)
                mine = out if self.exchanges is None or not child.op.remote else self.exchanges.split(child, out)
                before = slots[port]
                slots[port] = mine if before is None else concat([before, mine], out.width)
        if watched:
            self.builds.tick(watched)

    def _raised(self, node: Node, bug: Exception) -> None:
        """Handle an operator that raised in a tick. Its output is unknown; states that it pulled from forget
        their keys."""
        self.outages.begin(node, bug)
        pulled, self._pulled = self._pulled, set()
        self.forget_partial([n for n in ancestors(node) if n.id in pulled])

    def note(self, kind: str, node: Node, cols: Columns, rows: Batch | Codes | None, more: More | None = None) -> None:
        """Report an event to the trace, or to the story if there is none."""
        (self.trace or self.story)(kind, node.id, node.fields, cols, rows, more)

    def _plain_tick(self, node: Node, deltas: list[Batch | None]) -> Batch | None:
        return node.op.tick(self, node, deltas)

    def _timed_tick(self, node: Node, deltas: list[Batch | None]) -> Batch | None:
        assert self.clock is not None
        start = self.clock()
        out = node.op.tick(self, node, deltas)
        node.stats.timed_ns += self.clock() - start
        node.stats.timed_ticks += 1
        return out

    def advance(self) -> None:
        """Count a tick without deltas. Reads are stamped with tick numbers, so time must pass while nobody
        writes."""
        self.tick_number += 1
        for node in self.readers.values():
            if node.state is not None:
                view = view_of(node)
                view.begin_tick(self.tick_number)
                view.end_tick(self.tick_number)

    # -------------------------------------------------------------- reading upstream
    def texts_of(self, base: Node) -> None:
        """None: read all columns, because states hold all of them."""

    def looked_up(self, table: str, base: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        """Look up rows of a base table in the store, or in the rows that a long lookup has read in slices."""
        return self.lookups.rows(table, base, cols, keys)

    def fetch(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """Return the node's rows whose cols equal a key, with the ordinal of the key. Keys may repeat; NULL
        equals NULL. If a column occurs twice in `cols`, keys with two different values for it have no rows."""
        once = tuple(dict.fromkeys(cols))
        if len(once) < len(cols):
            at = np.flatnonzero(self._agree(node, cols, keys))
            keys = np.ascontiguousarray(keys[[cols.index(c) for c in once]][:, at])
            rows, ordinal = self.fetch(node, once, keys, mode)
            return rows, at[ordinal]
        if self.profile is not None:
            return self.profile.fetch(self, node, cols, keys, mode)
        return self.answer(node, cols, keys, mode)

    def answer(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch, Codes]:
        """`fetch` without the profile."""
        if self.limits is not None:
            self.limits.check()
        if node.all_remote:
            return Batch.empty(node.width), np.empty(0, np.int64)
        try:
            if mode is not MissMode.STORED and node.op.stateful and node.parents and not node.full:
                self._complete(node, cols, keys, mode)
            return node.op.fetch(self, node, cols, keys, mode)
        except Exception:
            self._pulled.add(node.id)
            raise

    def _agree(self, node: Node, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        keys = folded_keys(self.symbols, [node.fields[c].type.folds for c in cols], keys)
        agree: npt.NDArray[np.bool_] = (keys == keys[[cols.index(c) for c in cols]]).all(axis=0)
        return agree

    def _complete(self, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> None:
        """Make the keys present in the node's index by cols, with one upquery for all missing keys."""
        miss = node.missing(cols, keys)
        node.stats.requested += keys.shape[1]
        if mode is MissMode.CHECK and cols in node.ranges:
            miss &= ~node.ranges[cols].covers(keys[0])
        if not miss.any():
            return
        missing = distinct(folded_keys(self.symbols, [node.fields[c].type.folds for c in cols], keys[:, miss]))
        if mode is MissMode.CHECK:
            raise InvariantViolation("HOLE-CLOSED",
                                     f"{node} misses {cols} = {missing.T.tolist()} that below is present")
        node.stats.misses += missing.shape[1]
        self.note("misses", node, cols, missing)
        self._filling += 1
        outer, self._deepest = self._deepest, self._filling
        try:
            self.fill(node, cols, missing)
        finally:
            node.stats.pull_depth = max(node.stats.pull_depth, self._deepest - self._filling + 1)
            self._filling -= 1
            self._deepest = max(outer, self._deepest)

    def fill(self, node: Node, cols: Columns, keys: Codes) -> None:
        """Pull distinct missing keys from the parent and store them. An exchange gathers them from other workers."""
        if node.op.remote and self.exchanges is not None:
            self.exchanges.gather(node, cols, keys)
            return
        (need,) = node.op.needs(node, cols)
        rows, _ = self.fetch(node.parents[0], need.cols, keys, MissMode.FILL)
        node.op.fill(self, node, cols, keys, rows)
        count = len(rows)
        self.note("fills", node, cols, keys, lambda: f" from {count} rows")

    def read(self, view: str, keys: Codes, nulls: bool = False) -> tuple[Batch, Codes]:
        """Return rows of a view by key with the ordinals of their keys; fills missing keys. A key with a NULL has
        no rows, unless `nulls`: then NULL is looked up like any value."""
        node = self.readers[view]
        key = self.reads[node]
        if nulls:
            return self.fetch(node, key, keys, MissMode.FILL)
        ok = np.ones(keys.shape[1], np.bool_)
        for k in keys:
            ok &= k != NULL_CODE
        at = np.flatnonzero(ok)
        rows, ordinal = self.fetch(node, key, np.ascontiguousarray(keys[:, at]), MissMode.FILL)
        return rows, at[ordinal]

    def fill_keys(self, view: str, keys: Codes) -> None:
        """Fill the missing ones of these keys of a view. A key with a NULL has no rows."""
        node = self.readers[view]
        if node.full:
            return
        null = (keys == NULL_CODE).any(axis=0)
        if null.any():
            keys = np.ascontiguousarray(keys[:, ~null])
        try:
            self._complete(node, self.reads[node], keys, MissMode.FILL)
        except Exception:
            self._pulled.add(node.id)
            raise

    def read_between(self, view: str, low: int, high: int, rows: int | None = None, descending: bool = False
                     ) -> tuple[Batch, Codes]:
        """Return rows of a view whose key code is from low to high; fills missing keys. `rows`: stop at this
        many, counted from the least key (`descending`: the greatest). None: all."""
        node = self.readers[view]
        if rows is not None:
            return ranges.read_first(self, node, self.reads[node], low, high, rows, descending)
        return ranges.read(self, node, self.reads[node], low, high)

    # -------------------------------------------------------------- migrations
    def relayout(self, large: int | None = None) -> None:
        """Plan all pulls again and adapt every state: add and drop indexes, build full states. New full states
        over more than `large` base rows are not built now; they wait for `bootstrap`."""
        nodes = self.graph.nodes
        self.large = large if large is not None else self.large
        rested = {n: {few for coarser in n.coarser.values() for few in coarser} for n in nodes
                  if n.state is not None and not n.full}
        plan = self._planned()
        used = self.builds.nodes_above_builds()
        before = {n: (n.primaries, n.full_below) for n in nodes if n.live or n in used}
        for n in nodes:
            n.indexes = list(plan.indexes[n]) if n in plan.indexes else []
            n.users = {cols: list(u) for cols, u in plan.users[n].items()} if n in plan.users else {}
            n.primaries = frozenset(plan.primaries[n]) if n in plan.primaries else frozenset()
            n.through = {port: list(u) for port, u in plan.through[n].items()} if n in plan.through else {}
            n.full_below = n in plan.full_below
            n.kept = n in plan.kept
            n.pulled = frozenset(plan.pulled[n]) if n in plan.pulled else frozenset()
            n.coarser = layout.coarser(n)
        promoted: list[Node] = []
        try:
            for n in nodes:
                if n.op.stateful and n not in self.builds.dormant:
                    self._adapt_state(n, plan, promoted, self.large)
            self.builds.adapt_to_layout(before)
            if self.exchanges is not None:
                self.exchanges.adapt_to_layout()
        except BaseException:
            self._demote(promoted)
            raise
        finally:
            for n, indexes in rested.items():
                if indexes - n.pulled:  # keys rested on an index that is no longer pulled
                    self._forget_below(n)

    def _planned(self) -> layout.Layout:
        """The layout of the views that can be served now. A view waits if a partial state in use must become full for
        it."""
        builds, full = self.builds, [n for n in self.graph.nodes if n.full]

        def plan(readers: Iterable[Node]) -> layout.Layout:
            return layout.plan(self.graph.nodes, [(r, self.reads[r]) for r in readers], full, self.ranged)

        planned = plan(self.reads)
        rebuilt = self._to_rebuild(planned)
        now, late = list(self.reads), set[Node]()
        if rebuilt:
            now = [r for r in self.reads if r.live]
            for r in self.reads:
                if not r.live:
                    late.add(r) if self._to_rebuild(plan([*now, r])) else now.append(r)
            planned = plan(now)
        if late and self._to_rebuild(planned):  # the new views are not the cause
            now, late, planned = list(self.reads), set(), plan(self.reads)
        needed = {n for r in now for n in ancestors(r)}
        builds.dormant = {n for r in late for n in ancestors(r) if not (n.live or n.full or n in needed)}
        pulled = plan(self.reads).pulled if late else {}
        builds.promised = {(n, cols) for n in pulled if not n.parents for cols in pulled[n] if cols}
        # a node that becomes full before those below it keeps its present indexes
        builds.promote({n: list(dict.fromkeys([*indexes, *planned.indexes.get(n, ())]))
                        for n, indexes in (rebuilt if late else {}).items()})
        return planned

    def _to_rebuild(self, plan: layout.Layout) -> dict[Node, list[Columns]]:
        """Large states in use, with their new indexes, that the layout makes full or that lack an index of it."""
        return {n: list(plan.indexes[n]) for n in plan.full if n.live and self._is_large(n)
                and not (n.full and (n.state is None or n.state.fits(list(plan.indexes[n]))))}

    def _is_large(self, node: Node) -> bool:
        if node.full:
            return node.state is not None and len(node.stored) > self.builds.at_once_rows
        return self.exchanges is not None or sum(m.op.size(self, m) for m in nearest(node)) > self.builds.at_once_rows

    def _adapt_state(self, n: Node, plan: layout.Layout, promoted: list[Node], large: int | None) -> None:
        """Adapt n's state to the layout. `promoted` collects states in use that become full."""
        promote = n in plan.full and not n.full
        if promote and n.live:
            promoted.append(n)
        n.full, n.why_full = n in plan.full, plan.full.get(n, "")
        n.op.make_state(self, n)
        if not n.full and n.state is not None:
            for cols in set(n.op.presence(n)) - n.pulled:  # only rows are looked up by it: keys are incomplete
                n.stored.evict(cols, n.stored.present(cols))
        ranges.adapt_to_layout(n, plan.ranged[n] if n.state is not None else set(), promote)
        if n.full and (promote or not n.live):
            try:
                self.first_state(n, n.live, large)
            except BaseException:
                n.op.forget(self, n)  # its rows are incomplete
                raise

    def _demote(self, promoted: list[Node]) -> None:
        """Undo a failed layout: states that were to become full are partial and empty, as are partial states
        below."""
        for n in promoted:
            n.full, n.why_full, n.stash, n.inert = False, "", None, True  # until its inputs are complete
            self.builds.drop(n)
        for n in promoted:
            n.op.forget(self, n)
            self._forget_below(n)
        self.builds.update_readiness()

    def _forget_below(self, node: Node) -> None:
        for n in self.graph.nodes:
            if n is not node and n.state is not None and not n.full and node in ancestors(n):
                self.forget(n)

    def forget(self, node: Node) -> None:
        """Make all keys of a partial node missing, with the keys at other workers that depend on them."""
        if self.exchanges is not None:
            self.exchanges.forget(node)
        node.op.forget(self, node)

    def first_state(self, node: Node, in_use: bool, large: int | None, at_once: bool = True) -> None:
        """Build the first state of a full node at once if its input is small or the node is in use. Otherwise it is
        built in slices, or its deltas are kept back until Spark has computed its input."""
        if node in self.builds.states or node.stash is not None:
            return
        saved = self.saved
        if node.op.remote and self.exchanges is not None:
            if at_once and saved is not None and saved.restore(node):
                return
            node.inert = True
            self.builds.state(BackfillReceiver(node))
            if saved is not None and saved.lacks_rows:
                saved.build_later.append(node)
            else:
                self.exchanges.restart_full_state(node)
            return
        if in_use:
            self.builds.finish_indexes(node)
        waits = self.builds.waits(node)  # also a node in use whose inputs a load rebuilds
        if in_use and not waits:
            self.build(node)
            return
        if at_once and not waits and saved is not None and saved.restore(node):
            return
        if saved is not None and saved.lacks_rows:
            node.inert = True
            saved.build_later.append(node)
            self.builds.state(StateBackfill(node))
            return
        if at_once and not waits and node.op.from_end(self, node, node.parents[0]):
            return
        above = {m: m.op.size(self, m) for m in nearest(node)}
        if large is not None and sum(rows for m, rows in above.items() if not m.parents) > large and not waits:
            node.stash = []
        elif waits or not at_once or sum(above.values()) > self.builds.at_once_rows:
            node.inert = True  # so that the nodes below wait
            self.builds.state(StateBackfill(node))
        else:
            self.build(node)

    def build(self, node: Node) -> None:
        """Build a full state at once. SqlError if the request exceeds its time or memory; the state is incomplete
        then."""
        parent = node.parents[0]
        node.op.begin(self, node, 0, 0)
        for rows in self.stream(parent):
            if self.limits is not None:
                self.limits.grown(node.stored.memory(), node.op.describe())
            node.op.tick(self, node, [rows])
        node.op.finish(self, node)

    def stream(self, node: Node) -> Iterator[Batch]:
        """Yield all rows of a node in slices."""
        return iter(()) if node.all_remote else node.op.stream(self, node)

    def all_rows(self, node: Node) -> Batch:
        """All rows of a node."""
        return collect(self.stream(node), node.width, self.limits)

    def driver(self, node: Node) -> int:
        """The side of a join that is streamed: the left one, or the side that passes the gate of a first state."""
        return node.driver

    def forget_partial(self, nodes: Sequence[Node]) -> None:
        """Make all keys missing in the partial ones of these nodes, and in the partial states below them."""
        for n in nodes:
            if n.op.stateful and not n.full and n.state is not None:
                self.forget(n)
                self._forget_below(n)

    def snapshot_for(self, number: int) -> None:
        """Drop the deltas kept back for the first state of this node (none: no node): the snapshot includes them."""
        for n in self.graph.nodes:
            if n.id == number and n.stash is not None and n not in self.builds.states:
                n.stash = []

    def bootstrap(self, node: Node, rows: Iterator[Batch]) -> None:
        """Begin the first state from the input rows of a snapshot; the deltas kept back since then follow."""
        if node.stash is None:
            raise ValueError(f"{node} does not wait for a first state")
        self.builds.state(SparkBackfill(node, rows))

    def waiting(self, view: str) -> list[Node]:
        """The nodes of the view that wait for input rows from Spark."""
        return [n for n in ancestors(self.readers[view]) if n.stash is not None]

    def reload(self, table: str) -> None:
        """Renew all states that derive from the table, whose rows changed on disk without a delta (see
        `renewal`)."""
        renewal.reload(self, table)

    def shrink(self) -> None:
        """Return the unused memory of states to the system."""
        for n in (n for n in self.graph.nodes if n.op.stateful and n.state is not None):
            n.stored.shrink()

    def ready(self, view: str) -> bool:
        """Whether the view has its first state."""
        return not any(n.readiness in UNREADY for n in local_ancestors(self.readers[view]))
