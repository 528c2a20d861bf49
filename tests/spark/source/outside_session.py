"""A Spark session of its own on `local-cluster`, whose tasks fail: what reads and writes of the source come to then.

    python outside_session.py URL ROWS CHECKPOINT

Tasks of every job fail in their first attempts: half of them with an error after some rows, others with their Python
process, one with its whole executor.  Prints what was found, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from noria.spark.source import register

PARTS = 6
Batches = Iterator[pa.RecordBatch]


def failing(executors: bool) -> Callable[[Batches], Batches]:
    """Passes rows on, but for what the module's text says; executors: one of these ends, too."""
    def task(batches: Batches) -> Batches:
        context = TaskContext.get()
        assert context is not None
        part, first = context.partitionId(), context.attemptNumber() == 0
        for batch in batches:
            yield batch.slice(0, 1)
            if first and part % 2:
                raise RuntimeError("injected")
            if first and part == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if first and part == 4 and executors:
                os.kill(_jvm(), signal.SIGKILL)
            yield batch.slice(1)

    return task


def _jvm() -> int:
    """The executor that this Python process works for."""
    pid = os.getpid()
    while "java" not in os.readlink(f"/proc/{pid}/exe"):
        with open(f"/proc/{pid}/stat") as stat:
            pid = int(stat.read().rpartition(")")[2].split()[1])
    return pid


def session() -> SparkSession:
    spark = (SparkSession.builder.master("local-cluster[2,1,1024]").appName("outside")
             .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
             .config("spark.ui.enabled", "false").config("spark.task.maxFailures", "6")
             .config("spark.speculation", "true").config("spark.speculation.minTaskRuntime", "200ms")
             .config("spark.excludeOnFailure.enabled", "false")
             .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"]).getOrCreate())
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    return spark


def main(url: str, count: int, checkpoint: str) -> dict[str, Any]:
    spark = session()

    def write(frame: DataFrame, table: str, **options: str) -> None:
        frame.write.format("noria").options(url=url, table=table, **options).mode("append").save()

    def read(**options: str) -> DataFrame:
        return spark.read.format("noria").options(url=url, **options).load()

    schema = "id bigint, name string"
    numbers = spark.range(0, count, 1, PARTS).select("id", F.concat(F.lit("n"), F.col("id") % 10).alias("name"))
    write(numbers.mapInArrow(failing(False), schema), "few")
    write(numbers.mapInArrow(failing(True), schema), "many")
    write(numbers.filter("id % 3 = 0").mapInArrow(failing(False), schema), "many", onDuplicate="delete")
    found: dict[str, Any] = {}
    for what, options in {"table": {"table": "many"}, "view": {"view": "names"},
                          "query": {"query": "SELECT id, name FROM many WHERE id < 1000"}}.items():
        rows = read(**options)
        total = rows.repartition(PARTS).mapInArrow(failing(False), rows.schema)
        found[what] = [list(map(str, r)) for r in total.agg(F.count("*"), F.sum(F.hash(*rows.columns))).collect()]
        found[what + " plain"] = [list(map(str, r)) for r in
                                  rows.agg(F.count("*"), F.sum(F.hash(*rows.columns))).collect()]
    feed = spark.readStream.format("noria").options(url=url, feed="many").load()
    out = (feed.select("id", "name").mapInArrow(failing(False), schema).writeStream.format("noria")
           .options(url=url, table="copied", checkpointLocation=checkpoint).trigger(availableNow=True).start())
    out.awaitTermination()
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
