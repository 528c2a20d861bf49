"""Nothing: rows of constants beside the rows of tables, in unions and joins."""

from __future__ import annotations

import random

from dataflow.ops.played import plays
from noria.core.expressions.expr import Const
from noria.core.types import INT
from noria.dataflow.ops.stateful.nothing import Nothing
from noria.plan import mir
from noria.plan.columns import cols_of
from noria.plan.constant_row import one_row
from reference import random_plans


def constants(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir | None:
    """A table with rows of constants, or joined with such."""
    below = rng.choice(nodes)
    columns = [c for c, f in enumerate(below.fields) if f.type == INT]
    if not columns:
        return None
    shown = tuple(cols_of(below)[c] for c in columns)
    names = tuple(below.fields[c].name for c in columns)
    rows: mir.Mir = mir.Project(below, shown, names)
    for _ in range(rng.randrange(1, 4)):
        values = tuple(Const(INT, True, rng.choice([None, 0, 1, 2])) for _ in columns)
        constant = mir.Project(one_row(), values, names)
        rows = mir.UnionAll(*rng.sample([rows, constant], 2))
    return rows if rng.random() < 0.5 else random_plans.join(rng, rows, rng.choice(nodes)) or mir.Distinct(rows)


def test_rows_are_those_of_the_reference() -> None:
    plays(constants, Nothing)
