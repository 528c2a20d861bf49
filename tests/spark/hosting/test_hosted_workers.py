"""How a driver runs its workers' jobs again and again, with Spark's answers given by hand."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from noria.runtime.worker.worker_main import GOODBYE, WorkerConfig
from noria.spark.hosting import workers
from noria.spark.hosting.workers import BACKOFF_S, GOODBYE_S, WorkerEnded, WorkerStarted


class Stopping(threading.Event):
    """Set at the first wait of at least so long."""

    def __init__(self, enough_s: float):
        super().__init__()
        self.enough_s, self.waits = enough_s, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits.append(timeout)
        if timeout >= self.enough_s:
            self.set()
        return self.is_set()


def hosted(tmp_path: Path, stopping: Stopping, *whys: str) -> list[WorkerStarted | WorkerEnded]:
    """What is reported of a worker whose jobs end like this, the last one again and again."""
    session: Any = MagicMock()
    rest, told = list(whys), list[WorkerStarted | WorkerEnded]()
    collect = session.sparkContext.parallelize.return_value.barrier.return_value.mapPartitions.return_value.collect
    collect.side_effect = lambda: [rest.pop(0) if len(rest) > 1 else rest[0]]
    workers._host_worker(session, WorkerConfig(0, 1, "link", tmp_path, tmp_path, 1), told.append, stopping)
    return told


def test_a_worker_that_was_told_goodbye_is_not_started_while_the_server_stops(tmp_path: Path) -> None:
    """It was, up to three times at each stop of several workers, and failed, for nobody listened any more."""
    stopping = Stopping(GOODBYE_S)
    told = hosted(tmp_path, stopping, "lease", GOODBYE)
    assert [type(t) for t in told] == [WorkerStarted, WorkerEnded] * 2
    assert [t.why for t in told if isinstance(t, WorkerEnded)] == ["lease", GOODBYE]


def test_workers_that_end_at_once_wait_longer_and_longer(tmp_path: Path) -> None:
    stopping = Stopping(BACKOFF_S[-1])
    hosted(tmp_path, stopping, "lease")
    assert stopping.waits == list(BACKOFF_S)
