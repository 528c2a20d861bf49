"""Every rule of the protocol is necessary: without it a schedule of the simulator fails (R1 to R19 of
design/invariants.md)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dataflow import simulator
from dataflow.random_schedules import run
from dataflow.simulator import Cluster
from noria.core.batch import Batch
from noria.core.types import TableDef
from noria.dataflow.backfill.backfills import Backfills
from noria.dataflow.backfill.exchange_state import BackfillSender
from noria.dataflow.cluster import exchanges
from noria.dataflow.cluster.exchange_server import ExchangeRows
from noria.dataflow.cluster.exchanges import Exchanges
from noria.dataflow.cluster.frontier_requests import FrontierRequests
from noria.dataflow.cluster.pending_gathers import Gather, PendingGathers, PendingRequests, workers_of
from noria.dataflow.cluster.remote_scan import RemoteScan, RemoteTableReads
from noria.dataflow.graph import eviction, layout
from noria.dataflow.graph.nodes import MissMode
from noria.dataflow.graph.partition import Partition, owners
from noria.dataflow.messages.peer_messages import RowsRequest, WorkerRestarted
from noria.dataflow.ops.stateful.aggregate import Aggregate
from noria.dataflow.ops.stateless.join import Join
from noria.dataflow.ops.stateless.union import Union
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.rows.table import Table
from reference.random_plans import views, ways

MOST = 1500  # schedules
FIRST = {"mark_waits_for_losses": 800, "served_stay_served": 500, "loss_evicts": 350, "evict_voids": 350,
         "serve_between": 170, "any_index": 90, "spread": 100, "fill_once": 30, "loss_forgets": 230}  # near it


def fifo(monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: channels in order."""

    def any_order(messages: Any) -> Any:
        messages.rotate(random.Random(len(messages)).randrange(len(messages)))
        return messages.popleft()

    monkeypatch.setattr(simulator, "first", any_order)


def serve_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """R2: requests are served after a walk has sent its outputs, not during it."""
    split, tick = Exchanges.split, Cluster.tick

    def ticked(self: Cluster, rig: Any, *arguments: Any) -> None:
        rig.exchanges.waiting_channels = [c for (_, to), c in self.channels.items() if to == rig.worker]
        tick(self, rig, *arguments)

    def served(self: Exchanges, node: Any, rows: Batch) -> Batch:
        for sender, messages in enumerate(self.waiting_channels):
            if messages and isinstance(messages[0], RowsRequest):
                self.server.serve(sender + (sender >= self.worker), messages.popleft())
        return split(self, node, rows)

    monkeypatch.setattr(Cluster, "tick", ticked)
    monkeypatch.setattr(Exchanges, "split", served)


def broad_requests_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: of keys that do not determine their worker, all workers receive a request."""

    def one(*arguments: Any) -> Any:
        masks = workers_of(*arguments)
        return masks if not all(mask.all() for mask in masks.values()) else dict(list(masks.items())[:1])

    monkeypatch.setattr(exchanges, "workers_of", one)


def answer_has_only_the_requesters(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: an answer holds the requester's rows only."""
    monkeypatch.setattr(ExchangeRows, "owners", lambda self, node, columns: _requester(self, node, columns))


def _requester(values: ExchangeRows, node: Any, columns: Any) -> Any:
    """The owners where rows are sent on; every requester where rows are requested."""
    frame = sys._getframe(2).f_code.co_name
    whose = owners(columns[list(node.op.by)], [node.fields[c] for c in node.op.by], values._workers,
                   values._engine.symbols)
    return Anybody(whose) if frame in ("_send_rows", "_send_chunk") else whose


class Anybody:
    """Equal to every requester."""

    def __init__(self, whose: Any):
        self._number = len(whose)

    def __eq__(self, other: object) -> Any:
        return np.ones(self._number, np.bool_)


def any_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: a row stays while a key of any index is present."""
    evict_key = Table.evict

    def evict_rows(self: Table, cols: Any, keys: Any) -> int:
        gone = evict_key(self, cols, keys)
        rows = self.lookup(cols, keys)[0]
        if len(rows) and self.identity == self.width:
            self.apply(rows.negated())
        return gone

    monkeypatch.setattr(Table, "evict", evict_rows)


def fill_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: a fill adds only rows that no present key holds already."""
    fill = Table.fill

    def fill_again(self: Table, cols: Any, keys: Any, rows: Batch) -> None:
        had = self.lookup(cols, keys)[0] if self.identity == self.width else None
        fill(self, cols, keys, rows)
        if had is not None and len(had):
            self.apply(had)

    monkeypatch.setattr(Table, "fill", fill_again)


def evict_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """R8: keys that derive from a looked-up key are evicted, also if the key has no row."""
    carry = Join.carry

    def only_with_rows(self: Join, engine: Any, node: Any, port: int, primary: int | None, p: Any) -> Any:
        own = self.keys[port]
        if port != primary and all(c in p.cols for c in own):
            keys = np.ascontiguousarray(p.values[[p.cols.index(c) for c in own]])
            if not len(engine.fetch(node.parents[port], own, keys, MissMode.STORED)[0]):
                return []
        return carry(self, engine, node, port, primary, p)

    monkeypatch.setattr(Join, "carry", only_with_rows)


def join_without_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """R10: dL x R' + L' x dR has dL x dR twice."""
    monkeypatch.setattr(Join, "_both", lambda self, engine, left, right: Batch.empty(left.width + right.width))


def looked_up_is_present(monkeypatch: pytest.MonkeyPatch) -> None:
    """R10: the side that pulls look up into needs the key present."""
    monkeypatch.setattr(Join, "_mode", lambda self, node, side: MissMode.STORED)


def boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: a group is pulled again if its kept row was deleted and another row may follow."""
    monkeypatch.setattr(Aggregate, "_refill", lambda self, engine, node, dirty: None)


def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """R17: a state is full if its key cannot be pulled, such as a computed column."""
    monkeypatch.setattr(layout, "_make_full", lambda full, n, why: full.setdefault(n, why))


def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """R18: a union of inputs that are hashed differently is hashed by no columns."""
    monkeypatch.setattr(Union, "partition", lambda self, inputs: Partition((None,) * len(inputs), inputs[0]))


def loss_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: the first message of a restarted worker reports the restart."""

    def late(messages: Any) -> Any:
        if len(messages) > 1 and isinstance(messages[0], WorkerRestarted):
            messages[0], messages[1] = messages[1], messages[0]
        return messages.popleft()

    monkeypatch.setattr(simulator, "first", late)


def union_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: all answers before the release."""
    monkeypatch.setattr(Gather, "complete", lambda self: any(m.any() for m in self.answered.values()))


def gather_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: an update of a worker that has answered is added to its answer."""
    monkeypatch.setattr(Exchanges, "add_to_gatherings", lambda self, sender, node, rows: None)


def gather_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: an update of a worker that has not answered is dropped."""
    join = Exchanges.add_to_gatherings

    def join_all(self: Exchanges, sender: int, node: Any, rows: Batch) -> None:
        before = [(g, dict(g.answered)) for g in self._gathers]
        for g, _ in before:
            g.answered = dict(g.requested)
        join(self, sender, node, rows)
        for g, answered in before:
            g.answered = answered

    monkeypatch.setattr(Exchanges, "add_to_gatherings", join_all)


def evict_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: an eviction voids the answer of its sender."""
    monkeypatch.setattr(Exchanges, "_void", lambda self, g, worker, keys: None)


def cascade_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: evictions cross exchanges."""
    monkeypatch.setattr(Exchanges, "evict", lambda self, node, cols, p: None)


def evict_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: keys that derive from a row whose lookup would be remote are evicted."""
    monkeypatch.setattr("noria.dataflow.ops.stateless.join.evict_through", lambda *args: None)
    assert Join._evicting.__globals__["evict_through"]() is None


def thin_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: a thin exchange passes evictions on."""
    monkeypatch.setattr(eviction, "pass_on", lambda *args: None)


def thin_only_above_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: an exchange is thin only if the states below do not pull keys that they hold."""
    monkeypatch.setattr(layout, "_ends_in_states", lambda n: True)


def loss_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: its answers are void, and requested again."""
    lost = Exchanges.peer_restarted

    def without(self: Exchanges, worker: int) -> None:
        mine, self._gathers = self._gathers, PendingGathers()
        requests = dict(self._requests)
        lost(self, worker)
        self._requests |= requests
        for g in mine:
            self._gathers.add(g)

    monkeypatch.setattr(Exchanges, "peer_restarted", without)


def loss_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: keys that derive from its rows are evicted."""
    monkeypatch.setattr(Exchanges, "_evict_from", lambda self, worker, node, cols: None)


def loss_gathers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: full states gather again."""
    monkeypatch.setattr(Exchanges, "_repair_full_state", lambda self, node, worker: None)


def loss_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: the requests of a lost worker are dropped. This test gives the requests of its next life the same numbers:
    otherwise the numbers alone would suffice."""
    made = Exchanges.__init__

    def of_any_life(self: Exchanges, *arguments: Any) -> None:
        made(self, *arguments)
        self._next_request = 0

    monkeypatch.setattr(Exchanges, "__init__", of_any_life)
    monkeypatch.setattr(PendingRequests, "lost", lambda self, worker: None)


def mark_to_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks: a worker that answers a mark has caught up itself, as far as rows pass exchanges."""
    catch_up = FrontierRequests.catch_up
    monkeypatch.setattr(FrontierRequests, "catch_up",
                        lambda self, depth, then, requester=-1: catch_up(self, min(depth, 1), then, requester))


def mark_waits_for_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks: a full state that gathers again has not caught up."""
    monkeypatch.setattr(Exchanges, "has_all_rows", lambda self: True)


def loads_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: rows that derive from a loaded table and arrived over exchanges are dropped, too."""
    monkeypatch.setattr(Exchanges, "report_load", lambda self, table: None)


def load_drops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: updates beside rows that are gathered again are dropped."""
    monkeypatch.setattr(Exchanges, "_stale_of", lambda self, worker, node: False)


def once_requests_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-shots: requests to a lost worker are sent again."""
    monkeypatch.setattr(RemoteScan, "lost", lambda self, worker: None)


def once_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-shots: the rows of all workers that may have some."""
    monkeypatch.setattr(RemoteTableReads, "_whose", lambda self, table, cols, keys: iter(()))


def chunks_have_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows in chunks: writes to rows that have passed are sent, too."""
    receive = BackfillSender._receive
    monkeypatch.setattr(BackfillSender, "_receive",
                        lambda self, engine, rows: receive(self, engine, rows) if self._in_slice else None)


def served_stay_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange in use is served while an index is built for another view."""
    can_serve = Backfills.can_serve

    def forgetful(self: Backfills, exchange: Any, cols: Any = ()) -> bool:
        self._servable.clear()
        return can_serve(self, exchange, cols)

    monkeypatch.setattr(Backfills, "can_serve", forgetful)


def karma(rng: random.Random, tables: list[TableDef]) -> list[ViewDef]:
    """Views over a join of stories with their numbers of votes, and the sums of these numbers."""
    stories, votes = mir.Base(tables[0]), mir.Base(tables[1])
    counted = mir.Aggregate(votes, (1,), (mir.agg("count_star", None, votes.fields),), ("n",))
    joined = mir.Join(stories, counted, ((0, 0),), rng.random() < 0.3)
    by_author = mir.Aggregate(joined, (1,), (mir.agg("sum", stories.width + 1, joined.fields),), ("karma",))
    return [ViewDef("karma", by_author, (0,), by_author.width), ViewDef("joined", joined, (1,), joined.width)]


EVICTIONS = {"evict_voids": 0.2, "evict_empty": 0.2, "loss_forgets": 0.3}
CRASHES = {"loss_forgets": 0.15}
KARMA = (evict_empty, loss_forgets)
LOADS: list[Callable[[pytest.MonkeyPatch], None]] = [loads_are_reported, load_drops_own]
LOSSES: list[Callable[[pytest.MonkeyPatch], None]] = [
    loss_first, loss_voids, loss_evicts, loss_gathers_again, loss_forgets, mark_waits_for_losses, once_requests_again]
RULES: list[Callable[[pytest.MonkeyPatch], None]] = [
    fifo, serve_between, broad_requests_all, answer_has_only_the_requesters, any_index, fill_once, join_without_both,
    looked_up_is_present, boundary, planned, spread, union_whole, gather_add, gather_drop, evict_voids,
    cascade_exchange, evict_below, thin_passes_on, thin_only_above_states, mark_to_depth, once_waits_for_all,
    chunks_have_deltas, served_stay_served, evict_empty]


@pytest.mark.parametrize("rule", RULES + LOSSES + LOADS, ids=lambda r: r.__name__)
def test_without_it_a_schedule_fails(rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    rule(monkeypatch)
    first = FIRST.get(rule.__name__, 0)
    for seed in range(first, first + MOST):
        try:
            run(seed, crashes=CRASHES.get(rule.__name__, 0.04) if rule in LOSSES else 0.0,
                loads=0.06 if rule in LOADS else 0.0, evictions=EVICTIONS.get(rule.__name__, 0.1),
                views_of=karma if rule in KARMA else ways if seed % 2 else views)
        except AssertionError:
            return
    pytest.fail(f"{MOST} schedules without it, and all is well: {rule.__doc__}")
