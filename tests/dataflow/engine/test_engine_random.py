"""Random graphs, writes, reads, evictions and migrations, some cancelled in their midst; after every step all states
equal a recomputation, and in the end every view equals a slow reference that shares no code with the engine.

    make soak                                                                  a night's length, of new seeds
    NORIA_ENGINE_SEEDS=5000 pytest tests/dataflow/engine/test_engine_random.py        a longer run
"""

from __future__ import annotations

import os
import random

import pytest

from dataflow.engine_rig import Rig
from dataflow.random_play import play, published
from noria.dataflow.ops.stateful import gate
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from reference import random_plans
from reference.table_views import TableViews
from seeds import cases

SEEDS = int(os.environ.get("NORIA_ENGINE_SEEDS") or cases(120))
FIRST = int(os.environ.get("NORIA_ENGINE_FIRST", "0"))


def run(seed: int, steps: int = 40, counted: bool = False) -> None:
    """counted: a late view counts the rows of another view, which must become full therefore."""
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = random_plans.views(rng, tables)
    late = views.pop() if len(views) > 1 and rng.random() < 0.5 else None
    if counted:
        plan = rng.choice(views).plan
        late = ViewDef("late", mir.Aggregate(plan, (), (mir.agg("count_star", None, plan.fields),), ("n",)), (), 1)
    sliced = random.Random(seed + 1) if seed % 2 else None
    rig = Rig(tables, [], *((TableViews, None) if seed % 3 == 0 else (published, SymbolTable(None))), sliced)
    try:
        for _ in range(12 if sliced else 0):
            rig.random_write(rng)
        for view in views:
            rig.add_view(view)
        play(rig, rng, views, late, steps)
    except Exception as e:
        raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\nthe story:\n{rig.story.describe()[-4000:]}") from e


@pytest.mark.parametrize("block", range(4))
@pytest.mark.usefixtures("small_parts")
def test_states_become_full_while_they_are_in_use(block: int) -> None:
    for seed in range(block * SEEDS // 4, (block + 1) * SEEDS // 4):
        run(FIRST + 2 * seed + 1, counted=True)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small states are built in several slices, too."""
    monkeypatch.setattr(gate, "PART_ROWS", 1)


@pytest.mark.parametrize("block", range(8))
@pytest.mark.usefixtures("small_parts")
def test_every_state_equals_a_recomputation(block: int) -> None:
    for seed in range(block * SEEDS // 8, (block + 1) * SEEDS // 8):
        run(FIRST + seed)
