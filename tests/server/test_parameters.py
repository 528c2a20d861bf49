"""Every place where a parameter may stand, against SQLite: prepared, as a text with literals and as a named view,
under random writes and evictions, through the whole stack in one process."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError
from noria.core.limits import LOOKUP_KEYS
from noria.dataflow import packets

SCHEMA = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, s VARCHAR(8), f DOUBLE)",
          "CREATE TABLE u (id INT PRIMARY KEY, a INT, c INT, s VARCHAR(8))")
QUERIES = (  # the query, and what each parameter may be
    ("SELECT id, s FROM t WHERE a IN (?, ?, ?)", "nnn"),
    ("SELECT id FROM t WHERE a IN (?, ?) AND b IN (?, ?) ORDER BY id DESC LIMIT 3", "nnnn"),
    ("SELECT id FROM t WHERE s IN (?, ?) ORDER BY id LIMIT ? OFFSET ?", "ssll"),
    ("SELECT id FROM t WHERE a = ? OR a = ?", "nn"),
    ("SELECT id FROM t WHERE a <=> ?", "n"),
    ("SELECT id FROM t WHERE a <=> ? AND b IN (?, ?)", "nnn"),
    ("SELECT u.id, t.id AS tid FROM t JOIN u ON t.a = u.a WHERE u.c <=> ?", "n"),
    ("SELECT id, s FROM t WHERE a = ? AND s LIKE ?", "np"),
    ("SELECT id FROM t WHERE s LIKE ?", "p"),
    ("SELECT id FROM t WHERE a = ? AND b > ? AND b <= ?", "nnn"),
    ("SELECT id, b FROM t WHERE b BETWEEN ? AND ? ORDER BY b, id LIMIT 4", "nn"),
    ("SELECT id FROM t WHERE f >= ?", "f"),
    ("SELECT id FROM t WHERE s < ?", "s"),
    ("SELECT id FROM t WHERE a NOT IN (?, ?)", "nn"),
    ("SELECT id FROM t WHERE ? IS NULL OR a = ?", "nn"),
    ("SELECT COUNT(*) AS n, COUNT(a) AS na, SUM(b) AS sb, MIN(s) AS ms, MAX(f) AS mf, AVG(b) AS ab FROM t"
     " WHERE a IN (?, ?)", "nn"),
    ("SELECT COUNT(*) + 1 AS n, COALESCE(SUM(c), -1) AS c FROM t JOIN u ON t.a = u.a WHERE t.b IN (?, ?)", "nn"),
    ("SELECT s, COUNT(*) AS n, AVG(f) AS m FROM t WHERE a IN (?, ?) GROUP BY s", "nn"),
    ("SELECT a, COUNT(*) AS n FROM t WHERE a IN (?, ?) GROUP BY a ORDER BY n DESC, a LIMIT 1", "nn"),
    ("SELECT a, SUM(b) AS n FROM t WHERE b > ? GROUP BY a", "n"),
    ("SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING COUNT(*) > ?", "n"),
    ("SELECT a, COUNT(*) AS n FROM t WHERE a IN (?, ?) GROUP BY a HAVING SUM(b) >= ?", "nnn"),
    ("SELECT COUNT(*) AS n FROM t WHERE a = ? HAVING COUNT(*) < ?", "nn"),
    ("SELECT DISTINCT s FROM t WHERE a IN (?, ?)", "nn"),
    ("SELECT t.id, u.id AS uid FROM t JOIN u ON t.a = u.a WHERE t.b = ? AND u.c = ?", "nn"),
    ("SELECT t.id, u.id AS uid FROM t JOIN u ON t.a = u.a WHERE t.b IN (?, ?) AND u.c > ?", "nnn"),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE t.b IN (?, ?) AND u.s LIKE ?", "nnp"),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE t.b = ? AND (u.c > ? OR u.c IS NULL)", "nn"),
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        for text in SCHEMA:
            opened.sql(text)
        yield opened


def ask(db: Database, packet: Any) -> Any:
    """A question to the worker itself."""
    transport: Any = db._transport
    reply = transport._run(transport._link.ask(packet))
    assert reply.error is None, reply.error
    return reply.value


class Both:
    """The same writes here and in SQLite."""

    def __init__(self, db: Database, chance: random.Random):
        self.db, self.chance = db, chance
        self.other = sqlite3.connect(":memory:")
        self.other.execute("PRAGMA case_sensitive_like = 0")
        for text in SCHEMA:
            self.other.execute(text.replace("VARCHAR(8)", "TEXT COLLATE NOCASE"))

    def number(self) -> int | None:
        return self.chance.choice((None, 0, 1, 1, 2, 2, 3, 7))

    def value(self, kind: str) -> Any:
        if kind == "n":
            return self.number()
        if kind == "l":
            return self.chance.randrange(4)
        if kind == "f":
            return self.chance.choice((0.5, 1.5, -2.0))
        return self.chance.choice(("a", "A", "b", "ab", "", None) if kind == "s" else ("a%", "%b", "_", "%", "", "A_"))

    def write(self) -> None:
        table, key = self.chance.choice("tu"), self.chance.randrange(12)
        kind = self.chance.randrange(6)
        if kind < 3:
            row: tuple[Any, ...] = (key, self.number(), self.chance.randrange(4), self.value("s"), self.value("f"))
            row = row if table == "t" else (key, self.number(), self.number(), self.value("s"))
            text = f"REPLACE INTO {table} VALUES ({', '.join('?' * len(row))})"
            self.run(text, row)
        elif kind < 5:
            self.run(f"UPDATE {table} SET a = ? WHERE id = ?", (self.number(), key))
        else:
            self.run(f"DELETE FROM {table} WHERE id = ?", (key,))

    def run(self, text: str, values: tuple[Any, ...]) -> None:
        self.db.sql(text, values)
        self.other.execute(text, values)

    def expected(self, query: str, values: list[Any]) -> Any:
        return comparable(self.other.execute(query.replace("<=>", "IS"), values).fetchall(), query)


def comparable(rows: list[tuple[Any, ...]], query: str) -> Any:
    def one(v: Any) -> Any:
        if isinstance(v, str):
            return v.lower()
        return round(float(v), 4) if isinstance(v, (int, float, Decimal)) else v

    shown = [tuple(map(one, r)) for r in rows]
    return shown if "ORDER BY" in query else Counter(shown)


def literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)


@pytest.mark.parametrize("seed", range(3))
def test_every_parameter_against_sqlite(db: Database, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(db, chance)
    for i, (query, _) in enumerate(QUERIES):
        db.sql(f"CREATE VIEW v{i} AS {query}")
    for step in range(60):
        both.write()
        for i in chance.sample(range(len(QUERIES)), 8):
            query, kinds = QUERIES[i]
            values = [both.value(k) for k in kinds]
            want = both.expected(query, values)
            text = query
            for v in values:
                text = text.replace("?", literal(v), 1)
            told = f"seed {seed} step {step}: {text}"
            assert comparable(db.sql(query, values).rows, query) == want, told
            assert comparable(db.sql(text).rows, query) == want, told
            assert comparable(db.view(f"v{i}").lookup(tuple(values)), query) == want, told
        if step % 5 == 4:
            ask(db, packets.Evict(0, chance.choice((2_000, None))))
        if step % 20 == 19:
            ask(db, packets.Ask(0, "validate"))


def test_a_lookup_of_several_keys_is_one_upquery_and_then_none(db: Database) -> None:
    db.sql("INSERT INTO t (id, a, b) VALUES (1, 1, 5), (2, 2, 6), (3, 3, 7)")
    query = "SELECT id FROM t WHERE a IN (?, ?, ?) ORDER BY id"
    assert db.sql(query, [3, 1, 1]).rows == [(1,), (3,)]
    stats: Any = db._transport._executor.stats  # type: ignore[attr-defined]
    before = stats()
    assert db.sql(query, [1, 3, None]).rows == [(1,), (3,)]
    assert db.sql("SELECT id FROM t WHERE a IN (3, 1, 1) ORDER BY id").rows == [(1,), (3,)]
    assert stats()["upqueries_total"] == before["upqueries_total"]
    assert stats()["adhoc_views"] == 1


def test_equal_texts_of_one_list_are_one_key(db: Database) -> None:
    db.sql("INSERT INTO t (id, b, s) VALUES (1, 1, 'a'), (2, 1, 'A')")
    assert sorted(db.sql("SELECT id FROM t WHERE s IN (?, ?, 'x')", ["a", "A"]).rows) == [(1,), (2,)]


def test_more_keys_than_a_lookup_takes_are_not_a_lookup(db: Database) -> None:
    marks = ", ".join("?" * (LOOKUP_KEYS + 1))
    with pytest.raises(SqlError) as e:
        db.sql(f"SELECT id FROM t WHERE a IN ({marks})", list(range(LOOKUP_KEYS + 1)))
    assert e.value.code == 1235 and f"{LOOKUP_KEYS + 1} keys" in e.value.message


def test_a_view_with_further_parameters_names_them(db: Database) -> None:
    db.sql("CREATE VIEW v AS SELECT id, a, b FROM t WHERE a IN (?, ?) AND b > ? ORDER BY b LIMIT ?")
    db.sql("INSERT INTO t (id, a, b) VALUES (1, 1, 5), (2, 2, 6), (3, 3, 7)")
    view = db.view("v")
    assert view.key == ("a", "a", "parameter 3", "LIMIT")
    assert view.lookup_many([(1, 2, 0, 5), (1, 2, 0, 1), (3, 3, 9, 5)]).to_pylist() == [
        {"id": 1, "a": 1, "b": 5, "__key": 0}, {"id": 2, "a": 2, "b": 6, "__key": 0},
        {"id": 1, "a": 1, "b": 5, "__key": 1}]
    with pytest.raises(ValueError, match="4"):
        view.lookup(1)
    with pytest.raises(ValueError, match="use lookup"):
        view.attach()
    with pytest.raises(SqlError, match="LIMIT"):
        db.sql("SELECT * FROM v")
