"""Exchange: rows move to the worker that owns them, whatever the order of the messages."""

from __future__ import annotations

import random

from dataflow.ops.played import SEEDS, drawn, has, over_one
from dataflow.simulator import Cluster
from noria.core.plain_symbols import PlainSymbols
from noria.dataflow.ops.stateful.exchange import Exchange
from noria.plan.view import ViewDef
from reference import random_plans
from reference.table_views import TableViews


def test_groups_of_rows_of_other_workers_are_those_of_the_reference() -> None:
    assert sum(_exchanges(seed) for seed in range(SEEDS)) > SEEDS // 2


def _exchanges(seed: int) -> bool:
    """Play one schedule of three workers.  Returns True if their graph has an exchange."""
    rng = random.Random(seed)
    tables, plan = drawn(rng, over_one(random_plans.aggregate))
    view = ViewDef("v", plan, tuple(range(min(1, plan.width))), plan.width)
    cluster = Cluster(tables, [view], 3, rng, TableViews, PlainSymbols)
    for _ in range(40):
        rng.choice([cluster.write, cluster.deliver, cluster.deliver, cluster.random_evict,
                    lambda: cluster.random_read(view)])()
    cluster.drain()
    cluster.validate()
    return all(has(rig, Exchange) for rig in cluster.rigs)
