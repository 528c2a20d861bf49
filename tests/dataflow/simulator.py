"""Several workers' engines in one process, under a seeded schedule: every pair of them has a channel of messages in
order, and the next delivery is drawn.

The oracle has no workers: reads are compared with `mir_reference`, and every state with the recomputation of an engine
that has all rows.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dataflow.engine_rig import Rig, has_key, raises, shown, values_of
from noria.core.batch import Batch, Codes, concat
from noria.core.errors import SqlError
from noria.core.limits import BUILD_AT_ONCE_ROWS
from noria.core.types import TableDef
from noria.core.values import decode
from noria.dataflow.cluster.exchanges import Exchanges
from noria.dataflow.cluster.frontier_requests import exchanges_above
from noria.dataflow.cluster.remote_scan import RemoteOneShot, RemoteScan, RemoteTableReads
from noria.dataflow.engine.memory_limit import evict_bytes, evictable, hold_limit
from noria.dataflow.graph import text
from noria.dataflow.graph.eviction import evict
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import MissMode, Node, RemoteRowsNeeded
from noria.dataflow.graph.partition import owners
from noria.dataflow.inspect.validate import Rows, bag, recompute
from noria.dataflow.messages.peer_messages import (
    EvictedKeys,
    ExchangeDelta,
    ExchangesBroken,
    HoldEviction,
    KeysToFill,
    Marker,
    MarkerReply,
    Message,
    MoreChunks,
    RowsChunk,
    RowsReply,
    RowsRequest,
    TableLoaded,
    TableLookup,
    TableLookupReply,
    WorkerRestarted,
    packed,
    unpacked,
)
from noria.dataflow.worker.fill_ahead import FillAhead
from noria.plan.view import ViewDef
from noria.state.rows import table as tables_in_memory
from reference import mir_reference, random_plans
from reference.memory_store import MemoryStore

MOST_UPDATES = 4  # of a tick


def unexpected(error: SqlError) -> None:
    raise error


def first(messages: deque[Message]) -> Message:
    return messages.popleft()


class ShardRig(Rig):
    """One worker of several, with its rows of the base tables.  rng: draws when slices of builds run, and their
    size."""

    def __init__(self, worker: int, workers: int, send: Callable[[int, Message], None], tables: list[TableDef],
                 make_views: Any, symbols: Any, incarnation: int, rng: random.Random,
                 at_once_rows: int = BUILD_AT_ONCE_ROWS):
        super().__init__(tables, [], make_views, symbols)
        self.rng, self.engine.builds.at_once_rows = rng, at_once_rows
        self.worker = worker
        self.exchanges = self.engine.exchanges = Exchanges(self.engine, worker, workers, send, incarnation)
        self.remote_scan = RemoteScan(self.engine, worker, workers, send, incarnation << 40)
        self.ahead = FillAhead(self.engine, 2**40, raises, self.exchanges)

    def settle(self) -> None:
        """Between ticks: run the parked requests that can continue, and some slices."""
        self.exchanges.run_ready()
        while self.engine.builds and self.rng.random() < 0.5:
            self.slice()

    def slice(self) -> None:
        build = self.engine.builds.next()
        assert build is not None
        build.rows = self.rng.choice([1, 1, 2, 16])
        self.engine.builds.step()
        self.exchanges.run_ready()


class Cluster:
    def __init__(self, tables: list[TableDef], views: list[ViewDef], workers: int, rng: random.Random,
                 make_views: Any, make_symbols: Callable[[], Any]):
        self.tables, self.workers, self.rng = {t.name: t for t in tables}, workers, rng
        self.channels: dict[tuple[int, int], deque[Message]] = {
            (a, b): deque() for a in range(workers) for b in range(workers) if a != b}
        self.cut: set[tuple[int, int]] = set()  # channels to a lost worker, until its peers know
        self.incarnations = [1] * workers
        at_once = rng.choice([0, 0, BUILD_AT_ONCE_ROWS])
        tables_in_memory.IDLE_ROWS = at_once  # the same bound for both: a larger index is built aside
        self._new = lambda w: ShardRig(w, workers, self._sender(w), tables, make_views, make_symbols(),
                                       self.incarnations[w], rng, at_once)
        self.rigs = [self._new(w) for w in range(workers)]
        self.rows: dict[str, list[tuple]] = {t.name: [] for t in tables}
        self.where: dict[str, list[int]] = {t.name: [] for t in tables}  # of each row: its worker
        self.catching: tuple[ShardRig, ViewDef] | None = None
        self.sent: Counter[type] = Counter()
        self.failed = unexpected  # called with the error of a read
        self.views: list[ViewDef] = []
        for v in views:
            self.add_view(v)

    def _sender(self, w: int) -> Callable[[int, Message], None]:
        def send(to: int, message: Message) -> None:
            self.sent[type(message)] += 1
            if (w, to) not in self.cut:
                self.channels[w, to].append(message)
        return send

    def drop_view(self, view: ViewDef) -> None:
        self.drain()  # nothing is under way for it
        self.views.remove(view)
        for rig in self.rigs:
            rig.drop_view(view.name)
            rig.settle()

    def add_view(self, view: ViewDef) -> None:
        self.views.append(view)
        for rig in self.rigs:
            rig.add_view(view)
        for rig in self.rigs:
            rig.settle()

    # -------------------------------------------------------------- the schedule
    def deliver(self) -> bool:
        """Deliver some updates as one tick, or one other message, or run a slice of a build."""
        ready = [c for c, messages in self.channels.items() if messages]
        building = [rig for rig in self.rigs if rig.engine.builds]
        if building and (not ready or self.rng.random() < 0.3):
            self.rng.choice(building).slice()
            return True
        if not ready:
            return False
        to = self.rng.choice(ready)[1]
        mine = [c for c in ready if c[1] == to]
        rig = self.rigs[to]
        updates: list[tuple[int, ExchangeDelta]] = []
        for _ in range(self.rng.randint(1, MOST_UPDATES)):
            c = self.rng.choice(mine)
            if self.channels[c] and isinstance(self.channels[c][0], ExchangeDelta):
                updates.append((c[0], first(self.channels[c])))
        if updates:
            self.tick(rig, {}, updates)
            return True
        self.hand(self.rng.choice(mine))
        return True

    def hand(self, c: tuple[int, int]) -> None:
        """Deliver the next message of a channel, alone."""
        rig, message = self.rigs[c[1]], first(self.channels[c])
        if isinstance(message, ExchangeDelta):
            self.tick(rig, {}, [(c[0], message)])
        elif isinstance(message, RowsRequest):
            rig.exchanges.server.serve(c[0], message)
        elif isinstance(message, RowsReply):
            rig.exchanges.answered(message)
        elif isinstance(message, RowsChunk):
            rig.exchanges.chunk_arrived(c[0], message)
        elif isinstance(message, MoreChunks):
            rig.exchanges.server.more(c[0], message)
        elif isinstance(message, Marker):
            rig.exchanges.marks.serve(c[0], message)
        elif isinstance(message, MarkerReply):
            rig.exchanges.marks.answered(c[0], message)
        elif isinstance(message, HoldEviction):
            rig.exchanges.hold_eviction(c[0], message.hold)
        elif isinstance(message, KeysToFill):
            rig.exchanges.found_keys.receive(message)
        elif isinstance(message, TableLoaded):
            rig.exchanges.loaded(c[0], message.table)
        elif isinstance(message, ExchangesBroken):
            rig.exchanges.broken(c[0], message)
        elif isinstance(message, WorkerRestarted):
            if message.incarnation == self.incarnations[c[0]]:
                self.cut.discard(c[::-1])
            rig.exchanges.peer_restarted(c[0])
            rig.remote_scan.lost(c[0])
        elif isinstance(message, TableLookup):
            rig.remote_scan.serve(c[0], message)
        elif isinstance(message, TableLookupReply):
            rig.remote_scan.answered(message)
        else:
            assert isinstance(message, EvictedKeys)
            rig.exchanges.evicted(c[0], message)
        rig.settle()

    def tick(self, rig: ShardRig, deltas: dict[str, Batch], updates: list[tuple[int, ExchangeDelta]]) -> None:
        arrived: dict[Node, list[Batch]] = defaultdict(list)
        for sender, update in updates:
            if (known := rig.exchanges.arrived(sender, update)) is not None:
                arrived[known[0]].append(known[1])
        rig.engine.tick(deltas, {n: concat(rows, n.width) for n, rows in arrived.items()})
        rig.settle()

    def drain(self) -> None:
        for _ in range(100_000):
            if not self.deliver():
                assert all(rig.engine.ready(v.name) for rig in self.rigs for v in self.views)
                break
        else:
            raise AssertionError("messages without end")
        assert all(rig.exchanges.idle() for rig in self.rigs), "a request waits and no message is under way"

    def crash(self) -> None:
        """Lose a worker, and restart it with its base tables."""
        w = self.rng.randrange(self.workers)
        others = [v for v in range(self.workers) if v != w]
        if not others:
            return
        plan = self.rigs[others[0]].lowering.graph_plan()
        self.incarnations[w] += 1
        for v in others:
            arrived = list(self.channels[w, v])[: self.rng.randint(0, len(self.channels[w, v]))]
            self.channels[w, v] = deque([*arrived, WorkerRestarted(self.incarnations[w])])
            self.channels[v, w].clear()
            self.cut.add((v, w))
            self.cut.discard((w, v))
        if self.catching is not None and self.catching[0] is self.rigs[w]:
            self.catching = None  # the reader has an error
        rig = self.rigs[w] = self._new(w)
        for t in self.tables:
            rows = [row for row, at in zip(self.rows[t], self.where[t], strict=True) if at == w]
            for delta in rig.deltas([(t, row, 1) for row in rows]).values():
                rig.store.put(t, delta)
        rig.lowering.adopt(plan)
        rig.lowering.replan()
        rig.engine.relayout()
        rig.settle()

    def cut_channel(self) -> None:
        """Lose the last messages from a worker to another one, though both live: both receive the report."""
        a, b = self.rng.choice(list(self.channels) or [(0, 0)])
        if a == b or (a, b) in self.cut:
            return
        messages = self.channels[a, b]
        for _ in range(self.rng.randint(0, len(messages))):
            messages.pop()
        messages.append(WorkerRestarted(self.incarnations[a]))
        rig = self.rigs[a]
        rig.exchanges.peer_restarted(b)
        rig.remote_scan.lost(b)
        rig.settle()

    # -------------------------------------------------------------- requests of clients
    def write(self, most: int = 4) -> None:
        """Make random changes; those of one worker are one tick of it."""
        rng = self.rng
        by: dict[int, list[tuple[str, tuple, int]]] = defaultdict(list)
        for _ in range(rng.randint(1, most)):
            t = rng.choice(list(self.tables))
            rows, where = self.rows[t], self.where[t]
            what = rng.choice(["insert", "insert", "delete", "update"]) if len(rows) < 14 else "delete"
            if what != "insert" and rows:
                i = rng.randrange(len(rows))
                by[where.pop(i)].append((t, rows.pop(i), -1))
                if what == "delete":
                    continue
            table = self.tables[t]
            row = tuple(random_plans.value(rng, c.type, c.nullable) for c in table.columns)
            if table.primary_key:
                row = (rng.randrange(8), *row[1:])
                if any(r[0] == row[0] for r in rows):
                    continue
            w = self.home(t, row)
            rows.append(row)
            where.append(w)
            by[w].append((t, row, 1))
        for w, changes in by.items():
            self._commit(w, changes)

    def insert(self, table: str, row: tuple) -> None:
        w = self.home(table, row)
        self.rows[table].append(row)
        self.where[table].append(w)
        self._commit(w, [(table, row, 1)])

    def load(self) -> None:
        """Add rows at all workers without deltas, one worker after the other."""
        table = self.tables[self.rng.choice(list(self.tables))]
        taken = {r[0] for r in self.rows[table.name]}
        by: dict[int, list[tuple[str, tuple, int]]] = defaultdict(list)
        for _ in range(self.rng.randint(1, 6)):
            row = tuple(random_plans.value(self.rng, c.type, c.nullable) for c in table.columns)
            if table.primary_key:
                row = (self.rng.randrange(8), *row[1:])
                if row[0] in taken:
                    continue
            taken.add(row[0])
            by[self.home(table.name, row)].append((table.name, row, 1))
        for w in self.rng.sample(range(self.workers), self.workers):
            rig, changes = self.rigs[w], by[w]
            self.rows[table.name] += [row for _, row, _ in changes]
            self.where[table.name] += [w] * len(changes)
            for name, delta in rig.deltas(changes).items():
                rig.store.put(name, delta)
            rig.engine.builds.restart(table.name)
            rig.engine.reload(table.name)
            rig.settle()
            for _ in range(self.rng.randint(0, 4)):
                self.deliver()

    def _commit(self, w: int, changes: list[tuple[str, tuple, int]]) -> None:
        """One tick of one worker."""
        rig = self.rigs[w]
        deltas = rig.deltas(changes)
        for table, delta in deltas.items():
            rig.store.put(table, delta)
        self.tick(rig, deltas, [])

    def home(self, table: str, row: tuple) -> int:
        key = self.tables[table].sharded_by
        if key is None:
            return self.rng.randrange(self.workers)
        rig = self.rigs[0]
        codes = np.array([[c] for c in rig.codes(table, row)], np.int64)[list(key)]
        return int(owners(codes, [self.tables[table].fields[c] for c in key], self.workers, rig.symbols)[0])

    def read(self, view: ViewDef, rig: ShardRig, keys: Codes, reply: Callable[[Batch, Codes], None]) -> None:
        """Read keys at the worker that owns them; `reply` is called when the answer is complete."""
        def again() -> None:
            if not rig.engine.ready(view.name):
                rig.exchanges.waiting.park(lambda: rig.engine.ready(view.name), again)
                return
            try:
                rows, ordinal = rig.engine.read(view.name, keys, nulls=True)
            except RemoteRowsNeeded as r:
                rig.exchanges.waiting.wait(r, again, again, self.failed)
                return
            except SqlError as error:
                self.failed(error)
                return
            reply(rows, ordinal)
        again()
        rig.settle()

    def random_read(self, view: ViewDef) -> None:
        rig = self.rng.choice(self.rigs)
        key = rig.random_key(self.rng, view)
        self.read(view, self.rigs[self.owner(view, rig, key)], self.across(view, rig, key), lambda rows, ordinal: None)

    def catch_up(self) -> None:
        """A worker that has caught up has the effects of all earlier commits in its views. It may have more, so nothing
        is written until it has caught up."""
        rig, view = self.rng.choice(self.rigs), self.rng.choice(self.views)
        self.catching = rig, view

        def done() -> None:
            self.catching = None
            reader = rig.engine.readers.get(view.name)
            if reader is not None and reader.live and reader.parts and rig.engine.ready(view.name):
                self._check(rig, reader, self._mine(rig, reader, self._recomputed(rig)[reader]))

        rig.exchanges.marks.catch_up(exchanges_above(rig.engine.readers[view.name]), done)
        rig.settle()

    def one_shot(self, view: ViewDef) -> None:
        """Read some keys of a view, in the graph or not, by a one-shot at one worker; nothing is written until the
        answer."""
        rig, rng = self.rng.choice(self.rigs), self.rng
        keys = np.concatenate([rig.random_key(rng, view) for _ in range(rng.choice([1, 1, 2, 5]))], axis=1)
        nulls, reads, types = rng.random() < 0.3, RemoteTableReads(rig.remote_scan), [f.type for f in view.plan.fields]
        lowered, top, _, texts = rig.lowering.one_shot(view)
        self.catching = rig, view

        def again() -> None:
            shot = RemoteOneShot(rig.engine, 10**6, texts, reads)
            try:
                rows, ordinal = shot.read(top, lowered.key, keys, nulls)
            except RemoteRowsNeeded as r:
                rig.exchanges.waiting.wait(r, again, again, unexpected)
                return
            self.catching = None
            truth = mir_reference.run(view.plan, {t: list(rows) for t, rows in self.rows.items()})
            for i in range(keys.shape[1]):
                key = [decode(c, types[k], rig.symbols) for c, k in zip(keys[:, i].tolist(), view.key, strict=True)]
                expected = Counter(shown(r) for r in truth if has_key(r, view, types, key, nulls))
                have = values_of(rig, rows.where(ordinal == i), types)
                assert have == expected, f"{view.name} {key} once: {have} instead of {expected}\n{view.plan}"

        again()
        rig.settle()

    def across(self, view: ViewDef, rig: ShardRig, key: Codes) -> Codes:
        """Convert a key from codes of one worker to codes of its owner."""
        to = self.rigs[self.owner(view, rig, key)]
        fields = view.key_fields
        return unpacked(packed(Batch.of(key), fields, rig.symbols), fields, to.symbols).columns

    def owner(self, view: ViewDef, rig: ShardRig, key: Codes) -> int:
        reader = rig.engine.readers[view.name]
        by, part = rig.engine.reads[reader], reader.parts[0]  # the view carries errors, so its columns may differ
        return int(owners(key[[by.index(c) for c in part]], [reader.fields[c] for c in part], self.workers,
                          rig.symbols)[0])

    def random_evict(self) -> None:
        rig = self.rng.choice(self.rigs)
        some = [(n, cols) for n, cols in evictable(rig.engine) if cols in n.op.presence(n)]
        if not some:
            return
        n, cols = self.rng.choice(some)
        keys = n.stored.present(cols)
        if keys.shape[1]:
            evict(rig.engine, n, cols, np.ascontiguousarray(keys[:, [self.rng.randrange(keys.shape[1])]]))
            rig.settle()

    def forget_bytes(self) -> None:
        """Evict as a worker over its memory limit does."""
        rig = self.rng.choice(self.rigs)
        evict_bytes(rig.engine, self.rng.choice([1, 1000, 10**9]))
        rig.settle()

    def forget_all(self) -> None:
        """Evict all partial keys of all workers."""
        for rig in self.rigs:
            hold_limit(rig.engine, 1)
            rig.settle()

    # -------------------------------------------------------------- the oracle
    def validate(self) -> None:
        """When no message is under way: every state of every worker equals its part of a recomputation."""
        for rig in self.rigs:
            truth, parts = self._recomputed(rig), rig.lowering.parts()
            for n in rig.engine.graph.nodes:
                if not n.op.stateful or n.state is None or not n.live or not n.parts or n in parts:
                    continue
                if n.op.remote and n.parents[0] in parts:  # partial aggregates: only their totals are known
                    if n.full:
                        self._check_whole(rig, n, truth)
                else:
                    self._check(rig, n, self._mine(rig, n, truth[n]))

    def _recomputed(self, rig: ShardRig) -> dict[Node, Rows]:
        """Recompute all nodes as if the worker had all rows of the base tables."""
        every = MemoryStore(rig.symbols)
        for t, table in self.tables.items():
            every.create_table(table)
            every.put(t, rig.deltas([(t, row, 1) for row in self.rows[t]]).get(t, Batch.empty(len(table.columns))))
        mine, rig.engine.store = rig.engine.store, every
        try:
            return recompute(rig.engine)
        finally:
            rig.engine.store = mine

    def _mine(self, rig: ShardRig, n: Node, truth: Rows) -> Rows:
        rows = Batch.from_rows(list(truth), n.width, list(truth.values()))
        part = n.parts[0]
        whose = owners(rows.columns[list(part)], [n.fields[c] for c in part], self.workers, rig.symbols)
        return bag(rows.where(whose == rig.worker))

    def _check_whole(self, rig: ShardRig, exchange: Node, truth: dict[Node, Rows]) -> None:
        for n, _ in exchange.children:
            have = bag(n.op.recompute(rig.engine, n, [exchange.op.all_rows(rig.engine, exchange)]))
            assert n.all_remote or have == self._mine(rig, n, truth[n]), f"worker {rig.worker} {exchange}: {have}"

    def _check(self, rig: ShardRig, n: Node, mine: Rows) -> None:
        if n.full:
            have = bag(n.op.all_rows(rig.engine, n))
            assert have == mine, f"worker {rig.worker} {n}: has {have} instead of {mine}"
            return
        for cols in n.op.presence(n):
            keys = n.stored.present(cols)
            if not keys.shape[1]:
                continue
            rows, ordinal = n.op.fetch(rig.engine, n, cols, keys, MissMode.STORED)
            folds = [n.fields[c].type.folds for c in cols]
            all_rows = Batch.from_rows(list(mine), n.width, list(mine.values()))
            of_rows = folded_keys(rig.symbols, folds, all_rows.columns[list(cols)])
            for i in range(keys.shape[1]):
                have = bag(rows.where(ordinal == i))
                expected = bag(all_rows.where((of_rows == keys[:, [i]]).all(axis=0)))
                shown = text.of_keys(rig.engine.symbols, n.fields, cols, keys[:, [i]])
                assert have == expected, f"worker {rig.worker} {n} by {cols} = {shown}: {have} instead of {expected}"
