"""UPDATE and DELETE that scan a large table within a transaction: their keys are found first, and written in parts.

Every table counts as large here, and a part has few keys.  SQLite, which runs the same statements, is the oracle."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run
from noria.core.statements import Delete, Update
from seeds import cases

SCHEMA = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10))",
    "CREATE TABLE c (x INT, y VARCHAR(10), n INT, PRIMARY KEY (x, y))",
)
VIEWS = {
    "by_a": "SELECT a, COUNT(*), MAX(id) FROM t GROUP BY a",
    "joined": "SELECT t.id, c.y, c.n FROM t JOIN c ON c.x = t.a",
}
WRITES = (
    "UPDATE t SET a = a + 1", "UPDATE t SET b = 'x' WHERE a > {n}", "UPDATE t SET a = {n}, b = NULL WHERE b <> 'x'",
    "DELETE FROM t WHERE a = {n}", "DELETE FROM t WHERE a < {n} AND b = 'x'", "UPDATE c SET n = n + x WHERE n < {n}",
    "DELETE FROM c WHERE n = {n}", "UPDATE t SET a = NULL WHERE id > {n}", "DELETE FROM c WHERE y > 'm' AND x < {n}",
)


@pytest.fixture(autouse=True)
def few_keys_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KEYS_AT_ONCE", "COMPOSITE_KEYS_AT_ONCE"):
        monkeypatch.setattr(f"noria.server.sessions.transactions.transaction_service.{name}", 3)


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    made = LocalServer(tmp_path / "data", workers=request.param)
    program = made.executor.program

    async def is_large(statement: Any) -> bool:
        return True

    monkeypatch.setattr(program, "may_rewrite", lambda command: isinstance(command, Update | Delete))
    monkeypatch.setattr(program, "is_large", is_large)
    yield made
    made.close()


def same(connection: Any, lite: sqlite3.Connection) -> None:
    for text in ("SELECT * FROM t", "SELECT * FROM c", *VIEWS.values()):
        found, expected = run(connection, text), lite.execute(text).fetchall()
        assert sorted(map(str, found)) == sorted(map(str, expected)), text


@pytest.mark.parametrize("seed", range(cases(6)))
def test_random_transactions(server: LocalServer, seed: int) -> None:
    chance, lite = random.Random(seed), sqlite3.connect(":memory:", isolation_level=None)
    connection, other = server.connect(), server.connect()
    for text in (*SCHEMA, *(f"CREATE VIEW {name} AS {query}" for name, query in VIEWS.items())):
        run(connection, text)
        lite.execute(text)
    for values in ("INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 7}, '{chance.choice('xyz')}')" for n in range(40)),
                   "INSERT INTO c VALUES " + ", ".join(f"({n % 9}, '{chr(97 + n)}', {n % 5})" for n in range(25))):
        run(connection, values)
        lite.execute(values)
    for _ in range(5):
        both(connection, lite, "BEGIN")
        saved = False
        for _ in range(chance.randint(1, 5)):
            text = chance.choice(WRITES).format(n=chance.randrange(12))
            with connection.cursor() as cursor:
                assert cursor.execute(text) <= lite.execute(text).rowcount  # MySQL counts the rows that change
            same(connection, lite)
            if not saved and chance.random() < 0.3:
                both(connection, lite, "SAVEPOINT s")
                saved = True
            elif saved and chance.random() < 0.3:
                both(connection, lite, "ROLLBACK TO s")
                same(connection, lite)
        both(connection, lite, chance.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
        same(other, lite)
    server.validate()


def both(connection: Any, lite: sqlite3.Connection, text: str) -> None:
    run(connection, text)
    lite.execute(text)


def test_a_failed_part_undoes_the_others(server: LocalServer) -> None:
    connection, other = server.connect(), server.connect()
    run(connection, SCHEMA[0], "INSERT INTO t VALUES " + ", ".join(f"({n}, {n}, 'a')" for n in range(20)), "BEGIN",
        "UPDATE t SET b = 'kept' WHERE a < 5")
    assert refused(connection, "UPDATE t SET a = 2147483647 + id - 15") == 1264  # only its last rows do not fit
    assert run(connection, "SELECT SUM(a), SUM(b = 'kept') FROM t") == [(190, 5)]
    run(connection, "COMMIT")
    assert run(other, "SELECT SUM(a), SUM(b = 'kept') FROM t") == [(190, 5)]


def test_the_rows_are_locked_and_others_wait(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, SCHEMA[0], "INSERT INTO t VALUES " + ", ".join(f"({n}, {n}, 'a')" for n in range(20)), "BEGIN",
        "UPDATE t SET a = 0 WHERE b = 'a'")
    for n in (0, 13, 19):  # in the first, a middle and the last part
        assert refused(b, f"SELECT a FROM t WHERE id = {n} FOR UPDATE NOWAIT") == 3572
    waiting = Waiting(b, "UPDATE t SET a = a + 1 WHERE id = 13")
    run(a, "COMMIT")
    assert waiting.end() is None
    assert run(a, "SELECT SUM(a) FROM t") == [(1,)]


def test_a_table_without_a_primary_key_and_a_moved_key_are_refused(server: LocalServer) -> None:
    connection = server.connect()
    run(connection, SCHEMA[0], "CREATE TABLE k (a INT)", "INSERT INTO k VALUES (1)", "INSERT INTO t VALUES (1, 1, 'x')",
        "BEGIN")
    assert refused(connection, "UPDATE k SET a = 2") == 1235
    assert refused(connection, "UPDATE t SET id = id + 1 WHERE a = 1") == 1235
    run(connection, "UPDATE t SET a = 2", "COMMIT")
    assert run(connection, "SELECT * FROM t") == [(1, 2, "x")]


def test_serializable_notes_the_whole_condition(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, SCHEMA[0], "INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "BEGIN", "UPDATE t SET a = 9 WHERE b = 'x'")
    run(b, "INSERT INTO t VALUES (3, 3, 'x')")  # the UPDATE has not found it
    assert refused(a, "COMMIT") == 1213
    assert run(b, "SELECT id, a FROM t ORDER BY id") == [(1, 1), (2, 2), (3, 3)]


def test_a_write_that_keeps_foreign_keys_without_a_transaction(server: LocalServer) -> None:
    connection = server.connect()
    run(connection, "CREATE TABLE p (id INT PRIMARY KEY, g INT)",
        "CREATE TABLE k (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
        "INSERT INTO p VALUES " + ", ".join(f"({n}, {n % 2})" for n in range(20)),
        "INSERT INTO k VALUES " + ", ".join(f"({n}, {n % 20})" for n in range(50)))
    with connection.cursor() as cursor:
        assert cursor.execute("DELETE FROM p WHERE g = 1") == 10
    assert run(connection, "SELECT COUNT(*), SUM(p % 2) FROM k") == [(25, 0)]
    assert refused(connection, "UPDATE k SET p = 77 WHERE id > 3") == 1452
