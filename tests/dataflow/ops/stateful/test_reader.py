"""Reader: a view's rows by its key, and ranges of keys read for their first rows only."""

from __future__ import annotations

import pytest

from dataflow.engine_rig import Rig
from dataflow.ops.played import over_one, plays
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.types import INT, Column, TableDef
from noria.dataflow.ops.stateful.reader import Reader
from noria.plan import mir
from noria.plan.view import ViewDef

TABLE = TableDef("t", (Column("id", INT, False), Column("x", INT), Column("shown", INT)), (0,), table_id=1)


@pytest.mark.parametrize("descending", [False, True])
def test_ordinals_go_up_past_values_without_rows(descending: bool) -> None:
    plan = mir.Filter(mir.Base(TABLE), functions.call("eq", col(2, INT, True), const(1, INT)))
    r = Rig([TABLE], [ViewDef("v", plan, (1,), plan.width, ranged=True)])
    r.write([("t", (i, i, int(i in (0, 19))), 1) for i in range(20)])
    rows, ordinal = r.engine.read_between("v", MIN_INT, MAX_INT, 2, descending)
    assert rows.columns[1].tolist() == ([19, 0] if descending else [0, 19])
    assert (ordinal[1:] > ordinal[:-1]).all(), ordinal


def test_rows_by_any_key_are_those_of_the_reference() -> None:
    plays(over_one(lambda rng, below: below), Reader)
