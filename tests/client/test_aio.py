"""The API for asyncio: nothing of it holds up the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import noria
from noria import aio


def with_database(tmp_path: Path, test: Callable[[aio.Database], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with await aio.open(tmp_path / "data") as db:
            await db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
            await db.sql("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a")
            return await test(db)

    return asyncio.run(asyncio.wait_for(run(), 60))


def test_writes_and_reads(tmp_path: Path) -> None:
    async def test(db: aio.Database) -> None:
        table, view = db.table("t"), db.view("v")
        assert await table.insert([{"id": i, "a": i % 3} for i in range(9)]) == 9
        found = await asyncio.gather(*(view.lookup(a) for a in range(3)), view.lookup(a=2))
        assert found == [[(0, 3)], [(1, 3)], [(2, 3)], [(2, 3)]]
        assert await table.update(0, a=1) == 1 and await table.delete(3) == 1
        assert (await view.lookup_many([0, 1])).column("n").to_pylist() == [1, 4]
        assert (await db.sql("SELECT COUNT(*) FROM t WHERE id > ?", [4])).rows == [(4,)]
        with pytest.raises(noria.SqlError, match="nowhere"):
            await db.view("nowhere").lookup(1)
        assert repr(db).startswith("<noria database ") and repr(table).startswith("<noria table t")
        assert repr(view).startswith("<noria view v")

    with_database(tmp_path, test)


def test_changes_come_and_can_be_left(tmp_path: Path) -> None:
    async def test(db: aio.Database) -> None:
        await db.table("t").insert([(1, 1)])
        feed, seen, second = db.table("t").changes(), [], False
        async for some in feed:
            seen += list(some)
            if len(seen) == 1 and not second:
                second = await db.table("t").insert([(2, 2)]) == 1
            if len(seen) == 2:
                break
        assert seen == [(1, (1, 1)), (1, (2, 2))]
        await feed.aclose()

    with_database(tmp_path, test)


def test_a_call_that_is_cancelled_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(db: aio.Database) -> None:
        transport: Any = db._database.transport
        insert, begun = transport.insert, threading.Event()

        def slow(*arguments: Any) -> int:
            begun.set()
            return insert(*arguments)

        monkeypatch.setattr(transport, "insert", slow)
        call = asyncio.ensure_future(db.table("t").insert([(i, 0) for i in range(1_000)]))
        while not begun.is_set():
            await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while (await db.sql("SELECT COUNT(*) FROM t")).rows != [(1_000,)]:
            await asyncio.sleep(0)

    with_database(tmp_path, test)


def test_a_server_that_is_not_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with await aio.connect("http://127.0.0.1:9") as db:
            with pytest.raises(ConnectionError, match="start one with `noria serve`"):
                await db.sql("SELECT 1")

    asyncio.run(run())
    assert noria.aio is aio and "aio" in dir(noria)
