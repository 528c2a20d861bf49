"""Changes of definitions beside open transactions: they wait, and no transaction's rows are lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run


@pytest.fixture(params=[1, 3])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, a INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)", "CREATE TABLE u (id INT PRIMARY KEY)")
    yield server
    assert server.ask("stats")["open_transactions"] == 0
    server.close()


@pytest.mark.parametrize(("statement", "after"), [
    ("DROP TABLE t", None), ("TRUNCATE TABLE t", []), ("RENAME TABLE t TO w", None),
    ("ALTER TABLE t ADD COLUMN n INT DEFAULT 7", [(1, 10, 7), (2, 20, 7), (3, 30, 7), (4, 40, 7)]),
    ("ALTER TABLE t ADD UNIQUE KEY (a)", [(1, 10), (2, 20), (3, 30), (4, 40)])])
def test_it_waits_for_transactions(server: LocalServer, statement: str, after: list[tuple[int, ...]] | None) -> None:
    a, b, c = (server.connect() for _ in range(3))
    run(a, "BEGIN", "INSERT INTO t VALUES (4, 40)")
    waiting = Waiting(b, statement)
    while not [row for row in run(c, "SHOW PROCESSLIST") if row[6] == "Waiting for table metadata lock"]:
        assert waiting.waits()
    run(c, "INSERT INTO u VALUES (1)")
    assert run(c, "SELECT COUNT(*) FROM t") == [(3,)]
    run(a, "UPDATE t SET a = 10 WHERE id = 1", "COMMIT")
    assert waiting.end() is None
    if after is not None:
        assert run(c, "SELECT * FROM t ORDER BY id") == after
    elif "w" in statement:
        assert run(c, "SELECT COUNT(*) FROM w") == [(4,)]
    server.validate()


def test_later_transactions_queue_behind_it(server: LocalServer) -> None:
    a, b, c, d = (server.connect() for _ in range(4))
    run(a, "BEGIN", "SELECT a FROM t WHERE id = 2 FOR UPDATE")
    dropping = Waiting(b, "DROP TABLE t")
    while not [row for row in run(d, "SHOW PROCESSLIST") if row[6] == "Waiting for table metadata lock"]:
        assert dropping.waits()
    run(c, "BEGIN")
    later = Waiting(c, "UPDATE t SET a = 1 WHERE id = 3")
    assert run(d, "SELECT COUNT(*) FROM t") == [(3,)] and later.waits()
    run(a, "COMMIT")
    assert dropping.end() is None and later.end() == 1146


def test_it_gives_up_in_time(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "DELETE FROM t WHERE id = 1")
    run(b, "SET lock_wait_timeout = 0")
    assert refused(b, "DROP TABLE t") == 1205
    run(b, "DROP TABLE u")
    run(a, "ROLLBACK")
    run(b, "DROP TABLE t")


def test_a_table_that_is_made_again_loses_no_rows_in_silence(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "INSERT INTO t VALUES (4, 40)")
    run(b, "SET lock_wait_timeout = 0")
    assert refused(b, "DROP TABLE t") == 1205
    run(a, "COMMIT")
    assert run(b, "SELECT a FROM t WHERE id = 4") == [(40,)]
