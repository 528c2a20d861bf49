"""First reads, changes of views and TRUNCATE while their worker is killed: a real worker process, the program in this
one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from noria.control.program import Program
from noria.core import limits
from noria.dataflow.messages.packets import Migrate
from noria.runtime.link.link import WorkerLink
from noria.server.answering.executor import Executor
from noria.server.outcomes import ResultSet
from noria.server.sessions.sessions import Sessions
from noria.views.reader import attach
from runtime.processes import Nursery, config, run, within

ROWS = 3_000  # more than are built at once
PER_A = "SELECT a, COUNT(*) AS n FROM t GROUP BY a"
DEADLINE_S = 180  # several processes start one after the other
ALL = [(a, ROWS // 3) for a in range(3)]


class Database:
    """kill_at: its worker is killed when so many changes of the program have been sent; before: a moment before."""

    def __init__(self, path: Path):
        self.nursery = Nursery(replace(config(path), factory=WORKER))
        self.link = WorkerLink(self.nursery.config.endpoint, 1, on_lost=self.nursery.another)
        self.program = Program(self.link)
        self.link.on_hello = self.program.welcome
        views = str(self.nursery.config.run_dir / "views")
        self.executor = Executor(self.program, self.link, lambda worker: attach(views), None, 0)
        self.sessions = Sessions(self.executor)
        self.kill_at, self.before = 0, False
        self._submit, self.link.submit = self.link.submit, self._killing

    def _killing(self, body: Any) -> asyncio.Future[Any]:
        now = isinstance(body, Migrate) and self.kill_at == 1
        self.kill_at -= isinstance(body, Migrate)
        if now and self.before:
            self.nursery.children[-1].kill()
        sent = self._submit(body)
        if now and not self.before:
            asyncio.get_running_loop().call_soon(self.nursery.children[-1].kill)
        return sent

    async def rows(self, text: str) -> list[Any]:
        (outcome,) = await within(self.sessions.run(text, []), DEADLINE_S)
        return sorted(outcome.rows) if isinstance(outcome, ResultSet) else []

    async def kill(self) -> None:
        """And wait for the next one."""
        came = self.link.stats.workers
        self.nursery.children[-1].kill()
        while self.link.stats.workers == came:
            await asyncio.sleep(0.01)  # for another process, which may take its time
        await within(self.link.up(), DEADLINE_S)


WORKER = "noria.runtime.worker.worker_main:build_worker"


@asynccontextmanager
async def database(path: Path) -> AsyncIterator[Database]:
    made = Database(path)
    await made.link.start()
    try:
        made.nursery.another()
        await within(made.link.up(), DEADLINE_S)
        await made.rows("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        await made.executor.insert("t", pa.table({"id": range(ROWS), "a": [i % 3 for i in range(ROWS)]}), "error")
        yield made
    finally:
        made.link.on_lost = None
        await made.link.close()
        made.nursery.end()


@pytest.mark.parametrize("kill_at, before", [(1, False), (2, True)])
def test_a_first_read(tmp_path: Path, kill_at: int, before: bool) -> None:
    """Killed when the reader is asked for, or when it is noted that it was read."""
    async def test() -> None:
        async with database(tmp_path) as db:
            await db.rows(f"CREATE VIEW v AS {PER_A}")
            db.kill_at, db.before = kill_at, before
            assert await db.rows("SELECT * FROM v") == ALL
            for last in (False, True):  # again, and after another one
                assert await db.rows("SELECT * FROM v") == ALL and not db.program.why_readerless("v")
                found = await db.executor.lookup("v", pa.table({"": pa.nulls(1)}))
                assert sorted(zip(*(c.to_pylist() for c in found.columns[:2]), strict=True)) == ALL
                await db.rows("INSERT INTO t VALUES (-1, 5)")
                assert await db.rows("SELECT * FROM v") == [*ALL, (5, 1)]
                await db.rows("DELETE FROM t WHERE id = -1")
                if not last:
                    await db.kill()

    run(test, DEADLINE_S)


@pytest.mark.parametrize("change", ["DROP VIEW v", "CREATE OR REPLACE VIEW v AS SELECT id FROM t WHERE a = ?"])
def test_a_reader_that_is_handed_on(tmp_path: Path, change: str) -> None:
    async def test() -> None:
        async with database(tmp_path) as db:
            for text in (f"CREATE MATERIALIZED VIEW v AS {PER_A}", f"CREATE VIEW w AS {PER_A}"):
                await db.rows(text)
            assert db.program.why_readerless("w") == "its rows are those of v"
            db.kill_at = 1 + ("REPLACE" in change)
            await db.rows(change)
            assert await db.rows("SELECT * FROM w") == ALL and not db.program.why_readerless("w")

    run(test, DEADLINE_S)


@pytest.mark.parametrize("kill_at, before", [(1, False), (2, False), (3, True), (3, False)])
def test_truncate(tmp_path: Path, kill_at: int, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed at the empty table, at the twin of the view, which is being filled then, at the switch: it is done again,
    or was done."""
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", -1)
    async def test() -> None:
        async with database(tmp_path) as db:
            await db.rows("CREATE TABLE u (id INT PRIMARY KEY)")
            await db.rows("INSERT INTO u VALUES (0), (1), (2)")
            await db.rows("CREATE MATERIALIZED VIEW v AS SELECT a, COUNT(u.id) AS n FROM t LEFT JOIN u ON u.id = a "
                          "GROUP BY a")
            assert await db.rows("SELECT * FROM v") == ALL
            db.kill_at, db.before = kill_at, before
            await db.rows("TRUNCATE u")
            for last in (False, True):
                assert await db.rows("SELECT * FROM v") == [(a, 0) for a in range(3)]
                assert await db.rows("SELECT id FROM u") == []
                await db.rows("INSERT INTO u VALUES (1)")
                assert await db.rows("SELECT * FROM v") == [(0, 0), (1, ROWS // 3), (2, 0)]
                await db.rows("DELETE FROM u")
                assert not db.program.shadow_views.views and {t.name for t in db.program.tables()} == {"t", "u"}
                if not last:
                    await db.kill()

    run(test, DEADLINE_S)
