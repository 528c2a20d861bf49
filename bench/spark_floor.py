"""The cost of Spark's own ways to run the data-flow, compared with a barrier task: the reason why Spark hosts the
workers as it does (design/decisions.md, 2).  `python bench/spark_floor.py` takes about a minute."""

from __future__ import annotations

import re
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from noria.spark.hosting.session import SparkSettings, build_session

ROUNDS = 15
MESSAGES = 2_000  # of 100 bytes
LARGE_MESSAGES = 200  # of 1 MB


def micro_batch(session: Any) -> float:
    """Return the median seconds of a micro-batch with one row, as Spark reports it: rate source, no-op sink."""
    with tempfile.TemporaryDirectory() as scratch:
        query = (session.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
                 .writeStream.format("noop").option("checkpointLocation", scratch).start())
        try:
            while len(query.recentProgress) < ROUNDS and query.isActive:
                query.awaitTermination(0.2)
            taken: list[int] = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
        finally:
            query.stop()
    return statistics.median(taken[3:]) / 1000


def arrow_job(session: Any) -> float:
    """Return the median seconds of a job that passes one row through a Python `mapInArrow`."""
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        session.range(1).mapInArrow(_same, "id long").collect()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[3:])


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


# ---------------------------------------------------------------- real-time mode
def real_time_refusals(session: Any) -> dict[str, str]:
    """Return the results of real-time mode for a query that it can run, and for those that Noria would need."""
    session.dataSource.register(_python_source())
    supported = _low_latency_stream(session)
    joined = supported.alias("a").join(_low_latency_stream(session).alias("b"), "value").selectExpr("a.value")
    return {
        "a source of its own and nothing else": _real_time(supported),
        "a Python source": _real_time(session.readStream.format("floor_source").load()),
        "a Python operator": _real_time(supported.mapInArrow(_same, "value long")),
        "a stream-stream join": _real_time(joined),
    }


def _low_latency_stream(session: Any) -> Any:
    """Make a stream from the source that Spark's own tests of this mode use."""
    from pyspark.sql import DataFrame

    jvm = session._jvm
    name = "org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream$"
    maker = jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)
    stream = maker.singlePartition(session._jsparkSession, jvm.org.apache.spark.sql.Encoders.LONG())
    return DataFrame(stream.toDF(), session)


def _python_source() -> Any:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):  # pyspark's class is Any
        def initialOffset(self) -> dict[str, int]:
            return {"at": 0}

        def latestOffset(self) -> dict[str, int]:
            return {"at": 1}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
            return [InputPartition(0)]

        def read(self, partition: Any) -> Iterator[tuple[int]]:
            yield (1,)

    class Source(DataSource):  # pyspark's class is Any
        @classmethod
        def name(cls) -> str:
            return "floor_source"

        def schema(self) -> str:
            return "x long"

        def streamReader(self, schema: Any) -> Reader:
            return Reader()

    return Source


def _real_time(frame: Any) -> str:
    """Start a query in real-time mode.  Return Spark's error class and the class that it names, or "runs"."""
    with tempfile.TemporaryDirectory() as scratch:
        try:
            query = (frame.writeStream.format("console").outputMode("update").option("checkpointLocation", scratch)
                     .trigger(realTime="5 seconds").start())
            query.awaitTermination(3)  # Spark rejects a query at once
            said = str(query.exception()) if query.exception() else ""
            query.stop()
        except Exception as e:
            said = str(e)
    return _own_words(said) if said else "runs"


def _own_words(said: str) -> str:
    kind = re.findall(r"\[([A-Z0-9_.]*REAL_TIME[A-Z0-9_.]*)\]", said)
    named = re.findall(r"org\.apache\.spark\.[\w.$]+\.(\w+)", said)
    if not kind:
        return said.splitlines()[0][:160]
    return f"refused, {kind[0]}" + (f" ({named[0]})" if named else "")


# ---------------------------------------------------------------- the barrier task
def barrier_task(session: Any) -> dict[str, float]:
    """Return the seconds from the start of a task until it has connected, and of median round trips to it."""
    with tempfile.TemporaryDirectory() as scratch, socket.socket(socket.AF_UNIX) as listener:
        path = str(Path(scratch, "floor.sock"))
        listener.bind(path)
        listener.listen()
        started = time.perf_counter()
        job = threading.Thread(target=_run_echo, args=(session, path))
        job.start()
        with listener.accept()[0] as line:
            up = time.perf_counter() - started
            small = _round_trip(line, 100, MESSAGES)
            large = _round_trip(line, 2**20, LARGE_MESSAGES)
        job.join()
    return {"up": up, "100 bytes": small, "1 MB": large}


def _run_echo(session: Any, path: str) -> None:
    session.sparkContext.parallelize([path], 1).barrier().mapPartitions(_echo).collect()


def _echo(paths: Iterable[str]) -> Iterator[int]:
    for path in paths:
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(path)
            while data := line.recv(2**20):
                line.sendall(data)
        yield 0


def _round_trip(line: socket.socket, nbytes: int, times: int) -> float:
    """Return the median seconds until a message of `nbytes` is back."""
    message, taken = b"x" * nbytes, []
    for _ in range(times):
        started = time.perf_counter()
        _exchange(line, message)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def _exchange(line: socket.socket, message: bytes) -> None:
    sent = back = 0
    while back < len(message):
        if sent < len(message):
            sent += line.send(memoryview(message)[sent:sent + 65_536])
        back += len(line.recv(2**20))


def main() -> None:
    started = time.perf_counter()
    session = build_session(SparkSettings(workers=1, app_name="noria-floor"))
    rows = [("session: start of JVM and SparkContext", f"{time.perf_counter() - started:.1f} s")]
    try:
        rows.append(("micro-batch of one row, median", f"{micro_batch(session) * 1000:.0f} ms"))
        rows.append(("mapInArrow job of one row, median", f"{arrow_job(session) * 1000:.0f} ms"))
        barrier = barrier_task(session)
        rows.append(("barrier task: submitted to serving", f"{barrier['up'] * 1000:.0f} ms"))
        rows.append(("barrier task: round trip of 100 bytes, median", f"{barrier['100 bytes'] * 1e6:.0f} µs"))
        rows.append(("barrier task: round trip of 1 MB, median", f"{barrier['1 MB'] * 1000:.2f} ms"))
        for what, said in real_time_refusals(session).items():
            rows.append((f"real-time mode, {what}", said))
    finally:
        session.stop()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
