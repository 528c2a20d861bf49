"""Every place where a parameter may stand, against SQLite: prepared, as a text with literals and as a named view,
under random writes and evictions, through the whole stack in one process."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import mysql.connector
import pytest

import noria
from e2e.local import LocalServer, views_at_once
from noria.client import Database
from noria.core.errors import SqlError
from noria.core.limits import LOOKUP_KEYS
from noria.dataflow.messages import packets
from noria.sql.query import plan_select

SCHEMA = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT NOT NULL, s VARCHAR(8), f DOUBLE)",
          "CREATE TABLE u (id INT PRIMARY KEY, a INT, c INT, s VARCHAR(8))",
          "CREATE INTERNAL VIEW per AS SELECT a, COUNT(*) AS n, SUM(b) AS total FROM t GROUP BY a")
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
    ("SELECT id, a, s FROM t WHERE id >= ? AND id < ?", "nn"),
    ("SELECT id FROM t WHERE a > ? AND a > ? AND s LIKE ?", "nnp"),
    ("SELECT id FROM t WHERE a < ? AND b >= ? AND b <= ? ORDER BY id LIMIT ?", "nnnl"),
    ("SELECT id, b FROM t WHERE b > ? ORDER BY b, id LIMIT ? OFFSET ?", "nll"),
    ("SELECT id, a FROM t WHERE id < ? ORDER BY id DESC LIMIT ?", "nl"),
    ("SELECT t.id, u.id AS uid FROM t JOIN u ON t.a = u.a WHERE t.b >= ? ORDER BY t.b DESC, t.id, u.id LIMIT ?", "nl"),
    ("SELECT a, n, total FROM per WHERE a BETWEEN ? AND ?", "nn"),
    ("SELECT a, n FROM per WHERE n > ?", "n"),
    ("SELECT t.id, u.id AS uid, c FROM t JOIN u ON t.a = u.a WHERE u.c > ? AND u.c <= ?", "nn"),
    ("SELECT t.id, u.id AS uid FROM t JOIN u ON t.a = u.a WHERE ? <= t.a", "n"),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE t.b >= ?", "n"),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a WHERE u.id >= ?", "n"),
    ("SELECT COUNT(*) AS n, SUM(f) AS sf, MAX(s) AS ms FROM t WHERE b BETWEEN ? AND ?", "nn"),
    ("SELECT DISTINCT a FROM t WHERE b > ?", "n"),
    ("SELECT x.id FROM t x JOIN t y ON x.a = y.b WHERE y.a < ? AND x.s LIKE ?", "np"),
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
    ("SELECT a, b FROM t WHERE b = ? UNION ALL SELECT a, c FROM u WHERE c = ?", "nn"),
    ("SELECT s FROM t WHERE b = ? UNION SELECT s FROM u WHERE a = ? UNION SELECT s FROM t WHERE a = ?", "nnn"),
    ("SELECT id FROM t WHERE a IN (SELECT a FROM u WHERE c = ?)", "n"),
    ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.c = ?) AND b = ?", "nn"),
    ("SELECT id FROM t WHERE b = ? AND a NOT IN (SELECT a FROM u WHERE c > 1)", "n"),
    ("SELECT id, (SELECT COUNT(*) FROM u WHERE u.a = t.a) AS n FROM t WHERE b = ?", "n"),
    ("SELECT z.a, z.n FROM (SELECT a, COUNT(*) AS n FROM t WHERE b = ? GROUP BY a) z", "n"),
    ("SELECT z.a, u.c FROM (SELECT DISTINCT a, s FROM t WHERE b = ?) z JOIN u ON u.a = z.a WHERE u.c = ?", "nn"),
    ("SELECT t.id, u.c FROM t LEFT JOIN u ON t.a = u.a AND u.c > t.b WHERE t.b = ?", "n"),
)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        for text in SCHEMA:
            opened.sql(text)
        yield opened


def ask(db: Database, packet: Any) -> Any:
    """A question to the worker itself."""
    transport: Any = db.transport
    reply = transport.run(transport.link.ask(packet))
    assert reply.error is None, reply.error
    return reply.value


class Both:
    """The same writes here and in SQLite."""

    def __init__(self, db: Database, chance: random.Random):
        self.db, self.chance = db, chance
        self.other = sqlite3.connect(":memory:")
        self.other.execute("PRAGMA case_sensitive_like = 0")
        for text in SCHEMA:
            self.other.execute(text.replace("VARCHAR(8)", "TEXT COLLATE NOCASE").replace("INTERNAL ", ""))

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


@pytest.mark.parametrize("seed", range(2))
def test_every_parameter_against_sqlite(db: Database, seed: int) -> None:
    chance = random.Random(seed)
    both = Both(db, chance)
    for i, (query, _) in enumerate(QUERIES):
        db.sql(f"CREATE VIEW v{i} AS {query}")
    for step in range(50):
        both.write()
        for i in chance.sample(range(len(QUERIES)), 10):
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
            ask(db, packets.Inspect(0, "validate"))


def test_a_lookup_of_several_keys_is_one_upquery_and_then_none(db: Database) -> None:
    db.sql("INSERT INTO t (id, a, b) VALUES (1, 1, 5), (2, 2, 6), (3, 3, 7)")
    views_at_once(db.transport)
    query = "SELECT id FROM t WHERE a IN (?, ?, ?) ORDER BY id"
    assert db.sql(query, [3, 1, 1]).rows == [(1,), (3,)]
    stats: Any = db.transport.executor.stats
    before = stats()
    assert db.sql(query, [1, 3, None]).rows == [(1,), (3,)]
    assert db.sql("SELECT id FROM t WHERE a IN (3, 1, 1) ORDER BY id").rows == [(1,), (3,)]
    assert stats()["upqueries_total"] == before["upqueries_total"]
    assert stats()["adhoc_views"] == 1


def test_equal_texts_of_one_list_are_one_key(db: Database) -> None:
    db.sql("INSERT INTO t (id, b, s) VALUES (1, 1, 'a'), (2, 1, 'A')")
    assert sorted(db.sql("SELECT id FROM t WHERE s IN (?, ?, 'x')", ["a", "A"]).rows) == [(1,), (2,)]


def test_ten_thousand_keys_are_a_lookup(db: Database) -> None:
    """As literals, as parameters, and as so many equalities."""
    db.sql("INSERT INTO t (id, a, b) VALUES (1, 9999, 1), (2, 0, 1), (3, 10000, 1)")
    values = list(range(10_000))
    texts = ", ".join(map(str, values))
    for query in ("SELECT id FROM t WHERE a IN ({})", "SELECT COUNT(*) FROM t WHERE a IN ({})"):
        expected = [(1,), (2,)] if "id" in query else [(2,)]
        assert sorted(db.sql(query.format(texts)).rows) == expected
        assert sorted(db.sql(query.format(", ".join("?" * 10_000)), values).rows) == expected
    ors = " OR ".join(f"a = {n}" for n in range(5_000, 9_999)) + " OR a = 9999"
    assert db.sql(f"SELECT id FROM t WHERE {ors}").rows == [(1,)]
    assert db.sql(f"UPDATE t SET b = 2 WHERE id IN ({texts})").affected == 3
    assert db.sql(f"DELETE FROM t WHERE id IN ({texts})").affected == 3


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


def explained(db: Database, query: str) -> str:
    return "\n".join(r[0] for r in db.sql(f"EXPLAIN {query}").rows)


@pytest.mark.one_worker("of several, ranges by what rows are not spread by are found in a full exchange")
def test_a_range_is_partial_and_asks_for_the_gaps(db: Database) -> None:
    for first in range(0, 5_000, 1_000):
        db.table("t").insert([(i, i % 7, i, "x", None) for i in range(first, first + 1_000)])
    views_at_once(db.transport)
    query = "SELECT id, b FROM t WHERE b BETWEEN ? AND ?"
    assert len(db.sql(query, [100, 199]).rows) == 100
    stats = ask(db, packets.Inspect(0, "stats"))
    assert len(db.sql(query, [110, 180]).rows) == 71
    assert ask(db, packets.Inspect(0, "stats"))["misses"] == stats["misses"]
    assert len(db.sql(query, [150, 249]).rows) == 100
    assert ask(db, packets.Inspect(0, "stats"))["misses"] == stats["misses"] + 50
    told = explained(db, "SELECT id, b FROM t WHERE b > 5 AND b < 10")
    assert "partial" in told and "ranges of b" in told and "full" not in told
    assert db.sql("SELECT id FROM t WHERE b = 150").rows == [(150,)]


@pytest.mark.parametrize("prepared", [True, False])
def test_pages_pull_what_they_show(db: Database, prepared: bool) -> None:
    db.table("t").insert([(i, 0, i // 2, "x", None) for i in range(2_000)])
    last, seen = -1, []
    for _ in range(5):
        if prepared:
            rows = db.sql("SELECT id FROM t WHERE id > ? ORDER BY id LIMIT ?", [last, 20]).rows
        else:
            rows = db.sql(f"SELECT id FROM t WHERE id > {last} ORDER BY id LIMIT 20".replace("-1", "0")).rows
        seen += [r[0] for r in rows]
        last = seen[-1]
    assert seen == (list(range(100)) if prepared else list(range(1, 101)))
    assert len(list(db.transport.program.adhoc())) == 1
    assert ask(db, packets.Inspect(0, "stats"))["misses"] <= 100
    assert db.sql("SELECT id FROM t WHERE id <= ? ORDER BY id DESC LIMIT 3", [1999]).rows == [(1999,), (1998,), (1997,)]
    assert db.sql("SELECT id, b FROM t WHERE b < 5 ORDER BY b DESC, id LIMIT 3").rows == [(8, 4), (9, 4), (6, 3)]


def test_texts_with_ranges_share_a_view(db: Database) -> None:
    db.sql("INSERT INTO t (id, b) VALUES (1, 5), (2, 6), (3, 7)")
    for low, ids in ((5, [2, 3]), (6, [3]), (7, [])):
        assert sorted(r[0] for r in db.sql(f"SELECT id FROM t WHERE b > {low}").rows) == ids
    parsed = db.transport.executor.statements.parsed
    assert db.sql("SELECT id FROM t WHERE b > 1").rows != []
    assert db.transport.executor.statements.parsed == parsed
    assert len(list(db.transport.program.adhoc())) == 1


def test_a_text_with_a_range_finds_the_view_that_has_it_as_a_condition(db: Database) -> None:
    views_at_once(db.transport)
    db.sql("CREATE VIEW hot AS SELECT id FROM t WHERE b > 5")
    db.sql("INSERT INTO t (id, b) VALUES (1, 5), (2, 6), (3, 7)")
    assert sorted(db.sql("SELECT id FROM t WHERE b > 5").rows) == [(2,), (3,)]
    assert explained(db, "SELECT id FROM t WHERE b > 5").startswith("answered by the view hot")
    assert db.sql("SELECT id FROM t WHERE b > 6").rows == [(3,)]
    assert explained(db, "SELECT id FROM t WHERE b > 6").startswith("answered by the ad-hoc view")
    assert explained(db, "SELECT id FROM t WHERE b > 5").startswith("answered by the view hot")


def test_a_range_is_planned_once_where_no_view_could_have_it_as_a_condition(db: Database,
                                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[Any] = []
    plan_query = plan_select.plan_query
    monkeypatch.setattr(plan_select, "plan_query", lambda *args: planned.append(args) or plan_query(*args))
    db.sql("CREATE TABLE other (id INT PRIMARY KEY, b INT)")
    db.sql("CREATE VIEW hot AS SELECT id FROM t WHERE b > 5")
    planned.clear()
    db.sql("SELECT id FROM other WHERE b > 6")
    assert len(planned) == 1
    db.sql("SELECT id FROM t WHERE b > 6")
    assert len(planned) == 3, "as a key, and as a condition"


@pytest.mark.parametrize("column, values", [
    ("INT", ["-3", "0", "2", "9223372036854775807"]), ("DECIMAL(6,2)", ["-1.50", "0.00", "1.49", "1.50", "1.51"]),
    ("DOUBLE", ["-1e300", "-0.5", "0", "1.5", "1e300"]),
    ("DATE", ["1999-12-31", "2024-01-30", "2024-01-31", "2024-02-01"]),
    ("DATETIME", ["1999-12-31 23:59:59", "2024-01-31 00:00:00", "2024-01-31 00:00:01"])])
def test_bounds_between_the_values_of_a_type(db: Database, column: str, values: list[str]) -> None:
    """Numbers, decimals, dates and texts as bounds, exact and in between."""
    column = "BIGINT" if column == "INT" else column
    db.sql(f"CREATE TABLE x (id INT PRIMARY KEY, v {column})")
    db.sql("INSERT INTO x VALUES " + ", ".join(f"({i}, '{v}')" for i, v in enumerate(values)) + ", (99, NULL)")
    moment = column.startswith("DATE")
    bounds: list[Any] = ["2024-01-31", "2024-01-31 00:00:00", "2024-01-30 12:00:00.5"] if moment else [
        1, 1.5, Decimal("1.495"), "1.5", "-0.5", -2, Decimal("1e30"), 9223372036854775807]
    for bound in bounds:
        number = (str(bound) + " 00:00:00"[: 9 if len(str(bound)) == 10 else 0]) if moment else Decimal(str(bound))
        for op, test in ((">", "__gt__"), (">=", "__ge__"), ("<", "__lt__"), ("<=", "__le__")):
            want = [i for i, v in enumerate(values)
                    if getattr((v + " 00:00:00")[:19] if moment else Decimal(v), test)(number)]
            assert sorted(r[0] for r in db.sql(f"SELECT id FROM x WHERE v {op} ?", [bound]).rows) == want, (op, bound)
    assert db.sql("SELECT id FROM x WHERE v > ?", [None]).rows == []


def test_a_window_sees_the_rows_of_all_keys(db: Database) -> None:
    """The keys are conditions below the window then, literals as well as parameters."""
    db.sql("INSERT INTO t (id, a, b) VALUES (1, 1, 5), (2, 2, 6), (3, 2, 7), (4, 3, 8)")
    window = "SELECT id, ROW_NUMBER() OVER (ORDER BY id DESC) AS r FROM t WHERE"
    assert sorted(db.sql(f"{window} a IN (1, 2)").rows) == [(1, 3), (2, 2), (3, 1)]
    assert sorted(db.sql(f"{window} b > 5").rows) == [(2, 3), (3, 2), (4, 1)]
    assert sorted(db.sql(f"{window} a IN (?, ?)", [1, 2]).rows) == [(1, 3), (2, 2), (3, 1)]
    assert sorted(db.sql(f"{window} b > ?", [5]).rows) == [(2, 3), (3, 2), (4, 1)]


MYSQL = (
    ("SELECT id FROM t WHERE a IN (?, ?) ORDER BY id DESC LIMIT 2", (1, 2), [(3,), (2,)]),
    ("SELECT id FROM t WHERE a <=> ?", (None,), [(5,)]),
    ("SELECT id FROM t WHERE b BETWEEN ? AND ? ORDER BY b", (15, 45), [(2,), (3,), (4,)]),
    ("SELECT id FROM t WHERE id > ? ORDER BY id LIMIT ?", (1, 2), [(2,), (3,)]),
    ("SELECT id FROM t WHERE a = ? AND s LIKE ?", (1, "a%"), [(1,), (2,)]),
    ("SELECT COUNT(*), CAST(AVG(b) AS DOUBLE) FROM t WHERE a IN (?, ?)", (1, 3), [(3, 23.333333333)]),
    ("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > ?", (1,), [(1, 2)]),
)


def test_over_the_mysql_protocol(tmp_path: Path) -> None:
    """The binary protocol and texts, each again when everything was forgotten."""
    server = LocalServer(tmp_path / "data")
    try:
        with closing(mysql.connector.connect(host="127.0.0.1", port=server.mysql.address[1], user="root",
                                             autocommit=True)) as connection:
            prepared, plain = connection.cursor(prepared=True), connection.cursor()
            plain.execute(SCHEMA[0])
            plain.execute("INSERT INTO t (id, a, b, s) VALUES (1, 1, 10, 'ab'), (2, 1, 20, 'AC'), (3, 2, 30, 'b'), "
                          "(4, 3, 40, 'x'), (5, NULL, 50, NULL)")
            for _ in range(2):
                for query, values, rows in MYSQL:
                    prepared.execute(query, values)
                    assert sorted(prepared.fetchall()) == sorted(rows), query
                    plain.execute(query.replace("?", "%s"), values)
                    assert sorted(plain.fetchall()) == sorted(rows), query
                server.evict(None)
            server.validate()
    finally:
        server.close()
