"""Several workers give what one gives: random programs, writes, reads, evictions and changes of the program, under
random schedules, some with workers that are lost, some with bulk loads, some with messages that are lost and little
memory.  `make simulate` runs more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from dataflow.simulator import Cluster
from dataflow.test_reuse import chains
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from reference import random_plans
from reference.table_views import TableViews
from seeds import each

SEEDS = int(os.environ.get("NORIA_SHARD_SEEDS", "700"))  # without and with lost workers
FIRST = int(os.environ.get("NORIA_SHARD_FIRST", "0"))


def run(seed: int, steps: int = 60, crashes: float = 0.0, loads: float = 0.0, evictions: float = 0.1,
        views_of: Callable[[random.Random, list[TableDef]], list[ViewDef]] = random_plans.views,
        cuts: float = 0.0, tables_of: Callable[[random.Random], list[TableDef]] = random_plans.tables) -> None:
    """crashes: of the steps, how many lose a worker; loads: how many load rows beside the states; evictions: how many
    evict a key; cuts: how many lose messages with their channel, and as many evict for want of memory."""
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
                    cluster.once(rng.choice([*views, *late]))
            elif x < 0.4 + evictions:
                cluster.random_evict()
            else:
                cluster.deliver()
            if rng.random() < 0.1:
                cluster.drain()
                cluster.validate()
        cluster.drain()
        cluster.validate()
    except Exception as e:
        stories = "\n".join(f"worker {r.worker}:\n{r.story.tell()[-3000:]}" for r in cluster.rigs)
        raise AssertionError(f"seed {seed}, {workers} workers: {type(e).__name__}: {e}\n{stories}") from e


@pytest.mark.parametrize("crashes", [0.0, 0.04])
@pytest.mark.parametrize("block", range(4))
def test_every_state_is_what_a_recomputation_gives(block: int, crashes: float) -> None:
    each(range(FIRST + block * SEEDS // 4, FIRST + (block + 1) * SEEDS // 4), lambda seed: run(seed, crashes=crashes))


@pytest.mark.parametrize("crashes", [0.0, 0.02])
def test_messages_are_lost_and_memory_is_little(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(
        seed, crashes=crashes, cuts=0.06, views_of=random_plans.ways if (seed - FIRST) % 2 else random_plans.views))


@pytest.mark.parametrize("crashes", [0.0, 0.02])
def test_loads_reach_what_derives_from_them_at_every_worker(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(seed, crashes=crashes, loads=0.06))


@pytest.mark.parametrize("crashes", [0.0, 0.04])
def test_joins_that_begin_alike_are_shared_among_workers(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(seed, crashes=crashes, views_of=chains))


@pytest.mark.parametrize("crashes", [0.0, 0.04])
def test_what_one_view_has_in_part_another_one_wants_whole(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 4), lambda seed: run(seed, crashes=crashes, views_of=random_plans.ways))


def test_a_state_that_is_replaced_while_it_is_stale_tells_below_what_differs() -> None:
    """A full state of an exchange is gathered once more for another index, while messages to it were lost."""
    run(4001665, crashes=0.02, cuts=0.06, views_of=random_plans.ways)


def test_what_was_made_of_a_plan_is_of_its_own_tables() -> None:
    """The same plans over tables that are keyed otherwise: in another database, or before a change."""
    def keyed_otherwise(rng: random.Random) -> list[TableDef]:
        return [replace(t, primary_key=() if t.primary_key else (0,)) for t in random_plans.tables(rng)]

    run(20020308, tables_of=keyed_otherwise)
    run(20020308)
