"""A complete server: start, bulk load, durable inserts from Python, and reads that miss while others read and write.

    python bench/server.py [--votes 2000000] [--stories 40000] [--seconds 5]

The bulk load is compared with MariaDB's LOAD DATA in the same run.  MariaDB syncs its log at each commit.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

import noria
from mysql import NORIA_READ, VIEWS, Data, MariaDb, NoriaServer

TEXTS = "CREATE TABLE {} (id INT PRIMARY KEY, author INT, title VARCHAR(80), url VARCHAR(120))"
BAG = "CREATE TABLE {} (user INT, story_id INT)"


def started(directory: Path) -> tuple[NoriaServer, float]:
    server = NoriaServer(directory)
    start = time.perf_counter()
    server.start()
    return server, time.perf_counter() - start


def loaded(server: NoriaServer, table: str, path: Path, rows: int) -> float:
    """Run `noria load`.  Return rows per second, from the command to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "noria", "load", table, str(path), "--url", server.http], check=True,
                   stdout=subprocess.DEVNULL)
    return rows / (time.perf_counter() - start)


def bulk(server: NoriaServer, maria: MariaDb, directory: Path, rows: int) -> None:
    rng = np.random.default_rng(1)
    n = np.arange(rows)
    tables = {
        "bag": (BAG, pa.table({"user": rng.integers(0, 9200, rows), "story_id": rng.integers(0, 40_000, rows)})),
        "texts": (TEXTS, pa.table({"id": n, "author": n % 9200, "title": [f"Story number {i} of the load" for i in n],
                                   "url": [f"https://example.com/{i}" for i in n]})),
    }
    with noria.connect(server.http) as db, maria.connect() as c, c.cursor() as cursor:
        for name, (ddl, table) in tables.items():
            parquet, tsv = directory / f"{name}.parquet", maria.directory / f"{name}.tsv"
            pq.write_table(table, parquet)
            rows_of = zip(*table.to_pydict().values(), strict=True)
            tsv.write_text("".join("\t".join(map(str, r)) + "\n" for r in rows_of))
            for attempt in ("first", "again"):  # the first load of a server also starts Spark's Python workers
                target = f"{name}_{attempt}"
                db.sql(ddl.format(target))
                cursor.execute(ddl.format(target))
                ours = loaded(server, target, parquet, rows)
                start = time.perf_counter()
                cursor.execute(f"LOAD DATA INFILE '{tsv}' INTO TABLE {target}")
                theirs = rows / (time.perf_counter() - start)
                print(f"load {name:6} {attempt:6} {rows:,} rows: Noria (Parquet) {ours:>9,.0f}/s   MariaDB LOAD DATA "
                      f"{theirs:>9,.0f}/s   ratio {ours / theirs:.2f}", flush=True)


def inserts(server: NoriaServer, seconds: float) -> None:
    with noria.connect(server.http) as db:
        db.sql("CREATE TABLE inserted (id INT PRIMARY KEY, story_id INT, KEY by_story (story_id))")
        table, size, at = db.table("inserted"), 10_000, 0
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            ids = np.arange(at, at + size)
            table.insert(pa.table({"id": ids, "story_id": ids % 40_000}))
            at += size
        print(f"durable inserts from Python in 10,000s, primary key and one index: "
              f"{at / (time.perf_counter() - start):,.0f} rows/s   goal 100,000/s", flush=True)


def misses(server: NoriaServer, data: Data, seconds: float) -> None:
    """Read each cold key once over MySQL, while sysbench reads and votes on 8 connections."""
    with noria.connect(server.http) as db:
        for text in (TEXTS.format("stories"),
                     "CREATE TABLE votes (story_id INT NOT NULL, user BIGINT NOT NULL, PRIMARY KEY (story_id, user))",
                     *VIEWS):
            db.sql(text)
        db.table("stories").insert([data.story(i) for i in range(1, data.stories + 1)])
        users = np.arange(len(data.votes))
        for at in range(0, len(users), 50_000):
            db.table("votes").insert(pa.table({"story_id": data.votes[at:at + 50_000], "user": users[at:at + 50_000]}))
    load = subprocess.Popen(
        ["sysbench", str(Path(__file__).parent / "sysbench" / "votes.lua"), "--db-driver=mysql",
         f"--mysql-host={server.host}", f"--mysql-port={server.port}", "--mysql-user=bench", "--mysql-password=bench",
         "--mysql-db=noria", "--threads=8", f"--time={int(seconds) + 2}", f"--keys={data.stories // 2}",
         "--workload=mix", f"--query={NORIA_READ}", "--writes=5", "--users=5000000000", "run"],
        stdout=subprocess.DEVNULL)
    times: list[float] = []
    connection = pymysql.connect(host=server.host, port=server.port, user="bench", password="bench",
                                 database="noria", autocommit=True)
    with connection, connection.cursor() as cursor:
        end = time.perf_counter() + seconds
        for key in range(data.stories, data.stories // 2, -1):  # the load reads the other half
            if time.perf_counter() > end:
                break
            start = time.perf_counter()
            cursor.execute(NORIA_READ.replace("?", "%s"), (key,))
            cursor.fetchall()
            times.append((time.perf_counter() - start) * 1e3)
    load.wait()
    p95 = statistics.quantiles(times, n=20)[18]
    print(f"a read that misses, 95/5 mix on 8 connections beside: median {statistics.median(times):.2f} ms, 95 % "
          f"{p95:.2f} ms, {len(times):,} reads   goal 5 ms", flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--votes", type=int, default=2_000_000)
    args.add_argument("--stories", type=int, default=40_000)
    args.add_argument("--seconds", type=float, default=5)
    a = args.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="noria-bench-"))
    maria = MariaDb(directory / "maria")
    maria.directory.mkdir()
    server, empty = started(directory)
    try:
        print(f"start to ready, empty: {empty:.1f} s", flush=True)
        misses(server, Data.make(a.stories, a.votes), a.seconds)
        inserts(server, a.seconds)
        maria.start()
        bulk(server, maria, directory, a.votes)
        maria.stop()
        server.stop()
        server, full = started(directory)
        print(f"start to ready, over {5 * a.votes / 1e6:.0f} million rows in all: {full:.1f} s", flush=True)
    finally:
        maria.stop()
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
