"""Noria as Spark's source and sink, compared with Spark's JDBC source for MariaDB and with Parquet.

All steps run in one Spark session with two cores.  Reads sum columns of all rows, so that each row is transferred.
Writes have rows that another DataFrame generates.  For streams it measures the rows a second of a feed's full content.
It also measures the delay of a change, from the begin of its statement to its batch, and a stream into a table.

    python bench/spark.py --jdbc /usr/share/java/mariadb-java-client.jar [--rows 2000000] [--options "--workers 2"]

MariaDB's driver is in Debian's package libmariadb-java.  Without --jdbc, MariaDB is left out.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import noria
from mysql import PASSWORD, USER, MariaDb, NoriaServer
from noria.spark.source import register

CREATE = "CREATE TABLE {} (id BIGINT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80), score DOUBLE)"
TURNS = 3
Step = Callable[[], object]


class Bench:
    def __init__(self, directory: Path, rows: int, jdbc: str, options: tuple[str, ...]):
        self.directory, self.rows = directory, rows
        self.maria, self.server = MariaDb(directory), NoriaServer(directory / "noria", options=options)
        self.server.directory.mkdir()
        self.with_maria = bool(jdbc)
        os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
        builder = (SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
                   .config("spark.driver.bindAddress", "127.0.0.1").config("spark.ui.enabled", "false")
                   .config("spark.log.level", "ERROR").config("spark.driver.memory", "2g"))
        self.spark = (builder.config("spark.jars", jdbc) if jdbc else builder).getOrCreate()
        register(self.spark)

    def start(self) -> None:
        self.server.start()
        if self.with_maria:
            self.maria.start()

    def stop(self) -> None:
        self.spark.stop()
        self.server.stop()
        self.maria.stop()

    # ------------------------------------------------------------ the three sources and sinks
    def made(self) -> DataFrame:
        return self.spark.range(0, self.rows, 1, 8).select(
            "id", (F.col("id") % 9200).cast("int").alias("author"),
            F.concat(F.lit("Story number "), F.col("id")).alias("title"), (F.col("id") / 7).alias("score"))

    def noria(self, table: str) -> Any:
        return {"format": "noria", "url": self.server.http, "table": table}

    def jdbc(self, table: str) -> Any:
        # Spark chooses how it quotes names by the scheme.
        url = f"jdbc:mysql://127.0.0.1:{self.maria.port}/noria?rewriteBatchedStatements=true"
        return {"format": "jdbc", "url": url, "dbtable": table, "user": USER, "password": PASSWORD,
                "driver": "org.mariadb.jdbc.Driver"}

    def read(self, options: dict[str, str]) -> int:
        reader = self.spark.read.format(options["format"]).options(**options)
        row = reader.load().agg(F.count("*"), F.sum("author"), F.sum(F.length("title")), F.sum("score")).first()
        assert row is not None and row[0] == self.rows, row
        return int(row[1])

    def write(self, options: dict[str, str], mode: str = "append") -> None:
        self.made().write.format(options["format"]).options(**options).mode(mode).save()

    # ------------------------------------------------------------ figures
    def writes(self) -> None:
        for turn in range(TURNS):
            into = {"Noria": self.noria(f"t{turn}"),
                    "Parquet": {"format": "parquet", "path": str(self.directory / f"t{turn}")}}
            self.server_sql(CREATE.format(f"t{turn}"))
            if self.with_maria:
                into["JDBC"] = self.jdbc(f"t{turn}")
                with self.maria.connect() as c, c.cursor() as cursor:
                    cursor.execute(CREATE.format(f"t{turn}"))
            self.shown(f"write {turn + 1}", {name: (lambda o=o: self.write(o)) for name, o in into.items()})

    def reads(self) -> None:
        for turn in range(TURNS):
            of = {"Noria": self.noria("t0"), "Noria over HTTP": {**self.noria("t0"), "direct": "false"},
                  "Parquet": {"format": "parquet", "path": str(self.directory / "t0")}}
            if self.with_maria:
                whole = {**self.jdbc("t0"), "fetchsize": "10000"}
                of |= {"JDBC": whole, "JDBC in 2": {**whole, "partitionColumn": "id", "lowerBound": "0",
                                                    "upperBound": str(self.rows), "numPartitions": "2"}}
            self.shown(f"read {turn + 1}", {name: (lambda o=o: self.read(o)) for name, o in of.items()})

    def shown(self, what: str, steps: dict[str, Step]) -> None:
        found = []
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            found.append(f"{name} {self.rows / (time.perf_counter() - start):,.0f}/s")
        print(f"{what}: {', '.join(found)}", flush=True)

    def server_sql(self, text: str) -> None:
        with noria.connect(self.server.http) as db:
            db.sql(text)

    def streams(self, votes: int) -> None:
        """Measure a feed's full content, then single changes, then a stream into a table."""
        self.server_sql("CREATE TABLE votes (story INT, who INT, PRIMARY KEY (story, who))")
        self.server_sql("CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story")
        start = time.perf_counter()
        rows = self.spark.readStream.format("noria").options(url=self.server.http, feed="t0").load()
        query = (rows.writeStream.format("noop").option("checkpointLocation", str(self.directory / "c0"))
                 .trigger(availableNow=True).start())
        query.awaitTermination()
        print(f"stream of a feed's content: {self.rows / (time.perf_counter() - start):,.0f}/s (its feed is made, too)")
        self.latencies(votes)
        start = time.perf_counter()
        self.server_sql(CREATE.format("streamed"))
        query = (self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100_000).load()
                 .select(F.col("value").alias("id"), F.lit(1).alias("author"), F.lit("title").alias("title"),
                         F.lit(0.5).alias("score"))
                 .writeStream.format("noria").options(url=self.server.http, table="streamed")
                 .option("checkpointLocation", str(self.directory / "c2")).start())
        while len(query.recentProgress) < 12:
            query.awaitTermination(1)
        query.stop()
        taken = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]][2:]
        print(f"stream into a table, 100,000 rows a batch: {100_000 / statistics.median(taken) * 1e3:,.0f}/s "
              f"(median batch {statistics.median(taken):,.0f} ms)", flush=True)

    def latencies(self, votes: int) -> None:
        seen: dict[int, float] = {}
        ready, over = threading.Event(), threading.Event()

        def told(batch: DataFrame, number: int) -> None:
            now = [r["story"] for r in batch.select("story", "_sign").collect() if r["_sign"] > 0]
            at = time.perf_counter()
            for story in now:
                seen.setdefault(story, at)
            ready.set()
            if len(seen) >= votes + 1:
                over.set()

        self.server_sql("INSERT INTO votes VALUES (0, 0)")
        query = (self.spark.readStream.format("noria").options(url=self.server.http, feed="counts").load()
                 .writeStream.foreachBatch(told).option("checkpointLocation", str(self.directory / "c1")).start())
        ready.wait(120)
        sent = {}
        with noria.connect(self.server.http) as db:
            for i in range(1, votes + 1):
                sent[i] = time.perf_counter()
                db.sql(f"INSERT INTO votes VALUES ({i}, 1)")
        assert over.wait(120), len(seen)
        query.stop()
        late = [1000 * (seen[i] - sent[i]) for i in sent]
        cuts = statistics.quantiles(late, n=20)
        print(f"a change in a stream's batch: median {cuts[9]:,.0f} ms, 95 % {cuts[18]:,.0f} ms ({votes} changes, "
              f"{votes / (max(seen.values()) - min(sent.values())):,.0f}/s)", flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rows", type=int, default=2_000_000)
    args.add_argument("--votes", type=int, default=2_000)
    args.add_argument("--jdbc", default="", help="the jar of MariaDB's JDBC driver")
    args.add_argument("--options", default="", help="of `noria serve`")
    a = args.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="noria-bench-"))
    bench = Bench(directory, a.rows, a.jdbc, tuple(a.options.split()))
    try:
        bench.start()
        bench.writes()
        bench.reads()
        bench.streams(a.votes)
    finally:
        bench.stop()
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
