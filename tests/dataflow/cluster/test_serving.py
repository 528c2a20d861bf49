"""Rows that one worker serves to others.  All rows of an exchange are sent in chunks: the sender is a few slices ahead
of the receiver, and stops when nobody needs the rows.  Rows under keys are sent when they can be looked up."""

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
    """Two workers, each of which needs half of the other's rows. A slice is one row, and no message is delivered."""
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
    """Run up to `most` slices at a worker. Returns their number."""
    made = 0
    while two.rigs[w].engine.builds and made < most:
        two.rigs[w].slice()
        made += 1
    return made


def requested(two: Cluster) -> tuple[int, int]:
    """Deliver the first request. Returns the worker that sends the rows, and the one that receives them."""
    (of, to) = next((b, a) for (a, b), messages in two.channels.items() if messages)
    two.hand((to, of))
    return of, to


def test_a_sender_waits_for_its_receiver(two: Cluster) -> None:
    of, to = requested(two)
    assert slices(two, of, ROWS) < ROWS and 0 < chunk_count(two, of, to) <= AHEAD
    two.drain()
    two.validate()


def test_sending_ends_when_nobody_needs_the_rows(two: Cluster) -> None:
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
def test_rows_are_not_requested_by_columns_without_an_index(seed: int) -> None:
    """The first view looks rows of its exchange up by `a`, and pulls them by `b`; the second view pulls by `a`."""
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
