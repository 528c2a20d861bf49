"""UPDATE IGNORE, DELETE IGNORE and LAST_INSERT_ID(value), compared with MariaDB."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = (
    "CREATE TABLE u (id INT PRIMARY KEY AUTO_INCREMENT, k INT UNIQUE, v INT CHECK (v < 100))",
    "INSERT INTO u (k, v) VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE parents (id INT PRIMARY KEY)", "INSERT INTO parents VALUES (1), (2), (3)",
    "CREATE TABLE children (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parents (id))",
    "INSERT INTO children VALUES (1, 1), (2, 3)",
    "CREATE TABLE seq (id INT PRIMARY KEY, n BIGINT NOT NULL)", "INSERT INTO seq VALUES (1, 41)",
    "CREATE TABLE bare (n INT)", "INSERT INTO bare VALUES (5)",
)
WRITES = (
    "UPDATE IGNORE u SET k = k + 1", "UPDATE IGNORE u SET k = 2, v = 7 WHERE id >= 1",
    "UPDATE IGNORE u SET id = 2 WHERE id = 1", "UPDATE IGNORE u SET v = v * 40",
    "UPDATE IGNORE u SET k = 9 ORDER BY id DESC",
    "DELETE IGNORE FROM u WHERE id = 3",
    "UPDATE IGNORE children SET p = id + 1", "UPDATE IGNORE children SET p = 7", "DELETE IGNORE FROM parents",
    "INSERT INTO u (k, v) VALUES (2, 5) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), v = VALUES(v)",
    "INSERT INTO u (k, v) VALUES (2, 5) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id)",
    "INSERT INTO u (k, v) VALUES (77, 5) ON DUPLICATE KEY UPDATE id = LAST_INSERT_ID(id), v = VALUES(v)",
    "UPDATE seq SET n = LAST_INSERT_ID(n + 1) WHERE id = 1", "UPDATE seq SET n = LAST_INSERT_ID(n + 1)",
    "UPDATE seq SET n = LAST_INSERT_ID(n + 1) WHERE id = 99", "UPDATE bare SET n = LAST_INSERT_ID(n * 2)",
    "UPDATE seq SET n = LAST_INSERT_ID(700)",
    "UPDATE u SET v = LAST_INSERT_ID(k), k = k + 1000 WHERE v < 99 ORDER BY id LIMIT 1",
)
TABLES = ("u", "parents", "children", "seq")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


def outcome(c: Any, text: str) -> tuple[Any, ...]:
    with c.cursor() as cursor:
        try:
            cursor.execute(text)
        except pymysql.err.MySQLError as e:
            return (e.args[0],)
        done = cursor.rowcount
    number = rows(c, "SELECT LAST_INSERT_ID()") if "LAST_INSERT_ID" in text and "id = 99" not in text else None
    return (done, number, [rows(c, f"SELECT * FROM {t} ORDER BY id")
                                                                 for t in TABLES])


@needs_mariadb
@pytest.mark.parametrize("within", [False, True], ids=["alone", "within a transaction"])
def test_outcomes_are_mariadbs(server: LocalServer, tmp_path: Path, within: bool) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        with server.connect() as ours, mariadb.connect() as theirs:
            for text in SETUP:
                rows(theirs, text)
            for text in WRITES:
                if within:
                    rows(ours, "BEGIN"), rows(theirs, "BEGIN")
                assert outcome(ours, text) == outcome(theirs, text), text
                if within:
                    rows(ours, "COMMIT"), rows(theirs, "COMMIT")
    finally:
        mariadb.close()


def test_prepared_and_refused(server: LocalServer) -> None:
    with server.connector() as c:
        for n in (42, 45, 48):
            with c.cursor(prepared=True) as cursor:
                cursor.execute("UPDATE seq SET n = LAST_INSERT_ID(n + ?) WHERE id = ?", (1 if n == 42 else 3, 1))
            with c.cursor(prepared=True) as cursor:
                cursor.execute("SELECT LAST_INSERT_ID()")
                assert cursor.fetchall() == [(n,)]
        with c.cursor(prepared=True) as cursor:
            cursor.execute("UPDATE IGNORE u SET k = ?", (2,))
            assert cursor.rowcount == 0
            assert cursor.warning_count == 2  # as MySQL 8 counts; MariaDB warns of none
    with server.connect() as c:
        assert code(c, "UPDATE u SET v = LAST_INSERT_ID(v) + 1") == code(c, "UPDATE IGNORE bare SET n = 1") == 1235
