"""Jobs that are cancelled end on Spark wherever they are, and drivers that are frozen are replaced."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from noria.control.processes import supervisor as module
from noria.control.processes.supervisor import DriverGone, Event, Supervisor
from noria.spark.hosting.session import SparkSettings
from runtime.processes import run, within

pytestmark = [pytest.mark.long, pytest.mark.spark]
JOBS = "spark.jobs_of_tests:"
START_S = 180.0  # a second JVM, while the machine is busy


async def appears(path: Path) -> str:
    """What a task wrote into its file: polled, because it is another process."""
    async with asyncio.timeout(START_S):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return path.read_text()


async def gone(pid: int) -> None:
    async with asyncio.timeout(START_S):
        while os.path.exists(f"/proc/{pid}"):
            await asyncio.sleep(0.01)


def test_a_cancelled_job_ends_wherever_it_is(tmp_path: Path) -> None:
    async def test() -> None:
        it = Supervisor(SparkSettings(workers=0, scratch_dir=tmp_path / "scratch"), log_path=tmp_path / "log")
        await within(it.start(), START_S)
        try:
            ended = asyncio.Event()
            mark = tmp_path / "task"
            job = asyncio.create_task(it.run_job(JOBS + "never_ends", mark=str(mark), on_end=ended.set))
            pid = int(await within(appears(mark), START_S))
            started = time.monotonic()
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await within(job, 1)
            await within(ended.wait(), START_S)
            await gone(pid)
            print(f"on Spark: over after {time.monotonic() - started:.2f} s")

            # Before the driver has begun it, at every moment of its beginning.
            for turns in range(1, 9):
                ended.clear()
                job = asyncio.create_task(it.run_job(JOBS + "never_ends", mark=str(mark), on_end=ended.set))
                for _ in range(turns):
                    await asyncio.sleep(0.002)
                job.cancel()
                await within(ended.wait(), START_S)

            # Between two jobs of Spark's: it waits in the driver's own code, then wants to go on.
            ended.clear()
            mark, go = tmp_path / "between", tmp_path / "go"
            job = asyncio.create_task(it.run_job(JOBS + "two_jobs", mark=str(mark), go=str(go), on_end=ended.set))
            await within(appears(mark), START_S)
            job.cancel()
            await asyncio.gather(job, return_exceptions=True)
            assert await it.run_job(JOBS + "count", rows=5) == 5
            go.write_text("on")
            await within(ended.wait(), START_S)
            assert not (tmp_path / "between.second").exists()
            assert it.restarts == 0
        finally:
            await it.stop()

    run(test, 240)


def test_frozen_drivers_and_jvms_and_jobs_that_nothing_interrupts_are_replaced(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPARK_BEAT_S", 0.2)
    monkeypatch.setattr(module, "SPARK_CANCEL_S", 1)
    monkeypatch.setattr(module, "SPARK_CANCEL_MOST_S", 2)

    async def test() -> None:
        events: list[Event] = []
        it = Supervisor(SparkSettings(workers=0, scratch_dir=tmp_path / "scratch"), log_path=tmp_path / "log",
                        on_event=lambda e: (events.append(e), print(f"{e.at:.1f} {e.what}: {e.detail}")))
        await within(it.start(), START_S)
        try:
            for which in ("pid", "jvm_pid"):
                assert it.ready is not None
                frozen = getattr(it.ready, which)
                job = asyncio.create_task(it.run_job(JOBS + "waits", go=str(tmp_path / "never")))
                assert await within(it.run_job(JOBS + "count", rows=5), START_S) == 5
                os.kill(frozen, signal.SIGSTOP)
                with pytest.raises(DriverGone, match="answered none of"):
                    await within(job, START_S)
                assert await within(it.run_job(JOBS + "count", rows=7), START_S) == 7
                assert not os.path.exists(f"/proc/{frozen}")
            endless = asyncio.create_task(it.run_job(JOBS + "waits", go=str(tmp_path / "never")))
            beside = asyncio.create_task(it.run_job(JOBS + "waits", go=str(tmp_path / "never")))
            assert await within(it.run_job(JOBS + "count", rows=5), START_S) == 5
            endless.cancel()
            with pytest.raises(DriverGone, match=r"cancelled job \S+waits still ran"):
                await within(beside, START_S)
            assert [e.what for e in events].count("driver-frozen") == 3
        finally:
            await it.stop()

    run(test, 280)


def test_a_query_that_takes_all_memory_ends_its_driver_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        settings = SparkSettings(workers=0, scratch_dir=tmp_path / "scratch", heap_bytes=512 * 2**20)
        it = Supervisor(settings, log_path=tmp_path / "log")
        await within(it.start(), START_S)
        try:
            with pytest.raises(DriverGone, match="out of memory"):
                await within(it.run_job(JOBS + "takes_all_memory"), START_S)
            assert await within(it.run_job(JOBS + "count", rows=5), START_S) == 5
        finally:
            await it.stop()

    run(test, 280)
