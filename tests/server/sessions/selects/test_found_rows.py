"""SQL_CALC_FOUND_ROWS and FOUND_ROWS(), as WordPress sends them for each list of posts: in texts and prepared, through
kept replies and look-ups of front ends, compared with MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE posts (id INT PRIMARY KEY, author INT, status VARCHAR(10), KEY (author))",
         "CREATE TABLE meta (id INT PRIMARY KEY, post INT, v INT, KEY (post))",
         "INSERT INTO posts VALUES (1, 1, 'a'), (2, 1, 'b'), (3, 1, 'a'), (4, 2, 'a'), (5, 3, NULL), (6, 1, 'c')",
         "INSERT INTO meta VALUES (1, 1, 1), (2, 1, 2), (3, 3, 1), (4, 4, 5), (5, 6, 6)")
COUNTED = (
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts ORDER BY id LIMIT 2",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 ORDER BY id DESC LIMIT 1, 2",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 ORDER BY id LIMIT 2 OFFSET 3",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 LIMIT 2 OFFSET 30",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author IN (1, 3) ORDER BY id LIMIT 0",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author > 1 ORDER BY id LIMIT 1",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 9 LIMIT 3",
    "SELECT SQL_CALC_FOUND_ROWS author, COUNT(*) AS n FROM posts GROUP BY author HAVING n > 0 ORDER BY author LIMIT 1",
    "SELECT SQL_CALC_FOUND_ROWS posts.id FROM posts INNER JOIN meta ON (posts.id = meta.post) WHERE 1=1 AND "
    "(meta.v > 0) AND posts.status = 'a' GROUP BY posts.id ORDER BY posts.id DESC LIMIT 0, 1",
    "SELECT SQL_CALC_FOUND_ROWS DISTINCT author FROM posts ORDER BY author LIMIT 1",
    "SELECT SQL_CALC_FOUND_ROWS COUNT(*) FROM posts LIMIT 1",
    "SELECT SQL_CALC_FOUND_ROWS * FROM posts JOIN meta ON meta.post = posts.id ORDER BY meta.id LIMIT 2",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts ORDER BY id",
    "SELECT SQL_CALC_FOUND_ROWS 1",
    "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE id < (SELECT COUNT(*) FROM meta) ORDER BY id LIMIT 1",
    "SELECT id FROM posts ORDER BY id LIMIT 2",
    "SELECT id FROM posts WHERE author = 1 ORDER BY id",
    "SELECT id FROM posts WHERE author = 77",
    "SELECT 1",
)
FOUND = "SELECT FOUND_ROWS()"


def execute(c: Any, text: str) -> None:
    rows(c, text)


@pytest.fixture(params=[1, 2], ids=["one front end", "two"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria", front_ends=request.param)
    with found.connect() as c:
        for text in SETUP:
            execute(c, text)
    yield found
    found.close()


@needs_mariadb
def test_each_number_is_mariadbs(server: LocalServer, tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        with server.connect() as ours, mariadb.connect() as theirs:
            for text in SETUP:
                execute(theirs, text)
            for again in range(3):  # parsed, by its shape, from a kept reply
                for text in COUNTED:
                    assert rows(ours, text) == rows(theirs, text), text
                    assert (again, text, rows(ours, FOUND)) == (again, text, rows(theirs, FOUND))
                    assert rows(ours, FOUND) == rows(theirs, FOUND) == [(1,)]
            for text in ("INSERT INTO posts VALUES ({}, 1, 'x')", "SET @a = {}", "UPDATE posts SET status = 'y' "
                         "WHERE id = {}", "DELETE FROM posts WHERE id = {}", "SHOW TABLES LIKE 'none{}'"):
                for c in (ours, theirs):
                    for n in range(3):
                        execute(c, "SELECT id FROM posts WHERE author = 3")
                        execute(c, text.format(100 + n))
                assert rows(ours, FOUND) == rows(theirs, FOUND), text
            for c in (ours, theirs):
                execute(c, "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 ORDER BY id LIMIT 2")
            assert rows(ours, "SELECT FOUND_ROWS() + 1, id FROM posts WHERE author = 3") == rows(
                theirs, "SELECT FOUND_ROWS() + 1, id FROM posts WHERE author = 3")
    finally:
        mariadb.close()


def test_prepared_statements_count_and_ask(server: LocalServer) -> None:
    with server.connector() as c:
        for author, first, count in ((1, [1, 2], 4), (2, [4], 1), (1, [1, 2], 4), (9, [], 0)):
            with c.cursor(prepared=True) as cursor:
                cursor.execute("SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = ? ORDER BY id LIMIT ?",
                               (author, 2))
                assert [r[0] for r in cursor.fetchall()] == first
            with c.cursor(prepared=True) as cursor:
                cursor.execute(FOUND)
                assert cursor.fetchall() == [(count,)]
        for _ in range(4):
            with c.cursor(prepared=True) as cursor:
                cursor.execute("SELECT id FROM posts WHERE author = ?", (1,))
                cursor.fetchall()
            with c.cursor(prepared=True) as cursor:
                cursor.execute("SELECT ?, FOUND_ROWS()", (7,))
                assert cursor.fetchall() == [(7, 4)]


def test_a_count_sees_the_transaction(server: LocalServer) -> None:
    with server.connect() as c, server.connect() as other:
        execute(c, "BEGIN")
        execute(c, "INSERT INTO posts VALUES (50, 1, 'a'), (51, 1, 'a')")
        execute(c, "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 ORDER BY id LIMIT 2")
        assert rows(c, FOUND) == [(6,)]
        execute(other, "SELECT SQL_CALC_FOUND_ROWS id FROM posts WHERE author = 1 ORDER BY id LIMIT 2")
        assert rows(other, FOUND) == [(4,)]
        execute(c, "ROLLBACK")


def test_a_kept_reply_counts_for_a_text_that_executes(server: LocalServer) -> None:
    with server.connect() as c:
        execute(c, "PREPARE p FROM 'SELECT FOUND_ROWS()'")
        for _ in range(4):
            execute(c, "SELECT id FROM posts WHERE author = 1")
            assert rows(c, "EXECUTE p") == [(4,)]


def test_refused_within_queries_and_with_locks(server: LocalServer) -> None:
    with server.connect() as c:
        assert code(c, "SELECT id FROM posts WHERE id IN (SELECT SQL_CALC_FOUND_ROWS id FROM posts)") == 1235
        assert code(c, "SELECT SQL_CALC_FOUND_ROWS id FROM posts LIMIT 1 FOR UPDATE") == 1235
        assert code(c, "SELECT SQL_CALC_FOUND_ROWS DISTINCT * FROM posts LIMIT 1") == 1235
