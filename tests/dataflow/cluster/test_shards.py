"""Several workers have the same results as one: random programs, writes, reads, evictions and changes of the program,
under random schedules, some with lost workers, some with bulk loads, some with lost messages and little memory.
`make simulate` runs more.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from dataflow.random_schedules import run
from noria.core.types import TableDef
from reference import random_plans
from reference.join_chains import chains
from seeds import cases, each

SEEDS = int(os.environ.get("NORIA_SHARD_SEEDS") or cases(600))  # without and with lost workers
FIRST = int(os.environ.get("NORIA_SHARD_FIRST", "0"))


@pytest.mark.parametrize("crashes", [0.0, 0.04])
@pytest.mark.parametrize("block", range(4))
def test_every_state_equals_a_recomputation(block: int, crashes: float) -> None:
    each(range(FIRST + block * SEEDS // 4, FIRST + (block + 1) * SEEDS // 4), lambda seed: run(
        seed, crashes=crashes, fills=0.05 * (seed % 2)))


@pytest.mark.parametrize("crashes", [0.0, 0.02])
def test_messages_are_lost_and_memory_is_little(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(
        seed, crashes=crashes, cuts=0.06, fills=0.05 * (seed % 3 == 0),
        views_of=random_plans.ways if (seed - FIRST) % 2 else random_plans.views))


@pytest.mark.parametrize("crashes", [0.0, 0.02])
def test_states_that_derive_from_a_loaded_table_are_renewed_at_every_worker(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(seed, crashes=crashes, loads=0.06))


@pytest.mark.parametrize("crashes", [0.0, 0.04])
def test_joins_that_begin_alike_are_shared_among_workers(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 8), lambda seed: run(seed, crashes=crashes, views_of=chains))


@pytest.mark.parametrize("crashes", [0.0, 0.04])
def test_a_partial_state_of_one_view_must_be_full_for_another(crashes: float) -> None:
    each(range(FIRST, FIRST + SEEDS // 4), lambda seed: run(seed, crashes=crashes, views_of=random_plans.ways))


def test_a_state_that_is_replaced_while_stale_passes_on_the_difference() -> None:
    """A full state of an exchange is gathered once more for another index, while messages to it were lost."""
    run(4001665, crashes=0.02, cuts=0.06, views_of=random_plans.ways)


def test_equal_plans_over_other_tables_share_no_nodes() -> None:
    """The same plans over tables with other keys: in another database, or before a change."""
    def keyed_otherwise(rng: random.Random) -> list[TableDef]:
        return [replace(t, primary_key=() if t.primary_key else (0,)) for t in random_plans.tables(rng)]

    run(20020308, tables_of=keyed_otherwise)
    run(20020308)
