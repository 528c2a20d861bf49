"""What jobs are told when no driver comes, and when a driver is replaced for a cancelled job that goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from noria.control.processes import supervisor as module
from noria.control.processes.supervisor import NoDriver, Supervisor, _Job
from noria.spark.hosting.session import SparkSettings, SparkUnavailable


class Broken(Supervisor):
    """Its first start fails, and the second is ready."""

    starts = 0

    async def _one_driver(self, first: Any) -> None:
        self.starts += 1
        await asyncio.sleep(0)
        if self.starts == 1:
            raise SparkUnavailable("there is no Java")
        self._up.set()
        self._notify_waiting()
        await asyncio.Event().wait()


def test_a_start_that_fails_ends_the_wait_and_the_next_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESTART_S", (0.0,))

    async def test() -> None:
        it = Broken(SparkSettings(workers=0), name="batch")
        it.start_when_needed()
        with pytest.raises(NoDriver, match="Spark batch driver could not be started: there is no Java"):
            await it.run_job("m:f")
        await it._driver()
        assert it.is_up and it.starts == 2
        await it.stop()

    asyncio.run(test())


def test_the_driver_of_others_is_not_killed_for_a_cancelled_job_at_once() -> None:
    async def test() -> None:
        it = Supervisor(SparkSettings(workers=0))
        loop = asyncio.get_running_loop()
        cancelled, beside = (_Job("m:f", loop.create_future(), None, lambda: None) for _ in range(2))
        cancelled.future.cancel()
        it._jobs = {1: cancelled, 2: beside}
        it._overdue(cancelled, 100)
        assert not it._liveness.verdict and cancelled.overdue is not None
        it._overdue(cancelled, 0)
        assert "the cancelled job m:f still ran" in it._liveness.verdict
        it._liveness.verdict = ""
        beside.future.set_result(None)
        it._overdue(cancelled, 100)
        assert it._liveness.verdict
        cancelled.end()

    asyncio.run(test())
