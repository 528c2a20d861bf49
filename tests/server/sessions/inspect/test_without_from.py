"""SELECTs without FROM that read queries, variables and functions of the session; and these within other statements,
beside MariaDB, as texts and prepared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
SCHEMA = (
    "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, g INT, s VARCHAR(20), d DECIMAL(6,2), at DATETIME)",
    "INSERT INTO t (g, s, d, at) VALUES (1, 'a', 1.5, '2024-01-02 03:04:05'), (1, NULL, 2.25, NULL),"
    " (2, 'C', NULL, NULL)",
    "SET @n = 2, @s = 'A', @d = 1.5, @none = NULL",
)
STATEMENTS = (
    "SELECT EXISTS(SELECT 1 FROM t WHERE id = 1)", "SELECT NOT EXISTS(SELECT * FROM t WHERE id = 9) AS free",
    "SELECT (SELECT COUNT(*) FROM t), (SELECT MAX(d) FROM t) * 2, (SELECT s FROM t WHERE id = 9)",
    "SELECT (SELECT id FROM t)", "SELECT (SELECT id, g FROM t WHERE id = 1)", "SELECT (SELECT nope FROM t)",
    "SELECT 2 IN (SELECT id FROM t), 9 IN (SELECT id FROM t), NULL IN (SELECT id FROM t)",
    "SELECT 9 IN (SELECT g FROM t WHERE 0)",
    "SELECT 'x' NOT IN (SELECT s FROM t), 'c' IN (SELECT s FROM t), 1.5 IN (SELECT d FROM t)",
    "SELECT 3 = ANY (SELECT id FROM t), 3 <> ALL (SELECT id FROM t)",
    "SELECT IF(EXISTS(SELECT 1 FROM t WHERE g = 2), 'yes', 'no'), COALESCE((SELECT s FROM t WHERE id = 2), 'none')",
    "SELECT (SELECT (SELECT MAX(id) FROM t)) + (SELECT 4)", "SELECT (SELECT at FROM t WHERE id = 1)",
    "SELECT 'one' FROM DUAL WHERE EXISTS (SELECT 1 FROM t WHERE id = 1)",
    "SELECT 'one' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM t WHERE id = 1)", "SELECT 1 FROM DUAL WHERE 1 = 2",
    "SELECT 1 FROM DUAL WHERE NULL", "SELECT (SELECT 1) LIMIT 0",
    "SELECT @n, @n + 1, @s = 'a', CONCAT(@s, @n), @none IS NULL, @never IS NULL",
    "SELECT LAST_INSERT_ID() + 1, CONCAT(DATABASE(), '.', 't'), CONNECTION_ID() = CONNECTION_ID()",
    "SELECT LENGTH(UUID()), UUID() = UUID(), RAND() < 1, RAND() = RAND()",
    "SELECT @@autocommit + 1, @@session.sql_mode LIKE '%STRICT%'",
    # within other statements
    "SELECT id, @n FROM t WHERE g = @n", "SELECT id FROM t WHERE d >= @d",
    "SELECT id FROM t WHERE g = @none", "SELECT id FROM t WHERE id IN (@n, 9)", "SELECT id + @n FROM t ORDER BY 1",
    "SELECT g, COUNT(*) FROM t GROUP BY g HAVING COUNT(*) >= @n", "SELECT (SELECT COUNT(*) FROM t WHERE g = @n)",
    "SELECT COUNT(*) FROM t WHERE s = DATABASE()", "SELECT id FROM t WHERE id = LAST_INSERT_ID()",
    "SELECT id FROM t WHERE id = LAST_INSERT_ID() + @n - 2 AND at < NOW()", "SELECT id, DATABASE() FROM t WHERE id = 1",
    "INSERT INTO t (g, s) VALUES (@n, @s), (@n + 1, CONCAT(@s, 'x'))", "SELECT LAST_INSERT_ID()",
    "INSERT INTO t (g, s) VALUES (LAST_INSERT_ID(), DATABASE())", "SELECT g, s FROM t WHERE id = LAST_INSERT_ID()",
    "INSERT INTO t (g, s, d) VALUES ((SELECT MAX(g) FROM t x), DEFAULT, 1), (1, DEFAULT, (SELECT MIN(id) FROM t x))",
    "INSERT INTO t (g) VALUES ((SELECT id FROM t x))", "INSERT INTO t (g, s) VALUES ((SELECT 1))",
    "UPDATE t SET s = @s, g = g + @n WHERE id = @n", "UPDATE t SET g = LAST_INSERT_ID() WHERE id = 1",
    "DELETE FROM t WHERE id = @n + 1", "DELETE FROM t WHERE s = @never", "SELECT id, g, s, d FROM t ORDER BY id",
)
PREPARED = (
    ("SELECT EXISTS(SELECT 1 FROM t WHERE id = ?)", (1,)), ("SELECT EXISTS(SELECT 1 FROM t WHERE id = ?)", (9,)),
    ("SELECT (SELECT COUNT(*) FROM t WHERE g = ?) + ?", (1, 10)),
    ("SELECT ? FROM DUAL WHERE ? IN (SELECT id FROM t)", (5, 2)), ("SELECT id FROM t WHERE g = ? AND id >= @n", (1,)),
    ("INSERT INTO t (g, s) SELECT ?, 'p' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM t WHERE g = ?)", (7, 7)),
    ("INSERT INTO t (g, s) SELECT ?, 'p' FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM t WHERE g = ?)", (7, 7)),
    ("INSERT INTO t (g, s) VALUES (?, @s)", (8,)), ("UPDATE t SET s = ? WHERE g = @n", ("q",)),
    ("SELECT id, g, s FROM t WHERE id > ? ORDER BY id", (0,)),
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


def answers(connection: Any) -> list[Any]:
    found: list[Any] = []
    with connection.cursor() as cursor:
        for text in SCHEMA:
            cursor.execute(text)
        for text in STATEMENTS:
            try:
                affected = cursor.execute(text)
                found.append((text, affected, sorted(map(str, cursor.fetchall()))))
            except pymysql.MySQLError as e:
                found.append((text, e.args[0]))
    return found


@pytest.mark.parametrize("workers", [1, 3])
def test_beside_mariadb(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with maria.connect(f"items{workers}") as theirs:
        wanted = [(text, *(str(w).replace(f"items{workers}", "noria") for w in rest))
                  for text, *rest in answers(theirs)]
    with closing(LocalServer(tmp_path / "data", workers=workers)) as local, local.connect() as ours:
        ours.select_db("noria")
        got = [(text, *map(str, rest)) for text, *rest in answers(ours)]
    assert [pair for pair in zip(got, wanted, strict=True) if pair[0] != pair[1]] == []


def test_prepared_beside_mariadb(maria: MariaDb, tmp_path: Path) -> None:
    def run(connection: Any) -> list[Any]:
        plain = connection.cursor()
        for text in SCHEMA:
            plain.execute(text)
        found: list[Any] = []
        with connection.cursor(prepared=True) as cursor:
            for text, values in PREPARED:
                cursor.execute(text, values)
                found.append((text, cursor.rowcount if text[0] != "S" else cursor.fetchall()))
        return found

    theirs = maria.connector()
    theirs.cursor().execute("CREATE DATABASE prepared_items")
    theirs.database = "prepared_items"
    with closing(LocalServer(tmp_path / "data")) as local:
        ours = local.connector()
        assert [pair for pair in zip(run(ours), run(theirs), strict=True) if pair[0] != pair[1]] == []
        ours.close()
    theirs.close()
