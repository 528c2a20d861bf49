"""Who makes the indexes that a worker wants: Spark, or the worker where Spark cannot; how far it is, and its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from noria.control.processes.supervisor import DriverGone, JobError
from noria.core.errors import SqlError
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages.packets import Done, IndexFiles, IndexRequest, Inspect, Snapshot
from noria.runtime.link.link import WorkerUnavailable
from noria.server.bulk.indexes import Indexes
from noria.server.bulk.jobs import BulkJobs

TABLE = TableDef("t", (Column("id", INT, False), Column("a", INT)), (0,), table_id=1)


class FakeLink:
    """A worker that wants one index, t1, then no more."""

    def __init__(self) -> None:
        self.delivered: list[IndexFiles] = []
        self.unwanted: asyncio.Future[Done] = asyncio.get_running_loop().create_future()
        self.asked = 0

    async def ask(self, body: Any, retry: bool = False) -> Done:
        if isinstance(body, IndexFiles):
            self.delivered.append(body)
        elif isinstance(body, Inspect) and body.what == "index no longer awaited":
            return await asyncio.shield(self.unwanted)
        elif isinstance(body, Inspect) and body.what == "flush ahead":
            return Done(0, True)
        elif isinstance(body, Inspect):
            self.asked += 1
            if self.asked > 1:
                await asyncio.get_running_loop().create_future()
            return Done(0, IndexRequest("t1", TABLE, (1,)))
        else:
            assert isinstance(body, Snapshot)
        return Done(0)


class FakeSupervisor:
    """A job that goes on until the test ends it; cancelled, it is over when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[asyncio.Future[Any]] = []
        self.progress: Any = None
        self.over: Callable[[], None] = lambda: None

    async def run_job(self, function: str, *, progress: Any, on_end: Callable[[], None], out: str, **_: Any) -> Any:
        Path(out).mkdir()
        self.progress, self.over = progress, on_end
        self.jobs.append(asyncio.get_running_loop().create_future())
        return await self.jobs[-1]


async def until(check: Callable[[], Any]) -> None:
    """Everything goes on, files in threads too; the rig's deadline ends it."""
    while not check():
        await asyncio.to_thread(os.getpid)


def rig(tmp_path: Path, test: Callable[[FakeLink, FakeSupervisor, BulkJobs], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        link, spark = FakeLink(), FakeSupervisor()
        bulk = BulkJobs(spark, link, SimpleNamespace(tables=list), tmp_path / "snapshots")
        making = asyncio.ensure_future(Indexes(bulk, link).run())
        await until(lambda: spark.jobs)
        await test(link, spark, bulk)
        await until(lambda: link.asked == 2)  # it waits for the next
        assert list((tmp_path / "snapshots").iterdir()) == []
        making.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_made_and_delivered(tmp_path: Path) -> None:
    async def test(link: FakeLink, spark: FakeSupervisor, bulk: BulkJobs) -> None:
        shown = [{"ticket": "t1", "rows": 0, "of": 200}, {"ticket": "", "rows": 3, "of": 9}]
        assert bulk.furthered(shown) == shown
        spark.progress(3, 4, "making")
        assert [b["rows"] for b in bulk.furthered(shown)] == [150, 3]
        spark.jobs[0].set_result(SimpleNamespace(files=("/a.sst",)))
        spark.over()
        await until(lambda: link.delivered == [IndexFiles("t1", ("/a.sst",))])
        await until(lambda: bulk.furthered(shown) == shown)

    rig(tmp_path, test)


@pytest.mark.parametrize("why", [JobError("f", "bad", ""), SqlError(1021, "HY000", "Disk full"), ZeroDivisionError()])
def test_the_worker_makes_what_spark_cannot(tmp_path: Path, why: Exception) -> None:
    async def test(link: FakeLink, spark: FakeSupervisor, bulk: BulkJobs) -> None:
        spark.jobs[0].set_exception(why)
        await until(lambda: link.delivered == [IndexFiles("t1", None)])

    rig(tmp_path, test)


def test_a_driver_that_dies_is_no_reason(tmp_path: Path) -> None:
    async def test(link: FakeLink, spark: FakeSupervisor, bulk: BulkJobs) -> None:
        spark.jobs[0].set_exception(DriverGone("gone"))
        await until(lambda: len(spark.jobs) == 2)
        assert link.delivered == []
        spark.jobs[1].set_result(SimpleNamespace(files=()))
        await until(lambda: link.delivered == [IndexFiles("t1", ())])

    rig(tmp_path, test)


@pytest.mark.parametrize("gone", [False, True])
def test_nobody_wants_it_any_more(tmp_path: Path, gone: bool) -> None:
    """Or the worker is gone: its files go when nothing writes there any more."""
    async def test(link: FakeLink, spark: FakeSupervisor, bulk: BulkJobs) -> None:
        if gone:
            link.unwanted.set_exception(WorkerUnavailable("worker 0 is down"))
        else:
            link.unwanted.set_result(Done(0))
        await until(lambda: spark.jobs[0].cancelled())
        for _ in range(50):
            await asyncio.to_thread(os.getpid)
        assert link.asked == 1
        assert len(list((tmp_path / "snapshots").iterdir())) == 1, "its tasks may still write"
        spark.over()
        await until(lambda: link.asked == 2)
        assert link.delivered == []

    rig(tmp_path, test)
