"""Filter: only rows whose predicate is true pass."""

from __future__ import annotations

import random

from dataflow.ops.played import over_one, plays
from noria.dataflow.ops.stateless.filter import Filter
from noria.plan import mir
from reference import random_plans


def filtered(rng: random.Random, below: mir.Mir) -> mir.Mir:
    return mir.Filter(below, random_plans.predicate(rng, below.fields))


def test_rows_are_those_of_the_reference() -> None:
    plays(over_one(filtered), Filter)
