"""A new UNIQUE index is compared among several workers while they are written: against a model, step by step."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert
from noria.core.types import INT, Column, IndexDef, TableDef
from noria.dataflow.messages.packets import Done, UniqueEntries
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.transactions import unique
from noria.runtime.transactions.unique import UniqueIndexCheck
from noria.storage.online import comparing
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False), Column("a", INT)), (0,), (), 1)
TARGET = TableDef("t", T.columns, (0,), (IndexDef("u", (1,), True),), 1)
WORKERS = 3


class Worker:
    """A store behind a link; clients write between an answer and its receipt."""

    def __init__(self, path: Path, tables: Tables):
        self.store, self.tables, self.seq = RocksStore(str(path), PlainSymbols()), tables, 0
        self.store.create_table(T)
        self.set_recipe()
        self.rows: dict[int, int | None] = {}
        self.lost = False

    def set_recipe(self) -> None:
        self.seq += 1
        self.store.set_recipe([], 1, self.seq)

    def write(self, statement: Any) -> None:
        self.seq += 1
        (result,), _ = self.store.write([statement], 1, self.seq)
        assert result.error is None

    def put(self, id: int, a: int | None) -> None:
        self.remove(id)
        self.rows[id] = a
        self.write(Insert("t", (0, 1), [(id, a)]))

    def remove(self, id: int) -> None:
        self.rows.pop(id, None)
        self.write(Delete("t", call("eq", col(0, INT), const(id, INT))))

    async def ask(self, body: Any, retry: bool = False) -> Any:
        assert isinstance(body, UniqueEntries)
        if self.lost and retry:
            await asyncio.Event().wait()  # its next life
        if self.lost:
            raise WorkerUnavailable("it has ended")
        try:
            reply = Done(0, self.store.entries(body.table, body.columns, body.what, body.arguments))
        except SqlError as error:
            reply = Done(0, error=error)
        self.tables.others(body.what)
        return reply


class Tables:
    """Values from 0 to 199.  Two rows have the same value only while it moves between workers."""

    def __init__(self, path: Path, seed: int):
        self.chance, self.still, self.twice = random.Random(seed), False, None
        self.workers = [Worker(path / str(w), self) for w in range(WORKERS)]
        self.moving: dict[int, int] = {}  # by value: the worker that it leaves
        for n in range(150):
            self.workers[n % WORKERS].put(n, self.chance.choice([n, None]))

    twice: int | None

    def others(self, what: str) -> None:
        """Let clients write meanwhile."""
        for _ in range(0 if self.still else self.chance.randrange(4)):
            self.step()

    def step(self) -> None:
        value = self.chance.randrange(200)
        if value in self.moving:  # the other half of a statement
            self.workers[self.moving.pop(value)].remove(value)
        elif (w := self.holder(value)) is None:
            self.workers[self.chance.randrange(WORKERS)].put(value, value)
        elif self.chance.random() < 0.5:
            self.workers[w].remove(value)
        else:
            self.moving[value] = w
            self.workers[(w + 1) % WORKERS].put(value, value)

    def holder(self, value: int) -> int | None:
        return next((w for w in range(WORKERS) if self.workers[w].rows.get(value, -1) == value), None)

    def repeat(self, value: int) -> None:
        """From now on two workers have the value."""
        self.moving.pop(value, None)
        for w in (0, 1):
            self.workers[w].put(1000 + w, value)
        self.twice = value

    @asynccontextmanager
    async def nothing_written(self) -> AsyncIterator[None]:
        for value in list(self.moving):  # groups end first
            self.workers[self.moving.pop(value)].remove(value)
        self.still = True
        try:
            yield
        finally:
            self.still = False

    async def compare(self) -> None:
        for w in self.workers:
            fitting = w.store.begin_fitting(TARGET)
            while not fitting.step(7):
                self.others("fit")
        links: Any = self.workers
        index = UniqueIndexCheck(links, TARGET, (1,))
        await index.compare(self.nothing_written)
        async with self.nothing_written():
            await index.end()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(comparing, "COMPARED_ENTRIES", 7)
    monkeypatch.setattr(unique, "COMPARED_LAST", 3)
    yield


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_move_are_no_duplicates(tmp_path: Path, seed: int) -> None:
    tables = Tables(tmp_path, seed)
    asyncio.run(tables.compare())
    for w in tables.workers:
        w.store.alter_table(TARGET)
        w.set_recipe()
        w.store.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_duplicate_is_detected_whenever_it_is_written(tmp_path: Path, seed: int) -> None:
    tables = Tables(tmp_path, seed)
    after, step, steps = tables.chance.randrange(120), tables.others, 0

    def meanwhile(what: str) -> None:
        nonlocal steps
        steps += 1
        step(what)
        if steps >= after and tables.twice is None and not tables.still:
            tables.repeat(300 + tables.chance.randrange(3))

    tables.others = meanwhile
    with pytest.raises(SqlError) as e:
        asyncio.run(tables.compare())
        assert tables.twice is None, "it was not detected"
        raise SqlError(1062, "", "it came too late")
    assert e.value.code == 1062, e.value
    assert tables.twice is None or str(tables.twice) in e.value.message


@pytest.mark.parametrize("what", ["look again", "end"])
def test_the_check_does_not_wait_for_a_lost_worker(tmp_path: Path, what: str) -> None:
    """The check waited for the lost worker while all writes were paused.  The next check begins from the start, since
    the restarted worker has checked no rows."""
    tables = Tables(tmp_path, 1)

    def lost(step: str) -> None:
        if step == "within" and what == "look again":
            tables.repeat(300)  # the reported value is checked again while nothing is written
        tables.workers[2].lost |= tables.still

    async def compare() -> None:
        with pytest.raises(SqlError) as e:
            await asyncio.wait_for(tables.compare(), 20)
        assert e.value.code == 1412 and not tables.still and tables.workers[2].lost

    tables.others = lost
    asyncio.run(compare())


def test_a_worker_that_has_checked_no_rows_does_not_answer(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 1)
    worker = tables.workers[0]
    for what in ("noted", "edge"):
        with pytest.raises(SqlError) as e:
            worker.store.entries(TARGET, (1,), what, ())
        assert e.value.code == 1412
    worker.store.begin_fitting(TARGET)
    fitting = worker.store.table("t").fitting
    assert fitting is not None
    while not fitting.step(50):
        pass
    with pytest.raises(SqlError) as e:
        worker.store.entries(TARGET, (1,), "noted", ())
    assert e.value.code == 1412


def test_writes_that_are_faster_than_the_comparison_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The change fails; writes do not."""
    monkeypatch.setattr(comparing, "COMPARED_NOTED", 5)
    tables = Tables(tmp_path, 1)
    worker = tables.workers[0]
    fitting = worker.store.begin_fitting(TARGET)
    while not fitting.step(50):
        pass
    worker.store.entries(TARGET, (1,), "begin", ())
    for n in range(500, 510):
        worker.put(n, n)
    with pytest.raises(SqlError, match="written faster than they can be compared"):
        worker.store.entries(TARGET, (1,), "noted", ())
