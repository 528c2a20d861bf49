"""Reads of keys of a worker on another host, simulated on one machine: the worker has no run directory of the server,
and is reached by TCP over loopback.  Sessions in this process run a prepared statement, one key at a time.

    python bench/far_reads.py [--seconds 2] [--sessions 1,4,16,64] [--keys 2000] [--alone]
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from noria.runtime.link import read_batching
from noria.server.outcomes import Client
from runtime.several import Several


async def one(sessions: Any, keys: Any, until: float, took: list[float], number: int) -> None:
    """Run one session's reads."""
    session = sessions.connect(Client("root", "", number, "127.0.0.1", False))
    handle = session.prepare("SELECT n FROM sums WHERE k = ?").handle
    loop = asyncio.get_running_loop()
    for key in keys:
        began = time.perf_counter()
        answer = session.execute(handle, (key,), None)
        if inspect.isawaitable(answer):
            await answer
        elif hasattr(answer, "future"):
            await answer.future
        else:
            await asyncio.sleep(0)
        took.append(time.perf_counter() - began)
        if loop.time() > until:
            break
    session.close()


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def taken(several: Several) -> list[float]:
    """Return the processor time, in seconds, of this process and of the far worker."""
    return [processor_s(os.getpid()), processor_s(several.alive[1].pid)]


async def measured(several: Several, keys: list[int], sessions: int, seconds: float) -> str:
    took: list[float] = []
    rng = np.random.default_rng(sessions)
    orders = [rng.choice(keys, 50_000).tolist() for _ in range(sessions)]
    before = taken(several)
    began = time.perf_counter()
    until = asyncio.get_running_loop().time() + seconds
    await asyncio.gather(*(one(several.sessions, order, until, took, 1_000 + i) for i, order in enumerate(orders)))
    rate = len(took) / (time.perf_counter() - began)
    here, there = ((now - b) / len(took) * 1e6 for now, b in zip(taken(several), before, strict=True))
    middle, late = np.percentile(took, (50, 95)) * 1_000
    return (f"{sessions:3} sessions {rate:9,.0f} a second   median {middle:5.2f} ms   p95 {late:5.2f} ms   "
            f"{here:4.0f} us a read of this process, {there:4.0f} of the far worker")


async def run(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="noria-bench-") as place:
        several = Several(Path(place), 2, away=lambda worker: worker == 1)
        try:
            await several.start()
            await several.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT)")
            for start in range(0, options.keys * 2, 1_000):
                rows = ", ".join(f"({i}, {i // 2}, {i})" for i in range(start, start + 1_000))
                await several.sql(f"INSERT INTO t VALUES {rows}")
            await several.sql("CREATE VIEW sums AS SELECT k, SUM(n) AS n FROM t WHERE k = ? GROUP BY k")
            for k in range(options.keys):
                await several.sql("SELECT n FROM sums WHERE k = ?", k)
            view = several.program.view("sums")
            assert view is not None
            reader = await several.program.reader_of(view)
            whose = np.array([several.link.routes.owner(reader, (k,)) for k in range(options.keys)])
            for where, worker in (("far", 1), ("here", 0)):
                for sessions in map(int, options.sessions.split(",")):
                    keys = np.flatnonzero(whose == worker).tolist()
                    print(f"{where:5}", await measured(several, keys, sessions, options.seconds), flush=True)
        finally:
            await several.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--sessions", default="1,4,16,64")
    parser.add_argument("--alone", action="store_true", help="each read in a packet of its own")
    parser.add_argument("--keys", type=int, default=2_000)
    options = parser.parse_args()
    if options.alone:
        read_batching.READ_PACKETS, read_batching.READS_TOGETHER = 10**9, 1
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(options))


if __name__ == "__main__":
    main()
