"""Keep: an index by columns that no other state has, such as the computed key of a left join's right side."""

from __future__ import annotations

import random

from dataflow.ops.played import plays
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import BIGINT
from noria.dataflow.ops.stateful.keep import Keep
from noria.plan import mir


def joined_by_a_sum(rng: random.Random, nodes: list[mir.Mir]) -> mir.Mir:
    left, right = rng.choice(nodes), rng.choice(nodes)
    f = right.fields[0]
    key = functions.call("add", col(0, f.type, f.nullable), const(rng.randrange(3), BIGINT))
    return mir.Join(left, mir.Project(right, (key, col(0, f.type, f.nullable)), ("k", "id")), ((0, 0),), True)


def test_a_left_join_by_a_computed_key_is_that_of_the_reference() -> None:
    plays(joined_by_a_sum, Keep)
