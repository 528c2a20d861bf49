"""Deadlocks through locks of several kinds: LOCK TABLES, GET_LOCK, definitions and rows.

No wait here ends by time: each has minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, cut, refused, run, until


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, v INT, UNIQUE KEY (v))",
        "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE child (id INT PRIMARY KEY, u INT, FOREIGN KEY (u) REFERENCES u (id))",
        "INSERT INTO t VALUES (1, 10), (2, 20)", "INSERT INTO u VALUES (1, 10), (2, 20)")
    yield server
    assert server.executor.locks.waits == 0 and not server.executor.locks.busy
    assert server.ask("stats")["open_transactions"] == 0 and server.locks_waited_for() == 0
    server.close()


def patient(server: LocalServer) -> Any:
    session = server.connect()
    run(session, "SET lock_wait_timeout = 300", "SET innodb_lock_wait_timeout = 300")
    return session


@pytest.fixture()
def two(server: LocalServer) -> Iterator[tuple[Any, Any]]:
    a, b = patient(server), patient(server)
    yield a, b
    for session in (a, b):
        run(session, "ROLLBACK", "UNLOCK TABLES", "DO RELEASE_ALL_LOCKS()")


def waits(server: LocalServer, session: Any, text: str) -> Waiting:
    """Begin the statement, and return it once it waits for a session."""
    waiting = Waiting(session, text)
    until(lambda: any(row[7] == text and row[6] in ("User lock", "Waiting for table metadata lock")
                      for row in run(server.connect(), "SHOW FULL PROCESSLIST")))
    return waiting


def waits_for_row(server: LocalServer, session: Any, text: str) -> Waiting:
    """Begin the statement, and return it once it waits at a worker."""
    before = server.locks_waited_for()
    waiting = Waiting(session, text)
    until(lambda: server.locks_waited_for() > before)
    return waiting


IN_TRANSACTION = 1  # a bit of a client's server_status
WAIT_X = "SELECT GET_LOCK('x', 300)"


@pytest.mark.parametrize("write", ["UPDATE t SET v = 11 WHERE id = 1", "SELECT v FROM t WHERE id = 1 FOR UPDATE"])
def test_a_user_lock_and_a_row(server: LocalServer, two: tuple[Any, Any], write: str) -> None:
    """As in MySQL among its own locks: a statement is worth less than GET_LOCK."""
    a, b = two
    run(a, "BEGIN", "UPDATE t SET v = 12 WHERE id = 1")
    run(b, "SELECT GET_LOCK('x', 0)", "BEGIN", "UPDATE u SET v = 7 WHERE id = 1")
    waiting = waits(server, a, WAIT_X)
    assert refused(b, write) == 1213
    assert run(b, "SELECT v FROM u WHERE id = 1") == [(10,)]  # rolled back, and outside of the transaction
    assert waiting.waits()
    run(b, "DO RELEASE_LOCK('x')")
    assert waiting.end() is None and waiting.rows == [(1,)]
    run(a, "COMMIT")
    assert run(b, "SELECT v FROM t WHERE id = 1") == [(12,)]


def test_a_row_and_then_a_user_lock(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "BEGIN", "UPDATE t SET v = 12 WHERE id = 1")
    run(b, "SELECT GET_LOCK('x', 0)", "BEGIN")
    waiting = waits_for_row(server, b, "UPDATE t SET v = 11 WHERE id = 1")
    closing = Waiting(a, WAIT_X)
    assert waiting.end() == 1213
    run(b, "DO RELEASE_LOCK('x')")
    assert closing.end() is None and closing.rows == [(1,)]


@pytest.mark.parametrize("write", ["UPDATE t SET v = 11 WHERE id = 1", "UPDATE t SET v = v + 100",
                                   "INSERT INTO t VALUES (9, 12)", "DELETE FROM t"])
def test_a_user_lock_and_a_write_without_a_transaction(server: LocalServer, two: tuple[Any, Any], write: str) -> None:
    """The write waits on: GET_LOCK has the error."""
    a, b = two
    run(a, "BEGIN", "UPDATE t SET v = 12 WHERE id = 1")
    run(b, "SELECT GET_LOCK('x', 0)")
    waiting = waits_for_row(server, b, write)
    assert refused(a, WAIT_X) == 3058
    run(a, "ROLLBACK")
    assert waiting.end() is None


def test_a_locked_table_and_a_user_lock(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "LOCK TABLES t WRITE")
    run(b, "SELECT GET_LOCK('x', 0)", "BEGIN", "UPDATE u SET v = 7 WHERE id = 1")
    waiting = waits(server, b, "UPDATE t SET v = 11 WHERE id = 1")
    closing = Waiting(a, WAIT_X)
    assert waiting.end() == 1213
    run(b, "DO RELEASE_LOCK('x')")
    assert closing.end() is None and closing.rows == [(1,)]
    assert not b.server_status & IN_TRANSACTION
    assert run(b, "SELECT v FROM u WHERE id = 1") == [(10,)]  # rolled back


@pytest.mark.parametrize("use", ["SELECT v FROM t", "UPDATE t SET v = 12 WHERE id = 1",
                                 "SELECT v FROM t WHERE id = 1 FOR SHARE"])
@pytest.mark.parametrize("lock", ["LOCK TABLES t WRITE", "DROP TABLE t", "ALTER TABLE t ADD COLUMN w INT"])
@pytest.mark.parametrize("first", [True, False])
def test_who_waits_for_a_transaction_and_a_user_lock(server: LocalServer, two: tuple[Any, Any], use: str, lock: str,
                                                     first: bool) -> None:
    """The definition, or LOCK TABLES, is worth more: GET_LOCK has the error, which MySQL's sessions see, too."""
    a, b = two
    run(a, "BEGIN", use)
    run(b, "SELECT GET_LOCK('x', 0)")
    if first:
        waiting = waits(server, b, lock)
        assert refused(a, WAIT_X) == 3058
    else:
        closing = waits(server, a, WAIT_X)
        waiting = Waiting(b, lock)
        assert closing.end() == 3058
    assert waiting.waits()
    run(a, "COMMIT")
    assert waiting.end() is None


def test_a_locked_table_and_a_row_of_a_parent(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "BEGIN", "UPDATE u SET v = 7 WHERE id = 1", "UPDATE u SET v = 8 WHERE id = 2")
    run(b, "LOCK TABLES child WRITE")
    waiting = waits(server, a, "INSERT INTO child VALUES (1, 1)")
    assert refused(b, "INSERT INTO child VALUES (2, 1)") == 1213
    run(b, "UNLOCK TABLES")
    assert waiting.end() is None
    run(a, "COMMIT")
    assert run(b, "SELECT id FROM child") == [(1,)]


def test_three_sessions(server: LocalServer, two: tuple[Any, Any]) -> None:
    """A row, a user lock, and a table's definition."""
    (a, b), c = two, patient(server)
    run(a, "BEGIN", "UPDATE t SET v = 12 WHERE id = 1")
    run(b, "BEGIN", "SELECT v FROM u", "UPDATE child SET u = 1 WHERE id = 77")
    run(c, "SELECT GET_LOCK('x', 0)")
    locking = waits(server, c, "LOCK TABLES u WRITE")  # for b
    writing = waits_for_row(server, b, "UPDATE t SET v = 13 WHERE id = 1")  # for a
    naming = Waiting(a, WAIT_X)  # for c
    assert writing.end() == 1213
    assert locking.end() is None
    run(c, "DO RELEASE_LOCK('x')", "UNLOCK TABLES")
    assert naming.end() is None and naming.rows == [(1,)]


@pytest.mark.parametrize("how", ["KILL QUERY", "KILL", "close"])
def test_who_dies_within_a_wait_leaves_nothing(server: LocalServer, how: str) -> None:
    a, b, c = (patient(server) for _ in range(3))
    run(a, "BEGIN", "UPDATE t SET v = 12 WHERE id = 1", "SELECT GET_LOCK('y', 0)")
    run(b, "SELECT GET_LOCK('x', 0)", "BEGIN", "SELECT v FROM u")
    waiting = waits(server, b, "SELECT GET_LOCK('y', 300)")
    if how == "close":
        cut(b)
    else:
        run(c, f"{how} {b.thread_id()}")
    assert waiting.end() is not None
    until(lambda: len(run(c, "SHOW PROCESSLIST")) == (3 if how == "KILL QUERY" else 2))
    assert server.executor.locks.waits == 0
    assert run(a, "SELECT GET_LOCK('x', 0)") == [(0 if how == "KILL QUERY" else 1,)]
    if how == "KILL QUERY":
        run(b, "DO RELEASE_ALL_LOCKS()", "COMMIT")
    run(c, "LOCK TABLES u WRITE", "UNLOCK TABLES")
    run(a, "ROLLBACK")
    a.close()
    until(lambda: len(run(c, "SHOW PROCESSLIST")) <= 2)


def test_nothing_looks_for_deadlocks_while_holders_rest(server: LocalServer, two: tuple[Any, Any],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are asked only while a session for which others wait runs a statement."""
    a, b = two
    asked = list[object]()
    monkeypatch.setattr("noria.runtime.transactions.deadlock_watch.LOOK_S", 0.0)
    for link in server.executor.staging.staging_workers:
        ask = link.ask
        monkeypatch.setattr(link, "ask", lambda body, *more, ask=ask: asked.append(body) or ask(body, *more))
    run(a, "SELECT GET_LOCK('x', 0)")
    waiting = waits(server, b, WAIT_X)

    async def while_it_looks() -> None:
        await asyncio.sleep(0)

    for _ in range(50):
        server.embedded.run(while_it_looks())
    assert not asked
    run(a, "DO RELEASE_LOCK('x')")
    assert waiting.end() is None
