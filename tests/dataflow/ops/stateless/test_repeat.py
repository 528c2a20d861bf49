"""Repeat: each row as often as the value of its count column, also when that column changes."""

from __future__ import annotations

import random

from dataflow.ops.played import over_one, plays
from noria.core.types import INT
from noria.dataflow.ops.stateless.repeat import Repeat
from noria.plan import mir


def repeated(rng: random.Random, below: mir.Mir) -> mir.Mir:
    return mir.Repeat(below, rng.choice([c for c, f in enumerate(below.fields) if f.type == INT]))


def test_rows_are_those_of_the_reference() -> None:
    plays(over_one(repeated), Repeat)
