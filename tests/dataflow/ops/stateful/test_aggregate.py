"""Aggregate: groups with their sums, counts, minima and maxima stay exact."""

from __future__ import annotations

from dataflow.ops.played import over_one, plays
from noria.dataflow.ops.stateful.aggregate import Aggregate
from reference import random_plans


def test_groups_are_those_of_the_reference() -> None:
    plays(over_one(random_plans.aggregate), Aggregate)
