"""Gate: a state that is built in slices of one row is exact in the end, whatever is written between the slices."""

from __future__ import annotations

import random

import pytest

from dataflow.engine_rig import Rig
from dataflow.ops.played import drawn, over_one
from dataflow.random_play import compare_with_reference
from noria.dataflow.inspect.validate import validate
from noria.dataflow.ops.stateful import gate
from noria.plan.view import ViewDef
from reference import random_plans


@pytest.mark.parametrize("seed", range(12))
def test_writes_between_slices_are_neither_lost_nor_counted_twice(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "PART_ROWS", 1)
    rng = random.Random(seed)
    tables, plan = drawn(rng, over_one(random_plans.aggregate))
    rig = Rig(tables, [], sliced=rng)
    for _ in range(10):
        rig.random_write(rng)
    view = ViewDef("v", plan, (), plan.width)
    rig.add_view(view)
    while rig.engine.builds.states:
        rig.build_some()
        rig.random_write(rng)
        validate(rig.engine)
    assert rig.engine.ready("v")
    compare_with_reference(rig, view)
