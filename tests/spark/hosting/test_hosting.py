"""Every row of the design's list of failures, with a real driver child, JVM and barrier job: how a worker is lost,
that the next one is up by itself, and that each change is applied once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noria.control.processes.supervisor import DriverGone, JobError
from noria.core.errors import SqlError
from noria.runtime.transport.shard_owner import Process
from noria.runtime.worker.worker_main import WorkerConfig
from noria.spark.hosting.session import SparkSettings, SparkUnavailable
from runtime.fake_worker import commits, insert
from runtime.processes import run, within
from spark.hosted import START_S, Hosted, hosted

pytestmark = pytest.mark.spark


def values(config: WorkerConfig) -> list[int]:
    return [v for c in commits(config.shard_dir) for v in c["values"]]


@pytest.mark.long
def test_every_way_to_lose_a_worker(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """One system goes through all failures in turn: a driver takes seconds to start, a worker does not."""

    async def lose(it: Hosted, how: str, strike: Callable[[], object]) -> None:
        next_value = len(values(it.config)) + 1
        started = time.monotonic()
        again = asyncio.create_task(it.another_worker())
        await asyncio.sleep(0)  # it counts the workers before the strike
        strike()
        await again
        took_s = time.monotonic() - started
        record_property(f"up again after {how}, s", round(took_s, 2))
        print(f"up again after {how}: {took_s:.2f} s")
        wrote = await within(it.link.change(insert(next_value)), START_S)
        assert wrote.results[0].last_insert_id == next_value
        assert values(it.config) == list(range(1, next_value + 1)), it.story()

    async def test() -> None:
        async with hosted(tmp_path) as it:
            link, supervisor = it.link, it.supervisor

            def pid() -> int:
                assert link.hello is not None
                return link.hello.pid

            def ready_pid(of: str) -> int:
                assert supervisor.ready is not None
                return int(getattr(supervisor.ready, of))

            await lose(it, "kill -9 of the worker", lambda: os.kill(pid(), signal.SIGKILL))
            frozen = pid()
            await lose(it, "a frozen worker", lambda: os.kill(frozen, signal.SIGSTOP))
            assert Process.of(frozen) is None  # killed; thawing it is no longer possible
            cancel = "noria.spark.hosting.workers:cancel_workers"
            await lose(it, "a cancelled worker", lambda: asyncio.ensure_future(supervisor.run_job(cancel, workers=[0])))
            await lose(it, "an exception in the worker",
                       lambda: asyncio.ensure_future(link.change(insert(0, "raise"))))
            await lose(it, "kill -9 of the JVM", lambda: os.kill(ready_pid("jvm_pid"), signal.SIGKILL))
            worker = Process.of(pid())
            await lose(it, "kill -9 of the driver", lambda: os.kill(ready_pid("pid"), signal.SIGKILL))
            assert worker is not None and not worker.alive

            def all_at_once() -> None:
                for victim in (pid(), ready_pid("pid"), ready_pid("jvm_pid")):
                    os.kill(victim, signal.SIGKILL)

            await lose(it, "kill -9 of all three", all_at_once)
            incarnations = [c["incarnation"] for c in commits(it.config.shard_dir)]
            assert incarnations == sorted(incarnations)
            left = [Process.of(p) for p in (pid(), ready_pid("pid"), ready_pid("jvm_pid"))]
            started = time.monotonic()
            await link.close()
            await supervisor.stop()
            record_property("clean stop, s", round(time.monotonic() - started, 2))
            assert time.monotonic() - started < 10
            assert not any(p is not None and p.alive for p in left)

    run(test, 240)


def test_a_frozen_worker_that_is_replaced_writes_nothing_when_it_thaws(tmp_path: Path) -> None:
    """When nobody can kill it (another host, say), the fence stops it: packets that wait in its socket are not
    stepped."""
    from runtime.processes import finish, linked

    async def test() -> None:
        async with linked(tmp_path, restart=False, lease_ms=60_000) as (link, nursery):
            assert (await link.change(insert(1))).seq == 1
            os.kill(nursery.children[0].pid, signal.SIGSTOP)
            lost = asyncio.create_task(link.change(insert(2)))
            await asyncio.sleep(0)
            from noria.runtime.transport.shard_owner import Fence

            Fence(nursery.config.shard_dir / "fence", epoch=1).close()  # what a newcomer does first
            os.kill(nursery.children[0].pid, signal.SIGCONT)
            code, out, err = await asyncio.to_thread(finish, nursery.children[0])
            assert code != 0 and out == "" and "incarnation 1 of this worker was replaced by 2" in err
            assert values(nursery.config) == [1]
            nursery.another()
            await within(lost)
            assert values(nursery.config) == [1, 2]

    run(test)


_FRONT_END = """
import asyncio, sys
from pathlib import Path
from spark.hosted import hosted

async def main():
    async with hosted(Path(sys.argv[1])) as it:
        r = it.supervisor.ready
        print(it.link.hello.pid, r.pid, r.jvm_pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_nothing_outlives_a_killed_front_end(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    front = subprocess.Popen([sys.executable, "-c", _FRONT_END, str(tmp_path)], stdout=subprocess.PIPE, text=True,
                             env=env)
    assert front.stdout is not None
    pids = [int(p) for p in front.stdout.readline().split()]
    assert len(pids) == 3
    ends = [os.pidfd_open(p) for p in pids]
    front.kill()
    front.communicate()
    started = time.monotonic()

    async def all_ended() -> None:
        loop = asyncio.get_running_loop()
        for end in ends:
            over = loop.create_future()
            loop.add_reader(end, lambda over=over: over.done() or over.set_result(None))
            await over
            loop.remove_reader(end)

    asyncio.run(within(all_ended(), 20))
    print(f"all gone {time.monotonic() - started:.2f} s after the front end")
    for end in ends:
        os.close(end)


def test_jobs_have_results_progress_errors_and_ends(tmp_path: Path) -> None:
    async def test() -> None:
        async with hosted(tmp_path) as it:
            job = it.supervisor.run_job
            told: list[tuple[int, str]] = []
            assert await job("spark.jobs_of_tests:count", lambda *a: told.append(a), rows=1000) == 1000
            assert told == [(1, "counting"), (2, "counted")]
            with pytest.raises(SqlError, match="nowhere"):
                await job("spark.jobs_of_tests:fail_as_a_user")
            with pytest.raises(JobError, match="ZeroDivisionError"):
                await job("spark.jobs_of_tests:fail_on_spark")
            with pytest.raises(JobError, match="no part of a message"):
                await job("spark.jobs_of_tests:unpicklable")
            with pytest.raises(JobError, match="no_such_function"):
                await job("spark.jobs_of_tests:no_such_function")
            mark = tmp_path / "mark"
            endless = asyncio.create_task(job("spark.jobs_of_tests:never_ends", mark=str(mark)))
            assert await within(job("spark.jobs_of_tests:count", rows=5), START_S) == 5
            assert it.supervisor.ready is not None
            os.kill(it.supervisor.ready.pid, signal.SIGKILL)
            with pytest.raises(DriverGone, match="run it again"):
                await within(endless)
            assert await within(job("spark.jobs_of_tests:count", rows=7), START_S) == 7

    run(test, 120)


@pytest.mark.long
def test_workers_that_cannot_open_are_reported_and_tried_again(tmp_path: Path) -> None:
    async def test() -> None:
        it = Hosted(tmp_path, factory="runtime.fake_worker:build_broken")
        await it.link.start()
        try:
            await within(it.supervisor.start(), START_S)
            await it.until(lambda events: sum(e.what == "worker-ended" for e in events) >= 2)
            assert "no space left on device" in it.story()
        finally:
            await it.link.close()
            await it.supervisor.stop()

    run(test, 120)


def test_too_few_slots_fail_with_numbers(tmp_path: Path) -> None:
    from noria.control.processes.supervisor import Supervisor

    async def test() -> None:
        supervisor = Supervisor(SparkSettings(master="local[2]"), log_path=tmp_path / "log")
        with pytest.raises(SparkUnavailable, match="has 2 task slots, 3 are needed"):
            await within(supervisor.start())

    run(test)
