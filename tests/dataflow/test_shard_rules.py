"""Every rule of the protocol is needed: without it a schedule of the simulator fails (DESIGN section 7, the model's R1
to R16)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from dataflow import simulator
from dataflow.test_shards import run
from noria.core.batch import Batch
from noria.dataflow import evict, layout
from noria.dataflow.building import Builds
from noria.dataflow.elsewhere import Elsewhere, Pieces
from noria.dataflow.gathering import Gather
from noria.dataflow.marks import Marks
from noria.dataflow.ops.join import Join
from noria.dataflow.serving import Serving
from noria.dataflow.shards import Shards
from reference.random_plans import views, ways

MOST = 1500  # schedules
FIRST = {"mark_waits_for_losses": 800, "fed_stay_fed": 500, "loss_evicts": 350, "evict_voids": 350}  # where one is near


def fifo(monkeypatch: pytest.MonkeyPatch) -> None:
    """R1: channels in order."""

    def any_order(messages: Any) -> Any:
        messages.rotate(random.Random(len(messages)).randrange(len(messages)))
        return messages.popleft()

    monkeypatch.setattr(simulator, "first", any_order)


def union_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: all pieces before the release."""
    monkeypatch.setattr(Gather, "whole", lambda self: any(m.any() for m in self.answered.values()))


def gather_add(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: an update of a worker that has answered joins its piece."""
    monkeypatch.setattr(Shards, "join", lambda self, sender, node, rows: None)


def gather_drop(monkeypatch: pytest.MonkeyPatch) -> None:
    """R4: one of a worker that has not is dropped."""
    join = Shards.join

    def join_all(self: Shards, sender: int, node: Any, rows: Batch) -> None:
        before = [(g, dict(g.answered)) for gathers in self._gathers.values() for g in gathers]
        for g, _ in before:
            g.answered = dict(g.wanted)
        join(self, sender, node, rows)
        for g, answered in before:
            g.answered = answered

    monkeypatch.setattr(Shards, "join", join_all)


def evict_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: an eviction voids the piece of its sender."""
    monkeypatch.setattr(Shards, "_void", lambda self, g, worker, keys: None)


def cascade_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """R7: evictions cross exchanges."""
    monkeypatch.setattr(Shards, "evict", lambda self, node, cols, p: None)


def evict_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: what hangs on a row whose lookup would be remote is evicted."""
    monkeypatch.setattr(evict, "evict_through", lambda *args: None)
    monkeypatch.setattr("noria.dataflow.ops.join.evict_through", lambda *args: None)
    assert Join._evicting.__globals__["evict_through"]() is None


def thin_passes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: an end that keeps nothing passes evictions on."""
    monkeypatch.setattr(evict, "pass_on", lambda *args: None)


def thin_only_above_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: only where what is below does not pull again what it holds."""
    monkeypatch.setattr(layout, "_ends_in_states", lambda n: True)


def loss_voids(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: its pieces are void, and asked for again."""
    lost = Shards.lost

    def without(self: Shards, worker: int) -> None:
        mine, self._gathers = self._gathers, type(self._gathers)(list)
        asks = dict(self._asks)
        lost(self, worker)
        self._asks |= asks
        for at, gathers in mine.items():
            self._gathers[at] += gathers

    monkeypatch.setattr(Shards, "lost", without)


def loss_evicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: what derives from its rows is evicted."""
    monkeypatch.setattr(Shards, "_evict_from", lambda self, worker, node, cols: None)


def loss_gathers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: full states gather again."""
    monkeypatch.setattr(Shards, "_gather_again", lambda self, node, worker: None)


def mark_to_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks: who is asked has caught up itself, as far as rows pass exchanges."""
    catch_up = Marks.catch_up
    monkeypatch.setattr(Marks, "catch_up",
                        lambda self, depth, then, asker=-1: catch_up(self, min(depth, 1), then, asker))


def mark_waits_for_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks: a full state that gathers again has not caught up."""
    monkeypatch.setattr(Shards, "lost_nothing", lambda self: True)


def loads_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: what came over exchanges of what derives from a loaded table goes, too."""
    monkeypatch.setattr(Shards, "load", lambda self, table: None)


def load_drops_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: updates beside rows that are gathered again are dropped."""
    monkeypatch.setattr(Shards, "_stale_of", lambda self, worker, node: False)


def once_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-shots: what a lost worker was asked is asked again."""
    monkeypatch.setattr(Elsewhere, "lost", lambda self, worker: None)


def once_waits_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """One-shots: the rows of all workers that may have some."""
    monkeypatch.setattr(Pieces, "_whose", lambda self, table, cols, keys: iter(()))


def pieces_have_deltas(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows in pieces: what is written to those that have passed comes, too."""
    take = Serving._take
    monkeypatch.setattr(Serving, "_take",
                        lambda self, engine, rows: take(self, engine, rows) if self._in_slice else None)


def fed_stay_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange in use goes on while an index is built for the sake of another view."""
    feeds = Builds.feeds

    def forgetful(self: Builds, exchange: Any, cols: Any = ()) -> bool:
        self._fed.clear()
        return feeds(self, exchange, cols)

    monkeypatch.setattr(Builds, "feeds", forgetful)


LOADS: list[Callable[[pytest.MonkeyPatch], None]] = [loads_are_told, load_drops_own]
LOSSES: list[Callable[[pytest.MonkeyPatch], None]] = [
    loss_voids, loss_evicts, loss_gathers_again, mark_waits_for_losses, once_asks_again]
RULES: list[Callable[[pytest.MonkeyPatch], None]] = [
    fifo, union_whole, gather_add, gather_drop, evict_voids, cascade_exchange, evict_below,
    thin_passes_on, thin_only_above_states, mark_to_depth, once_waits_for_all, pieces_have_deltas, fed_stay_fed]


@pytest.mark.parametrize("rule", RULES + LOSSES + LOADS, ids=lambda r: r.__name__)
def test_without_it_a_schedule_fails(rule: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
                                     ) -> None:
    rule(monkeypatch)
    first = FIRST.get(rule.__name__, 0)
    for seed in range(first, first + MOST):
        try:
            run(seed, crashes=0.04 if rule in LOSSES else 0.0, loads=0.06 if rule in LOADS else 0.0,
                evictions=0.2 if rule is evict_voids else 0.1, views_of=ways if seed % 2 else views)
        except AssertionError:
            return
    pytest.fail(f"{MOST} schedules without it, and all is well: {rule.__doc__}")
