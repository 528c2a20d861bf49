"""SELECTs of the first rows of all that are no views: read from an index's end where there is one, and always right."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import noria
from noria.client.api import Database
from seeds import seed

TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, a INT, at INT NOT NULL, n INT, x DOUBLE NOT NULL, d INT NOT NULL)",
          "CREATE TABLE u (id INT PRIMARY KEY, g INT NOT NULL)")
INDEXES = ("CREATE INDEX by_at ON p (at)", "CREATE INDEX by_n ON p (n, at)", "CREATE INDEX by_x ON p (x)",
           "CREATE INDEX by_g ON u (g)")
ROWS = 900
FROM = ("p", "p JOIN u ON u.id = p.a", "p LEFT JOIN u ON u.id = p.a", "p JOIN p q ON q.id = p.a")
INDEXED = ("p.id", "p.at", "p.n", "p.x")


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Database, sqlite3.Connection]]:
    monkeypatch.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", 400)
    chance = random.Random(seed("NORIA_IN_ORDER_SEED", 1))
    p = [(i, chance.choice((None, *range(40))), chance.randrange(60), chance.choice((None, None, *range(30))),
          chance.choice((-1.5, 0.0, 0.25, 7e9)) * chance.randrange(9), chance.randrange(5)) for i in range(ROWS)]
    u = [(i, i % 7) for i in range(0, 40, 2)]
    with noria.open(tmp_path / "data") as db, sqlite3.connect(":memory:") as other:
        db.transport.executor.program.adhoc_views.policy._one_shots = 10**6
        for text in TABLES:
            db.sql(text)
            other.execute(text)
        for name, rows in (("p", p), ("u", u)):
            db.table(name).insert(rows)
            other.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        for text in INDEXES:
            db.sql(text)
        yield db, other


def adhoc(db: Database) -> int:
    return len(list(db.transport.executor.program.adhoc()))


@pytest.mark.one_worker("several gather all rows")
def test_few_rows_are_read(both: tuple[Database, sqlite3.Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    # What reads more than 400 rows is a view.
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.ONE_SHOT_SCAN_ROWS", 0)
    db, other = both
    for by in ("p.id", "p.id DESC", "p.at", "p.at DESC", "p.n DESC", "p.x DESC, p.id"):
        for source in FROM[:3]:
            text = f"SELECT p.id, p.at, p.n, p.x FROM {source} ORDER BY {by}{'' if 'id' in by else ', p.id'} LIMIT 3"
            assert db.sql(text).rows == other.execute(text).fetchall(), text
    assert not adhoc(db), "none of them reads a table, nor becomes a view"
    db.sql("SELECT id FROM p ORDER BY n LIMIT 3")
    assert adhoc(db) == 1, "NULLs come first, which no range of an index has"


def test_random_ones(both: tuple[Database, sqlite3.Connection]) -> None:
    db, other = both
    chance = random.Random(seed("NORIA_IN_ORDER_SEED", 1) + 1)
    for n in range(150):
        source = chance.choice(FROM)
        first = chance.choice((*INDEXED, "p.d", *(("u.g",) if "u" in source.split() else ())))
        order = ", ".join(f"{c}{chance.choice(('', ' DESC'))}" for c in dict.fromkeys((first, "p.d", "p.id")))
        where = chance.choice(("", f"WHERE p.d = {n % 5}", f"WHERE p.at > {n % 70}", "WHERE p.n IS NOT NULL"))
        limit, offset = chance.choice((1, 2, 7, 40)), chance.choice((0, 0, 1, 11, 890))
        text = (f"SELECT p.id, p.n, p.x, {first} AS f FROM {source} {where} ORDER BY {order} "
                f"LIMIT {limit} OFFSET {offset}")
        assert db.sql(text).rows == other.execute(text).fetchall(), text
        if n % 10 == 0:
            for text in (f"DELETE FROM p WHERE id = {chance.randrange(ROWS)}",
                         f"REPLACE INTO p VALUES ({chance.randrange(ROWS)}, {n % 40}, {n % 61}, NULL, 0.5, 1)"):
                db.sql(text)
                other.execute(text)


CONDITIONS = ("p.id BETWEEN {0} AND {1}", "p.id >= {0} AND p.id < {1}", "p.at > {0} AND p.at <= {1}", "{1} > p.at",
              "p.n = {0}", "p.id IN ({0}, {1}, 77)", "p.at IN ({0}, {1}) AND p.d > 1", "p.x BETWEEN 0.25 AND {1}",
              "p.n > {0} OR p.at = 3",
              "p.id = {0} AND p.at = {1}", "p.n BETWEEN {1} AND {0}", "p.id < {0} AND p.a IS NOT NULL")


@pytest.mark.one_worker("several gather all rows")
def test_a_condition_on_an_index_reads_few_rows(both: tuple[Database, sqlite3.Connection],
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.ONE_SHOT_SCAN_ROWS", 0)  # what reads more than 400 is a view
    db, other = both
    for where in ("p.id BETWEEN 5 AND 24", "p.at = 3", "p.n IN (4, 5)", "p.x > 1.1 AND p.x < 1.3",
                  "p.id < 0 AND p.id > 9"):
        text = f"SELECT COUNT(*), SUM(p.d), MIN(p.at) FROM p WHERE {where} AND p.d + p.at <> 1"
        (row,), expected = db.sql(text).rows, other.execute(text).fetchone()
        assert [None if v is None else int(v) for v in row] == list(expected), text
    assert not adhoc(db), "none of them reads the table, nor becomes a view"


def test_random_conditions(both: tuple[Database, sqlite3.Connection]) -> None:
    db, other = both
    chance = random.Random(seed("NORIA_IN_ORDER_SEED", 1) + 2)
    for n in range(150):
        low = chance.randrange(-5, 70)
        some = chance.sample(CONDITIONS, chance.choice((1, 1, 2)))
        where = " AND ".join(c.format(low, low + chance.choice((0, 2, 9, 400))) for c in some)
        source = chance.choice(FROM)
        text = chance.choice((f"SELECT COUNT(*), SUM(p.d), MAX(p.id) FROM {source} WHERE {where}",
                              f"SELECT DISTINCT p.d, p.at FROM {source} WHERE {where} ORDER BY p.d, p.at",
                              f"SELECT p.d, COUNT(*) FROM {source} WHERE {where} GROUP BY p.d ORDER BY p.d"))
        found = [[None if v is None else int(v) for v in row] for row in db.sql(text).rows]
        assert found == [list(row) for row in other.execute(text)], text
        if n % 10 == 0:
            for text in (f"DELETE FROM p WHERE id = {chance.randrange(ROWS)}",
                         f"REPLACE INTO p VALUES ({chance.randrange(90)}, {n % 40}, {n % 61}, NULL, 0.5, 1)"):
                db.sql(text)
                other.execute(text)


def test_texts_that_are_equal_find_their_rows_once(both: tuple[Database, sqlite3.Connection]) -> None:
    db, _ = both
    db.sql("CREATE TABLE w (id INT PRIMARY KEY, s VARCHAR(6), KEY (s))")
    db.sql("INSERT INTO w VALUES (1, 'á'), (2, 'b'), (3, 'A')")
    for text in ("SELECT d FROM (SELECT id AS d FROM w WHERE s IN ('A', 'á', 'a')) AS q ORDER BY d",
                 "SELECT d FROM (SELECT w.id AS d FROM w JOIN p ON p.id >= w.id WHERE w.s IN ('A', 'á') AND p.id < 4 "
                 "GROUP BY w.id) AS q ORDER BY d",
                 "SELECT d FROM (SELECT COUNT(*) AS d FROM w WHERE s IN ('A', 'á') GROUP BY id) AS q"):
        found = [row[0] for row in db.sql(text).rows]
        assert found == ([1, 1] if "COUNT" in text else [1, 3]), text
