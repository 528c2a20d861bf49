"""Window: a row's number and sums follow each change of its partition."""

from __future__ import annotations

from dataflow.ops.played import over_one, plays
from noria.dataflow.ops.stateless.window import Window
from reference import random_plans


def test_windows_are_those_of_the_reference() -> None:
    plays(over_one(random_plans.window), Window)
