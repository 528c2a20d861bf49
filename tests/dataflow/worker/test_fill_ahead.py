"""A partial view that clients read is filled before they read its other keys."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dataflow.building import Building
from dataflow.three_workers import TABLES, WORKERS, Three
from dataflow.three_workers import VIEWS as THREE_VIEWS
from noria.core.limits import FILL_AHEAD_MISSES
from noria.core.statements import Insert
from noria.dataflow.engine import memory_limit
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.published import view_of
from noria.dataflow.inspect.render import explain
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.dataflow.worker import fill_ahead

STORIES, LIMIT = 500, 2**30
VIEWS = {
    "by_id": "SELECT s.id, s.author, COUNT(v.user) FROM stories s LEFT JOIN votes v ON v.story = s.id WHERE s.id = ?"
             " GROUP BY s.id, s.author",
    "by_author": "SELECT author, COUNT(*) FROM stories WHERE author = ? GROUP BY author",
    "by_text": "SELECT id, title FROM stories WHERE title = ?",
    "by_both": "SELECT id FROM stories WHERE author = ? AND title = ?",
    "of_all": "SELECT id, n FROM (SELECT id, author AS n FROM stories UNION ALL SELECT story, user FROM votes) t"
              " WHERE id = ?",
    "of_two": "SELECT s.id FROM stories s JOIN votes v ON v.story = s.id WHERE s.author = ? AND v.user = ?",
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Building]:
    made = Building(tmp_path)
    made.define("CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(20), KEY (author), KEY (title))")
    made.define("CREATE TABLE votes (story INT, user INT, PRIMARY KEY (story, user))")
    made.change(packets.Write((Insert("stories", (0, 1, 2), tuple(
        (i, i % 120 if i % 9 else None, f"Story {i % 150}" if i % 2 else f"STORY {i % 150}")
        for i in range(STORIES))),)))
    made.change(packets.Write((Insert("votes", (0, 1), tuple(
        (i, u) for i in range(STORIES + 20) for u in range(i % 4))),)))
    made.worker.fill_ahead.limit = LIMIT
    yield made
    made.worker.close()


def miss(db: Building, view: str, times: int = FILL_AHEAD_MISSES) -> None:
    """Read keys that no row has."""
    kinds = {"by_text": ("nothing",), "by_both": (-1, "nothing"), "of_two": (-1, -1)}
    for i in range(times):
        key: tuple[Any, ...] = kinds.get(view, (-1 - i,))
        db.all_of(view, key)


def present(db: Building, view: str) -> int:
    return view_of(db.worker.engine.readers[view]).present_count()


KEYS = {"by_id": STORIES, "by_author": 120, "by_text": 150, "by_both": None, "of_all": STORIES + 15}


@pytest.mark.parametrize("view", KEYS)
def test_every_key_of_the_tables_is_filled(db: Building, view: str) -> None:
    db.define(f"CREATE VIEW {view} AS {VIEWS[view]}")
    miss(db, view, FILL_AHEAD_MISSES - 1)
    db.idle()
    engine, before = db.worker.engine, present(db, view)
    assert before <= FILL_AHEAD_MISSES
    miss(db, view, 1)
    misses = [n.stats.misses for n in engine.graph.nodes]
    db.idle()
    assert [n.stats.misses for n in engine.graph.nodes] == misses, "no read has missed"
    if KEYS[view] is not None:
        assert KEYS[view] - 1 <= present(db, view) - before <= KEYS[view]
    validate(engine)
    assert "100 % filled beforehand" in explain(engine, view)
    keys: dict[str, list[tuple[Any, ...]]] = {
        "by_text": [(f"story {i}",) for i in range(150)],
        "by_both": [(i, f"story {i}") for i in range(120) if i % 9]}
    found = Counter[tuple[Any, ...]]()
    for key in keys.get(view, [(i,) for i in range(1, 100) if i % 9]):
        found += db.all_of(view, key)
    assert found and [n.stats.misses for n in engine.graph.nodes] == misses


def test_a_key_of_two_tables_is_not_guessed(db: Building) -> None:
    db.define(f"CREATE VIEW of_two AS {VIEWS['of_two']}")
    miss(db, "of_two")
    db.idle()
    assert present(db, "of_two") == 1


def test_nothing_is_filled_where_memory_is_short(db: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    db.define(f"CREATE VIEW by_id AS {VIEWS['by_id']}")
    used = iter([0, 0])  # it is enough for the beginning and one slice
    monkeypatch.setattr(memory_limit, "memory", lambda engine: next(used, LIMIT))
    db.worker.fill_ahead.rows = 10
    miss(db, "by_id")
    db.idle()
    assert present(db, "by_id") == FILL_AHEAD_MISSES + 10
    assert "2 % filled beforehand" in explain(db.worker.engine, "by_id")
    miss(db, "by_id")
    assert not db.worker.fill_ahead.has_work()
    validate(db.worker.engine)


def test_a_key_of_very_many_rows_is_left_to_its_readers(db: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    db.define(f"CREATE VIEW by_author AS {VIEWS['by_author']}")
    db.change(packets.Write((Insert("stories", (0, 1, 2), tuple((i, 7, "") for i in range(1000, 1100))),)))
    monkeypatch.setattr(fill_ahead, "READ_ROWS", 50)
    tried = Counter[int]()
    fill = Engine.fill_keys

    def counted(engine: Engine, view: str, keys: Any) -> None:
        tried.update(keys[0].tolist())
        fill(engine, view, keys)

    monkeypatch.setattr(Engine, "fill_keys", counted)
    miss(db, "by_author")
    db.idle()
    assert 0 < tried[7] <= 10, "it is tried once, with ever fewer other keys"
    view = view_of(db.worker.engine.readers["by_author"])
    keys = set(view.present()[0].tolist())
    assert keys >= {i for i in range(120) if any(j % 9 for j in range(i, STORIES, 120))} - {7} and 7 not in keys
    validate(db.worker.engine)


def test_keys_that_were_lost_are_filled_again(db: Building) -> None:
    db.define(f"CREATE VIEW by_id AS {VIEWS['by_id']}")
    miss(db, "by_id")
    db.idle()
    full = present(db, "by_id")
    miss(db, "by_id", 3 * FILL_AHEAD_MISSES)  # of keys without rows: nothing is scanned for these again
    assert not db.worker.fill_ahead.has_work() or present(db, "by_id") > full
    db.worker.engine.forget_partial(ancestors(db.worker.engine.readers["by_id"]))
    miss(db, "by_id")
    db.idle()
    assert present(db, "by_id") >= STORIES
    validate(db.worker.engine)


def test_a_defect_ends_only_the_filling(db: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    db.define(f"CREATE VIEW by_id AS {VIEWS['by_id']}")
    miss(db, "by_id")
    fill = Engine.fill_keys

    def breaks(engine: Engine, view: str, keys: Any) -> None:
        if keys.shape[1] > 1:
            raise TypeError("a defect")
        fill(engine, view, keys)

    monkeypatch.setattr(Engine, "fill_keys", breaks)
    db.idle()
    assert db.worker.stats()["misses"] and not db.worker.fill_ahead.has_work()
    assert db.all_of("by_id", (5,)) == {(5, 5, 1): 1}
    validate(db.worker.engine)


def test_slices_are_small_at_first_and_between_packets(db: Building) -> None:
    db.define(f"CREATE VIEW by_id AS {VIEWS['by_id']}")
    miss(db, "by_id")  # each in a step of its own
    assert FILL_AHEAD_MISSES < present(db, "by_id") <= FILL_AHEAD_MISSES + fill_ahead.FIRST_ROWS
    validate(db.worker.engine)


def test_a_key_that_takes_too_long_is_left_to_its_readers(db: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this worker advances by a millisecond each time it is read."""
    db.define(f"CREATE VIEW by_id AS {VIEWS['by_id']}")
    monkeypatch.setattr(fill_ahead, "READ_MS", 1)
    monkeypatch.setattr(fill_ahead, "MOST_LARGE", 20)
    miss(db, "by_id")
    db.idle()
    assert present(db, "by_id") == FILL_AHEAD_MISSES and not db.worker.fill_ahead.has_work()
    assert db.worker.engine.limits is None
    validate(db.worker.engine)


def test_a_table_that_was_renamed_is_scanned_by_its_new_name(db: Building) -> None:
    db.define(f"CREATE VIEW by_author AS {VIEWS['by_author']}")
    stories = db.store.tables()["stories"]
    renamed = replace(stories, name="posts")
    assert db.change(packets.Migrate((packets.AlterTable(renamed),), ())).error is None
    miss(db, "by_author")
    db.idle()
    assert present(db, "by_author") >= FILL_AHEAD_MISSES + 119
    validate(db.worker.engine)


@pytest.mark.parametrize("seed", range(3))
def test_each_of_three_workers_fills_the_keys_that_it_owns(
        tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the primary key, by a column of a table, and by a column whose rows of another table are elsewhere."""
    monkeypatch.setattr(fill_ahead, "FILL_AHEAD_MISSES", 5)
    three, users = Three(tmp_path, random.Random(seed)), 40
    truth = sqlite3.connect(":memory:")
    for text in TABLES:
        three.define(text)
        truth.execute(text)
    for name, text in THREE_VIEWS.items():
        three.define(f"CREATE VIEW {name} AS {text.format('?')}")
    rows: dict[str, list[tuple[Any, ...]]] = {
        "stories": [(i, i % users, f"story {i}") for i in range(300)],
        "votes": [(i, i * 7 % 400, i % users) for i in range(600)]}
    for table, some in rows.items():
        truth.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", some)
        for w in range(WORKERS):
            mine = tuple(row for row in some if three.owner(row[0]) == w)
            three.change(w, packets.Write((Insert(table, (0, 1, 2), mine),)))
    three.rest()
    for worker in three.workers:
        worker.fill_ahead.limit = LIMIT
    for name in THREE_VIEWS:
        for key in range(-WORKERS * 10, 0):
            three.read(name, key)
        three.rest()
    while any(worker.fill_ahead.has_work() for worker in three.workers):
        three.rest()
    for name, keys in (("counts", 400), ("karma", users), ("best", users), ("voters", users)):
        present = [key for worker in three.workers
                   for key in view_of(worker.engine.readers[name]).present()[0].tolist() if key >= 0]
        assert sorted(present) == list(range(keys))
        for key in present[::7]:
            rows_of = three.replies[three.read(name, key)].rows.to_pylist()
            wanted = Counter(truth.execute(THREE_VIEWS[name].format(key)).fetchall())
            assert Counter(tuple(r.values())[:-1] for r in rows_of) == wanted
    for worker in three.workers:
        validate(worker.engine)
        worker.close()


def test_of_a_join_the_smaller_side_is_scanned(db: Building) -> None:
    """Its votes repeat a story's key. A story without votes is filled, too: it has no rows."""
    db.define("CREATE VIEW counted AS SELECT s.id, s.author, n FROM stories s JOIN "
              "(SELECT story, COUNT(*) AS n FROM votes GROUP BY story) c ON c.story = s.id WHERE s.id = ?")
    db.change(packets.Write((Insert("votes", (0, 1), tuple((1, u) for u in range(10, 1_500))),)))
    miss(db, "counted")
    db.idle()
    assert present(db, "counted") == FILL_AHEAD_MISSES + STORIES
    validate(db.worker.engine)
    for i in range(STORIES + 20):
        votes = i % 4 + (1_490 if i == 1 else 0)
        author = i % 120 if i % 9 else None
        assert db.all_of("counted", (i,)) == (Counter({(i, author, votes): 1}) if votes and i < STORIES else Counter())
