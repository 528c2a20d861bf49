"""Temporary tables, compared with MariaDB: writes, joins with other tables, transactions, names that they hide."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE posts (id INT PRIMARY KEY, title VARCHAR(20), n INT)",
         "INSERT INTO posts VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3), (4, 'd', 4)",
         "CREATE TABLE copy (id INT PRIMARY KEY, n INT)")
STATEMENTS = (
    "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, n INT DEFAULT 7, s VARCHAR(10), UNIQUE (s), "
    "at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)",
    "INSERT INTO t (n, s) VALUES (1, 'x'), (2, 'y'), (DEFAULT, 'z')", "SELECT LAST_INSERT_ID()",
    "INSERT INTO t (s) VALUES ('X')", "INSERT IGNORE INTO t (s) VALUES ('X'), ('q')",
    "INSERT INTO t (n, s) VALUES (3, 'y') ON DUPLICATE KEY UPDATE n = n + VALUES(n)",
    "REPLACE INTO t (id, n, s) VALUES (1, 99, 'w')", "UPDATE t SET n = n + 1 WHERE s IN ('W', 'q')",
    "SELECT id, n, s FROM t ORDER BY id", "SELECT COUNT(*), SUM(n), MAX(s), COUNT(at) FROM t",
    "SELECT t.s, posts.title FROM t JOIN posts USING (id) ORDER BY t.s", "SELECT id FROM t WHERE id = 2",
    "SELECT title FROM posts LEFT JOIN t ON t.id = posts.id WHERE t.id IS NULL ORDER BY title",
    "SELECT title FROM posts WHERE id IN (SELECT id FROM t WHERE n > 5) ORDER BY title",
    "SELECT n FROM t UNION SELECT n FROM posts ORDER BY n",
    "INSERT INTO copy SELECT id, n FROM t", "SELECT * FROM copy ORDER BY id",
    "INSERT INTO t (id, n, s) SELECT id + 20, n * 10, title FROM posts WHERE id > 2",
    "SELECT id, n, s FROM t ORDER BY id",
    "UPDATE posts JOIN t ON t.id = posts.id SET posts.n = t.n", "SELECT * FROM posts ORDER BY id",
    "UPDATE t SET n = 0 ORDER BY id DESC LIMIT 1",
    "UPDATE t JOIN posts ON posts.id = t.id SET t.s = CONCAT('p', title)",
    "DELETE FROM t WHERE id IN (SELECT id FROM copy WHERE n > 50)", "DELETE FROM t LIMIT 0",
    "DELETE FROM copy WHERE id IN (SELECT id FROM t)", "SELECT * FROM copy ORDER BY id",
    "SELECT id, n, s FROM t ORDER BY id",
    "BEGIN", "DELETE FROM t WHERE n > 1", "INSERT INTO copy VALUES (70, 1)", "SAVEPOINT a", "DELETE FROM t",
    "SELECT COUNT(*) FROM t", "ROLLBACK TO a", "SELECT id, n, s FROM t ORDER BY id", "ROLLBACK",
    "SELECT id, n, s FROM t ORDER BY id", "BEGIN", "UPDATE t SET n = 5", "COMMIT", "ROLLBACK",
    "SELECT DISTINCT n FROM t",
    "CREATE TEMPORARY TABLE posts (id INT, x INT)", "INSERT INTO posts VALUES (5, 6), (5, 6)", "SELECT * FROM posts",
    "CREATE TEMPORARY TABLE posts (id INT)", "CREATE TEMPORARY TABLE IF NOT EXISTS posts (a INT)",
    "CREATE VIEW v AS SELECT * FROM posts", "DROP TEMPORARY TABLE posts", "SELECT COUNT(*) FROM posts",
    "DROP TEMPORARY TABLE posts", "DROP TEMPORARY TABLE IF EXISTS posts",
    "SET sql_mode = ''", "CREATE TEMPORARY TABLE dates (d DATE, e DATETIME)",
    "INSERT INTO dates VALUES ('0000-00-00', '0000-00-00 00:00:00')", "SELECT COUNT(*) FROM dates WHERE d IS NOT NULL",
    "CREATE TEMPORARY TABLE last AS SELECT id, title FROM posts ORDER BY id DESC LIMIT 2",
    "SELECT * FROM last ORDER BY id", "CREATE TEMPORARY TABLE alike LIKE posts",
    "INSERT INTO alike SELECT * FROM posts",
    "INSERT INTO alike VALUES (1, 'again', 1)", "SELECT COUNT(*) FROM alike JOIN last USING (id)",
    "INSERT INTO alike SELECT id + 1, title, n FROM last", "SELECT COUNT(*) FROM alike",
    "TRUNCATE TABLE alike", "SELECT COUNT(*) FROM alike", "DROP TABLE alike", "SELECT COUNT(*) FROM alike",
    "SELECT SQL_CALC_FOUND_ROWS id FROM last ORDER BY id LIMIT 1", "SELECT FOUND_ROWS()",
)


@pytest.fixture(params=[1, 2], ids=["one front end", "two"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria", front_ends=request.param)
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


def outcome(c: Any, text: str) -> Any:
    with c.cursor() as cursor:
        try:
            cursor.execute(text)
        except pymysql.err.MySQLError as e:
            return e.args[0]
        return cursor.rowcount, list(cursor.fetchall())


@needs_mariadb
def test_outcomes_are_mariadbs(server: LocalServer, tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        with server.connect() as ours, mariadb.connect() as theirs:
            for text in SETUP:
                rows(theirs, text)
            for text in STATEMENTS:
                assert outcome(ours, text) == outcome(theirs, text), text
    finally:
        mariadb.close()


def test_one_session_has_it(server: LocalServer) -> None:
    with server.connect() as a, server.connect() as b:
        for _ in range(3):  # a front end knows the text
            assert rows(a, "SELECT title FROM posts WHERE id = 1") == [("a",)]
        rows(a, "CREATE TEMPORARY TABLE posts (id INT, title INT)")
        rows(a, "INSERT INTO posts VALUES (1, 77)")
        for _ in range(3):
            assert rows(a, "SELECT title FROM posts WHERE id = 1") == [(77,)]
            assert rows(b, "SELECT title FROM posts WHERE id = 1") == [("a",)]
        rows(a, "DROP TABLE posts")
        assert rows(a, "SELECT title FROM posts WHERE id = 1") == [("a",)]
        rows(a, "CREATE TEMPORARY TABLE mine (x INT)")
        assert code(b, "SELECT * FROM mine") == 1146
        assert rows(a, "DESCRIBE mine") == [("x", "int", "YES", "", None, "")]
        assert "CREATE TEMPORARY TABLE `mine`" in rows(a, "SHOW CREATE TABLE mine")[0][1]


def test_prepared_before_and_after(server: LocalServer) -> None:
    with server.connector() as c:
        cursor = c.cursor(prepared=True)
        for expected in ("a", 5, "a"):
            cursor.execute("SELECT title FROM posts WHERE id = ?", (1,))
            assert cursor.fetchall() == [(expected,)]
            with c.cursor() as plain:
                if expected == "a":
                    plain.execute("CREATE TEMPORARY TABLE IF NOT EXISTS posts (id INT, title INT)")
                    plain.execute("INSERT INTO posts VALUES (1, 5)")
                else:
                    plain.execute("DROP TEMPORARY TABLE posts")
        cursor.execute("INSERT INTO posts VALUES (?, ?)", (8, 9))
        cursor.execute("SELECT id, title FROM posts WHERE id > ?", (2,))
        assert cursor.fetchall() == [(8, 9)]
        with server.connect() as other:
            assert rows(other, "SELECT COUNT(*) FROM posts") == [(4,)]


def test_what_is_refused(server: LocalServer) -> None:
    with server.connect() as c:
        rows(c, "CREATE TEMPORARY TABLE t (id INT PRIMARY KEY, n INT)")
        for text in ("ALTER TABLE t ADD x INT", "CREATE INDEX i ON t (n)", "RENAME TABLE t TO u",
                     "UPDATE t JOIN posts USING (id) SET t.n = 1, posts.n = 2", "DROP TABLE t, posts",
                     "CREATE TEMPORARY TABLE u (p INT, FOREIGN KEY (p) REFERENCES posts (id))"):
            assert code(c, text) == 1235, text
        assert code(c, "CREATE VIEW v AS SELECT n FROM t") == 1352
        rows(c, "INSERT INTO t VALUES " + ", ".join(f"({n}, 1)" for n in range(60_000)))
        assert code(c, "INSERT INTO t VALUES " + ", ".join(f"({n}, 1)" for n in range(60_000, 110_000))) == 1114
        rows(c, "DELETE FROM t WHERE id >= 2000")  # so that a busy machine can read the rest at once
        assert rows(c, "SELECT COUNT(*) FROM t") == [(2_000,)]
