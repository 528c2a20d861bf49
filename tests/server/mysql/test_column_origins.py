"""The table and column from which a result's column comes, and its keys, as MySQL's clients receive them.

MariaDB is the oracle for columns of tables.  For views and derived tables it reports what its optimizer did with them,
so only their names are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb

COMPARED = 2 | 4 | 8 | 512 | 4096 | 16384  # primary, unique, multiple, AUTO_INCREMENT, no default, part of a key
SCHEMA = (
    "CREATE DATABASE shop", "USE shop",
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL, b VARCHAR(10), c INT NOT NULL DEFAULT 3,"
    " UNIQUE (a), KEY (b), KEY (c, a))",
    "CREATE TABLE u (x INT, y INT, z INT NOT NULL, PRIMARY KEY (x, y))",
    "CREATE DATABASE other", "CREATE TABLE other.t (id INT PRIMARY KEY, d INT)",
    "CREATE VIEW v AS SELECT id, b AS bb, a + 1 AS n FROM t",
    "INSERT INTO t VALUES (1, 2, 'x', 4)", "INSERT INTO u VALUES (1, 2, 3)", "INSERT INTO other.t VALUES (1, 5)",
)
OF_TABLES = (
    "SELECT * FROM t",
    "SELECT id AS i, a + 1, 'x', T.b FROM t AS T WHERE T.id = 1",
    "SELECT * FROM t JOIN u ON id = x",
    "SELECT b, COUNT(*) FROM t GROUP BY b",
    "SELECT MAX(a) FROM t",
    "SELECT DISTINCT b FROM t",
    "SELECT b FROM t ORDER BY c",
    "SELECT t.id, u.x FROM t LEFT JOIN u ON u.x = t.id",
    "SELECT id FROM t WHERE id = 1 FOR UPDATE",
    "SELECT * FROM other.t",
    "SELECT o.d, t.a FROM other.t AS o, t WHERE o.id = t.id",
    "SELECT t.a, (SELECT MAX(x) FROM u) FROM t",
    "SELECT a, x FROM t NATURAL JOIN u",
    "SELECT a FROM t WHERE id IN (1, 2) LIMIT 1",
    "SELECT shop.t.a, other.t.d FROM t JOIN other.t ON shop.t.id = other.t.id",
)
OF_OTHERS = (
    "SELECT * FROM v", "SELECT w.bb AS z FROM v AS w", "SELECT d.q FROM (SELECT id AS q FROM t) d",
    "SELECT id FROM t UNION SELECT x FROM u", "WITH w AS (SELECT id AS j FROM t) SELECT j FROM w",
)


def columns(connection: Any, text: str) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return [(f.db.decode(), f.table_name, f.org_table, f.name, f.org_name, f.flags & COMPARED)
                for f in cursor._result.fields]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    server, oracle = LocalServer(tmp_path_factory.mktemp("n")), MariaDb(tmp_path_factory.mktemp("m"))
    connections = server.connect(), oracle.connect()
    for connection in connections:
        with connection.cursor() as cursor:
            for text in SCHEMA:
                cursor.execute(text)
    yield connections
    oracle.close()
    server.close()


@pytest.mark.parametrize("text", OF_TABLES)
def test_columns_of_tables(both: tuple[Any, Any], text: str) -> None:
    noria, mariadb = both
    for _ in range(3):  # parsed, by an ad-hoc view, and as a kept reply
        assert columns(noria, text) == columns(mariadb, text)


@pytest.mark.parametrize("text", OF_OTHERS)
def test_columns_of_views_and_derived_tables(both: tuple[Any, Any], text: str) -> None:
    noria, mariadb = both
    assert [(c[1], c[3]) for c in columns(noria, text)] == [(c[1], c[3]) for c in columns(mariadb, text)]


def test_a_transaction_reports_the_same_columns(both: tuple[Any, Any]) -> None:
    noria, _ = both
    text = "SELECT b AS name, c FROM t AS s WHERE id = 1"
    outside = columns(noria, text)
    assert outside[0] == ("shop", "s", "t", "name", "b", 8 | 16384)
    with noria.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET c = c + 1 WHERE id = 1")
        assert columns(noria, text) == outside
        cursor.execute("ROLLBACK")


def test_a_view_and_its_database(both: tuple[Any, Any]) -> None:
    noria, _ = both
    assert columns(noria, "SELECT w.bb AS z FROM v AS w") == [("shop", "w", "v", "z", "bb", 0)]
    assert columns(noria, "SELECT * FROM shop.v")[2] == ("shop", "v", "v", "n", "n", 0)
    assert columns(noria, "SELECT q FROM (SELECT id AS q FROM t) d") == [("", "d", "d", "q", "q", 0)]
    assert columns(noria, "SELECT 1 + id FROM t") == [("", "", "", "1 + id", "", 0)]
