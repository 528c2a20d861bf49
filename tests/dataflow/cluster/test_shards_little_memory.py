"""Reads end even with very little memory: the keys for which a read waits are kept until it has run."""

from __future__ import annotations

import random

import pytest

from dataflow.simulator import Cluster
from noria.core.plain_symbols import PlainSymbols
from reference import random_plans
from reference.table_views import TableViews

ROUNDS = 1_000  # messages; at most 500 were seen


@pytest.mark.parametrize("block", range(4))
def test_all_evictable_keys_are_evicted_after_each_message(block: int) -> None:
    """Rows of one exchange were evicted before those of the next arrived: a read requested both for ever."""
    for seed in range(block * 8, (block + 1) * 8):
        rng = random.Random(seed)
        tables = random_plans.tables(rng)
        views = (random_plans.ways if seed % 2 else random_plans.views)(rng, tables)
        cluster = Cluster(tables, views, rng.choice([2, 3]), rng, TableViews, PlainSymbols)
        for _ in range(12):
            cluster.write()
        cluster.drain()
        for view in views:
            for _ in range(3):
                answered = list[bool]()
                rig = rng.choice(cluster.rigs)
                key = rig.random_key(rng, view)
                cluster.read(view, cluster.rigs[cluster.owner(view, rig, key)], cluster.across(view, rig, key),
                             lambda rows, ordinal, answered=answered: answered.append(True))
                for _ in range(ROUNDS):
                    cluster.deliver()
                    cluster.forget_all()
                    if answered:
                        break
                assert answered, f"seed {seed}: {view.name} was not answered in {ROUNDS} messages"
        cluster.drain()
        cluster.validate()
