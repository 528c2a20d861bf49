"""Project: expressions of a row, with duplicates kept."""

from __future__ import annotations

from dataflow.ops.played import over_one, plays
from noria.dataflow.ops.stateless.project import Project
from reference import random_plans


def test_expressions_are_those_of_the_reference() -> None:
    plays(over_one(random_plans.project), Project)
