"""WITH RECURSIVE, compared with MariaDB: counters, trees of categories and comments, graphs, beside other queries of
WITH, in writes, prepared and in transactions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = (
    "CREATE TABLE cats (id INT PRIMARY KEY, parent INT, name VARCHAR(20), KEY (parent))",
    "INSERT INTO cats VALUES (1, NULL, 'all'), (2, 1, 'Books'), (3, 1, 'music'), (4, 2, 'novels'), (5, 2, 'école'), "
    "(6, 5, 'é1'), (7, NULL, 'other')",
    "CREATE TABLE edges (a INT, b INT, PRIMARY KEY (a, b))",
    "INSERT INTO edges VALUES (1, 2), (2, 3), (3, 1), (3, 4), (5, 6)",
    "CREATE TABLE items (id INT PRIMARY KEY, cat INT, price DECIMAL(8,2), KEY (cat))",
    "INSERT INTO items VALUES (1, 4, 9.50), (2, 6, 1.25), (3, 3, 100), (4, 7, 5)",
    "CREATE TABLE copy (id INT PRIMARY KEY, depth INT)",
)
TREE = ("WITH RECURSIVE tree (id, depth, path) AS (SELECT id, 0, CAST(name AS CHAR(200)) FROM cats WHERE parent IS "
        "NULL UNION ALL SELECT c.id, depth + 1, CONCAT(path, '/', c.name) FROM cats c JOIN tree ON c.parent = "
        "tree.id) ")
QUERIES = (
    "WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 30) SELECT n FROM c",
    "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 30) SELECT SUM(n), COUNT(*) FROM c",
    TREE + "SELECT * FROM tree ORDER BY id",
    TREE + "SELECT id FROM tree WHERE depth = 2 ORDER BY path DESC LIMIT 1",
    TREE + "SELECT depth, COUNT(*), SUM(price) FROM tree JOIN items ON items.cat = tree.id GROUP BY depth "
    "ORDER BY depth",
    TREE + "SELECT t.id, i.price FROM tree t LEFT JOIN items i ON i.cat = t.id WHERE t.id IN (SELECT id FROM tree "
    "WHERE depth > 0) ORDER BY t.id",
    TREE + "SELECT name FROM cats WHERE NOT EXISTS (SELECT 1 FROM tree WHERE tree.depth = 1 AND tree.id = cats.id) "
    "ORDER BY id",
    TREE + "SELECT id FROM tree WHERE depth = 1 UNION SELECT cat FROM items ORDER BY id",
    "WITH RECURSIVE up AS (SELECT id, parent FROM cats WHERE id = 6 UNION ALL SELECT c.id, c.parent FROM up JOIN cats "
    "c ON c.id = up.parent) SELECT id FROM up ORDER BY id",
    "WITH RECURSIVE reach (n) AS (SELECT 1 UNION SELECT b FROM edges JOIN reach ON a = n) SELECT n FROM reach "
    "ORDER BY n",
    "WITH RECURSIVE both_ways (n) AS (SELECT 2 UNION SELECT b FROM edges, both_ways WHERE a = n UNION SELECT a FROM "
    "edges, both_ways WHERE b = n) SELECT n FROM both_ways ORDER BY n",
    "WITH RECURSIVE d AS (SELECT CAST('2024-02-27' AS DATE) AS day UNION ALL SELECT day + INTERVAL 1 DAY FROM d WHERE "
    "day < '2024-03-02') SELECT day, (SELECT COUNT(*) FROM items WHERE price > DAY(day)) FROM d",
    "WITH RECURSIVE fib (n, a, b) AS (SELECT 1, 0, 1 UNION ALL SELECT n + 1, b, a + b FROM fib WHERE n < 20) "
    "SELECT a FROM fib",
    "WITH RECURSIVE one AS (SELECT id FROM cats WHERE parent IS NULL), two AS (SELECT id FROM one UNION ALL SELECT "
    "c.id FROM cats c JOIN two ON c.parent = two.id), three AS (SELECT COUNT(*) AS n FROM two) SELECT * FROM three, "
    "one ORDER BY one.id",
    "WITH RECURSIVE a AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM a WHERE n < 4), b AS (SELECT n FROM a WHERE n > 2 "
    "UNION ALL SELECT n * 10 FROM b WHERE n < 100) SELECT n FROM b ORDER BY n",
    "WITH RECURSIVE t (s) AS (SELECT 'A' UNION SELECT LOWER(s) FROM t) SELECT COUNT(*) FROM t",
    "WITH RECURSIVE t (n) AS (SELECT NULL UNION SELECT n FROM t) SELECT COUNT(*), MAX(n) FROM t",
    "WITH RECURSIVE plain AS (SELECT 2 AS n) SELECT n FROM plain",
    "WITH RECURSIVE none AS (SELECT id FROM cats WHERE id > 99 UNION ALL SELECT id + 1 FROM none) SELECT * FROM none",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[Any]:
    found = MariaDb(tmp_path)
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
        yield found
    found.close()


@needs_mariadb
def test_rows_are_mariadbs(server: LocalServer, mariadb: MariaDb) -> None:
    with server.connect() as ours, mariadb.connect() as theirs:
        for text in QUERIES:
            assert rows(ours, text) == rows(theirs, text), text
        for text in ("INSERT INTO copy " + TREE + "SELECT id, depth FROM tree",
                     "UPDATE copy SET depth = depth + 10 WHERE id IN (SELECT cat FROM items)"):
            rows(ours, text), rows(theirs, text)
        ordered = "SELECT * FROM copy ORDER BY id"
        assert rows(ours, ordered) == rows(theirs, ordered)
        with server.connector() as a, mariadb.connector() as b:
            b.cursor().execute("USE oracle")
            for at in (1, 2, 5, 99, 1):
                found = []
                for c in (a, b):
                    with c.cursor(prepared=True) as cursor:
                        cursor.execute("WITH RECURSIVE t AS (SELECT id FROM cats WHERE id = ? UNION ALL SELECT c.id "
                                       "FROM cats c JOIN t ON c.parent = t.id) SELECT id FROM t WHERE id <> ? "
                                       "ORDER BY id",
                                       (at, 4))
                        found.append(cursor.fetchall())
                assert found[0] == found[1], at


def test_a_transaction_sees_its_own_rows(server: LocalServer) -> None:
    with server.connect() as c:
        rows(c, "BEGIN")
        rows(c, "INSERT INTO cats VALUES (50, 6, 'new'), (51, 50, 'newer')")
        assert (51, 5, "all/Books/école/é1/new/newer") in rows(c, TREE + "SELECT * FROM tree")
        rows(c, "ROLLBACK")
        assert len(rows(c, TREE + "SELECT * FROM tree")) == 7
        assert server.executor.stats()["adhoc_views"] == 0


def test_iterations_and_rows_are_bounded(server: LocalServer) -> None:
    endless = "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) SELECT COUNT(*) FROM c"
    with server.connect() as c:
        assert code(c, endless) == 3636
        rows(c, "SET cte_max_recursion_depth = 5")
        assert rows(c, "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c WHERE n < 5) "
                       "SELECT COUNT(*) FROM c") == [(5,)]
        assert code(c, endless.replace("FROM c)", "FROM c WHERE n < 6)")) == 3636
        rows(c, "SET cte_max_recursion_depth = 100000")
        assert code(c, "WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + b FROM c, (SELECT 1 AS b UNION ALL "
                       "SELECT 2 UNION ALL SELECT 3) q) SELECT COUNT(*) FROM c") == 3024
        doubling = "WITH RECURSIVE c AS (SELECT 'x' AS s UNION ALL SELECT CONCAT(s, s) FROM c) SELECT 1 FROM c"
        assert code(c, doubling) in (1114, 1301, 1690)


def test_what_mysql_refuses(server: LocalServer) -> None:
    with server.connect() as c:
        for text, number in (
                ("SELECT 1 AS n FROM c", 3573), ("SELECT n FROM c UNION ALL SELECT 1", 3574),
                ("SELECT 1 AS n UNION ALL SELECT MAX(n) FROM c", 3575),
                ("SELECT 1 AS n UNION ALL SELECT n FROM c GROUP BY n", 3575),
                ("SELECT 1 AS n UNION ALL SELECT a.n FROM c a JOIN c b", 3577),
                ("SELECT 1 AS n UNION ALL SELECT 2 FROM cats WHERE id IN (SELECT n FROM c)", 3577),
                ("SELECT 1 AS n UNION ALL SELECT n, 2 FROM c", 1222),
                ("SELECT 1 AS n UNION ALL SELECT n + 1 FROM c LIMIT 3", 1235)):
            assert code(c, f"WITH RECURSIVE c AS ({text}) SELECT * FROM c") == number, text
        view = "CREATE VIEW v AS WITH RECURSIVE c AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM c) SELECT n FROM c"
        assert code(c, view) == 1235
