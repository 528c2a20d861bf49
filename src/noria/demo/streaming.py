"""A Spark stream of votes into the running server, batch after batch, while somebody follows a feed.

As the raw files, the stream is a job of a batch-only Spark driver of its own: to the server it is anybody's Spark.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noria.client.api import Changes, Database
from noria.client.transport import HttpTransport
from noria.control.processes.supervisor import Supervisor
from noria.demo.generate import QUICK_JVM
from noria.demo.lobsters import Size
from noria.spark.hosting.session import SparkSettings
from noria.spark.jobs.progress import Progress, quiet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, BATCH_VOTES = 6, 2_000
GOLDEN = 0.6180339887  # its multiples spread evenly over stories
LAST_S = 30  # for the last change to be told
STREAM_S = 180  # for a stream on a busy machine
FEED = "popular"


def run(size: Size, url: str, directory: Path, log: Path, progress: Progress) -> int:
    """Votes that came in.  Blocks; leaves no process behind."""
    return asyncio.run(_run(size, url, directory, log, progress))


async def _run(size: Size, url: str, directory: Path, log: Path, progress: Progress) -> int:
    settings = SparkSettings("local[2]", workers=0, scratch_dir=directory / ".spark", app_name="noria-demo-stream",
                             conf=(("spark.driver.extraJavaOptions", QUICK_JVM),))
    supervisor = Supervisor(settings, log_path=log)
    try:
        await supervisor.start()
        return int(await supervisor.run_job("noria.demo.streaming:stream", progress=progress, users=size.users,
                                            stories=size.stories, url=url, checkpoint=str(directory / "checkpoint")))
    finally:
        await supervisor.stop()


def stream(spark: SparkSession, progress: Progress = quiet, *, users: int, stories: int, url: str, checkpoint: str
           ) -> int:
    """The job itself: votes of users that nobody was yet, so no vote is there twice."""
    from noria.spark.source import register

    register(spark)
    votes = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", BATCH_VOTES).load().selectExpr(
        f"cast({users} + 1 + value as int) as user",
        f"cast(1 + floor({stories} * pmod(value * {GOLDEN}, 1.0)) as int) as story_id")
    query = (votes.writeStream.format("noria").options(url=url, table="votes")
             .option("checkpointLocation", checkpoint).start())
    ends, moment = time.monotonic() + STREAM_S, threading.Event()
    try:
        while (done := sum(p["numInputRows"] > 0 for p in query.recentProgress)) < BATCHES:
            if time.monotonic() > ends or query.exception() is not None:
                raise RuntimeError(f"the stream did not go on: {query.exception() or f'{done} batches'}")
            progress(done, BATCHES, "a Spark stream writes votes")
            moment.wait(0.1)
    finally:
        query.stop()
    return sum(p["numInputRows"] for p in query.recentProgress)


class Follower:
    """Follows the feed in a thread, and adds up what it is told.  late: of each tick, seconds from its commit on."""

    def __init__(self, url: str):
        self._url = url
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.changes, self.late = 0, list[float]()
        self.failed: Exception | None = None
        self._begun = threading.Event()
        self._lock = threading.Lock()  # of `rows`, which the thread changes

    def start(self) -> int:
        """How many rows there were."""
        threading.Thread(target=self._run, daemon=True).start()
        self._begun.wait(STREAM_S)
        return len(self.rows)

    def _run(self) -> None:
        try:
            with Database(HttpTransport(self._url)) as db:
                for some in db.view(FEED).changes():
                    self._told(some)
        except Exception as e:
            self.failed = e
        finally:
            self._begun.set()

    def _told(self, some: Changes) -> None:
        with self._lock:
            for sign, row in some:
                self.rows[row] += sign
        if some.kind == "whole":
            self._begun.set()
        elif some.kind == "changes":
            self.changes += some.batch.num_rows
            if some.watermark and some.batch.num_rows:
                self.late.append(time.time() - some.batch.column("_time")[-1].as_py().timestamp())

    def has(self, rows: Callable[[], Sequence[tuple[Any, ...]]]) -> bool:
        """Does what was told come to the rows that there are?  What is on its way is waited for, also the last batch of
        a stream that was stopped meanwhile."""
        ends, moment = time.monotonic() + LAST_S, threading.Event()
        while self._sum() != Counter(rows()):
            if self.failed is not None or time.monotonic() > ends:
                return False
            moment.wait(0.05)
        return True

    def _sum(self) -> Counter[tuple[Any, ...]]:
        with self._lock:
            return +self.rows
