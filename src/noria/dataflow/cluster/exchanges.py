"""The exchanges of one of several workers (section 6.2): sends rows to their owners, and requests rows of others.

All messages between two workers are in one order. A tick applies updates; every other message is handled alone,
between ticks. Rules R1 to R19 are in docs/design/invariants.md.

Keeps true, for each key that is gathered at an exchange (R4, R5):
* The key is filled when all requested workers have answered.
* An update from a worker that has answered is added to its answer. An update from another worker is dropped: the
  answer will contain it.
* An eviction from a worker that has answered makes its answer void, and the key is requested again.

Call `split` for a delta and `gather` for missing keys. A request runs again when its rows have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation, SqlError
from noria.dataflow.backfill.exchange_state import Counts
from noria.dataflow.cluster import pending_gathers
from noria.dataflow.cluster.exchange_server import ExchangeRows, ExchangeServer, LocalReplies, gathers_by
from noria.dataflow.cluster.found_keys import FoundKeys
from noria.dataflow.cluster.frontier_requests import FrontierRequests
from noria.dataflow.cluster.pending_gathers import MOST_WAITS, Gather, GatherRequest, Mask, end, workers_of
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph import eviction, layout
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import Columns, KeyPattern, Node, RemoteRowsNeeded
from noria.dataflow.graph.partition import owners
from noria.dataflow.messages.peer_messages import (
    EvictedKeys,
    ExchangeDelta,
    ExchangesBroken,
    HoldEviction,
    Message,
    MoreChunks,
    RowsChunk,
    RowsReply,
    RowsRequest,
    TableLoaded,
)
from noria.dataflow.ops.stateful.exchange import Exchange
from noria.state.rows import probe
from noria.state.rows.netting import netted

Send = Callable[[int, Message], None]
NO_KEY = np.empty((0, 1), np.int64)  # the only key of no columns


class Exchanges:
    """This worker (number `worker`) among `workers`. `send`: appends a message to the channel to a worker.
    `incarnation`: how often it was started; answers to requests of earlier lives are ignored."""

    def __init__(self, engine: Engine, worker: int, workers: int, send: Send, incarnation: int = 1):
        self.worker, self.workers = worker, workers
        self._engine, self._send = engine, send
        self._gathers = pending_gathers.PendingGathers()
        self._requests: dict[int, GatherRequest] = {}
        self._next_request = incarnation << 40
        self.waiting = pending_gathers.PendingRequests()
        self._values = ExchangeRows(engine, workers)
        self.server = ExchangeServer(engine, worker, self._values, send, self.waiting,
                                     LocalReplies(self._rows_arrived, self._failed, self._chunk_arrived))
        self._thin: list[Node] = []
        self._in_tick = False
        self._void_often: set[Gather] = set()  # gatherings whose answers were void more than MOST_WAITS times
        self.holding_for: set[int] = set()  # workers for whose requests nothing is evicted for lack of memory
        self.found_keys = FoundKeys(engine, worker, workers, send)
        others = [w for w in range(workers) if w != worker]
        self.marks = FrontierRequests(others, send, self.waiting.park, incarnation << 40, self.has_all_rows)

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Mark that a tick is running."""
        self._in_tick = True
        try:
            yield
        finally:
            self._in_tick = False

    def split(self, node: Node, rows: Batch) -> Batch:
        """Send the rows of an exchange's input delta to their owners. Returns the rows that this worker owns."""
        whose = self._values.owners(node, rows.columns)
        for w in range(self.workers):
            if w != self.worker and len(mine := rows.where(whose == w)):
                self._send(w, ExchangeDelta(node.id, self._values.packed(mine, node.fields)))
        mine = rows.where(whose == self.worker)
        self.add_to_gatherings(self.worker, node, mine)
        return Batch.empty(node.width) if self._stale_of(self.worker, node) else mine

    def arrived(self, sender: int, update: ExchangeDelta) -> tuple[Node, Batch] | None:
        """The rows of an update, for the next tick; None if its node was dropped."""
        node = self._values.node(update.node)
        if node is None:
            return None
        rows = self._values.unpacked(update.rows, node.fields)
        self.add_to_gatherings(sender, node, rows)
        if self._stale_of(sender, node):
            return node, Batch.empty(node.width)  # the gathering will contain them
        return node, rows

    def _stale_of(self, worker: int, node: Node) -> bool:
        """Whether a full state is being gathered again because this worker was lost or loaded rows."""
        return any(worker in g.lost for g in self._gathers.of(node, ()))

    def add_to_gatherings(self, sender: int, node: Node, rows: Batch) -> None:
        """Add rows to the sender's answers to gatherings."""
        for g in self._gathers.of(node, ()):
            if sender in g.answered and g.answered[sender].all():
                self._add_rows(g, sender, rows)
        for cols in self._gathers.indexes(node):
            have = self._values.keys(node, cols, rows.columns[list(cols)])
            late: dict[Gather, list[int]] = {}
            for row, at in enumerate(self._gathers.find(node, cols, have)):
                if at is not None and sender in at[0].answered and at[0].answered[sender][at[1]]:
                    late.setdefault(at[0], []).append(row)
            for g, some in late.items():
                g.received[sender].append(rows.take(np.array(some, np.int64)))

    def gathers(self) -> Iterator[Gather]:
        """All gatherings under way."""
        return iter(self._gathers)

    def held(self) -> Iterator[Codes]:
        """Every text id of gatherings and of requests that wait for them; other numbers may be among them."""
        for g in self.gathers():
            yield from g.held()
        yield from self.waiting.held()

    # -------------------------------------------------------------- pulls
    def gather(self, node: Node, cols: Columns, keys: Codes) -> None:
        """Request distinct missing keys (folded) of an exchange, except those under way. Raises `RemoteRowsNeeded`
        unless this worker alone has the rows. In a tick nothing is requested (R14): the caller evicts dependent
        keys."""
        if self._in_tick:
            raise RemoteRowsNeeded(())
        known = self._gathers.find(node, cols, keys)
        waits = list(dict.fromkeys(at[0] for at in known if at is not None))
        if None in known:
            waits.append(self._begin(node, cols, np.ascontiguousarray(keys[:, [at is None for at in known]])))
        waits = [g for g in waits if not g.over]
        if waits:
            raise RemoteRowsNeeded(tuple(waits))

    def gather_full_state(self, node: Node) -> None:
        """Request all rows of an exchange that this worker owns, for its first full state; calls `Backfills.gathered`
        at the end."""
        for g in [g for g in self._gathers.of(node, ()) if not g.lost]:
            self._abandon(g)
        self._engine.builds.restart_gathering(node)
        self._begin(node, (), NO_KEY)

    def restart_full_state(self, node: Node) -> None:
        """`gather_full_state` for an exchange whose full state was dropped; ends gatherings that would update it."""
        for g in [g for g in self._gathers.of(node, ()) if g.lost]:
            self._abandon(g)
        self.gather_full_state(node)

    def _begin(self, node: Node, cols: Columns, keys: Codes) -> Gather:
        requested = self._workers_of(node, cols, keys)
        none = np.zeros(keys.shape[1], np.bool_)
        g = Gather(node, cols, keys, requested, {w: none.copy() for w in requested})
        self._gathers.add(g)
        if not requested:
            self.waiting.park(lambda: True, lambda: None if g.over else self._release(g))
        try:
            for w, mask in sorted(requested.items(), key=lambda item: item[0] != self.worker):
                self._request(g, w, mask)
                if g.error is not None:
                    raise g.error
        except LongLookup:  # in this worker's own answer, so nothing was requested of others; the request runs again
            self._requests = {number: request for number, request in self._requests.items() if request.gather is not g}
            self._end(g)
            raise
        return g

    def _workers_of(self, node: Node, cols: Columns, keys: Codes) -> dict[int, Mask]:
        """Which workers may have rows of which keys."""
        return workers_of(self._engine.symbols, self.workers, node, cols, keys)

    def _request(self, g: Gather, worker: int, keys: Mask) -> None:
        self._next_request += 1
        number = self._next_request
        self._requests[number] = GatherRequest(g, worker, keys)
        some = np.ascontiguousarray(g.keys[:, keys])
        if worker == self.worker and not g.cols:
            self.server.serve_all(worker, g.node, number)
        elif worker == self.worker:
            self.server.serve_keys(worker, g.node, g.cols, some, number)
        else:
            fields = [g.node.fields[c] for c in g.cols]
            self._send(worker, RowsRequest(g.node.id, g.cols, self._values.packed(Batch.of(some), fields), number))

    def chunk_arrived(self, sender: int, p: RowsChunk) -> None:
        node = self._values.node(p.node)
        if node is None:
            self._send(sender, MoreChunks(p.number, 0))
        else:
            self._chunk_arrived(sender, p.number, self._values.unpacked(p.rows, node.fields), p.more, p.passed)

    def _chunk_arrived(self, sender: int, number: int, rows: Batch, more: bool, passed: Counts) -> None:
        request = self._requests.get(number)
        accepted = request is not None and self._add_rows(request.gather, sender, rows)
        if request is not None and accepted and not request.gather.lost:
            self._engine.builds.passed(request.gather.node, sender, passed)
        if not accepted or more:
            answer = MoreChunks(number, int(accepted))
            self.server.more(sender, answer) if sender == self.worker else self._send(sender, answer)

    def _add_rows(self, g: Gather, sender: int, rows: Batch) -> bool:
        """Add some of all rows of an exchange. Returns whether it accepts more."""
        if g.lost:
            g.received[sender].append(rows)
            return True
        accepted = self._engine.builds.arrived(g.node, rows)
        if not accepted:
            self._abandon(g)
        return accepted

    def _abandon(self, g: Gather) -> None:
        self._requests = {number: request for number, request in self._requests.items() if request.gather is not g}
        self._end(g)

    def answered(self, a: RowsReply) -> None:
        if a.rows is None:
            assert a.error is not None
            self._failed(a.number, a.error)
        elif (node := self._values.node(a.node)) is not None:
            self._rows_arrived(a.number, self._values.unpacked(a.rows, node.fields))

    def _failed(self, number: int, error: SqlError) -> None:
        """Fail a gathering and all requests that wait for it."""
        request = self._requests.pop(number, None)
        if request is None:
            return
        g = request.gather
        g.error = error
        if g.lost:  # its rows are stale and cannot be updated
            self._abandon(g)
            self._engine.outages.fail(g.node, error)
            return
        self._abandon(g)
        if not g.cols:
            self._engine.builds.not_gathered(g.node, error)

    def _rows_arrived(self, number: int, rows: Batch) -> None:
        request = self._requests.pop(number, None)
        if request is None:
            return  # the gathering has ended
        g = request.gather
        g.answered[request.worker] |= request.keys
        if len(rows):
            g.received[request.worker].append(rows)
        if g.complete():
            self._release(g)

    def _release(self, g: Gather) -> None:
        if not g.cols and not g.lost and any(other.lost for other in self._gathers.of(g.node, ())):
            return  # it will replace a stale state, whose difference must be applied first
        self._end(g)
        if not g.cols and not g.lost:
            self._engine.builds.gathered(g.node)
            return
        rows = netted(concat([b for batches in g.received.values() for b in batches], g.node.width))
        if len(rows) and int(rows.weights.min()) < 0:
            raise InvariantViolation("NO-SPURIOUS", f"{g.node}: negative rows were gathered for {g.cols}: {rows}")
        if not g.cols:
            stored = g.node.stored.rows()
            self._engine.tick({}, {g.node: netted(concat([rows, stored.negated()], g.node.width))})
            for other in [o for o in self._gathers.of(g.node, ()) if o.complete()]:
                self._release(other)
            return
        g.node.op.fill(self._engine, g.node, g.cols, g.keys, rows)
        self._engine.note("fills", g.node, g.cols, g.keys,
                          lambda: f" from {len(rows)} rows of {len(g.requested)} workers")

    def _end(self, g: Gather) -> None:
        self._void_often.discard(g)
        self._gathers.remove(g)
        end(g)

    def adapt_to_layout(self) -> None:
        """After a layout, end gatherings for indexes that no longer exist."""
        nodes = self._engine.graph.nodes
        self._values.nodes = {n.id: n for n in nodes if n.op.remote}
        for n in nodes:
            before, n.thin = n.thin, layout.is_thin(n)
            if before and not n.thin and not n.full:  # rows below were not pulled through keys that it stores
                self._evict_below(n)
        self._thin = [n for n in nodes if n.thin]
        for g in list(self._gathers):
            if g.node not in nodes or (g.cols and not gathers_by(g.node, g.cols)):
                self._end(g)
        self._requests = {number: request for number, request in self._requests.items() if not request.gather.over}

    # -------------------------------------------------------------- evictions
    def evict(self, node: Node, cols: Columns, p: KeyPattern) -> None:
        """Evict, at every worker that may own rows of the pattern, the keys pulled through evicted keys (R7)."""
        if not p.values.shape[1]:
            return
        assert isinstance(node.op, Exchange)
        if all(c in p.cols for c in node.op.by):
            by = p.values[[p.cols.index(c) for c in node.op.by]]
            whose = owners(by, [node.fields[c] for c in node.op.by], self.workers, self._engine.symbols)
        else:
            whose = None
        fields = [node.fields[c] for c in p.cols]
        for w in range(self.workers):
            values = p.values if whose is None else np.ascontiguousarray(p.values[:, whose == w])
            if not values.shape[1]:
                continue
            if w == self.worker:
                self._evicted(w, node, cols, KeyPattern(p.cols, values, np.arange(values.shape[1])))
            else:
                self._send(w, EvictedKeys(node.id, cols, p.cols, self._values.packed(Batch.of(values), fields)))

    def forget(self, node: Node) -> None:
        """Evict all keys of a partial node, and the keys at any worker that depend on them."""
        for cols in node.op.presence(node) if node.state is not None and not node.full else ():
            eviction.evict(self._engine, node, cols, node.stored.present(cols))

    def evicted(self, sender: int, e: EvictedKeys) -> None:
        node = self._values.node(e.node)
        if node is None:
            return
        values = self._values.unpacked(e.values, [node.fields[c] for c in e.known]).columns
        self._evicted(sender, node, e.cols, KeyPattern(e.known, values, np.arange(values.shape[1])))

    def _evicted(self, sender: int, node: Node, cols: Columns, p: KeyPattern) -> None:
        for g in self._gathers.of(node, cols):
            if sender in g.answered:
                stale = eviction.agreeing(self._engine, node, cols, g.keys, p) & g.answered[sender]
                if stale.any():
                    self._void(g, sender, stale)
        if node.state is not None:  # else nothing was pulled through it
            eviction.evict(self._engine, node, cols, eviction.matching(self._engine, node, cols, p))
        if node.thin:
            eviction.pass_on(self._engine, node, cols, p)

    def _void(self, g: Gather, worker: int, keys: Mask) -> None:
        g.answered[worker] &= ~keys
        g.voids += 1
        if g.voids > MOST_WAITS:
            self._void_often.add(g)
        void = np.ascontiguousarray(g.keys[:, keys])
        kept = []
        for rows in g.received[worker]:
            stay = np.ones(len(rows), np.bool_)
            stay[probe.pairs(self._values.keys(g.node, g.cols, rows.columns[list(g.cols)]), void)[0]] = False
            kept.append(rows.where(stay))
        g.received[worker] = kept
        self._request_again(g, worker, keys)

    def _request_again(self, g: Gather, worker: int, keys: Mask) -> None:
        if worker == self.worker:  # possibly during a walk, which must end first (R2)
            self.waiting.park(lambda: True, partial(self._request_own, g, keys), worker)
        else:
            self._request(g, worker, keys)

    def _request_own(self, g: Gather, keys: Mask) -> None:
        """Request those keys from this worker that it has not answered and that are not under way."""
        keys = keys & ~g.answered[self.worker]
        for request in self._requests.values():
            if request.gather is g and request.worker == self.worker:
                keys = keys & ~request.keys
        if keys.any() and not g.over:
            self._request(g, self.worker, keys)

    # -------------------------------------------------------------- another worker restarted
    def peer_restarted(self, worker: int) -> None:
        """Handle the restart of a worker, which has only its base tables (R19). What derives from its rows is
        evicted; full states gather again, and the difference continues as a delta. Requests to it are sent again,
        its own dropped."""
        self.waiting.lost(worker)
        self.marks.lost(worker)
        self.server.lost(worker)
        self.holding_for.discard(worker)
        if self.worker in self.holding_for:
            self._send(worker, HoldEviction(True))
        self._renew(worker, [n for n in self._engine.graph.nodes if n.op.remote])

    def report_load(self, table: str) -> None:
        """Report to all workers that this worker's rows of the table changed on disk. The caller has renewed
        states that derive from them without an exchange."""
        for w in range(self.workers):
            if w != self.worker:
                self._send(w, TableLoaded(table))
        self.server.loaded(self._derived(table))
        self.loaded(self.worker, table)

    def loaded(self, worker: int, table: str) -> None:
        """Renew exchanges that derive from a table, whose rows at a worker changed on disk, as if it had been
        lost (R19)."""
        self._renew(worker, self._derived(table))

    def report_broken(self, raised: set[Node]) -> None:
        """After operators of this worker raised in a tick: all workers gather their output again."""
        self._request_repair([n for n in self._engine.graph.nodes if n.op.remote and n not in raised
                              and not raised.isdisjoint(ancestors(n))])

    def recreated(self, nodes: set[Node]) -> None:
        """Gather again what derives from nodes that were removed and added again, empty: they missed writes."""
        exchanges = [n for n in self._engine.graph.nodes if n.op.remote]
        self._request_repair([n for n in exchanges if not nodes.isdisjoint(ancestors(n))])

    def _request_repair(self, stale: list[Node]) -> None:
        """Let all workers gather this worker's rows of these exchanges again."""
        for w in range(self.workers) if stale else ():
            if w != self.worker:
                self._send(w, ExchangesBroken(tuple([n.id for n in stale])))
        self.server.loaded(stale)
        self._renew(self.worker, stale)

    def broken(self, worker: int, b: ExchangesBroken) -> None:
        """Handle a `ExchangesBroken` of another worker (see `report_broken`)."""
        stale = [self._values.node(number) for number in b.exchanges]
        self._renew(worker, [n for n in stale if n is not None])

    def _derived(self, table: str) -> list[Node]:
        """The exchanges that derive from a table."""
        bases = set(self._engine.bases.get(table, ()))
        return [n for n in self._engine.graph.nodes if n.op.remote and bases & set(ancestors(n))]

    def _renew(self, worker: int, exchanges: Sequence[Node]) -> None:
        """Gather or evict a worker's rows of these exchanges, which may be stale."""
        stale = set(exchanges)
        self._requests = {number: request for number, request in self._requests.items()
                          if request.worker != worker or request.gather.node not in stale}
        for g in [g for g in self._gathers if worker in g.requested and g.node in stale]:
            if not g.cols and not g.lost:
                self.gather_full_state(g.node)
                continue
            g.answered[worker][:] = False
            g.received[worker] = []
            if not g.cols:
                g.lost.add(worker)
            self._request_again(g, worker, g.requested[worker])
        for n in exchanges:
            if n.full and n.live and not n.inert:
                self._repair_full_state(n, worker)
            elif not n.full:
                for cols in n.indexes:
                    self._evict_from(worker, n, cols)
                if n.thin:
                    self._evict_below(n)

    def has_all_rows(self) -> bool:
        """Whether no full state lacks rows of a worker that was lost or loaded rows."""
        return not any(g.lost for g in self._gathers.of_all_rows())

    def _repair_full_state(self, node: Node, worker: int) -> None:
        if self._stale_of(worker, node) or worker not in self._workers_of(node, (), NO_KEY):
            return
        self._begin(node, (), NO_KEY).lost.add(worker)

    def _evict_below(self, node: Node) -> None:
        """Evict all keys below that were pulled through an exchange."""
        for cols in node.indexes:
            for below, index, _ in node.users_of(cols):
                if not below.full:
                    eviction.evict(self._engine, below, index, below.stored.present(index))

    def _evict_from(self, worker: int, node: Node, cols: Columns) -> None:
        """Evict the keys of an index that may have rows of this worker."""
        keys = node.stored.present(cols)
        theirs = self._workers_of(node, cols, keys).get(worker)
        if theirs is not None and keys.shape[1]:
            eviction.evict(self._engine, node, cols, np.ascontiguousarray(keys[:, theirs]))

    # -------------------------------------------------------------- waiting requests
    def hold_eviction(self, worker: int, hold: bool) -> None:
        """Protect keys from eviction, or stop that, for a worker whose request loses them repeatedly (see
        `HoldEviction`)."""
        if hold:
            self.holding_for.add(worker)
        else:
            self.holding_for.discard(worker)

    def run_ready(self) -> None:
        """Run the requests again that need not wait any more, oldest first."""
        self.waiting.run_ready()
        hold = self.waiting.waits_too_often() or bool(self._void_often)
        if hold != (self.worker in self.holding_for):
            self.hold_eviction(self.worker, hold)
            for w in range(self.workers):
                if w != self.worker:
                    self._send(w, HoldEviction(hold))
        for n in () if self.waiting else self._thin:
            for cols in n.op.presence(n) if n.state is not None else ():
                n.stored.evict(cols, n.stored.present(cols))

    def idle(self) -> bool:
        return not (self.waiting or self._gathers or self._requests) and self.marks.idle()
