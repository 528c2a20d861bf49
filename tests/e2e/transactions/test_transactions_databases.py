"""Transactions over several databases: qualified names, USE, LOCK TABLES, and DROP DATABASE, which commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run


@pytest.fixture(params=[(1, 1), (3, 2)], ids=["one worker", "three workers, two front ends"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    workers, front_ends = request.param
    server = LocalServer(tmp_path / "data", workers=workers, front_ends=front_ends)
    run(server.connect(), "CREATE DATABASE shop", "CREATE DATABASE old",
        *(f"CREATE TABLE {db}.t (id INT PRIMARY KEY, a INT)" for db in ("noria", "shop", "old")),
        "INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)", "INSERT INTO shop.t VALUES (1, 100), (2, 200), (3, 300)",
        "CREATE VIEW shop.total AS SELECT SUM(a) AS n FROM shop.t")
    yield server
    server.close()


ALL = "SELECT id, a FROM {} ORDER BY id"
OURS = [(1, 10), (2, 20), (3, 30)]
SHOP = [(1, 100), (2, 200), (3, 300)]


def test_qualified_names(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE shop.t SET a = a + 1", "DELETE FROM noria.t WHERE id = 2",
        "INSERT INTO shop.t VALUES (4, 400)")
    changed = [(1, 101), (2, 201), (3, 301), (4, 400)]
    assert run(a, ALL.format("shop.t")) == changed and run(a, ALL.format("t")) == [(1, 10), (3, 30)]
    assert run(a, "SELECT x.id, x.a, shop.t.a FROM t x JOIN shop.t ON x.id = shop.t.id ORDER BY x.id") == [
        (1, 10, 101), (3, 30, 301)]
    assert run(a, "SELECT n FROM shop.total") == [(1003,)]
    assert run(b, ALL.format("shop.t")) == SHOP and run(b, ALL.format("t")) == OURS
    run(a, "ROLLBACK")
    assert run(a, ALL.format("shop.t")) == SHOP and run(a, ALL.format("t")) == OURS
    run(a, "BEGIN", "UPDATE shop.t SET a = a + 1", "INSERT INTO shop.t VALUES (4, 400)", "COMMIT")
    assert run(b, ALL.format("shop.t")) == changed and run(b, ALL.format("t")) == OURS
    assert run(b, "SELECT n FROM shop.total") == [(1003,)]
    server.validate()


def test_use_within_a_transaction(server: LocalServer) -> None:
    """USE commits nothing, and the same text means another table after it."""
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = 11 WHERE id = 1", "USE shop", "UPDATE t SET a = 111 WHERE id = 1",
        "SAVEPOINT s", "DELETE FROM t WHERE id = 2")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(111,)] and run(a, "SELECT a FROM t WHERE id = 2") == []
    a.select_db("noria")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)] and run(a, "SELECT a FROM t WHERE id = 2") == [(20,)]
    assert run(b, ALL.format("t")) == OURS and run(b, ALL.format("shop.t")) == SHOP
    run(a, "ROLLBACK TO s")
    assert run(a, ALL.format("shop.t")) == [(1, 111), (2, 200), (3, 300)]
    run(a, "COMMIT")
    assert run(b, "SELECT a FROM t WHERE id = 1") == [(11,)]
    assert run(b, "SELECT a FROM shop.t WHERE id = 1") == [(111,)]
    server.validate()


def test_a_snapshot_is_of_all_databases(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(b, "USE shop", "BEGIN", "UPDATE t SET a = 0", "UPDATE noria.t SET a = 0", "COMMIT")
    for database, rows in (("shop", SHOP), ("noria", OURS)):
        run(a, f"USE {database}")
        assert run(a, ALL.format("t")) == rows
        assert run(b, ALL.format(f"{database}.t")) == [(i, 0) for i, _ in rows]
    run(a, "COMMIT")
    assert run(a, ALL.format("t")) == [(i, 0) for i, _ in OURS]


def test_locked_rows_are_those_of_one_database(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(b, "SET innodb_lock_wait_timeout = 1", "USE shop")
    run(a, "BEGIN", "UPDATE shop.t SET a = 0 WHERE id = 1")
    run(b, "UPDATE noria.t SET a = 5 WHERE id = 1", "BEGIN")
    assert refused(b, "UPDATE t SET a = 5 WHERE id = 1") == 1205
    run(a, "ROLLBACK")
    run(b, "UPDATE t SET a = 5 WHERE id = 1", "COMMIT")
    assert run(a, "SELECT a FROM shop.t WHERE id = 1") == [(5,)]


def test_lock_tables(server: LocalServer) -> None:
    """LOCK TABLES commits, and locks the table of the named database only."""
    a, b = server.connect(), server.connect()
    for session in (a, b):
        run(session, "SET lock_wait_timeout = 0")
    run(a, "BEGIN", "UPDATE shop.t SET a = 1 WHERE id = 1", "LOCK TABLES shop.t READ")
    assert run(b, "SELECT a FROM shop.t WHERE id = 1") == [(1,)]
    run(a, "LOCK TABLES shop.t WRITE")
    run(b, "USE shop", "UPDATE noria.t SET a = 2 WHERE id = 1", "BEGIN")
    assert refused(b, "UPDATE t SET a = 3 WHERE id = 1") == 1205
    assert refused(a, "UPDATE t SET a = 3 WHERE id = 1") == 1100
    run(a, "UPDATE shop.t SET a = 4 WHERE id = 1", "UNLOCK TABLES")
    run(b, "UPDATE t SET a = a + 1 WHERE id = 1", "COMMIT")
    assert run(a, "SELECT a FROM shop.t WHERE id = 1") == [(5,)]
    run(b, "LOCK TABLES t READ")
    assert refused(b, "UPDATE t SET a = 3 WHERE id = 1") == 1099
    assert refused(a, "DROP DATABASE shop") == 1205


@pytest.mark.parametrize("statement", ["DROP DATABASE old", "CREATE DATABASE new", "ALTER DATABASE shop COLLATE "
                                       "utf8mb4_bin", "DROP DATABASE IF EXISTS nix"])
def test_changes_of_databases_commit(server: LocalServer, statement: str) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE shop.t SET a = 1 WHERE id = 1", "INSERT INTO old.t VALUES (1, 1)", statement, "ROLLBACK")
    assert run(b, "SELECT a FROM shop.t WHERE id = 1") == [(1,)]
    server.validate()


def test_a_database_that_another_transaction_has_written_is_dropped_later(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "USE old", "BEGIN", "INSERT INTO t VALUES (1, 1)")
    dropping = Waiting(b, "DROP DATABASE old")
    run(a, "INSERT INTO t VALUES (2, 2)")
    assert dropping.waits()
    run(a, "COMMIT")
    assert dropping.end() is None
    assert refused(a, "INSERT INTO t VALUES (2, 2)") == 1049
    run(a, "USE shop")
    run(b, "CREATE DATABASE old", "CREATE TABLE old.t (id INT PRIMARY KEY, a INT)")
    assert run(a, ALL.format("old.t")) == []
    run(a, "BEGIN", "INSERT INTO old.t VALUES (1, 7)", "COMMIT")
    assert run(b, ALL.format("old.t")) == [(1, 7)]
    server.validate()
