"""Tests one operator over random tables: writes, reads, evictions and changes of the program.  The states are validated
after each step; in the end each view equals the slow reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from dataflow.engine_rig import Rig
from dataflow.random_play import play, published
from noria.core.types import TableDef
from noria.dataflow.graph.nodes import Operator
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from reference import random_plans

SEEDS, STEPS = 12, 30
Make = Callable[[random.Random, list[mir.Mir]], mir.Mir | None]


def over_one(make: Callable[[random.Random, mir.Mir], mir.Mir | None]) -> Make:
    """A plan over one table, or over a join of two."""
    def over(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir | None:
        below = rng.choice(nodes)
        if rng.random() < 0.3:
            below = random_plans.join(rng, below, rng.choice(nodes)) or below
        return make(rng, below)

    return over


def drawn(rng: random.Random, make: Make) -> tuple[list[TableDef], mir.Mir]:
    """Draw tables until some have the columns that the plan needs."""
    while True:
        tables = random_plans.tables(rng)
        for _ in range(10):
            plan = make(rng, [mir.Base(t) for t in tables])
            if plan is not None:
                return tables, plan


def plays(make: Make, operator: type[Operator], steps: int = STEPS) -> None:
    """Play a view of such a plan for each seed, by a random key.  Fails if no graph has the operator."""
    assert sum(has(rig, operator) for rig in _played(make, steps)) > SEEDS // 2


def has(rig: Rig, operator: type[Operator]) -> bool:
    return any(isinstance(n.op, operator) for n in rig.engine.graph.nodes)


def _played(make: Make, steps: int) -> Iterator[Rig]:
    for seed in range(SEEDS):
        rng = random.Random(seed)
        tables, plan = drawn(rng, make)
        key = tuple(rng.sample(range(plan.width), min(plan.width, rng.choice([0, 1, 1, 2]))))
        view = ViewDef("v", plan, key, plan.width)
        rig = Rig(tables, [view], published, SymbolTable(None))
        try:
            play(rig, rng, [view], None, steps)
        except Exception as e:
            raise AssertionError(f"seed {seed}: {type(e).__name__}: {e}\n{plan}\n{rig.story.describe()[-4000:]}") from e
        yield rig
