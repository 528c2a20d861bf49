"""While one of several workers is down, its published views are read, and each session still reads its own writes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.errors import SqlError
from noria.core.keys import shard_of
from noria.core.types import INT
from noria.server.outcomes import Client, ResultSet
from noria.server.sessions.requests import complete
from noria.server.sessions.session import Session
from runtime.processes import run, within
from runtime.several import Several

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n INT)"
VIEW = "CREATE VIEW counted AS SELECT n, COUNT(*) AS c FROM t WHERE n = ? GROUP BY n"
READ = "SELECT n, c FROM counted WHERE n = ?"
TURNS = 2_000  # of the loop: a statement that needs no worker is answered in fewer


def at(worker: int, count: int) -> list[int]:
    """Numbers whose rows, or keys, are at this of two workers."""
    numbers = np.arange(1_000)
    return [int(n) for n in numbers[shard_of([numbers], [INT], 2) == worker][:count]]


async def ask(session: Session, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
    outcome: Any = (await within(complete(session, text, parameters), 100))[-1]
    return sorted(map(tuple, outcome.rows)) if isinstance(outcome, ResultSet) else []


async def begun(db: Several, ids: Sequence[int], key: int) -> Session:
    """Start, and return a session for which the key is present, with one row."""
    await db.start()
    await db.sql(TABLE)
    await db.sql(VIEW)
    await db.sql(f"INSERT INTO t VALUES ({ids[0]}, {key})")
    session = db.sessions.connect(Client("root", "noria", 77, "localhost", False))
    assert await ask(session, READ, key) == await db.sql(READ, key) == [(key, 1)]
    return session


async def check_reported_as_down(db: Several, absent: int) -> None:
    """A read that exceeds its time limit reports the worker that is down."""
    other = db.sessions.connect(Client("root", "noria", 79, "localhost", False))
    await ask(other, "SET max_execution_time = 300")
    why = r"exceeded \(300 ms\); meanwhile worker 1 is down \(its process \d+ has ended\); SET"
    with pytest.raises(SqlError, match=why):
        await ask(other, READ, absent)


def test_a_session_that_has_written_waits_for_the_worker_that_it_reads(tmp_path: Path) -> None:
    async def test() -> None:
        db, ids, (key,) = Several(tmp_path, 2), at(0, 4), at(1, 1)
        try:
            session = await begun(db, ids, key)
            await db.lose(1)
            assert await db.sql(READ, key) == [(key, 1)]  # a present key is read by a session without writes
            await ask(session, f"INSERT INTO t VALUES ({ids[1]}, {key})")
            reading = asyncio.ensure_future(ask(session, READ, key))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            assert not reading.done(), reading.result()
            assert await db.sql(READ, key) == [(key, 1)]
            await check_reported_as_down(db, at(1, 3)[2])
            db.spawn(1)
            assert await reading == [(key, 2)]
            assert await db.sql(READ, key) == [(key, 2)]
        finally:
            await db.stop()

    run(test, 300)


def test_the_deaths_of_a_worker_during_a_wait_are_reported(tmp_path: Path) -> None:
    async def test() -> None:
        db, ids, (key, absent) = Several(tmp_path, 2), at(0, 4), at(1, 2)
        try:
            await begun(db, ids, key)
            down = db.sessions._executor.lost_workers()
            assert down() == ""
            for times in ("1 time", "2 times"):
                await db.lose(1)
                assert f"worker 1 was lost {times} (the last time: its process" in down() and "restarted" in down()
                db.spawn(1)
                await within(db.links[1].up(), 100)
            assert down().endswith("has ended) and serves again") and db.sessions._executor.lost_workers()() == ""
            assert await db.sql(READ, absent) == []
        finally:
            await db.stop()

    run(test, 300)


def test_views_of_an_earlier_life_are_not_read_after_a_newer_write(tmp_path: Path) -> None:
    """A restarted worker publishes nothing before the first read that misses."""
    async def test() -> None:
        db, ids, (key,) = Several(tmp_path, 2), at(0, 4), at(1, 1)
        try:
            session = await begun(db, ids, key)
            await db.lose(1)
            db.spawn(1)
            await within(db.links[1].up(), 100)
            await ask(session, f"INSERT INTO t VALUES ({ids[1]}, {key})")
            assert await ask(session, READ, key) == [(key, 2)]
        finally:
            await db.stop()

    run(test, 300)


def test_a_session_reads_a_write_that_a_restarting_worker_made(tmp_path: Path) -> None:
    """The write was in flight when the worker was lost, and the restarted worker makes it before it has its graph.  So
    it sends no messages, and the other worker's views lack the row until it has gathered again."""
    async def test() -> None:
        db, ids, (key,) = Several(tmp_path, 2), at(0, 4), at(1, 1)
        try:
            session = await begun(db, ids, key)
            os.kill(db.alive[0].pid, signal.SIGSTOP)
            inserting = asyncio.ensure_future(ask(session, f"INSERT INTO t VALUES ({ids[1]}, {key})"))
            while not db.links[0].book.changes.sent:
                await asyncio.sleep(0)
            await db.lose(0)
            db.spawn(0)
            await inserting
            assert [messages for _, messages in session.unseen.values()] == [None], "unknown, so it must wait"
            assert await ask(session, READ, key) == [(key, 2)]
        finally:
            await db.stop()

    run(test, 300)


@pytest.mark.parametrize("when", ["before", "on the way"])
def test_statements_that_wait_for_one_worker_do_not_delay_the_other(tmp_path: Path, when: str) -> None:
    """Statements over both workers wait for the lost one, also if they were in flight.  Rows of the other worker are
    written and read meanwhile."""
    async def test() -> None:
        db, here, there = Several(tmp_path, 2), at(0, 9), at(1, 9)
        try:
            await begun(db, here, there[0])
            await db.sql("CREATE TABLE u (id INT PRIMARY KEY, code INT, UNIQUE (code))")
            texts = (f"INSERT INTO t VALUES ({here[1]}, 1), ({there[1]}, 1)",
                     f"UPDATE t SET id = {there[2]} WHERE n = 7",
                     f"INSERT INTO u VALUES ({here[3]}, 5)")
            if when == "before":
                await db.lose(1)
            else:
                os.kill(db.alive[1].pid, signal.SIGSTOP)
            waiting = [asyncio.ensure_future(db.sql(text)) for text in texts]
            for _ in range(TURNS):
                await asyncio.sleep(0)
            if when == "on the way":
                await db.lose(1)
            other = db.sessions.connect(Client("root", "noria", 78, "localhost", False))
            await ask(other, f"INSERT INTO t VALUES ({here[5]}, 9)")
            await ask(other, f"INSERT INTO t VALUES ({here[6]}, 7)")
            assert not any(w.done() for w in waiting)
            db.spawn(1)
            await asyncio.gather(*waiting)
            ids = sorted((here[0], here[1], there[1], here[5], there[2] if (await db.sql(
                "SELECT COUNT(*) FROM t WHERE n = 7 AND id = ?", there[2])) == [(1,)] else here[6]))
            assert [i for i, in await db.sql("SELECT id FROM t")] == sorted(ids, key=lambda i: str((i,)))
            assert await db.sql("SELECT id, code FROM u") == [(here[3], 5)]
        finally:
            await db.stop()

    run(test, 300)


def test_places_at_all_workers_are_released_if_one_is_lost(tmp_path: Path) -> None:
    """The last step of ADD UNIQUE reserves places in all queues.  It releases them if a worker is lost."""
    async def test() -> None:
        db, here, there = Several(tmp_path, 2), at(0, 9), at(1, 9)

        async def reserve_all() -> None:
            async with db.link._writes.places(True):
                pass

        try:
            await begun(db, here, there[0])
            os.kill(db.alive[1].pid, signal.SIGSTOP)
            before = asyncio.ensure_future(db.sql(f"INSERT INTO t VALUES ({there[1]}, 1)"))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            reserving = asyncio.ensure_future(reserve_all())
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await db.lose(1)
            other = db.sessions.connect(Client("root", "noria", 78, "localhost", False))
            await ask(other, f"INSERT INTO t VALUES ({here[5]}, 9)")
            assert not reserving.done() and not before.done()
            db.spawn(1)
            await within(asyncio.gather(reserving, before), 100)
        finally:
            await db.stop()

    run(test, 300)
