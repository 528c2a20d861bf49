"""AUTO_INCREMENT values and the workers of rows, while others set such values, empty or alter the table, or a worker is
down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import noria
from noria.core.errors import SqlError
from noria.core.keys import shard_of
from noria.core.types import INT
from noria.server.outcomes import Client
from noria.server.sessions.requests import complete
from runtime.processes import run, within
from runtime.several import Several


def play(path: Path, body: Callable[[Several], Awaitable[None]]) -> None:
    async def test() -> None:
        db = Several(path, 3)
        await db.start()
        try:
            await body(db)
        finally:
            await db.stop()

    run(test, 200)


def test_an_insert_without_free_values_is_refused_and_sent_nowhere(tmp_path: Path) -> None:
    with noria.open(str(tmp_path / "a"), workers=3) as db:
        db.sql("CREATE TABLE t (id TINYINT PRIMARY KEY AUTO_INCREMENT, v INT)")
        db.sql("INSERT INTO t (v) VALUES " + ", ".join("(1)" for _ in range(127)))
        for _ in range(4):
            with pytest.raises(SqlError, match="used up"):
                db.sql("INSERT INTO t (v) VALUES (2)")
        assert db.sql("SELECT COUNT(*) FROM t").rows == [(127,)]


def test_a_value_of_a_failed_statement_does_not_count(tmp_path: Path) -> None:
    with noria.open(str(tmp_path / "a"), workers=3) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(10))")
        db.sql("INSERT INTO t (v) VALUES ('a'), ('b')")
        with pytest.raises(SqlError, match="Duplicate"):
            db.sql("INSERT INTO t (id, v) VALUES (2147483647, 'x'), (1, 'duplicate')")
        for i in range(3, 9):
            assert db.sql("INSERT INTO t (v) VALUES ('new')").last_insert_id == i
            assert db.sql(f"SELECT v FROM t WHERE id = {i}").rows == [("new",)]
        db.sql("INSERT INTO t (id, v) VALUES (100, 'x')")
        assert db.sql("INSERT INTO t (v) VALUES ('new')").last_insert_id == 101
        db.sql("UPDATE t SET id = 200 WHERE id = 100")
        assert db.sql("INSERT INTO t (v) VALUES ('new')").last_insert_id == 201
        db.sql("TRUNCATE TABLE t")
        assert db.sql("INSERT INTO t (v) VALUES ('new')").last_insert_id == 1


INSERT_IDS = (  # statements, and MariaDB's mysql_insert_id() and LAST_INSERT_ID() after each
    ("INSERT INTO t (u, v) VALUES (1, 1)", 1, 1),
    ("INSERT INTO t (id, u, v) VALUES (10, 10, 1)", 10, 1),
    ("INSERT INTO t (id, u, v) VALUES (21, 21, 1), (20, 20, 1)", 20, 1),
    ("INSERT INTO t (u, v) VALUES (30, 1), (31, 1)", 22, 22),
    ("INSERT INTO t (id, u, v) VALUES (NULL, 40, 1), (50, 41, 1), (0, 42, 1)", 24, 24),
    ("INSERT INTO t (id, u, v) VALUES (60, 60, 1), (NULL, 61, 1)", 61, 61),
    ("INSERT INTO t (id, u, v) VALUES (-5, 600, 1)", -5, 61),
    ("INSERT INTO t (u, v) VALUES (1, 2) ON DUPLICATE KEY UPDATE v = 2", 1, 61),
    ("INSERT INTO t (u, v) VALUES (1, 2) ON DUPLICATE KEY UPDATE v = 2", 0, 61),
    ("INSERT INTO t (id, u, v) VALUES (77, 10, 1) ON DUPLICATE KEY UPDATE v = 98", 10, 61),
    ("INSERT INTO t (u, v) VALUES (1, 7), (10, 7) ON DUPLICATE KEY UPDATE v = 7", 10, 61),
    ("INSERT INTO t (u, v) VALUES (1, 1) ON DUPLICATE KEY UPDATE id = 500", 500, 61),
    ("INSERT INTO t (id, u, v) VALUES (10, 10, 1), (600, 601, 1) ON DUPLICATE KEY UPDATE v = 11", 600, 61),
    ("INSERT INTO t (id, u, v) VALUES (602, 602, 1), (10, 10, 1) ON DUPLICATE KEY UPDATE v = 12", 10, 61),
    ("INSERT INTO t (id, u, v) VALUES (NULL, 603, 1), (700, 10, 1) ON DUPLICATE KEY UPDATE v = 13", 603, 603),
    ("INSERT INTO t (id, u, v) VALUES (NULL, 10, 1), (800, 703, 1) ON DUPLICATE KEY UPDATE v = 14", 800, 603),
    ("INSERT INTO t (id, u, v) VALUES (801, 10, 1), (NULL, 705, 1), (900, 1, 1) ON DUPLICATE KEY UPDATE v = 15",
     802, 802),
    ("INSERT IGNORE INTO t (id, u, v) VALUES (10, 10, 1)", 0, 802),
    ("INSERT IGNORE INTO t (id, u, v) VALUES (10, 10, 1), (904, 900, 1)", 904, 802),
    ("INSERT IGNORE INTO t (id, u, v) VALUES (905, 901, 1), (10, 10, 1)", 10, 802),
    ("INSERT IGNORE INTO t (u, v) VALUES (904, 1), (10, 1)", 906, 906),
    ("INSERT IGNORE INTO t (id, u, v) VALUES (NULL, 10, 1), (950, 905, 1)", 950, 906),
    ("REPLACE INTO t (id, u, v) VALUES (1000, 10, 1)", 1000, 906),
    ("REPLACE INTO t (id, u, v) VALUES (1000, 10, 1)", 1000, 906),
    ("REPLACE INTO t (u, v) VALUES (10, 1), (1002, 1)", 1001, 1001),
    ("UPDATE t SET v = 77 WHERE u = 10", 0, 1001),
    ("INSERT INTO p VALUES (1, 1)", 1, 1001),
    ("INSERT INTO p VALUES (1, 1) ON DUPLICATE KEY UPDATE v = 2", 1, 1001),
    ("INSERT INTO p VALUES (1, 1), (6, 1) ON DUPLICATE KEY UPDATE v = 3", 6, 1001),
    ("INSERT INTO p VALUES (7, 1), (1, 1) ON DUPLICATE KEY UPDATE v = 4", 1, 1001),
    ("INSERT INTO p VALUES (5, 4), (NULL, 1), (1, 4) ON DUPLICATE KEY UPDATE v = 4", 8, 8),
    ("INSERT IGNORE INTO p VALUES (20, 1), (1, 1)", 1, 8),
    ("INSERT INTO k (g, v) VALUES (1, 1)", 1, 1),
    ("INSERT INTO k (id, g, v) VALUES (5, 2, 1)", 5, 1),
    ("INSERT INTO k (g, v) VALUES (1, 1) ON DUPLICATE KEY UPDATE v = 2", 1, 1),
    ("INSERT INTO k (id, g, v) VALUES (6, 2, 1) ON DUPLICATE KEY UPDATE v = 2", 5, 1),
)


@pytest.mark.parametrize("workers", [1, 3])
def test_the_insert_id_is_mysqls(tmp_path: Path, workers: int) -> None:
    """The insert id is also a row's explicit value; LAST_INSERT_ID() changes only with generated values."""
    with noria.open(str(tmp_path / "a"), workers=workers) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, u INT UNIQUE, v INT)")
        db.sql("CREATE TABLE p (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        db.sql("CREATE TABLE k (id INT AUTO_INCREMENT, g INT, v INT, PRIMARY KEY (g), KEY (id))")
        transport: Any = db.transport
        session = transport.sessions.connect(Client("root", "noria", 77, "localhost", False))

        def sql(text: str) -> Any:
            return transport.run(complete(session, text, []))[-1]

        for text, insert_id, last in INSERT_IDS:
            reported = sql(text).last_insert_id, *sql("SELECT LAST_INSERT_ID()").rows[0]
            assert (text, *reported) == (text, insert_id, last)


def test_each_value_is_assigned_once_while_others_set_some(tmp_path: Path) -> None:
    async def body(db: Several) -> None:
        await db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, hits INT)")
        await db.sql("INSERT INTO t (hits) VALUES " + ", ".join("(0)" for _ in range(20)))

        async def sets() -> None:
            for i in range(40):
                await db.sql("INSERT INTO t (id, hits) VALUES (1, 1) ON DUPLICATE KEY UPDATE "
                             + ("id = id" if i % 2 else "id = 1"))

        async def inserts() -> None:
            for _ in range(40):
                await db.sql("INSERT INTO t (hits) VALUES (1) ON DUPLICATE KEY UPDATE hits = hits + 1000")

        await asyncio.gather(sets(), inserts(), inserts(), inserts())
        assert await db.sql("SELECT COUNT(*), MAX(hits) FROM t") == [(140, 1)]

    play(tmp_path, body)


def test_a_statement_that_sets_a_value_waits_only_for_workers_that_it_needs(tmp_path: Path) -> None:
    async def body(db: Several) -> None:
        await db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        await db.sql("INSERT INTO t (v) VALUES " + ", ".join("(0)" for _ in range(30)))
        whose = {i: int(shard_of([np.array([i])], [INT], 3)[0]) for i in range(1, 31)}
        here, away = (next(i for i, w in whose.items() if w == worker) for worker in (0, 2))
        await db.lose(2)
        text = "INSERT INTO t (id, v) VALUES ({}, 1) ON DUPLICATE KEY UPDATE id = {}"
        await db.sql(text.format(here, here))
        client = db.sessions.connect(Client("a", "", db.sessions.processes.number(), "localhost", False))
        waits = asyncio.ensure_future(complete(client, text.format(away, away), ()))
        while not client.running.text:
            await asyncio.sleep(0)
        await db.sql(f"KILL QUERY {client.connection_id}")
        with pytest.raises(SqlError) as killed:
            await within(waits, 60)
        assert killed.value.code == 1317
        db.spawn(2)
        await within(db.link.up(), 60)

    play(tmp_path, body)


@pytest.mark.parametrize(("table", "insert", "alter"), [
    ("name VARCHAR(3) PRIMARY KEY, v INT", "INSERT INTO t VALUES ('{:x<4}', 1)", "MODIFY name VARCHAR(9)"),
    ("name INT DEFAULT 1, v INT, PRIMARY KEY (name, v)", "INSERT INTO t (v) VALUES ({})", "ALTER name SET DEFAULT 2")])
def test_rows_have_the_right_worker_after_a_concurrent_alter(tmp_path: Path, table: str, insert: str,
                                                                     alter: str) -> None:
    async def body(db: Several) -> None:
        await db.sql(f"CREATE TABLE t ({table})")
        done, over = list[int](), asyncio.Event()

        async def inserts(first: int) -> None:
            for i in range(first, first + 1000):
                try:
                    await db.sql(insert.format(i))
                    done.append(i)
                except SqlError as e:
                    assert e.code == 1406, e
                if over.is_set() and i > first + 20:
                    return

        tasks = [asyncio.ensure_future(inserts(1000 * n)) for n in range(1, 6)]
        await db.sql(f"ALTER TABLE t {alter}")
        over.set()
        await asyncio.gather(*tasks)
        rows = await db.sql("SELECT name, v FROM t")
        assert len(rows) == len(done)
        for name, v in rows:
            text = f"'{name}'" if isinstance(name, str) else name
            assert await db.sql(f"SELECT v FROM t WHERE name = {text} AND v = {v}") == [(v,)]

    play(tmp_path, body)
