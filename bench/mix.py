"""The application's mix on the demo's data: 95/5 and 50/50 through real clients, misses under load, starts.

    start     `noria serve` until its ready line: in a new directory, with no rows, and with all rows
    load      `noria load` of stories and users (CSV) and votes (Parquet)
    mix       reads and votes by popularity: Python clients, and sysbench if it is installed
    misses    one more client reads evicted stories while the mix runs
    limits    the mix under memory limits: hit rate and latencies, by the share of state that may stay beyond strings

    python bench/mix.py [--seconds 5] [--stories 40000] [--users 9200] [--votes 2000000] [--limits 1,0.8,0.6]

The goal for a read that misses, under load, is a median of at most 5 ms.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pymysql

import noria
from noria.demo import generate, sysbench
from noria.demo.acts import TABLES, VIEWS, WORKER_SHARE
from noria.demo.clients import READ, ClientProfile
from noria.demo.lobsters import Size
from noria.demo.mix import Figures, Mix
from noria.demo.report import MemoryUse
from noria.demo.server import DemoServer

# Clients' processes inherit this path, and must not import mysql.py of this directory instead of the library mysql.
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).parent]
MISSES = 500  # timed reads that miss
MISS_GOAL_MS = 5.0
LOADED = (("stories", "csv"), ("users", "csv"), ("votes", "parquet"))


def started(directory: Path, what: str) -> DemoServer:
    before = time.monotonic()
    server = DemoServer(directory / "data", directory / "serve.log", [])
    for _ in server.await_ready():
        pass
    print(f"start to ready, {what:32} {time.monotonic() - before:6.1f} s", flush=True)
    return server


def load(server: DemoServer, raw: Path) -> None:
    with noria.connect(server.url) as db:
        for text in (*TABLES, *VIEWS):
            db.sql(text)
    for table, kind in LOADED:
        before = time.monotonic()
        files = [str(f) for f in generate.files(raw, table)]
        *_, last = server.job("/load", {"table": table, "files": files, "format": kind})
        rows, seconds = last["rows"], time.monotonic() - before
        print(f"load {table:8}{rows:>10,} rows {seconds:6.1f} s {rows / seconds:>12,.0f} rows/s", flush=True)


def tell(what: str, f: Figures) -> None:
    reads, votes = (" ".join(f"{x:7.2f}" for x in tail) for tail in (f.read_ms, f.write_ms))
    print(f"{what:34}{f.reads_s:>9,.0f} reads/s [{reads} ms]{f.writes_s:>8,.0f} votes/s [{votes} ms]  50/95/99 %",
          flush=True)


def all_read(server: DemoServer, size: Size) -> None:
    with noria.connect(server.url) as db:
        db.view("StoriesWithVC").lookup_many(np.arange(1, size.stories + 1).tolist())


def mixes(server: DemoServer, mix: Mix, size: Size, seconds: float, directory: Path) -> None:
    all_read(server, size)
    for again, writes in enumerate((0.05, 0.5)):
        name = f"{100 - 100 * writes:.0f}/{100 * writes:.0f}, all present"
        mix.run(ClientProfile(writes))
        tell(f"{name}, {len(mix)} Python clients", mix.measured(seconds))
        mix.run(None)
        mix.cut()
        if sysbench.installed():
            rate = sysbench.run(server.mysql_port, size, seconds, 8, round(writes * 100), directory, again)
            print(f"{name + ', sysbench, 8 conn.':34}{rate.per_s:>9,.0f} statements/s, 95 % within "
                  f"{rate.p95_ms:.2f} ms", flush=True)


def misses(server: DemoServer, mix: Mix, size: Size) -> None:
    """Read stories that the mix does not read, after an eviction of all keys."""
    server.set_limit(2**20)  # evicts all keys; then there is room again
    server.set_limit(2**30)
    own = size.rng(8).permutation(size.stories)[:MISSES] + 1
    others = np.setdiff1d(np.arange(1, size.stories + 1), own)
    took = []
    connection = pymysql.connect(host="127.0.0.1", port=server.mysql_port, user="bench", autocommit=True)
    with connection, connection.cursor() as cursor:
        cursor.execute(READ.format(0))
        mix.run(ClientProfile(0.05, others))
        mix.cut()
        before = server.metrics()["upqueries_total"]
        for story in own.tolist():
            start = time.perf_counter()
            cursor.execute(READ.format(story))
            cursor.fetchall()
            took.append(time.perf_counter() - start)
    figures = Figures.of(*mix.cut())
    asked = server.metrics()["upqueries_total"] - before
    mix.run(None)
    mix.cut()
    median, tail = np.percentile(took, (50, 99)) * 1000
    goal = "met" if median <= MISS_GOAL_MS else "MISSED"
    print(f"a read that misses, under load: {median:.2f} ms at the median (goal {MISS_GOAL_MS:g}: {goal}), "
          f"{tail:.2f} ms at 99 %; {asked:,.0f} upqueries meanwhile", flush=True)
    tell("  the load beside it", figures)


def limits(server: DemoServer, mix: Mix, size: Size, seconds: float, shares: list[float]) -> None:
    server.set_limit(2**30)
    all_read(server, size)
    full = MemoryUse.of(server)
    for share in shares:
        limit = round((full.strings + share * (full.total - full.strings)) / WORKER_SHARE)
        before = time.monotonic()
        server.set_limit(limit)
        took_s = time.monotonic() - before
        mix.run(ClientProfile(0.05))
        mix.measured(seconds / 2)
        since = server.metrics()
        figures = mix.measured(seconds)
        now = server.metrics()
        mix.run(None)
        mix.cut()
        hits = sum(now[n] - since[n] for n in ("cached_replies_total", "view_hits_total"))
        rate = 100 * hits / max(1, now["reads_total"] - since["reads_total"])
        tell(f"{share:.0%} of state, {rate:.0f} % hits", figures)
        print(f"    limit {limit / 2**20:.1f} MB set in {took_s:.1f} s; {now['worker_memory'] / 2**20:.1f} MB held",
              flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--stories", type=int, default=40_000)
    parser.add_argument("--users", type=int, default=9_200)
    parser.add_argument("--votes", type=int, default=2_000_000)
    parser.add_argument("--limits", default="1,0.8,0.6")
    options = parser.parse_args()
    size = Size(options.stories, options.users, options.votes)
    print(f"{size}")
    with tempfile.TemporaryDirectory(prefix="noria-mix-") as name:
        directory = Path(name)
        generate.run(size, directory / "raw", directory / "generate.log", lambda *_: None)
        started(directory, "an empty directory").stop()
        with started(directory, "no rows") as server:
            load(server, directory / "raw")
        with started(directory, f"{size.votes:,} votes") as server, Mix(server.mysql_port, size) as mix:
            misses(server, mix, size)
            mixes(server, mix, size, options.seconds, directory)
            limits(server, mix, size, options.seconds, [float(x) for x in options.limits.split(",")])


if __name__ == "__main__":
    main()
