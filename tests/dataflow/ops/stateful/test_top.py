"""Top-k: rows of a group are read again only when too few are kept, and what is shown stays exact."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dataflow.engine_rig import Rig
from dataflow.ops.played import over_one, plays
from noria.core.types import INT, Column, TableDef
from noria.dataflow.graph.story import format_event
from noria.dataflow.inspect.validate import validate
from noria.dataflow.ops.stateful.top import Top
from noria.plan import mir
from noria.plan.view import ViewDef
from reference import random_plans

TABLE = TableDef("t", (Column("id", INT, False), Column("g", INT), Column("x", INT)), (0,), table_id=1)


def rig(group: tuple[int, ...], limit: int, offset: int = 0) -> Rig:
    plan = mir.TopK(mir.Base(TABLE), group, ((2, True),), limit, offset)
    return Rig([TABLE], [ViewDef("v", plan, group, plan.width)])


def shown(r: Rig, key: tuple[int, ...]) -> list[tuple[int, ...]]:
    rows, _ = r.engine.read("v", np.array([[k] for k in key], np.int64).reshape(len(key), 1))
    return sorted((row for row, w in zip(rows.rows(), rows.weights.tolist(), strict=True) for _ in range(w)),
                  key=lambda row: (-row[2], row))


@pytest.mark.parametrize("group", [(1,), ()])
def test_a_large_group_is_read_again_rarely(group: tuple[int, ...]) -> None:
    rng, r = random.Random(5), rig(group, 20)
    rows = sorted(((i, 1, rng.randrange(10_000)) for i in range(500)), key=lambda row: (-row[2], row))
    r.write([("t", row, 1) for row in rows])
    key = (1,) * len(group)
    assert shown(r, key) == rows[:20]
    events: list[str] = []
    r.engine.trace = lambda *event: events.append(format_event(r.engine.symbols, *event))
    for _ in range(200):  # the first row is always deleted
        r.write([("t", rows.pop(0), -1)])
    r.write([("t", (1_000, 1, -1), 1)])
    assert shown(r, key) == rows[:20]
    assert 5 <= sum("again" in event for event in events) <= 200 // 20 + 1
    validate(r.engine)


def test_a_row_behind_the_kept_ones_emits_no_delta() -> None:
    r = rig((1,), 2)
    r.write([("t", (i, 1, 100 - i), 1) for i in range(50)])
    assert shown(r, (1,)) == [(0, 1, 100), (1, 1, 99)]
    top = next(n for n in r.engine.graph.nodes if n.op.describe().startswith("top"))
    before = top.stats.rows_out, len(top.stored)
    r.write([("t", (60, 1, 0), 1), ("t", (49, 1, 51), -1)])
    assert (top.stats.rows_out, len(top.stored)) == before
    assert before[1] < 10


def test_ties_at_the_end_are_broken_by_all_columns_and_offset_skips() -> None:
    r = rig((1,), 2, 1)
    r.write([("t", (i, 1, 7), 1) for i in (3, 1, 2, 5)])
    assert shown(r, (1,)) == [(2, 1, 7), (3, 1, 7)]
    r.write([("t", (1, 1, 7), -1)])
    assert shown(r, (1,)) == [(3, 1, 7), (5, 1, 7)]


def test_first_rows_are_those_of_the_reference() -> None:
    plays(over_one(random_plans.top), Top)
