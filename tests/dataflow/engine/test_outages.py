"""An operator that raises takes its node and the nodes below it out of service, and no others: random programs, with
operators that raise now and then, against the oracle."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest

from dataflow.engine_rig import Rig
from dataflow.random_play import compare_with_reference, published
from dataflow.simulator import Cluster
from noria.core.errors import SqlError, is_out_of_service, out_of_service
from noria.core.plain_symbols import PlainSymbols
from noria.dataflow.graph.nodes import Operator
from noria.dataflow.inspect.validate import validate
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from reference import random_plans
from reference.table_views import TableViews
from seeds import cases

SEEDS = int(os.environ.get("NORIA_OUTAGE_SEEDS") or cases(60))
FIRST = int(os.environ.get("NORIA_OUTAGE_FIRST", "0"))


class Fault(Exception):
    """A defect of an operator."""


class Clock:
    """A clock that advances by 50 ms at each reading."""

    def __init__(self) -> None:
        self.at, self.step = 0, 50_000_000

    def now(self) -> int:
        self.at += self.step
        return self.at


class Faults:
    """Operators raise in one of so many of their ticks, before or after they have changed their state."""

    def __init__(self, rng: random.Random, one_in: int):
        self._rng, self._one_in, self.raised, self.on = rng, one_in, 0, True

    def _now(self) -> None:
        if self.on and self._rng.randrange(2 * self._one_in) == 0:
            self.raised += 1
            raise Fault(f"number {self.raised}")

    def put_into(self, op: Operator) -> None:
        if "tick" in vars(op):
            return
        tick: Callable[..., Any] = op.tick

        def failing(*args: Any) -> Any:
            self._now()
            out = tick(*args)
            self._now()
            return out

        op.tick = failing


def run(seed: int, steps: int = 40) -> int:
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = random_plans.views(rng, tables)
    sliced = random.Random(seed + 1) if seed % 2 else None
    rig = Rig(tables, [], *((TableViews, None) if seed % 3 == 0 else (published, SymbolTable(None))), sliced)
    faults = Faults(random.Random(seed + 2), rng.choice([5, 20, 60]))
    rig.engine.outages.log = lambda what, bug: "W0.1.1"
    clock = Clock()
    rig.engine.clock = clock.now if seed % 4 else None
    try:
        for view in views:
            rig.add_view(view)
        for _ in range(steps):
            for n in rig.engine.graph.nodes:
                faults.put_into(n.op)
            _step(rig, rng, views, faults)
            validate(rig.engine)
        faults.on, clock.step = False, 10**11
        _converges(rig, views)
    except Exception as e:
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\nthe story:\n{rig.story.describe()[-3000:]}") from e
    return faults.raised


def _step(rig: Rig, rng: random.Random, views: list[ViewDef], faults: Faults) -> None:
    rig.build_some()
    if rng.random() < 0.3:
        rig.engine.outages.retry()
    x = rng.random()
    if x < 0.5:
        rig.random_write(rng)
    elif x < 0.55:
        rig.random_load(rng)
    elif x < 0.85:
        _read(rig, rng, rng.choice(views))
    else:
        rig.random_evict(rng)


def _read(rig: Rig, rng: random.Random, view: ViewDef) -> None:
    """Read as the worker does: returns the rows, or an error with the reason."""
    if not rig.engine.ready(view.name):
        error = rig.engine.builds.error_of(view.name)
        assert error is None or "Fault" in error.message
        return
    if not view.ranged:
        rig.engine.read(view.name, rig.random_key(rng, view))


def _converges(rig: Rig, views: list[ViewDef]) -> None:
    for _ in range(50):
        rig.engine.outages.retry()
        rig.engine.builds.all()
        if all(rig.engine.ready(v.name) for v in views):
            break
    assert all(rig.engine.ready(v.name) for v in views) and not len(rig.engine.outages)
    validate(rig.engine)
    for view in views:
        compare_with_reference(rig, view)


@pytest.mark.parametrize("block", range(4))
def test_other_views_stay_correct_and_broken_ones_converge(block: int) -> None:
    raised = sum(run(FIRST + seed) for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4))
    assert SEEDS < 4 or raised


def expected(error: SqlError) -> None:
    assert is_out_of_service(error), error


def run_several(seed: int, steps: int = 60) -> int:
    """`run` for several workers."""
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = random_plans.views(rng, tables)
    cluster = Cluster(tables, views, rng.choice([2, 2, 3]), rng, TableViews, PlainSymbols)
    faults, clock = Faults(random.Random(seed + 2), rng.choice([10, 30, 100])), Clock()
    cluster.failed = expected
    try:
        for rig in cluster.rigs:
            rig.engine.outages.log, rig.engine.clock = (lambda what, bug: "W0.1.1"), clock.now
            rig.engine.builds.on_defect = lambda bug: out_of_service("a request of another worker", str(bug))
        for _ in range(steps):
            for n in [n for rig in cluster.rigs for n in rig.engine.graph.nodes]:
                faults.put_into(n.op)
            _step_of_several(cluster, rng, views)
        faults.on, clock.step = False, 10**11
        _several_converge(cluster)
    except Exception as e:
        stories = "\n".join(f"worker {r.worker}:\n{r.story.describe()[-3000:]}" for r in cluster.rigs)
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{stories}") from e
    return faults.raised


def _step_of_several(cluster: Cluster, rng: random.Random, views: list[ViewDef]) -> None:
    if rng.random() < 0.3:
        rng.choice(cluster.rigs).engine.outages.retry()
    x = rng.random()
    if x < 0.25:
        cluster.write()
    elif x < 0.4:
        cluster.random_read(rng.choice(views))
    elif x < 0.5:
        cluster.random_evict()
    else:
        cluster.deliver()


def _several_converge(cluster: Cluster) -> None:
    for _ in range(50):
        for rig in cluster.rigs:
            rig.engine.outages.retry()
            rig.settle()
        while cluster.deliver():
            pass
        if not any(len(rig.engine.outages) for rig in cluster.rigs):
            break
    cluster.drain()
    cluster.validate()
    for view in cluster.views:
        for _ in range(5):
            cluster.random_read(view)
    cluster.drain()
    cluster.validate()


@pytest.mark.parametrize("block", range(2))
def test_other_workers_gather_the_rows_of_a_broken_state_again(block: int) -> None:
    raised = sum(run_several(FIRST + seed) for seed in range(block * SEEDS // 2, (block + 1) * SEEDS // 2))
    assert SEEDS < 2 or raised
