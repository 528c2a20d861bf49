"""The story before a violation: the last events, formatted when the story is read."""

from __future__ import annotations

import weakref

import numpy as np

from dataflow.engine_rig import Rig
from noria.core.batch import Batch
from noria.core.limits import STORY_ROWS
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.graph.story import Story
from noria.plan import mir
from noria.plan.view import ViewDef

TABLE = TableDef("t", (Column("a", INT), Column("b", INT)), table_id=1)


def rig() -> Rig:
    return Rig([TABLE], [ViewDef("v", mir.Base(TABLE), (0,), 2)])


def test_a_story_has_the_events_of_its_key_alone() -> None:
    r = rig()
    node, story = r.engine.graph.nodes[0], Story(r.engine.symbols, events=3)
    story("emits", 0, node.fields, (), Batch.from_rows([(9, 1)], 2, [1]))
    story("misses", 0, node.fields, (0,), np.array([[1]]))
    story("emits", 0, node.fields, (), Batch.from_rows([(1, 2), (2, 2)], 2, [1, -1]))
    story("evicts", 0, node.fields, (0,), np.array([[12]]))
    assert story.describe("(1)").split("\n") == ["n0[0] misses (1)", "n0 emits +1(1, 2) -1(2, 2)"]
    assert "(9, 1)" not in story.describe()


def test_an_engine_has_its_story() -> None:
    r = rig()
    r.engine.read("v", np.array([[7]]))
    r.write([("t", (7, 1), 1)])
    events = r.engine.story.describe().split("\n")
    assert any(line.endswith(" misses (7)") for line in events) and events[-1].endswith(" emits +1(7, 1)")


def test_large_deltas_are_recorded_by_their_size_and_not_held() -> None:
    r = rig()
    story = Story(r.engine.symbols)
    story("emits", 0, r.engine.graph.nodes[0].fields, (), Batch.from_rows([(i, i) for i in range(STORY_ROWS + 1)], 2))
    large = np.zeros((2, 100_000), np.int64)
    story("emits", 0, r.engine.graph.nodes[0].fields, (), Batch(large[:, :1], np.ones(1, np.int64)))
    assert story.describe().split("\n") == [f"n0 emits {STORY_ROWS + 1} rows", "n0 emits +1(0, 0)"]
    assert story._events[-1][4] == (bytes(16), np.ones(1, np.int64).tobytes()), "the few rows, not the array"


def test_an_event_that_can_no_longer_be_shown_is_reported() -> None:
    table = TableDef("s", (Column("a", TEXT),), table_id=2)
    r = Rig([table], [ViewDef("v", mir.Base(table), (0,), 1)])
    story = Story(r.engine.symbols)
    story("emits", 0, r.engine.graph.nodes[0].fields, (), Batch.from_rows([(2**40,)], 1, [1]))  # the id of no string
    assert story.describe().startswith("n0 emits what can no longer be shown: ")


def test_a_story_refers_to_no_node_of_a_dropped_view() -> None:
    r = rig()
    r.engine.trace = None  # as it is while serving
    r.engine.read("v", np.array([[7]]))
    r.write([("t", (7, 1), 1)])
    reader = weakref.ref(r.engine.readers["v"])
    r.drop_view("v")
    assert reader() is None
    assert " misses (7)" in r.engine.story.describe()
