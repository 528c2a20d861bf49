"""Transactions of Python programs: in this process and over HTTP, with one worker and with several."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria import aio
from noria.client import api
from noria.client.embedded import EmbeddedTransport
from server.local_services import LocalServices

ALL = "SELECT id, a FROM t ORDER BY id"
KINDS = [(1, False), (3, False), (1, True), (3, True)]
NAMES = ["embedded", "embedded, three workers", "HTTP", "HTTP, three workers"]


class Opened:
    """A database.  db: a client of it; other: another one, in the same process."""

    def __init__(self, embedded: EmbeddedTransport, url: str):
        self.embedded, self.url, self.other = embedded, url, api.Database(embedded)
        self.db = noria.connect(url) if url else self.other

    def waits(self) -> int:
        from noria.dataflow.messages.packets import Inspect

        return int(self.embedded.run(self.embedded.executor.ask(Inspect(0, "stats")))["lock_waits"])

    def held(self) -> int:
        async def counted() -> int:
            return len(self.embedded.sessions.held)

        return self.embedded.run(counted())

    def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(10_000):
            if holds():
                return
        raise AssertionError("it never held")

    def asynchronous(self) -> aio.Database:
        return aio.Database(self.db)


@pytest.fixture(params=KINDS, ids=NAMES)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    workers, over_http = request.param
    embedded = EmbeddedTransport(tmp_path / "data", workers=workers)
    embedded.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, KEY (a))", [])
    embedded.sql("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)", [])
    embedded.sql("CREATE VIEW by_a AS SELECT id, a FROM t WHERE a = ?", [])
    if over_http:
        with LocalServices(tmp_path, embedded=embedded) as services:
            found = Opened(embedded, f"http://127.0.0.1:{services.port}")
            yield found
            found.db.close()
    else:
        yield Opened(embedded, "")
    embedded.close()


def test_the_end_of_the_block_commits(opened: Opened) -> None:
    with opened.db.transaction() as tx:
        assert tx.sql("UPDATE t SET a = a + ? WHERE id = ?", [1, 1]).affected == 1
        assert tx.table("t").insert([(4, 40), (5, 10)]) == 2
        assert tx.table("t").update(2, a=21) == 1 and tx.table("t").delete(3) == 1
        assert tx.sql(ALL).rows == [(1, 11), (2, 21), (4, 40), (5, 10)]
        assert tx.view("by_a").lookup(10) == [(5, 10)]
        assert tx.view("by_a").lookup_many([11, 10]).column("__key").to_pylist() == [0, 1]
        assert opened.other.sql(ALL).rows == [(1, 10), (2, 20), (3, 30)]
        assert opened.other.view("by_a").lookup(10) == [(1, 10)]
        assert repr(tx).startswith("<noria transaction of ")
    assert opened.db.sql(ALL).rows == [(1, 11), (2, 21), (4, 40), (5, 10)]
    assert opened.held() == 0


def test_an_exception_rolls_back(opened: Opened) -> None:
    with pytest.raises(KeyError), opened.db.transaction() as tx:
        tx.sql("DELETE FROM t")
        raise KeyError("x")
    assert len(opened.db.sql(ALL)) == 3 and opened.held() == 0
    with pytest.raises(noria.SqlError, match="Duplicate"), opened.db.transaction() as tx:
        tx.table("t").insert([(7, 70)])
        tx.table("t").insert([(1, 0)])
    assert len(opened.db.sql(ALL)) == 3 and opened.held() == 0


def test_an_error_that_is_caught_leaves_it_open(opened: Opened) -> None:
    with opened.db.transaction() as tx:
        tx.table("t").insert([(7, 70)])
        with pytest.raises(noria.SqlError, match="Duplicate"):
            tx.sql("INSERT INTO t VALUES (1, 0)")
    assert len(opened.db.sql(ALL)) == 4


def test_savepoints_nest(opened: Opened) -> None:
    with opened.db.transaction() as tx:
        with tx.savepoint():
            tx.table("t").insert([(4, 40)])
            with pytest.raises(KeyError), tx.savepoint():
                tx.sql("DELETE FROM t")
                raise KeyError("x")
        with tx.savepoint():
            tx.sql("UPDATE t SET a = 0 WHERE id = 1")
    assert opened.db.sql(ALL).rows == [(1, 0), (2, 20), (3, 30), (4, 40)]


def test_levels_and_read_only(opened: Opened) -> None:
    with opened.db.transaction() as snapshot, opened.db.transaction("read committed", read_only=True) as latest:
        assert snapshot.sql(ALL).rows == latest.sql(ALL).rows
        opened.other.sql("UPDATE t SET a = 11 WHERE id = 1")
        assert snapshot.sql("SELECT a FROM t WHERE id = 1").rows == [(10,)]
        assert snapshot.view("by_a").lookup(11) == []
        assert latest.sql("SELECT a FROM t WHERE id = 1").rows == [(11,)]
        with pytest.raises(noria.SqlError) as e:
            latest.table("t").delete(1)
        assert e.value.code == 1792
    with pytest.raises(ValueError, match="isolation is one of"), opened.db.transaction("x; DROP TABLE t"):
        pass
    assert opened.held() == 0


def test_it_ends_early(opened: Opened) -> None:
    with opened.db.transaction() as tx:
        tx.table("t").delete(1)
        tx.commit()
        with pytest.raises(noria.SqlError, match="the transaction has ended"):
            tx.sql("SELECT 1")
    with opened.db.transaction() as tx:
        tx.table("t").delete(2)
        tx.rollback()
        with pytest.raises(noria.SqlError, match="the transaction has ended"):
            tx.table("t").insert([(9, 9)])
    with opened.db.transaction() as tx:
        tx.table("t").delete(3)
        tx.sql("CREATE TABLE u (id INT PRIMARY KEY)")  # commits
        with pytest.raises(noria.SqlError, match="the transaction has ended"):
            tx.view("by_a").lookup(1)
    assert opened.db.sql(ALL).rows == [(2, 20)] and opened.held() == 0


def test_what_is_not_of_the_transaction_is_refused(opened: Opened) -> None:
    with opened.db.transaction() as tx:
        with pytest.raises(noria.SqlError, match="shared memory within a transaction"):
            tx.view("by_a").attach()
        with pytest.raises(noria.SqlError, match="a feed within a transaction"):
            next(tx.table("t").changes())
    with pytest.raises(noria.SqlError, match="a transaction over several calls"):
        opened.db.sql("BEGIN")
    with pytest.raises(noria.SqlError, match="a transaction over several calls"):
        opened.db.sql("BEGIN; DELETE FROM t")
    opened.db.sql("BEGIN; DELETE FROM t WHERE id = 1; COMMIT")
    assert len(opened.db.sql(ALL)) == 2 and opened.held() == 0


class Meeting:
    """Two transactions that wait for each other: this one began with row 1, the other one has row 2 and wants row 1."""

    def __init__(self, opened: Opened):
        self._opened, self._begun = opened, threading.Event()
        self._go = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(60)

    def _run(self) -> None:
        with self._opened.other.transaction() as tx:
            tx.sql("UPDATE t SET a = a + 100 WHERE id = 2")
            tx.sql("UPDATE t SET a = a + 100 WHERE id = 3")  # it has more work
            self._begun.set()
            self._go.wait(60)
            tx.sql("UPDATE t SET a = a + 100 WHERE id = 1")

    def wait(self) -> None:
        self._go.set()
        self._opened.until(lambda: self._opened.waits() == 1)

    def end(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_a_deadlock_reaches_the_caller(opened: Opened) -> None:
    meeting = Meeting(opened)
    with pytest.raises(noria.SqlError) as e, opened.db.transaction() as tx:
        tx.sql("UPDATE t SET a = 0 WHERE id = 1")
        meeting.wait()
        tx.sql("UPDATE t SET a = 0 WHERE id = 2")
    assert e.value.code == 1213
    meeting.end()
    assert opened.db.sql(ALL).rows == [(1, 110), (2, 120), (3, 130)]


def test_a_deadlock_that_is_caught_is_no_commit(opened: Opened) -> None:
    meeting = Meeting(opened)
    with pytest.raises(noria.SqlError) as e, opened.db.transaction() as tx:
        tx.sql("UPDATE t SET a = 0 WHERE id = 1")
        meeting.wait()
        with pytest.raises(noria.SqlError):
            tx.sql("UPDATE t SET a = 0 WHERE id = 2")
    assert e.value.code == 1213
    meeting.end()


def test_transact_begins_again(opened: Opened) -> None:
    meeting, times = Meeting(opened), []

    def work(tx: noria.client.Transaction) -> int:
        tx.sql("UPDATE t SET a = a + 1 WHERE id = 1")
        if not times:
            meeting.wait()
        times.append(1)
        return tx.sql("UPDATE t SET a = a + 1 WHERE id = 2").affected

    assert opened.db.transact(work) == 1
    meeting.end()
    assert len(times) == 2 and opened.db.sql(ALL).rows == [(1, 111), (2, 121), (3, 130)]

    def fails(tx: noria.client.Transaction) -> None:
        times.append(1)
        raise noria.SqlError(1213 if len(times) < 100 else 1062, "40001", "x")

    with pytest.raises(noria.SqlError):
        opened.db.transact(fails, tries=3)
    assert len(times) == 5
    with pytest.raises(ValueError, match="tries"):
        opened.db.transact(fails, tries=0)


def test_serializable(opened: Opened) -> None:
    times: list[int] = []

    def work(tx: noria.client.Transaction) -> None:
        total = sum(a for _, a in tx.sql(ALL).rows)
        if not times:
            opened.db.sql("UPDATE t SET a = a + 1 WHERE id = 2")
        times.append(total)
        tx.sql("UPDATE t SET a = ? WHERE id = 1", [total])

    opened.db.transact(work, isolation="SERIALIZABLE")
    assert len(times) == 2 and times[1] == times[0] + 1
    assert opened.db.sql("SELECT a FROM t WHERE id = 1").rows == [(times[1],)]


def within_a_loop(opened: Opened, test: Callable[[aio.Database], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(opened.asynchronous()), 120))


def test_asyncio(opened: Opened) -> None:
    async def test(db: aio.Database) -> None:
        async with db.transaction() as tx:
            await tx.sql("UPDATE t SET a = ? WHERE id = 1", [11])
            assert await tx.table("t").insert([(4, 40)]) == 1
            assert await tx.view("by_a").lookup(11) == [(1, 11)]
            assert (await tx.view("by_a").lookup_many([40])).num_rows == 1
            with pytest.raises(KeyError):
                async with tx.savepoint():
                    await tx.table("t").delete(4)
                    raise KeyError("x")
            async with tx.savepoint():
                await tx.table("t").update(2, a=22)
            assert (await db.sql(ALL)).rows == [(1, 10), (2, 20), (3, 30)]
            assert repr(tx).startswith("<noria transaction of ")
        assert (await db.sql(ALL)).rows == [(1, 11), (2, 22), (3, 30), (4, 40)]
        with pytest.raises(KeyError):
            async with db.transaction("READ COMMITTED") as tx:
                await tx.sql("DELETE FROM t")
                raise KeyError("x")
        async with db.transaction() as tx:
            await tx.sql("DELETE FROM t")
            await tx.rollback()
        async with db.transaction() as tx:
            await tx.sql("DELETE FROM t WHERE id = 4")
            await tx.commit()
        assert (await db.sql(ALL)).rows == [(1, 11), (2, 22), (3, 30)]

        async def work(tx: aio.Transaction) -> int:
            return (await tx.sql("UPDATE t SET a = 1")).affected

        assert await db.transact(work) == 3

    within_a_loop(opened, test)
    assert opened.held() == 0


def test_asyncio_a_cancelled_one_is_rolled_back(opened: Opened) -> None:
    async def test(db: aio.Database) -> None:
        async def changes() -> None:
            async with db.transaction() as tx:
                await tx.sql("DELETE FROM t WHERE id = 2")
                await tx.sql("DELETE FROM t WHERE id = 1")

        with opened.other.transaction() as holder:
            holder.sql("UPDATE t SET a = 0 WHERE id = 1")
            task = asyncio.ensure_future(changes())
            await asyncio.to_thread(opened.until, lambda: opened.waits() == 1)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await db.sql(ALL)).rows == [(1, 0), (2, 20), (3, 30)]

    within_a_loop(opened, test)
    assert opened.held() == 0


def test_it_is_in_the_clients_database(opened: Opened) -> None:
    opened.other.sql("CREATE DATABASE shop")
    opened.other.sql("CREATE TABLE shop.t (id INT PRIMARY KEY, a INT)")
    opened.db.use("shop")
    with opened.db.transaction() as tx:
        tx.sql("INSERT INTO t VALUES (7, 70)")
        assert tx.table("t").insert([(8, 80)]) == 1 and tx.table("noria.t").insert([(9, 90)]) == 1
        assert tx.table("t").delete(7) == 1
        assert tx.sql("SELECT DATABASE()").rows == [("shop",)]
        assert tx.view("noria.by_a").lookup(90) == [(9, 90)]
        with pytest.raises(noria.SqlError, match="doesn't exist"):
            tx.view("by_a").lookup(90)
    assert opened.db.sql("SELECT id FROM t").rows == [(8,)]
    assert opened.db.sql("SELECT COUNT(*) FROM noria.t").rows == [(4,)]
