"""LOCK TABLES … WRITE: look-ups that no session answers wait, too: those of front ends, and over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run, until
from noria.client import Database
from noria.core.errors import SqlError

READ = "SELECT v FROM t WHERE id = 1"


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param, front_ends=2)
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20)", "INSERT INTO u VALUES (1, 10)",
        "CREATE VIEW by_v AS SELECT v, COUNT(*) AS n FROM t WHERE v = ? GROUP BY v")
    yield server
    server.close()


def is_waiting(server: LocalServer, number: int) -> bool:
    return any(row[0] == number and row[6] == "Waiting for table metadata lock"
               for row in run(server.connect(), "SHOW PROCESSLIST"))


def test_a_look_up_that_a_front_end_knows_waits(server: LocalServer) -> None:
    a, b = server.at(0), server.at(1)
    for _ in range(8):
        assert run(b, READ) == [(10,)] and run(b, "SELECT v FROM u WHERE id = 1") == [(10,)]
    run(a, "LOCK TABLES t READ")
    assert run(b, READ) == [(10,)]
    run(a, "LOCK TABLES t WRITE", "UPDATE t SET v = 11 WHERE id = 1")
    waiting = Waiting(b, READ)
    until(lambda: is_waiting(server, b.thread_id()))
    run(a, "UPDATE t SET v = 12 WHERE id = 1", "UNLOCK TABLES")
    assert waiting.end() is None and waiting.rows == [(12,)]
    run(b, "SET lock_wait_timeout = 0")
    run(a, "LOCK TABLES t WRITE")
    assert refused(b, READ) == 1205
    assert run(b, "SELECT v FROM u WHERE id = 1") == [(10,)]
    run(a, "UNLOCK TABLES")
    assert run(b, READ) == [(12,)]


def test_front_ends_answer_again_after_it(server: LocalServer) -> None:
    a, b = server.at(0), server.at(1)
    run(b, *[READ] * 8)
    run(a, "LOCK TABLES t WRITE", "UNLOCK TABLES")
    run(b, READ)

    def answered() -> int:
        front = server.mysql.fronts[1]
        return int(front.selects + front.replies.hits)

    before = answered()
    run(b, *[READ] * 8)
    assert answered() == before + 8


def test_a_front_end_that_joins_meanwhile_waits(server: LocalServer) -> None:
    a = server.at(0)
    run(server.at(1), *[READ] * 8)
    run(a, "LOCK TABLES t WRITE")
    gone = server.mysql.fronts[1]

    async def lose() -> None:
        server.mysql.ended[1].set()

    server.embedded.run(lose())
    until(lambda: run(a, "SHOW TABLES") and server.mysql.fronts[1] is not gone)
    b = server.at(1)
    run(b, "SET lock_wait_timeout = 0")
    assert refused(b, READ) == 1205 and refused(b, READ) == 1205
    run(a, "UNLOCK TABLES")
    assert run(b, READ) == [(10,)]


def test_a_front_end_on_another_host(server: LocalServer) -> None:
    a, far = server.at(0), server.far()
    b = server.connect(far.ready.result()[1])
    run(b, *[READ] * 8, "SET lock_wait_timeout = 0", READ)
    run(a, "LOCK TABLES t WRITE")
    assert refused(b, READ) == 1205
    run(a, "UNLOCK TABLES")
    assert run(b, READ) == [(10,)]
    b.close()
    server.embedded.run(far.end())


def test_what_a_transaction_reads_at_a_front_end_counts(server: LocalServer) -> None:
    a, b = server.at(0), server.at(1)
    run(b, *[READ] * 8, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    run(a, "SET lock_wait_timeout = 0")
    run(b, "BEGIN", READ)
    assert refused(a, "LOCK TABLES t WRITE") == 1205
    run(b, "COMMIT")
    run(a, "LOCK TABLES t WRITE")


def test_a_lost_front_end_leaves_nothing(server: LocalServer) -> None:
    """Its sessions have a lock, wait for one, and have read a table."""
    a, b, c, d = server.at(0), server.at(1), server.at(1), server.at(1)
    run(b, "LOCK TABLES t WRITE")
    run(c, "BEGIN", "SELECT v FROM u")
    waiting = Waiting(d, "LOCK TABLES u WRITE")
    until(lambda: is_waiting(server, d.thread_id()))
    queued = Waiting(a, "LOCK TABLES t WRITE, u WRITE")

    async def lose() -> None:
        server.mysql.ended[1].set()

    server.embedded.run(lose())
    assert queued.end() is None and waiting.end() is not None
    assert server.executor.locks.waits == 0
    run(a, "UNLOCK TABLES")
    assert not server.executor.locks.busy


def test_a_look_up_without_a_session_waits(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    a, db, found = server.connect(), Database(server.embedded), list[Any]()
    assert db.view("by_v").lookup(10) == [(10, 1)]
    run(a, "LOCK TABLES t WRITE", "UPDATE t SET v = 10")
    admitted = threading.Event()
    admit = server.executor.locks.admit

    async def told(*args: Any) -> None:
        admitted.set()
        await admit(*args)

    monkeypatch.setattr(server.executor.locks, "admit", told)
    reading = threading.Thread(target=lambda: found.append(db.view("by_v").lookup(10)))
    reading.start()
    assert admitted.wait(60) and not found
    run(a, "UPDATE t SET v = 20 WHERE id = 1", "UNLOCK TABLES")
    reading.join(60)
    assert found == [[(10, 1)]]
    monkeypatch.setattr("noria.server.answering.executor.LOCK_WAIT_S", 0.0)
    run(a, "LOCK TABLES t WRITE")
    with pytest.raises(SqlError) as e:
        db.view("by_v").lookup(10)
    assert e.value.code == 1205


def test_a_look_up_that_meets_a_new_lock_begins_again(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    a, db, found = server.connect(), Database(server.embedded), list[Any]()
    assert db.view("by_v").lookup(10) == [(10, 1)]
    many, begun, go_on = server.executor.reads.fetch_table, threading.Event(), asyncio.Event()

    async def slow(*args: Any) -> Any:
        begun.set()
        await go_on.wait()
        return await many(*args)

    monkeypatch.setattr(server.executor.reads, "fetch_table", slow)
    reading = threading.Thread(target=lambda: found.append(db.view("by_v").lookup(10)))
    reading.start()
    assert begun.wait(60)
    run(a, "LOCK TABLES t WRITE", "UPDATE t SET v = 10")

    async def release() -> None:
        go_on.set()

    server.embedded.run(release())
    run(a, "UPDATE t SET v = 20 WHERE id = 1", "UNLOCK TABLES")
    reading.join(60)
    assert found == [[(10, 1)]]
