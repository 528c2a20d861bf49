"""Reports the progress of Spark jobs to a callback: how many tasks of this thread's job group are done.

Keeps true: the callback runs in one thread at a time, and never after the block ended.  Only jobs of the same job group
count; the workers' jobs, which never end, have groups of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

Progress = Callable[[int, int, str], None]
POLL_S = 0.2  # between two reads of the stages


def ignore_progress(done: int, total: int, what: str) -> None:
    """Ignore the progress."""


@contextmanager
def stages(spark: SparkSession, progress: Progress, what: str) -> Iterator[None]:
    """Call `progress` with (tasks done, tasks, what) while the block runs, and with (n, n, what) after its success."""
    if progress is ignore_progress:
        yield
        return
    context = spark.sparkContext
    tracker, group = context.statusTracker(), context.getLocalProperty("spark.jobGroup.id")
    before = set(tracker.getJobIdsForGroup(group))
    stop, last = threading.Event(), [1]

    def report() -> None:
        while not stop.wait(POLL_S):
            jobs = [tracker.getJobInfo(j) for j in tracker.getJobIdsForGroup(group) if j not in before]
            infos = [tracker.getStageInfo(s) for j in jobs if j is not None for s in j.stageIds]
            total = sum(i.numTasks for i in infos if i is not None)
            if total and not stop.is_set():
                last[0] = total
                progress(sum(i.numCompletedTasks for i in infos if i is not None), total, what)

    reporter = threading.Thread(target=report, name="noria-progress", daemon=True)
    reporter.start()
    try:
        yield
    finally:
        stop.set()
        reporter.join()
    progress(last[0], last[0], what)
