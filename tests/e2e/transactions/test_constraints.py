"""Constraints, generated columns and default expressions of rows that a transaction has staged; 1 and 3 workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import refused, run

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, n INT AS (a + b) STORED, "
         "v VARCHAR(20) AS (CONCAT('#', n)) VIRTUAL, d INT DEFAULT (a * 2), CONSTRAINT few CHECK (a < 100), KEY (n))")
STORED = [(1, 11, "#11", 20), (2, 22, "#22", 40), (3, 33, "#33", 60)]
ROWS = "SELECT id, n, v, d FROM t ORDER BY id"


@pytest.fixture(params=[1, 3])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), TABLE, "CREATE VIEW by_n AS SELECT id, v FROM t WHERE n = ?",
        "INSERT INTO t (id, a, b) VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3)")
    yield server
    server.close()


def test_a_row_that_breaks_a_check_is_not_staged(server: LocalServer) -> None:
    a = server.connect()
    run(a, "BEGIN", "INSERT INTO t (id, a, b) VALUES (4, 40, 4)")
    for text in ("INSERT INTO t (id, a, b) VALUES (5, 50, 5), (6, 600, 6), (7, 70, 7)",
                 "UPDATE t SET a = a + 65",  # only of the staged row is it too much
                 "INSERT INTO t (id, a) VALUES (4, 4) ON DUPLICATE KEY UPDATE a = a + 65",
                 "REPLACE INTO t (id, a) VALUES (1, 100)"):
        assert refused(a, text) == 3819
    assert refused(a, "INSERT INTO t (id, n) VALUES (5, 1)") == 3105
    assert run(a, ROWS) == [*STORED, (4, 44, "#44", 80)]
    run(a, "INSERT IGNORE INTO t (id, a, b) VALUES (8, 800, 8), (9, 9, 9)", "COMMIT")
    assert run(server.connect(), ROWS) == [*STORED, (4, 44, "#44", 80), (9, 18, "#18", 18)]
    assert refused(a, "UPDATE t SET a = 100 WHERE id = 4") == 3819
    server.validate()


def test_staged_rows_have_their_generated_columns(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(a, "SELECT id, v FROM by_n WHERE n = 11") == [(1, "#11")]
    run(a, "BEGIN", "INSERT INTO t (id, a, b) VALUES (4, 40, 4)", "UPDATE t SET a = a + 1, d = DEFAULT WHERE n = 11",
        "UPDATE t SET b = b + 1 WHERE v = '#44'")
    assert run(a, "SELECT id, v FROM by_n WHERE n = 12") == [(1, "#12")]
    assert run(a, "SELECT id, v FROM by_n WHERE n = 11") == []
    assert run(a, ROWS) == [(1, 12, "#12", 22), *STORED[1:], (4, 45, "#45", 80)]
    assert run(b, ROWS) == STORED
    run(a, "SAVEPOINT s", "DELETE FROM t WHERE n < 40", "ROLLBACK TO s")
    assert run(a, "SELECT SUM(n), COUNT(*) FROM t") == [(112, 4)]
    run(a, "ROLLBACK")
    assert run(a, ROWS) == STORED
    assert run(a, "SELECT id, v FROM by_n WHERE n = 11") == [(1, "#11")]
    run(a, "BEGIN", "UPDATE t SET b = b + 1", "COMMIT")
    assert run(b, "SELECT id, v FROM by_n WHERE n = 12") == [(1, "#12")]
    server.evict()
    assert run(b, "SELECT id, v FROM by_n WHERE n = 34") == [(3, "#34")]
    server.validate()


def test_a_check_that_is_added_meanwhile_holds_for_staged_rows(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "INSERT INTO t (id, a, b) VALUES (4, 90, 4)")
    server.define("ALTER TABLE t ADD CONSTRAINT fewer CHECK (a < 80)")
    assert refused(a, "COMMIT") == 1412
    assert run(a, ROWS) == STORED
    run(a, "BEGIN")
    assert refused(a, "INSERT INTO t (id, a, b) VALUES (4, 90, 4)") == 3819
    run(a, "ROLLBACK")
    run(b, "ALTER TABLE t ADD g INT AS (a * 3) VIRTUAL")
    run(a, "BEGIN", "INSERT INTO t (id, a, b) VALUES (4, 70, 4)", "UPDATE t SET b = b + 1 WHERE g = 60")
    assert run(a, "SELECT id, n, g FROM t ORDER BY id") == [(1, 11, 30), (2, 23, 60), (3, 33, 90), (4, 74, 210)]
    run(a, "COMMIT")
    assert run(b, "SELECT id, n, g FROM t ORDER BY id") == [(1, 11, 30), (2, 23, 60), (3, 33, 90), (4, 74, 210)]
    server.validate()


def test_a_generated_key_and_defaults(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE p (k VARCHAR(20) AS (CONCAT('k', x)) STORED PRIMARY KEY, x INT, y INT CHECK (y > 0))",
        "CREATE TABLE r (id INT PRIMARY KEY, at DATETIME DEFAULT (NOW()), x INT DEFAULT (1 + 1), y INT CHECK (y <> 3))",
        "BEGIN", "INSERT INTO p (x, y) VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO r (id, y) VALUES (1, 1), (2, 2)")
    assert refused(a, "INSERT INTO p (x, y) VALUES (9, 9), (2, 2)") == 1062
    assert refused(a, "UPDATE p SET y = y - 3 WHERE k = 'k3'") == 3819
    assert refused(a, "INSERT INTO r (id, y) VALUES (4, 4), (3, 3)") == 3819
    run(a, "UPDATE p SET y = y + 3 WHERE k = 'k3'", "COMMIT")
    assert run(a, "SELECT k, y FROM p ORDER BY k") == [("k1", 1), ("k2", 2), ("k3", 6)]
    assert run(a, "SELECT id, x, y, at IS NULL FROM r ORDER BY id") == [(1, 2, 1, 0), (2, 2, 2, 0)]
    server.validate()
