"""SELECTs whose key is missing wait for its fill without a task.  Compared with SQLite while keys are evicted, and with
the task that such a statement had: KILL, time limits, dropped views, errors, lost fills."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Done, Evict, FillKeys, Read
from noria.server.outcomes import Client, PendingRead

TABLES = ("CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40))",
          "CREATE TABLE votes (story_id INT NOT NULL, user INT NOT NULL, PRIMARY KEY (story_id, user))")
VIEW = ("CREATE VIEW counted AS SELECT id, title, COUNT(user) AS n FROM stories LEFT JOIN votes ON story_id = id "
        "WHERE id = ? GROUP BY id, title")
READ = "SELECT title, n FROM counted WHERE id = ?"


@pytest.fixture(params=[1, 3])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    with noria.open(tmp_path / "data", workers=request.param) as opened:
        for text in (*TABLES, VIEW):
            opened.sql(text)
        yield opened


def sessions(db: Database, count: int) -> list[Any]:
    transport: Any = db.transport
    return [transport.sessions.connect(Client("root", "noria", 1000 + n, "here", False)) for n in range(count)]


def run(db: Database, work: Any) -> Any:
    transport: Any = db.transport
    return transport.run(asyncio.wait_for(work, 60))


def begun(session: Any, key: Any, text: str = READ) -> Any:
    return session.execute(session.prepare(text).handle, [key])


async def rows(answer: Any) -> Any:
    return (answer if not hasattr(answer, "__await__") else await answer).rows


def test_random_misses_evictions_and_writes(db: Database) -> None:
    """Whatever is missing when, each client sees what SQLite has."""
    chance, lite = random.Random(7), sqlite3.connect(":memory:", check_same_thread=False)
    for text in TABLES:
        lite.execute(text)
    asked = "SELECT title, COUNT(user) FROM stories LEFT JOIN votes ON story_id = id WHERE id = ? GROUP BY id, title"
    clients, pending, transport = sessions(db, 12), 0, cast(Any, db.transport)

    async def reads() -> None:
        nonlocal pending
        keys = [chance.randrange(40) for _ in clients]
        answers = [begun(session, key) for session, key in zip(clients, keys, strict=True)]
        pending += sum(isinstance(a, PendingRead) for a in answers)
        found = [await rows(a) for a in answers]
        assert found == [lite.execute(asked, (key,)).fetchall() for key in keys]

    for step in range(120):
        story, user = chance.randrange(40), chance.randrange(10_000)
        for text in (f"REPLACE INTO stories VALUES ({story}, {user % 7}, 'Story {user}')",
                     f"REPLACE INTO votes VALUES ({story}, {user})", f"DELETE FROM votes WHERE story_id = {user % 40}"
                     )[: 2 + (step % 5 == 0)]:
            db.sql(text)
            lite.execute(text)
        run(db, reads())
        if chance.random() < 0.4:
            transport.run(transport.link.ask(Evict(0, chance.choice((None, 200, 2_000)))))
    assert pending > 100


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        for text in (*TABLES, VIEW):
            opened.sql(text)
        opened.sql("INSERT INTO stories VALUES (1, 1, 'One'), (2, 1, 'Two')")
        yield opened


class Asked:
    """Records the packets of reads. `holds`: fills wait until it is set."""

    def __init__(self, db: Database, monkeypatch: pytest.MonkeyPatch, answer: Any = None):
        transport: Any = db.transport
        self.packets, self.holds = list[Any](), asyncio.Event()

        async def asks(ask: Any, packet: Any, *arguments: Any, **named: Any) -> Any:
            if isinstance(packet, FillKeys | Read):
                self.packets.append(packet)
            if isinstance(packet, FillKeys):
                if answer is not None:
                    return answer
                await self.holds.wait()
            return await ask(packet, *arguments, **named)

        for link in transport.executor.reads._link.staging_workers:
            monkeypatch.setattr(link, "ask", partial(asks, link.ask))


def test_clients_that_miss_share_a_packet(one: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONE-REQUEST: ten clients want two keys."""
    asked = Asked(one, monkeypatch)
    clients = sessions(one, 10)

    async def test() -> list[Any]:
        answers = [begun(session, 1 + n % 2) for n, session in enumerate(clients)]
        assert all(isinstance(a, PendingRead) for a in answers)
        asked.holds.set()
        return [await rows(a) for a in answers]

    assert run(one, test()) == [[("One", 0)], [("Two", 0)]] * 5
    assert {type(p) for p in asked.packets} == {FillKeys}
    assert sorted(key for p in asked.packets for key in p.keys) == [(1,), (2,)]


def test_a_key_that_is_not_filled_together_is_read_by_itself(one: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(one, monkeypatch, Done(0, False))
    (session,) = sessions(one, 1)

    async def test() -> Any:
        return await rows(begun(session, 1))

    assert run(one, test()) == [("One", 0)]
    assert [type(p) for p in asked.packets] == [FillKeys, Read]


def test_a_late_fill_gets_a_task_and_no_second_request(one: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(one, monkeypatch)
    (session,) = sessions(one, 1)

    async def test() -> Any:
        answer = begun(session, 1)
        task = asyncio.ensure_future(rows(answer))
        await answer.future
        assert answer.future.result() is False
        while session.running.command == "Sleep":
            await asyncio.sleep(0)
        asked.holds.set()
        return await task

    assert run(one, test()) == [("One", 0)]
    assert [type(p) for p in asked.packets] == [FillKeys]


@pytest.mark.parametrize("late", [False, True])
def test_kill_ends_it(one: Database, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    asked = Asked(one, monkeypatch)
    session, other = sessions(one, 2)

    async def test() -> None:
        answer = begun(session, 1)
        listed = await rows(other.query("SHOW PROCESSLIST", False))
        assert [row[4:7] for row in listed if row[0] == session.connection_id] == [
            ("Query", 0, "waiting for the worker")]
        task = asyncio.ensure_future(rows(answer))
        if late:
            await answer.future
            while session.running.command == "Sleep":
                await asyncio.sleep(0)
        await other.query(f"KILL QUERY {session.connection_id}", False)
        if not late:
            asked.holds.set()
        with pytest.raises(SqlError) as e:
            await task
        assert e.value.code == 1317
        asked.holds.set()
        assert await rows(begun(session, 2)) == [("Two", 0)]

    run(one, test())


def test_a_limited_statement_has_a_task(one: Database) -> None:
    (session,) = sessions(one, 1)

    async def test() -> None:
        hinted = "SELECT /*+ MAX_EXECUTION_TIME(9000) */ title, n FROM counted WHERE id = ?"
        assert not isinstance(answer := begun(session, 1, hinted), PendingRead)
        assert await rows(answer) == [("One", 0)]
        await session.query("SET max_execution_time = 9000", False)
        assert not isinstance(answer := begun(session, 2), PendingRead) and await rows(answer) == [("Two", 0)]

    run(one, test())


def test_a_view_that_is_dropped_or_redefined_meanwhile(one: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(one, monkeypatch)
    session, other = sessions(one, 2)

    async def test() -> None:
        answer = begun(session, 1)
        await other.query("CREATE OR REPLACE VIEW counted AS SELECT id, title, 7 AS n FROM stories WHERE id = ?", False)
        asked.holds.set()
        assert await rows(answer) == [("One", 7)]
        asked.holds.clear()
        answer = begun(session, 2)
        await other.query("DROP VIEW counted", False)
        asked.holds.set()
        with pytest.raises(SqlError) as e:
            await rows(answer)
        assert e.value.code == 1146

    run(one, test())


def test_an_error_of_a_row_is_the_errors_that_the_task_reports(one: Database) -> None:
    one.sql("CREATE VIEW large AS SELECT id, author * 9223372036854775807 AS product FROM stories WHERE id = ?")
    one.sql("INSERT INTO stories VALUES (3, 3, 'Three')")
    (session,) = sessions(one, 1)

    async def test() -> None:
        with pytest.raises(SqlError) as e:
            await rows(begun(session, 3, "SELECT product FROM large WHERE id = ?"))
        assert e.value.code == 1690 and session.warnings[0][1] == 1690
        assert await rows(begun(session, 1, "SELECT product FROM large WHERE id = ?")) == [(9223372036854775807,)]
        assert session.warnings == ()

    run(one, test())


def test_a_client_that_leaves(one: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(one, monkeypatch)
    session, other = sessions(one, 2)

    async def test() -> None:
        answer = begun(session, 1)
        waiting = begun(other, 1)
        session.close()
        assert session.running.command == "Sleep" and not answer.future.done()
        asked.holds.set()
        assert await rows(waiting) == [("One", 0)]

    run(one, test())


