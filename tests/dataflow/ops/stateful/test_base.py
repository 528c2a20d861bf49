"""Base: a table's rows by any of its columns."""

from __future__ import annotations

import random

from dataflow.ops.played import plays
from noria.dataflow.ops.stateful.base import Base
from noria.plan import mir


def table(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir:
    return rng.choice(nodes)


def test_rows_are_those_of_the_reference() -> None:
    plays(table, Base)
