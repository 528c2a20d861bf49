"""One random schedule of several workers: writes, reads, evictions, losses and changes of the program between
messages."""

from __future__ import annotations

import random
from collections.abc import Callable

from dataflow.simulator import Cluster
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from reference import random_plans
from reference.table_views import TableViews


def run(seed: int, steps: int = 60, crashes: float = 0.0, loads: float = 0.0, evictions: float = 0.1,
        views_of: Callable[[random.Random, list[TableDef]], list[ViewDef]] = random_plans.views,
        cuts: float = 0.0, fills: float = 0.0,
        tables_of: Callable[[random.Random], list[TableDef]] = random_plans.tables) -> None:
    """Run one schedule. Shares of the steps: crashes lose a worker; loads add rows without deltas; evictions evict a
    key; cuts lose the messages of a channel, and as many steps evict for lack of memory; fills fill keys of a view
    before they are read."""
    rng = random.Random(seed)
    tables = tables_of(rng)
    views = views_of(rng, tables)
    workers = rng.choice([1, 2, 2, 3, 3, 4])
    late = [views.pop() for _ in range(rng.randrange(len(views)))]
    cluster = Cluster(tables, views, workers, rng, TableViews, PlainSymbols)
    try:
        for _ in range(steps):
            if crashes and rng.random() < crashes:
                cluster.crash()
            if cuts and rng.random() < cuts:
                cluster.cut_channel()
            if cuts and rng.random() < cuts:
                cluster.forget_bytes()
            if loads and rng.random() < loads and cluster.catching is None:
                cluster.load()
            x = rng.random()
            if rng.random() < 0.05:
                if late and rng.random() < 0.7:
                    views.append(late.pop())
                    cluster.add_view(views[-1])
                elif len(views) > 1:
                    cluster.drop_view(views.pop(0))
            if x < 0.2:
                if cluster.catching is None:
                    cluster.write()
                    if rng.random() < 0.3:
                        cluster.catch_up()
            elif x < 0.4:
                cluster.random_read(rng.choice(views))
                if rng.random() < 0.15 and cluster.catching is None:
                    cluster.one_shot(rng.choice([*views, *late]))
            elif x < 0.4 + evictions:
                cluster.random_evict()
            elif x < 0.4 + evictions + fills:
                name = rng.choice(views).name
                for rig in cluster.rigs:
                    rig.fill_ahead(rng, name)
            else:
                cluster.deliver()
            if rng.random() < 0.1:
                cluster.drain()
                cluster.validate()
        cluster.drain()
        cluster.validate()
    except Exception as e:
        stories = "\n".join(f"worker {r.worker}:\n{r.story.describe()[-3000:]}" for r in cluster.rigs)
        raise AssertionError(f"seed {seed}, {workers} workers: {type(e).__name__}: {e}\n{stories}") from e
