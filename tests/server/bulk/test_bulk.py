"""Queries before Spark: how many run, what one too many is told, whose fault a dead driver is, what cancelling does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from noria.control.processes.supervisor import DriverGone, JobError, NoDriver
from noria.core.errors import SqlError
from noria.core.limits import SPARK_QUERIES, SPARK_QUEUE
from noria.core.types import INT, Column, TableDef
from noria.plan.mir import Base, UnionAll
from noria.plan.view import ViewDef
from noria.server.bulk.jobs import RUNNING, WAITING, BulkJobs
from noria.server.bulk.reporting import logged


class FakeSupervisor:
    """Jobs end when the test says so; a cancelled one only then is over."""

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Future[Any]] = {}
        self.over: dict[str, Callable[[], None]] = {}
        self.most = 0
        self.pools: list[str] = []

    async def run_job(self, function: str, *, pool: str, on_end: Callable[[], None], plan: str, **_: Any) -> Any:
        future = self.running[plan] = asyncio.get_running_loop().create_future()
        self.over[plan] = on_end
        self.pools.append(pool)
        self.most = max(self.most, len(self.running))
        try:
            return await future
        finally:
            self.running.pop(plan)
            if not future.cancelled():
                on_end()

    def die(self) -> None:
        for future in self.running.values():
            future.set_exception(DriverGone("the Spark batch driver ended"))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def rig(tmp_path: Path, test: Callable[[FakeSupervisor, BulkJobs, Callable[[str], asyncio.Task[Any]], list[str]],
                                       Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        spark, told = FakeSupervisor(), list[str]()
        bulk = BulkJobs(spark, None, SimpleNamespace(tables=list), tmp_path / "snapshots")

        @asynccontextmanager
        async def use() -> Any:
            yield "checkpoint"

        bulk.snapshots = SimpleNamespace(use=use)

        def query(name: str) -> asyncio.Task[Any]:
            batch: Any = SimpleNamespace(plan=name, visible=None)
            return asyncio.ensure_future(bulk.query(batch, lambda state: told.append(f"{name}: {state}")))

        await test(spark, bulk, query, told)

    asyncio.run(run())


def answer(spark: FakeSupervisor, name: str) -> None:
    spark.running[name].set_result(SimpleNamespace(rows=pa.table({"a": [name], "b": [1]})))


def test_some_run_some_wait_and_one_too_many_is_told_what_to_do(tmp_path: Path) -> None:
    async def test(spark: FakeSupervisor, bulk: BulkJobs, query: Callable[[str], asyncio.Task[Any]], told: list[str]
                   ) -> None:
        queries = {str(i): query(str(i)) for i in range(SPARK_QUERIES + SPARK_QUEUE)}
        await settle()
        assert set(spark.running) == {str(i) for i in range(SPARK_QUERIES)} and bulk.queries.waiting == SPARK_QUEUE
        with pytest.raises(SqlError, match=r"Too many queries for Spark.*create a view") as too_many:
            await query("one too many")
        assert too_many.value.code == 1637
        while spark.running:
            answer(spark, next(iter(spark.running)))
            await settle()
        for name, task in queries.items():
            assert await task == [(name, 1)]
        assert spark.most == SPARK_QUERIES and bulk.queries.free == SPARK_QUERIES
        assert told[0] == f"0: {RUNNING}" and f"{SPARK_QUERIES}: {WAITING}" in told

    rig(tmp_path, test)


def test_a_slot_is_free_when_a_cancelled_query_is_over_on_spark(tmp_path: Path) -> None:
    async def test(spark: FakeSupervisor, bulk: BulkJobs, query: Callable[[str], asyncio.Task[Any]], told: list[str]
                   ) -> None:
        first = query("first")
        waiting = [query(str(i)) for i in range(SPARK_QUERIES)]
        await settle()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first  # at once
        assert bulk.queries.free == 0 and bulk.queries.waiting == 1
        waiting[-1].cancel()
        await settle()
        assert bulk.queries.waiting == 0
        spark.over["first"]()
        assert bulk.queries.free == 1
        for task in waiting:
            task.cancel()

    rig(tmp_path, test)


def test_a_query_that_kills_the_driver_has_the_error_and_those_beside_it_have_answers(tmp_path: Path) -> None:
    async def test(spark: FakeSupervisor, bulk: BulkJobs, query: Callable[[str], asyncio.Task[Any]], told: list[str]
                   ) -> None:
        innocent, guilty = query("innocent"), query("guilty")
        await settle()
        spark.die()
        later = query("later")
        await settle()
        for _ in range(3):
            assert len(spark.running) == 1 or "later" in spark.running
            if "guilty" in spark.running:
                assert list(spark.running) == ["guilty"]
                spark.die()
            for name in set(spark.running) - {"guilty"}:
                answer(spark, name)
            await settle()
        assert await innocent == [("innocent", 1)] and await later == [("later", 1)]
        with pytest.raises(SqlError, match="ended twice while it worked on this query") as error:
            await guilty
        assert error.value.code == 1041 and bulk.queries.free == SPARK_QUERIES

    rig(tmp_path, test)


@pytest.mark.parametrize("bad, code", [(NoDriver("no driver for 120 s"), 1041), (JobError("query", "x", ""), 1105)])
def test_what_fails_on_spark_is_the_querys_error(tmp_path: Path, bad: Exception, code: int) -> None:
    async def test(spark: FakeSupervisor, bulk: BulkJobs, query: Callable[[str], asyncio.Task[Any]], told: list[str]
                   ) -> None:
        hit = query("hit")
        await settle()
        spark.running["hit"].set_exception(bad)
        with pytest.raises(SqlError) as error:
            await hit
        assert error.value.code == code and bulk.queries.free == SPARK_QUERIES

    rig(tmp_path, test)


def test_what_is_verified_of_a_view_is_what_it_derives_from(tmp_path: Path) -> None:
    tables = [TableDef(name, (Column("id", INT, False),), (0,)) for name in ("a", "b", "c")]
    bulk = BulkJobs(None, None, SimpleNamespace(tables=lambda: tables), tmp_path / "snapshots")
    view = ViewDef("v", UnionAll(Base(tables[0]), Base(tables[2])), (), 1)
    assert bulk._below([view]) == [tables[0], tables[2]]


def test_each_bulk_job_has_a_pool_of_its_own(tmp_path: Path) -> None:
    async def test(spark: FakeSupervisor, bulk: BulkJobs, query: Callable[[str], asyncio.Task[Any]], told: list[str]
                   ) -> None:
        for names in ("ab", "cd"):
            jobs = [asyncio.ensure_future(bulk._run("job", plan=name)) for name in names]
            await settle()
            assert len(set(spark.pools)) == 2
            for running in spark.running.values():
                running.set_result(None)
            await asyncio.gather(*jobs)

    rig(tmp_path, test)


class DyingSupervisor:
    """Drivers that die under so many jobs; then one that answers."""

    is_up = True

    def __init__(self, *errors: Exception):
        self.errors, self.jobs = list(errors), list[str]()

    async def run_job(self, function: str, *, on_end: Callable[[], None], **_: Any) -> Any:
        self.jobs.append(function)
        on_end()
        if self.errors:
            raise self.errors.pop(0)
        return "report"


def steps_of(supervisor: DyingSupervisor, out: Path) -> list[dict[str, Any]]:
    async def run() -> list[dict[str, Any]]:
        bulk = BulkJobs(supervisor, None, None, out.parent / "snapshots")
        return [step async for step in bulk._again("m:load", str(out))]

    return asyncio.run(run())


def test_a_job_under_which_the_driver_dies_begins_again_once(tmp_path: Path) -> None:
    out = tmp_path / "sst"
    out.mkdir()
    spark = DyingSupervisor(DriverGone("the Spark batch driver ended while the job was running"))
    first, last = steps_of(spark, out)
    assert first["step"] == "Spark's driver ended; the job begins again with the next one"
    assert last == {"result": "report"} and spark.jobs == ["m:load"] * 2 and not out.exists()


@pytest.mark.parametrize("errors, code, said, jobs", [
    ((DriverGone("it ended: killed"),) * 2, 1041, "it ended: killed", 2),
    ((NoDriver("there has been no Spark batch driver for 240 s"),), 1041, "no Spark batch driver for 240 s", 1),
    ((JobError("load", "a bad file", ""),), 1105, "a bad file", 1)])
def test_a_job_that_cannot_be_done_says_why(tmp_path: Path, errors: tuple[Exception, ...], code: int, said: str,
                                            jobs: int) -> None:
    spark = DyingSupervisor(*errors)
    with pytest.raises(SqlError, match=said) as e:
        steps_of(spark, tmp_path / "sst")
    assert e.value.code == code and len(spark.jobs) == jobs


def test_a_job_that_waits_for_a_driver_says_so(tmp_path: Path) -> None:
    spark = DyingSupervisor()
    spark.is_up = False
    assert steps_of(spark, tmp_path / "sst")[0] == {"step": "waiting for Spark, which is starting"}


def line_of(caplog: pytest.LogCaptureFixture, *steps: dict[str, Any], error: Exception | None = None, taken: int = 99
            ) -> str:
    """What the log says of a job of these steps, of which the client takes so many."""
    async def job() -> Any:
        for step in steps:
            yield step
        if error is not None:
            raise error

    async def run() -> None:
        reported = logged("a job", job())
        for _ in range(taken):
            if await anext(reported, None) is None:
                return
        await reported.aclose()

    caplog.set_level(logging.INFO, "noria")
    with suppress(SqlError):
        asyncio.run(run())
    [record] = caplog.records
    return record.getMessage()


def test_each_job_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    found = line_of(caplog, {"step": "reading"}, {"step": "done", "rows": 48_000, "rejected": 2})
    assert found.startswith("a job: done, 48,000 rows, 2 rejected, after 0.")


def test_a_verification_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    views = [{"view": v, "agrees": a, "rows": 5} for v, a in (("a", True), ("b", None), ("c", False))]
    assert line_of(caplog, *views).startswith("a job: done, 2 compared, 1 differ, after 0.")


def test_a_job_that_fails_or_is_left_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    error = SqlError(1041, "HY000", "Spark is gone")
    assert line_of(caplog, {"step": "reading"}, error=error).startswith("a job: failed: Spark is gone, after 0.")
    caplog.clear()
    assert line_of(caplog, {"step": "reading"}, {"step": "done", "rows": 1}, taken=1).startswith("a job: cancelled, ")
