"""Join: inner and left joins stay exact when both sides change in one tick."""

from __future__ import annotations

import random

import pytest

from dataflow.ops.played import plays
from noria.dataflow.ops.stateless.join import Join
from noria.plan import mir
from reference import random_plans


@pytest.mark.parametrize("outer", [False, True])
def test_pairs_are_those_of_the_reference(outer: bool) -> None:
    def joined(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir | None:
        plan = random_plans.join(rng, rng.choice(nodes), rng.choice(nodes))
        return plan if isinstance(plan, mir.Join) and plan.outer is outer else None

    plays(joined, Join)
