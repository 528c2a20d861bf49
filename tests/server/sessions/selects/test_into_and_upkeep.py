"""SELECT … INTO variables, CHECK, REPAIR and CHECKSUM TABLE, SHOW GRANTS, and t.* of two databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE t (id INT PRIMARY KEY, n INT, d DATE)",
         "INSERT INTO t VALUES (1, 10, '2024-01-02'), (2, 20, NULL), (3, NULL, NULL)",
         "CREATE DATABASE other", "CREATE TABLE other.t (id INT PRIMARY KEY, k INT)",
         "INSERT INTO other.t VALUES (2, 9)")
STATEMENTS = (
    "SELECT 1, 'a', NULL INTO @a, @b, @c", "SELECT @a, @b, @c", "SELECT id INTO @x FROM t WHERE id = 2",
    "SELECT @x + 1",
    "SELECT id FROM t WHERE id = 9 INTO @x", "SELECT @x", "SELECT id FROM t ORDER BY id INTO @x", "SELECT @x",
    "SELECT id, n FROM t WHERE id = 1 INTO @x", "SELECT id, n INTO @c, @D FROM t ORDER BY id DESC LIMIT 1",
    "SELECT @c, @d",
    "SELECT COUNT(*), SUM(n) FROM t INTO @n, @s", "SELECT @n, @s", "SELECT d INTO @d FROM t WHERE id = 1", "SELECT @d",
    "SELECT id FROM t WHERE id = 1 UNION SELECT 1 INTO @u", "SELECT @u", "SELECT t.n FROM t WHERE id = @u INTO @u",
    "SELECT @u", "WITH c AS (SELECT 5 AS v) SELECT v FROM c INTO @v", "SELECT @v",
    "SELECT id FROM t WHERE id = 2 FOR UPDATE INTO @f", "SELECT @f",
    "REPAIR TABLE t", "CHECK TABLE t", "CHECK TABLE t EXTENDED",
    "SELECT t.*, 5 FROM other.t JOIN {db}.t ON {db}.t.id = other.t.id", "SELECT t.id FROM t JOIN other.t",
    "SELECT t.* FROM t ORDER BY t.id", "SELECT SQL_NO_CACHE 1", "SELECT SQL_NO_CACHE id FROM t WHERE id = 1",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


def outcome(c: Any, text: str, database: str) -> Any:
    with c.cursor() as cursor:
        try:
            cursor.execute(text.replace("{db}", database))
        except pymysql.err.MySQLError as e:
            return e.args[0]
        found = [tuple(str(v).replace("oracle.", "noria.") if isinstance(v, str) else v for v in row)
                 for row in cursor.fetchall()]
        return cursor.rowcount, found


@needs_mariadb
def test_outcomes_are_mariadbs(server: LocalServer, tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        with server.connect() as ours, mariadb.connect() as theirs:
            for text in SETUP:
                rows(theirs, text)
            for text in STATEMENTS:
                assert outcome(ours, text, "noria") == outcome(theirs, text, "oracle"), text
    finally:
        mariadb.close()


def test_a_checksum_follows_the_rows(server: LocalServer) -> None:
    with server.connect() as c:
        seen = [rows(c, "CHECKSUM TABLE t, other.t, none")]
        assert seen[0][2] == ("noria.none", None)
        for text in ("UPDATE t SET n = 11 WHERE id = 1", "UPDATE t SET d = '2024-01-01' WHERE id = 3",
                     "INSERT INTO t VALUES (4, 1, NULL)", "DELETE FROM t WHERE id < 3"):
            rows(c, text)
            seen.append(rows(c, "CHECKSUM TABLE t"))
        assert len({found[0][1] for found in seen}) == 5
        rows(c, "CREATE TABLE same (id INT PRIMARY KEY, n INT, d DATE)")
        rows(c, "INSERT INTO same SELECT * FROM t")
        assert rows(c, "CHECKSUM TABLE same")[0][1] == seen[-1][0][1]


def test_grants_and_what_is_missing(server: LocalServer) -> None:
    grant = [("GRANT ALL PRIVILEGES ON *.* TO `root`@`%` WITH GRANT OPTION",)]
    with server.connect() as c:
        for text in ("SHOW GRANTS", "SHOW GRANTS FOR CURRENT_USER()", "SHOW GRANTS FOR CURRENT_USER",
                     "SHOW GRANTS FOR 'root'@'%'"):
            assert rows(c, text) == grant
        assert code(c, "SHOW GRANTS FOR 'x'@'%'") == 1141
        checked = rows(c, "CHECK TABLE none")
        assert [r[2] for r in checked] == ["Error", "status"]
        assert code(c, "SELECT id FROM t INTO OUTFILE '/tmp/x'") == 1235
        assert code(c, "SELECT 1 INTO @a,") == 1064
