"""Runs a Spark stream of votes into the running server, while a client follows a feed.

The stream is a job of the demo's own batch-only Spark driver, as in `generate.py`.  For the server it is a client.
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
from noria.demo.generate import run_job
from noria.demo.lobsters import Size
from noria.spark.jobs.progress import Progress, ignore_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCHES, BATCH_VOTES = 6, 2_000
GOLDEN = 0.6180339887  # its multiples spread evenly over stories
LAST_S = 30  # wait for the last change of the feed
STREAM_S = 180  # wait for the stream on a busy machine
FEED = "popular"


def run(size: Size, url: str, directory: Path, log: Path, progress: Progress) -> int:
    """Run the stream, and return the number of its votes.  Blocks, and leaves no process behind."""
    return int(asyncio.run(run_job("noria.demo.streaming:stream", "noria-demo-stream", directory, log, progress,
                                   {"users": size.users, "stories": size.stories, "url": url,
                                    "checkpoint": str(directory / "checkpoint")})))


def stream(spark: SparkSession, progress: Progress = ignore_progress, *, users: int, stories: int, url: str,
           checkpoint: str
           ) -> int:
    """The job.  Its votes are those of new users, so no vote exists yet."""
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


class FeedFollower:
    """Follows the feed in a thread, and sums its changes.  late: for each tick, the seconds since its commit."""

    def __init__(self, url: str):
        self._url = url
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.changes, self.late = 0, list[float]()
        self.failed: Exception | None = None
        self._begun = threading.Event()
        self._lock = threading.Lock()  # for `rows`, which the thread changes

    def start(self) -> int:
        """Start the thread, and return the number of the feed's first rows."""
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
        """Whether the sum of the feed's changes becomes equal to these rows within LAST_S.  It reads the rows again and
        again, because the stopped stream's last batch may still be written."""
        ends, moment = time.monotonic() + LAST_S, threading.Event()
        while self._sum() != Counter(rows()):
            if self.failed is not None or time.monotonic() > ends:
                return False
            moment.wait(0.05)
        return True

    def _sum(self) -> Counter[tuple[Any, ...]]:
        with self._lock:
            return +self.rows
