"""Affected rows with CLIENT_FOUND_ROWS and without, beside MariaDB: rows that are inserted, changed or unchanged,
one by one and together, of one worker and of three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, n INT)",
          "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, n INT)",
          "CREATE TABLE s (x INT, y INT, n INT, PRIMARY KEY (x, y), UNIQUE KEY (n))")
UPDATES = "ON DUPLICATE KEY UPDATE n = VALUES(n)"
STATEMENTS = (
    f"INSERT INTO p VALUES (1, 1) {UPDATES}",
    f"INSERT INTO p VALUES (1, 2) {UPDATES}",
    f"INSERT INTO p VALUES (1, 2) {UPDATES}",
    f"INSERT INTO p VALUES (1, 2), (2, 2), (3, 3) {UPDATES}",
    f"INSERT INTO p VALUES (1, 2), (2, 5), (3, 3), (4, 4), (5, 5), (6, 6) {UPDATES}",
    f"INSERT INTO p VALUES (1, 2), (2, 5), (3, 3), (4, 4), (5, 5), (6, 6) {UPDATES}",
    f"INSERT INTO p VALUES (7, 1), (7, 1), (7, 2), (7, 2) {UPDATES}",
    "INSERT INTO p VALUES (1, 9), (2, 9) ON DUPLICATE KEY UPDATE n = n",
    "INSERT INTO p VALUES (1, 9), (8, 9) ON DUPLICATE KEY UPDATE n = n + 1",
    "INSERT INTO p VALUES (1, 9), (2, 9) ON DUPLICATE KEY UPDATE id = id + 100",
    f"INSERT INTO a (u, n) VALUES (1, 1) {UPDATES}",
    f"INSERT INTO a (u, n) VALUES (1, 1) {UPDATES}",
    f"INSERT INTO a (u, n) VALUES (1, 2) {UPDATES}",
    f"INSERT INTO a (u, n) VALUES (1, 2), (2, 2), (3, 3) {UPDATES}",
    f"INSERT INTO a (u, n) VALUES (1, 3), (2, 2), (4, 4) {UPDATES}",
    f"INSERT INTO s VALUES (1, 1, 1), (1, 2, 2) {UPDATES}",
    f"INSERT INTO s VALUES (1, 1, 1), (1, 2, 3), (2, 2, 4) {UPDATES}",
    "INSERT INTO s VALUES (9, 9, 1), (9, 8, 3) ON DUPLICATE KEY UPDATE y = y",
    "INSERT IGNORE INTO p VALUES (1, 1), (50, 1), (51, 1)", "INSERT IGNORE INTO p VALUES (50, 1)",
    "REPLACE INTO p VALUES (50, 1), (51, 2), (52, 3)", "REPLACE INTO p VALUES (50, 1)",
    "REPLACE INTO s VALUES (9, 8, 3)", "REPLACE INTO s VALUES (9, 8, 3), (9, 8, 3)",
    "REPLACE INTO a (id, u, n) VALUES (1, 1, 5)", "REPLACE INTO a (id, u, n) VALUES (1, 1, 5)",
    "UPDATE p SET n = 3", "UPDATE p SET n = 3", "UPDATE p SET n = 4 WHERE id = 3", "UPDATE p SET n = 4 WHERE id = 3",
    "UPDATE p SET n = 4 WHERE id = 3333", "DELETE FROM p WHERE n = 3",
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


def counts(connection: Any) -> list[Any]:
    """Of each statement the affected rows and ROW_COUNT()."""
    found: list[Any] = []
    with connection.cursor() as cursor:
        for text in TABLES:
            cursor.execute(text)
        for text in STATEMENTS:
            try:
                affected = cursor.execute(text)
                words = (connection._result.message or b"").decode().split("Warnings")[0]
                cursor.execute("SELECT ROW_COUNT()")
                found.append((text, affected, words, cursor.fetchall()))
            except pymysql.MySQLError as e:
                found.append((text, e.args[0]))
    return found


@pytest.mark.parametrize("flag", [0, CLIENT.FOUND_ROWS], ids=["changed", "found"])
@pytest.mark.parametrize("workers", [1, 3])
def test_affected_rows(maria: MariaDb, tmp_path: Path, workers: int, flag: int) -> None:
    with pymysql.connect(unix_socket=maria.socket, user="root", autocommit=True, client_flag=flag) as connection:
        with connection.cursor() as cursor:
            for text in ("DROP DATABASE IF EXISTS counted", "CREATE DATABASE counted", "USE counted"):
                cursor.execute(text)
        wanted = counts(connection)
    local = LocalServer(tmp_path / "data", workers=workers, front_ends=1)
    try:
        with pymysql.connect(host="127.0.0.1", port=local.mysql.address[1], user="root", autocommit=True,
                             client_flag=flag, ssl_disabled=True) as connection:
            assert [pair for pair in zip(counts(connection), wanted, strict=True) if pair[0] != pair[1]] == []
    finally:
        local.close()
