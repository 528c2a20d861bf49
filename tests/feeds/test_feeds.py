"""Feeds: all rows and then the changes are, at every watermark, what the query gives; whoever dies on the way."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client.api import Changes, Database
from noria.core.errors import SqlError
from noria.feeds import reader, writer
from noria.feeds.layout import Watermark, feed_path
from noria.feeds.reader import ChangesExpired, FeedFile

Rows = Counter[tuple[Any, ...]]

QUERIES = {
    "copy": "SELECT id, author, title FROM stories",
    "counted": "SELECT story, COUNT(*) AS n, SUM(weight) AS s FROM votes GROUP BY story",
    "joined": "SELECT s.id, s.title, v.weight FROM stories s LEFT JOIN votes v ON v.story = s.id",
    "top": "SELECT id, title FROM stories ORDER BY title DESC, id LIMIT 3",
    "bag": "SELECT author FROM stories",
}


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        opened.sql("CREATE TABLE stories (id INT PRIMARY KEY, author VARCHAR(20), title VARCHAR(20))")
        opened.sql("CREATE TABLE votes (story INT, user INT, weight DECIMAL(6, 2), PRIMARY KEY (story, user))")
        yield opened


def applied(rows: Rows, changes: Changes) -> None:
    for sign, row in changes:
        rows[row] += sign
        assert rows[row] >= 0, f"{row} has gone more often than it came"
        if not rows[row]:
            del rows[row]


def until_whole(changes: Iterator[Changes]) -> tuple[Rows, str]:
    rows: Rows = Counter()
    for some in changes:
        if some.kind == "whole":
            assert some.watermark is not None
            return rows, some.watermark
        applied(rows, some)
    raise AssertionError("the feed has ended")


def test_rows_then_changes(db: Database) -> None:
    db.sql("INSERT INTO stories VALUES (1, 'ann', 'a'), (2, 'bob', NULL)")
    changes = db.table("stories").changes()
    rows, _ = until_whole(changes)
    assert rows == Counter([(1, "ann", "a"), (2, "bob", None)])
    db.sql("UPDATE stories SET title = 'b' WHERE id = 2")
    told = next(changes)
    assert (told.kind, sorted(told)) == ("changes", [(-1, (2, "bob", None)), (1, (2, "bob", "b"))])
    assert told.watermark is not None
    db.sql("DELETE FROM stories WHERE id = 1")
    assert list(next(db.table("stories").changes(told.watermark))) == [(-1, (1, "ann", "a"))]


def test_a_statement_is_one_tick(db: Database) -> None:
    changes = db.table("stories").changes("now")
    db.sql("CREATE FEED f AS SELECT COUNT(*) FROM stories")
    db.table("stories").insert([(i, "x", "y") for i in range(300)])
    told = next(changes)
    assert len(list(told)) == 300
    assert told.watermark is not None


def test_a_view_with_parameters_is_told_whole(db: Database) -> None:
    db.sql("CREATE VIEW by_author AS SELECT id, title FROM stories WHERE author = ?")
    db.sql("INSERT INTO stories VALUES (1, 'ann', 'a'), (2, 'bob', 'b')")
    rows, _ = until_whole(db.view("by_author").changes())
    assert sum(rows.values()) == 2


@pytest.mark.parametrize("statement, code", [
    ("CREATE FEED f AS SELECT id FROM stories WHERE id = ?", 1235),
    ("DROP FEED stories", 1051),
    ("DROP VIEW of_stories", 1347),
    ("DROP FEED a_view", 1347),
    ("DROP TABLE stories", 3730),
    ("CREATE FEED of_stories AS SELECT id FROM stories", 1050),
    ("CREATE FEED f AS SELECT id FROM stories LIMIT 3 OFFSET 2", 1235),
])
def test_refusals(db: Database, statement: str, code: int) -> None:
    db.sql("CREATE VIEW a_view AS SELECT id FROM stories")
    db.sql("CREATE FEED of_stories AS SELECT id FROM stories")
    with pytest.raises(SqlError) as refused:
        db.sql(statement)
    assert refused.value.code == code, refused.value


def test_a_dropped_feed_leaves_no_file(db: Database, tmp_path: Path) -> None:
    next(db.table("stories").changes())
    assert list((tmp_path / "data" / "worker-0" / "feeds").iterdir())
    db.sql("DROP FEED `stories@changes`")
    assert not list((tmp_path / "data" / "worker-0" / "feeds").iterdir())
    db.sql("DROP TABLE stories")


def test_errors_of_values_are_null(db: Database) -> None:
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, n BIGINT)")
    db.sql("CREATE FEED f AS SELECT id, n * n AS square FROM t")
    db.sql("INSERT INTO t VALUES (1, 2), (2, 4000000000000000000)")
    rows, _ = until_whole(db.view("f").changes())
    assert rows == Counter([(1, 4), (2, None)])


def test_what_is_too_old_is_gone(db: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(writer, "FEED_KEPT_ROWS", 3)
    monkeypatch.setattr(writer, "FEED_LOOK_S", 0)
    _, start = until_whole(db.table("stories").changes())
    for i in range(6):
        db.sql("INSERT INTO stories VALUES (?, 'a', 'b')", [i])
    file = FeedFile(feed_path(tmp_path / "data" / "worker-0" / "feeds", "stories@changes"),
                    db.transport.program.view("stories@changes").plan.fields)
    waited = threading.Event()
    while (state := file.state()) is None or state.oldest.n == 0:  # until the worker had time for it
        waited.wait(0.01)
    with pytest.raises(SqlError) as gone:
        next(db.table("stories").changes(start))
    assert gone.value.code == 1236
    assert "since=start" in gone.value.message
    assert [r for b in file.changes(state.oldest) for r in b.column("id").to_pylist()] == list(range(state.oldest.n, 6))
    with pytest.raises(ChangesExpired):
        list(file.rows(Watermark(state.oldest.incarnation, 0)))
    with pytest.raises(ChangesExpired):
        list(file.rows(Watermark(state.oldest.incarnation, 99)))


def random_statement(rng: random.Random) -> str:
    story, user = rng.randrange(6), rng.randrange(3)
    text = rng.choice(["'a'", "'A'", "'é'", "NULL", "'x'"])
    return rng.choice([
        f"REPLACE INTO stories VALUES ({story}, {text}, {text})",
        f"INSERT IGNORE INTO stories VALUES ({story}, 'a', {text}), ({story + 1}, 'b', 'c')",
        f"DELETE FROM stories WHERE id = {story}",
        f"UPDATE stories SET title = {text} WHERE id > {story}",
        f"REPLACE INTO votes VALUES ({story}, {user}, {rng.randrange(1000) / 100})",
        f"DELETE FROM votes WHERE story = {story}",
        f"UPDATE votes SET weight = weight + 1 WHERE user = {user}",
    ])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("workers", [1, 2])
def test_at_every_watermark_it_is_the_query(tmp_path: Path, workers: int, seed: int, monkeypatch: pytest.MonkeyPatch
                                            ) -> None:
    """Under restarts, also such that nothing of the last ticks had reached the log; from every watermark on."""
    monkeypatch.setattr(writer, "FEED_SLICE_ROWS", 2)
    monkeypatch.setattr(reader, "FEED_PAGE_ROWS", 3)
    rng = random.Random(seed)
    seen: dict[str, list[tuple[Watermark, Rows]]] = {name: [] for name in QUERIES}
    for life in range(3):
        lost = life < 2 and rng.random() < 0.7
        with noria.open(tmp_path / "data", workers=workers) as db:
            if life == 0:
                db.sql("CREATE TABLE stories (id INT PRIMARY KEY, author VARCHAR(20), title VARCHAR(20))")
                db.sql("CREATE TABLE votes (story INT, user INT, weight DECIMAL(6, 2), PRIMARY KEY (story, user))")
                for _ in range(4):
                    db.sql(random_statement(rng))
                for name, query in QUERIES.items():
                    db.sql(f"CREATE FEED `{name}` AS {query}")
            files = {name: file_of(db, tmp_path, name) for name in QUERIES}
            for i in range(8):
                if i:
                    db.sql(random_statement(rng))
                for name, file in files.items():
                    at, rows = as_it_is(db, name, file)
                    seen[name].append((at, rows))
                    sums_up(file, rng.choice(seen[name]), (at, rows))
            if lost:
                with monkeypatch.context() as broken:
                    broken.setattr(writer.FeedWriter, "apply", lambda *_: None)
                    for _ in range(3):
                        db.sql(random_statement(rng))


def file_of(db: Database, tmp_path: Path, name: str) -> FeedFile:
    fields = db.transport.program.view(name).plan.fields
    return FeedFile(feed_path(tmp_path / "data" / "worker-0" / "feeds", name), fields)


def as_it_is(db: Database, name: str, file: FeedFile) -> tuple[Watermark, Rows]:
    """The newest watermark, as soon as it has what the query gives."""
    expected: Rows = Counter(db.sql(QUERIES[name]).rows)
    waited = threading.Event()
    for _ in range(1000):
        state = file.state()
        if state is not None and rows_at(file, state.newest) == expected:
            return state.newest, expected
        waited.wait(0.01)  # the worker looks through what it had after it came up
    raise AssertionError(f"{name}: {rows_at(file, state.newest) if state else None} is not {expected}")


def rows_at(file: FeedFile, at: Watermark) -> Rows:
    found: Rows = Counter()
    for batch in file.rows(at):
        applied(found, Changes("rows", batch, None))
    return found


def sums_up(file: FeedFile, then: tuple[Watermark, Rows], now: tuple[Watermark, Rows]) -> None:
    """From what was then, by the changes since, comes what is now; and what was then can still be had."""
    rows = Counter(then[1])
    for batch in file.changes(then[0], now[0]):
        for sign, row in Changes("changes", batch, None):
            rows[row] += sign
    assert {r: n for r, n in rows.items() if n} == dict(now[1])
    assert rows_at(file, then[0]) == then[1]


def test_a_full_disk_keeps_changes_in_memory(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = db.table("stories").changes()
    until_whole(changes)
    written = writer.FeedWriter._written

    def full(self: writer.FeedWriter, some: writer.Changes) -> None:
        raise writer.sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(writer.FeedWriter, "_written", full)
    db.sql("INSERT INTO stories VALUES (1, 'a', 'b')")
    monkeypatch.setattr(writer.FeedWriter, "_written", written)
    db.sql("INSERT INTO stories VALUES (2, 'a', 'b')")
    told = [row for some in islice(changes, 1) for _, row in some]
    assert sorted(told) == [(1, "a", "b"), (2, "a", "b")]


def test_feeds_are_shown_as_such(db: Database) -> None:
    """And to nobody who looks for what to select from, as tools for dumps and frameworks do."""
    db.sql("CREATE FEED f AS SELECT id FROM stories")
    assert [tuple(r[:2]) for r in db.sql("SHOW NORIA VIEWS").rows] == [("f", "feed")]
    assert "f" not in {r[0] for r in db.sql("SHOW TABLES").rows}
    assert db.sql("SELECT table_name FROM information_schema.views").rows == []
    assert "CREATE FEED f AS" in "\n".join(r[0] for r in db.sql("SHOW NORIA PROGRAM").rows)
