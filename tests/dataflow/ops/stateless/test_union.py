"""Union: the rows of all inputs, duplicates kept, also of a relation with itself."""

from __future__ import annotations

import random

from dataflow.ops.played import plays
from noria.dataflow.ops.stateless.union import Union
from noria.plan import mir
from reference import random_plans


def united(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir | None:
    return random_plans.union(rng, rng.choice(nodes), rng.choice(nodes))


def test_rows_are_those_of_the_reference() -> None:
    plays(united, Union)
