"""Builds first states and indexes over many rows in slices, between other work (sections 4.5 and 5).

Keeps true:
* A node is built when all states that it derives from are complete. Until then it is *inert*: no tick updates it,
  and no view over it is read.
* A partial node whose lookups need a missing index is inert until the index exists. It stores nothing, so it
  misses no delta.
* A partial node in use that must become full keeps its state until its full state, built beside it, is complete. So
  does a full one that lacks an index. Nodes that need the new state are *dormant* meanwhile: in no layout.
* Nodes in use look up by existing indexes. Lookups that a new layout adds begin when their indexes exist.
* An error in a build ends this build only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError, adhoc_too_much
from noria.core.limits import BUILD_AT_ONCE_ROWS, BUILD_SLICE_MS
from noria.core.types import TableDef
from noria.dataflow.backfill.build import Backfill, BackfillRuntime
from noria.dataflow.backfill.exchange_state import BackfillReceiver, BackfillSender
from noria.dataflow.backfill.full_state import (
    FitCheck,
    IndexBackfill,
    Promotion,
    SparkBackfill,
    StateBackfill,
)
from noria.dataflow.backfill.pace import Pace
from noria.dataflow.backfill.scan import ScanBackfill
from noria.dataflow.graph.graph import ancestors, local_ancestors, nearest
from noria.dataflow.graph.nodes import UNREADY, Columns, Node
from noria.dataflow.graph.protocols import IndexBuild, State, StoreBroken
from noria.dataflow.graph.request_limits import RequestLimits

Lookups = tuple[frozenset[int], bool]  # a node's `primaries` and `full_below`
MOST_ROWS = 65_536


@dataclass(frozen=True)
class BuildProgress:
    """The progress of one build: rows done, rows in total as far as known, and what it waits for or why it
    failed."""

    what: str
    done: int
    total: int
    waits: str = ""
    failed: bool = False


@dataclass
class Backfills:
    """All builds, which take turns. `at_once_rows`: states and indexes over at most this many rows are built at
    once by the request. `state_bytes`: the limit of one state (0: none). `adhoc_bytes`: the limit of a state that
    only ad-hoc views need (0: none). `awaited_rows`: Spark makes an index over more rows (0: never).
    `on_defect`: records a defect and returns the error to answer with."""

    engine: BackfillRuntime
    at_once_rows: int = BUILD_AT_ONCE_ROWS
    state_bytes: int = 0
    adhoc_bytes: int = 0
    awaited_rows: int = 0
    on_defect: Callable[[Exception], SqlError] | None = None
    states: dict[Node, StateBackfill | SparkBackfill | BackfillReceiver] = field(default_factory=dict)
    indexes: dict[tuple[Node, Columns], IndexBackfill] = field(default_factory=dict)
    declared: dict[tuple[str, Columns], IndexBackfill] = field(default_factory=dict)  # by table: no view needs these
    refused: dict[tuple[str, Columns], SqlError] = field(default_factory=dict)  # declared, but failed to begin
    fits: dict[int, FitCheck] = field(default_factory=dict)  # by id of the table
    served: list[BackfillSender] = field(default_factory=list)  # for full states of exchanges of any worker
    _turns: deque[Backfill] = field(default_factory=deque)
    promised: set[tuple[Node, Columns]] = field(default_factory=set)  # lookups of dormant nodes in base tables
    dormant: set[Node] = field(default_factory=set)  # new nodes that wait for a full state above
    _servable: set[tuple[Node, Columns]] = field(default_factory=set)  # exchanges, with columns that can be served
    _later: dict[Node, Lookups] = field(default_factory=dict)  # the lookups of nodes in use once their index exists

    def declare(self) -> None:
        """Begin to build the indexes that tables declare and lack; abandon those no longer declared. An index
        that cannot be begun (full disk, damaged table) is tried again at the next change and delays nothing else."""
        store = self.engine.store
        for (table, columns), made in list(self.declared.items()):
            known = store.tables().get(table)
            if known is None or all(i.columns != columns for i in known.indexes):
                made.build.abandon()
                self._turns.remove(self.declared.pop((table, columns)))
        self.refused.clear()
        for table, columns in list(store.unbuilt()):
            try:
                build = self._begin_index(table, columns)
            except SqlError as error:
                self.refused[table, columns] = error
                continue
            if build is not None:
                names = [store.tables()[table].columns[c].name for c in columns]
                self.declared[table, columns] = made = IndexBackfill(None, columns, build, table, names)
                self._turns.append(made)

    def fit(self, table: TableDef) -> FitCheck:
        """Begin to check whether the table's rows fit this definition. An earlier check of the table ends."""
        if (before := self.fits.pop(table.table_id, None)) is not None:
            self._turns.remove(before)
        made = FitCheck(self.engine.store.begin_fitting(table), table.name)
        small = made.fitting.total <= self.at_once_rows
        while small and not made.step(self.engine):
            if self.engine.limits is not None:
                self.engine.limits.check()
        if not made.fitting.over:
            self.fits[table.table_id] = made
            self._turns.append(made)
        return made

    def renamed(self, table: str, name: str) -> None:
        """Use the table's new name in all builds."""
        indexes = (*self.indexes.values(), *self.declared.values())
        every: tuple[IndexBackfill | FitCheck, ...] = (*indexes, *self.fits.values())
        for made in every:
            made.table = name if made.table == table else made.table
        self.declared = {(m.table, m.columns): m for m in self.declared.values()}

    def unfit(self, made: FitCheck) -> None:
        """Abandon a check of a definition."""
        made.fitting.abandon()
        for table, fit in list(self.fits.items()):
            if fit is made:
                self._turns.remove(self.fits.pop(table))

    def index(self, base: Node, table: str, columns: Columns) -> None:
        """Make lookups in the base table by these columns possible; builds the index if it does not exist."""
        store = self.engine.store
        if (base, columns) in self.indexes:  # a failed one too, until no view needs it
            return
        if store.serves(table, columns):
            return
        shared = next((m for m in self.indexes.values() if (m.table, m.columns) == (table, columns)), None)
        if shared is not None:  # for another node of the table
            self.indexes[base, columns] = made = IndexBackfill(base, columns, shared.build, table, shared.names)
            self._turns.append(made)
            return
        if (table, columns) in self.declared:
            made = self.indexes[base, columns] = self.declared.pop((table, columns))
            made.base = base
            return
        if store.row_count(table) <= self.at_once_rows:
            store.add_index(table, columns, self.engine.limits)
            return
        build = self._begin_index(table, columns)
        if build is not None:
            names = [base.fields[c].name for c in columns]
            self.indexes[base, columns] = made = IndexBackfill(base, columns, build, table, names)
            self._turns.append(made)

    def _begin_index(self, table: str, columns: Columns) -> IndexBuild | None:
        store = self.engine.store
        return store.begin_index(table, columns, 0 < self.awaited_rows < store.row_count(table))

    def awaited(self) -> Iterator[IndexBackfill]:
        """The indexes that wait for files of Spark's tasks."""
        return (m for m in (*self.indexes.values(), *self.declared.values()) if m.build.awaits)

    def state(self, build: StateBackfill | SparkBackfill | BackfillReceiver) -> None:
        """Schedule the first state of a full node."""
        self.states[build.node] = build
        self._turns.append(build)

    def drop(self, node: Node) -> None:
        """Abandon the first state of a node."""
        if node in self.states:
            self._turns.remove(self.states.pop(node))

    def promote(self, promotions: Mapping[Node, list[Columns]]) -> None:
        """Build full states with these indexes beside the states of these nodes; abandon all other such builds."""
        for n, build in list(self.states.items()):
            if _beside(build) and n not in promotions:
                self._turns.remove(self.states.pop(n))
        for n, indexes in promotions.items():
            if n not in self.states:
                self.build_beside(n, indexes)

    def build_beside(self, n: Node, indexes: list[Columns]) -> None:
        """Build a full state that will replace the present state of n."""
        if n.op.remote and self.engine.exchanges is not None:
            self.state(BackfillReceiver(n, indexes))
            self.engine.exchanges.gather_full_state(n)
        else:
            self.state(Promotion(n, indexes))

    def serve(self, serving: BackfillSender) -> None:
        """Schedule the rows that a worker has requested."""
        self.served.append(serving)
        self._turns.append(serving)

    def stop_serving(self, stays: Callable[[BackfillSender], bool]) -> None:
        """Stop serving requests, except those for which `stays` returns True."""
        for s in [s for s in self.served if not stays(s)]:
            self.served.remove(s)
            self._turns.remove(s)

    def restart_gathering(self, node: Node) -> None:
        """Restart the full state of an exchange: its rows will arrive again from the first one."""
        build = self.states.get(node)
        if isinstance(build, BackfillReceiver):
            build.restart(self.engine)

    def arrived(self, node: Node, rows: Batch) -> bool:
        """Add rows that this worker owns to the full state of an exchange. Returns whether it accepts more."""
        build = self.states.get(node)
        if not isinstance(build, BackfillReceiver) or build.error is not None:
            return False
        self._try(build, lambda: build.add(self.engine, rows))
        return build.error is None

    def passed(self, node: Node, worker: int, counts: tuple[int, int]) -> None:
        """Record a worker's progress in sending an exchange's rows."""
        build = self.states.get(node)
        if isinstance(build, BackfillReceiver):
            build.passed[worker] = counts

    def gathered(self, node: Node) -> None:
        """Complete the full state of an exchange: all rows have arrived."""
        build = self.states.get(node)
        if isinstance(build, BackfillReceiver) and build.error is None:
            self._slice(build)

    def not_gathered(self, node: Node, error: SqlError) -> None:
        """Fail the full state of an exchange: its rows will not arrive."""
        build = self.states.get(node)
        if isinstance(build, BackfillReceiver):
            build.error = self.engine.outages.of_build(build, error)

    def waits(self, node: Node) -> bool:
        """Whether a state or index that the node derives from is not complete yet."""
        above = local_ancestors(node)[:-1]
        return self._lacks_index(above) or any(a.op.stateful and a.readiness in UNREADY for a in above)

    def can_serve(self, exchange: Node, cols: Columns = ()) -> bool:
        """Whether this worker can serve the rows of an exchange under keys of these columns. False while its layout
        lacks a part that the requester's layout may have already."""
        above = local_ancestors(exchange.parents[0])
        indexed = (exchange, cols) in self._servable or not self._lacks_index(above)
        return (indexed and self.dormant.isdisjoint((exchange, *above)) and not any(
            n.op.stateful and n.parents and n.readiness in UNREADY for n in above))

    def _lacks_index(self, nodes: list[Node]) -> bool:
        return bool(self.indexes) and not {base for base, _ in self.indexes}.isdisjoint(nodes)

    def finish_indexes(self, node: Node) -> None:
        """Complete, at once, the indexes that a node needs now."""
        above = set(ancestors(node))
        for made in [m for m in self.indexes.values() if m.base in above]:
            made.build.in_slices()
            made.rows = MOST_ROWS
            while not made.step(self.engine):
                if self.engine.limits is not None:
                    self.engine.limits.check()
            self._completed(made)

    def restart(self, table: str) -> None:
        """Restart all builds that read the table: a bulk load added rows without deltas."""
        for made in (*self.indexes.values(), *self.declared.values()):
            if made.table == table:
                made.build.restart()
                made.ticket = ""
        self.restart_derived(set(self.engine.bases.get(table, ())))

    def restart_derived(self, changed: set[Node]) -> None:
        """Restart the first states under way that derive from these nodes."""
        above = ancestors if self.engine.exchanges is None else local_ancestors
        for n in self.engine.graph.nodes:
            build = self.states.get(n)
            if isinstance(build, BackfillReceiver):
                continue  # the sender of the rows reports whether to request them again
            if (build is not None or n.stash is not None) and changed & set(above(n)):
                if build is not None:
                    self._turns.remove(build)
                if isinstance(build, Promotion) and not n.full:
                    self.state(build.restarted())
                    continue
                if isinstance(build, Promotion):
                    n.indexes = build.indexes
                n.stash, n.inert = None, True
                n.op.forget(self.engine, n)
                self.state(StateBackfill(n))

    # -------------------------------------------------------------- the graph has changed
    def nodes_above_builds(self) -> set[Node]:
        """The nodes that states being filled, at any worker, derive from."""
        filled = {s.node for s in self.states.values() if isinstance(s, StateBackfill) and s in self._begun()}
        used = {a for n in self.engine.graph.nodes if n in filled or n.stash is not None for a in local_ancestors(n)}
        return used.union(*(local_ancestors(s.node.parents[0]) for s in self.served))

    def adapt_to_layout(self, before: Mapping[Node, Lookups]) -> None:
        """After a layout, drop builds that no node needs and decide which nodes ticks update. `before`: the
        former lookups of nodes in use and of nodes above a state being filled."""
        nodes = set(self.engine.graph.nodes)
        for n in [n for n in self.states if n not in nodes]:
            self._turns.remove(self.states.pop(n))
        for (base, columns), made in list(self.indexes.items()):
            if base not in nodes or (columns not in base.pulled and (base, columns) not in self.promised):
                self._forget_index(made)
        self.stop_serving(lambda s: s.node in nodes)
        for state in self.states.values():
            if isinstance(state, StateBackfill | BackfillReceiver):
                state.refit()
        self._later = {n: (n.primaries, n.full_below) for n, old in before.items()
                       if n in nodes and old != (n.primaries, n.full_below) and self._lacks_index(ancestors(n))}
        for n in self._later:
            n.primaries, n.full_below = before[n]
        self.update_readiness()

    def _forget_index(self, made: IndexBackfill) -> None:
        """Abandon an index, unless the table declares it or another node of the table needs it."""
        assert made.base is not None
        del self.indexes[made.base, made.columns]
        known = self.engine.store.tables().get(made.table)
        others = any(m.build is made.build for m in self.indexes.values())
        if not others and known is not None and any(i.columns == made.columns for i in known.indexes):
            made.base, self.declared[made.table, made.columns] = None, made
            return
        if not others:
            made.build.abandon()
        self._turns.remove(made)

    def update_readiness(self) -> None:
        """Decide which nodes are inert: those being built, those that wait for them, and those that feed only
        inert nodes. Also switch nodes to the lookups of the new layout whose indexes exist now."""
        nodes = self.engine.graph.nodes
        for n in [n for n in self._later if not self._lacks_index(ancestors(n))]:
            n.primaries, n.full_below = self._later.pop(n)
        for n in nodes:
            if n.op.stateful and n.parents:
                new, build = n.inert or not n.live, self.states.get(n)
                own = build is not None and not _beside(build)
                n.inert = n in self.dormant or (n.stash is None and (own or (new and self.waits(n))))
            n.live = n.live or not n.inert
        lookups = {(n, cols) for n in nodes if n.op.remote for cols in {(), *n.pulled}}
        self._servable = {(n, cols) for n, cols in lookups if (n, cols) in self._servable or self.can_serve(n, cols)}
        for n in reversed(nodes):
            if not n.op.stateful:
                n.inert = n in self.dormant or (bool(n.children) and not any(map(self._uses_deltas, n.children)))

    def _uses_deltas(self, below: tuple[Node, int]) -> bool:
        """Whether a child uses the node's deltas. The child of an exchange may be at another worker."""
        child, _ = below
        return self.can_serve(child) if child.op.remote else not child.inert

    # -------------------------------------------------------------- building
    def __bool__(self) -> bool:
        """Whether any build can continue."""
        return any(map(self._can, self._turns))

    def _can(self, build: Backfill) -> bool:
        if build.error is not None or isinstance(build, BackfillReceiver):
            return False
        if isinstance(build, BackfillSender):
            return build.can()
        if isinstance(build, IndexBackfill) and build.build.awaits:
            return False
        if not isinstance(build, StateBackfill) or build.begun:
            return True
        complete = all(m.full or not m.parents for m in nearest(build.node))
        return complete and not self.waits(build.node)

    def sources(self) -> set[Node]:
        """The nodes whose output deltas `tick` needs."""
        return {n for s in self._begun() for n in s.sources}

    def _begun(self) -> Iterator[ScanBackfill]:
        return (s for s in (*self.states.values(), *self.served)
                if isinstance(s, ScanBackfill) and s.begun and s.error is None)

    def tick(self, deltas: Mapping[Node, Batch]) -> None:
        """Apply the output deltas of a tick's sources to the builds under way."""
        for state in list(self._begun()):
            mine = {n: d for n, d in deltas.items() if n in state.sources}
            if mine:
                self._try(state, partial(state.tick, self.engine, mine))

    def next(self) -> Backfill | None:
        """The build whose turn it is; None if no build can continue."""
        for _ in range(len(self._turns)):
            if self._can(self._turns[0]):
                return self._turns[0]
            self._turns.rotate(-1)
        return None

    def step(self) -> None:
        """Run one slice of the next build."""
        build = self.next()
        if build is not None:
            self._turns.rotate(-1)
            self._slice(build)

    def all(self) -> None:
        """Run every build that can continue to its end."""
        while self:
            self.step()

    def _slice(self, build: Backfill) -> None:
        pace = Pace(self.engine.clock, self.engine.processor)
        if self._try(build, lambda: build.step(self.engine)):
            self._completed(build)
        else:
            build.rows = pace.next_rows(build.rows, BUILD_SLICE_MS, MOST_ROWS, build.cost)

    def _try(self, build: Backfill, step: Callable[[], bool | None]) -> bool:
        engine = self.engine
        outer, engine.limits = engine.limits, RequestLimits()
        try:
            complete = bool(step())
            if isinstance(build, StateBackfill | SparkBackfill | BackfillReceiver) and build.state is not None:
                nbytes = build.state.memory()
                RequestLimits(state_bytes=self.state_bytes).grown(nbytes, build.describe())
                if 0 < self.adhoc_bytes < nbytes and self._is_adhoc(build.node):
                    raise adhoc_too_much(build.describe(), self.adhoc_bytes)
        except (InvariantViolation, StoreBroken):
            raise
        except Exception as bug:
            build.error = engine.outages.of_build(build, bug)
        finally:
            engine.limits = outer
        if build.error is not None and isinstance(build, BackfillSender):
            self.stop_serving(lambda s: s is not build)
            build.fail(build.error)
        return build.error is None and complete

    def _is_adhoc(self, node: Node) -> bool:
        """Whether only ad-hoc views derive from the node."""
        readers = [r for r in self.engine.readers.values() if node in ancestors(r)]
        return bool(readers) and all(r.op.adhoc for r in readers)

    def _completed(self, build: Backfill) -> None:
        if isinstance(build, BackfillSender):  # it may have been abandoned with its last chunk
            self.stop_serving(lambda s: s is not build)
            return
        self._turns.remove(build)
        if isinstance(build, FitCheck):
            self.fits = {t: f for t, f in self.fits.items() if f is not build}
            return
        if isinstance(build, IndexBackfill) and build.base is None:
            del self.declared[build.table, build.columns]
        elif isinstance(build, IndexBackfill):
            assert build.base is not None
            del self.indexes[build.base, build.columns]
        elif isinstance(build, StateBackfill | SparkBackfill | BackfillReceiver):
            del self.states[build.node]
            build.node.live, build.node.inert = True, False  # even if a node waits for an index meanwhile
        if not _beside(build):
            self.update_readiness()
            if self.dormant and (self.engine.exchanges is not None or not any(map(_beside, self.states.values()))):
                # a load rebuilt the states for which the dormant nodes wait, or the nodes above an exchange that
                # must be full are in use only now
                self._try(build, self.engine.relayout)
            return
        if isinstance(build, Promotion):
            build.install()
        self._try(build, self.engine.relayout)
        if build.error is not None:  # the nodes that wait for it cannot be built
            assert isinstance(build, Promotion | BackfillReceiver)
            self.state(build)

    def held(self) -> Iterator[Batch]:
        """Rows that no state contains yet."""
        return (s.rest for s in self.states.values() if isinstance(s, SparkBackfill))

    def unpublished_states(self) -> Iterator[tuple[Node, State]]:
        """States that are built beside a node's state."""
        return ((n, s.state) for n, s in self.states.items()
                if isinstance(s, Promotion | BackfillReceiver) and _beside(s) and s.state is not None)

    # -------------------------------------------------------------- reports
    def of_view(self, view: str) -> list[Backfill]:
        """The builds that a view waits for."""
        if self.engine.ready(view):
            return []
        above = ancestors(self.engine.readers[view])
        states: list[Backfill] = [self.states[n] for n in above if n in self.states]
        return states + [m for m in self.indexes.values() if m.base in above]

    def error_of(self, view: str) -> SqlError | None:
        """The error of a build that the view waits for, if one failed."""
        return next((b.error for b in self.of_view(view) if b.error is not None), None)

    def progress(self, build: Backfill) -> BuildProgress:
        done, total = build.counts(self.engine)
        waits = "" if build.error is None else build.error.message
        if build.error is None and not self._can(build) and not (isinstance(build, BackfillReceiver) and build.passed):
            waits = "made by Spark" if isinstance(build, IndexBackfill) else "waits for what it derives from"
        return BuildProgress(build.describe(), done, max(done, total), waits, build.error is not None)


def _beside(build: Backfill | None) -> bool:
    """Whether the build will replace a state in use."""
    return isinstance(build, Promotion) or (isinstance(build, BackfillReceiver) and build.has_partial_state)
