"""What one worker gives others.  All rows of an exchange in pieces: whoever gives them is a few slices ahead of whoever
takes them, and stops when nobody wants them.  Rows under keys: when they can be looked up."""

from __future__ import annotations

import random

import pytest

from dataflow.simulator import Cluster
from noria.core.plain_symbols import PlainSymbols
from noria.dataflow.backfill.exchange_state import AHEAD
from noria.dataflow.messages.peer_messages import MoreChunks, RowsChunk
from reference.table_views import TableViews
from sql.catalogs import DictCatalog

TABLE = "CREATE TABLE votes (id INT PRIMARY KEY, story INT, user INT)"
VIEW = "CREATE VIEW by_story AS SELECT story, user, id FROM votes ORDER BY story"
ROWS = 400


@pytest.fixture
def two() -> Cluster:
    """Two workers with rows of which each needs half of the other's, one row in a slice, and nothing delivered."""
    catalog = DictCatalog()
    catalog.run(TABLE)
    (command,) = catalog.run(VIEW)
    made = Cluster(list(catalog.tables.values()), [], 2, random.Random(3), TableViews, PlainSymbols)
    for rig in made.rigs:
        rig.engine.builds.at_once_rows = 0
    for i in range(ROWS):
        made.insert("votes", (i, i % 50, i))
    made.add_view(command.view)
    return made


def chunk_count(two: Cluster, of: int, to: int) -> int:
    return sum(isinstance(m, RowsChunk) for m in two.channels[of, to])


def slices(two: Cluster, w: int, most: int) -> int:
    """Of so many slices those that could be made at a worker."""
    made = 0
    while two.rigs[w].engine.builds and made < most:
        two.rigs[w].slice()
        made += 1
    return made


def requested(two: Cluster) -> tuple[int, int]:
    """Who gives rows to whom, once the request for them has come."""
    (of, to) = next((b, a) for (a, b), messages in two.channels.items() if messages)
    two.hand((to, of))
    return of, to


def test_no_more_slices_than_somebody_takes(two: Cluster) -> None:
    of, to = requested(two)
    assert slices(two, of, ROWS) < ROWS and 0 < chunk_count(two, of, to) <= AHEAD
    two.drain()
    two.validate()


def test_what_nobody_wants_ends(two: Cluster) -> None:
    of, to = requested(two)
    slices(two, of, 2)
    rig = two.rigs[to]
    rig.drop_view("by_story")
    rig.settle()
    while two.channels[of, to]:
        two.hand((of, to))
    assert any(isinstance(m, MoreChunks) and not m.chunks for m in two.channels[to, of])
    while two.channels[to, of]:
        two.hand((to, of))
    assert not two.rigs[of].engine.builds.served or all(
        s.requester != to for s in two.rigs[of].engine.builds.served)


@pytest.mark.parametrize("seed", range(8))
def test_what_was_only_found_by_columns_is_not_asked_for_by_them_before_there_is_an_index(seed: int) -> None:
    """The first view finds rows of its exchange by `a`, and asks for them by `b`; the second one asks by `a`."""
    catalog = DictCatalog()
    catalog.run("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
    joined, by_a = (catalog.run(text)[0].view for text in (
        "CREATE VIEW joined AS SELECT t.id, t.a, t.b, o.id AS other FROM t JOIN t AS o ON t.a = o.id WHERE t.b = ?",
        "CREATE VIEW by_a AS SELECT id, a, b FROM t WHERE a = ?"))
    made = Cluster(list(catalog.tables.values()), [joined], 2, random.Random(seed), TableViews, PlainSymbols)
    for i in range(20):
        made.insert("t", (i, i % 3, i % 5))
    for rig in made.rigs:
        rig.engine.builds.at_once_rows = 0
    made.add_view(by_a)
    for _ in range(5):
        made.random_read(by_a)
    made.drain()
    made.validate()
