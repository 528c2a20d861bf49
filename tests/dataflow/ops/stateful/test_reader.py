"""Reader: a view's rows by its key, and ranges of keys read for their first rows only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dataflow.engine_rig import Rig
from dataflow.ops.played import over_one, plays
from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.limits import MAX_INT, MIN_INT
from noria.core.types import BIGINT, INT, Column, Field, TableDef
from noria.dataflow.graph.published import Published
from noria.dataflow.ops.stateful.reader import Reader
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.memory.mapped import no_room

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


class FullView:
    """A view that has no space for rows."""

    full = False

    def __init__(self) -> None:
        self.ticks: list[tuple[str, int]] = []

    def begin_tick(self, tick: int) -> None:
        self.ticks.append(("begin", tick))

    def end_tick(self, tick: int) -> None:
        self.ticks.append(("end", tick))

    def fill(self, keys: Any, rows: Batch) -> None:
        raise no_room(OSError(28, "no space"), "view", 8)


def test_a_fill_without_space_ends_its_tick() -> None:
    view: Any = FullView()
    node: Any = SimpleNamespace(state=Published(view), stored=Published(view))
    reader, engine = Reader("v", (Field("a", BIGINT),), (0,), 1), SimpleNamespace(tick_number=7)
    keys = np.array([[1]], np.int64)
    with pytest.raises(SqlError, match="Disk full"):
        reader.fill(engine, node, (0,), keys, Batch.of(keys))
    assert view.ticks == [("begin", 7), ("end", 7)]
