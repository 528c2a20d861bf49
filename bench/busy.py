"""The slowest query over thirty rows while other processes keep all processors busy.

Four connections join two tables of thirty rows, 1,000 times in all.  They repeat texts, change values, and send new
shapes: a slow first run of a shape must not send it to Spark.  Meanwhile, two processes for each processor of the
machine compute.

    python bench/busy.py [--tries 1000]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql

from mysql import PASSWORD, USER, NoriaServer

ROWS, CONNECTIONS = 30, 4
QUERY = ("SELECT a.id, a.name, b.n, {shape} AS s FROM a JOIN b ON b.a = a.id WHERE b.n >= {n} "
         "ORDER BY b.n DESC, a.id LIMIT {limit}")


@contextmanager
def burners(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for p in processes:
            p.kill()
            p.wait()


def connected(server: NoriaServer) -> Any:
    return pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD, database="noria",
                           autocommit=True, read_timeout=130)


def ask(server: NoriaServer, number: int, tries: int, took: list[float], wrong: list[object]) -> None:
    with connected(server) as c, c.cursor() as cursor:
        for i in range(tries):
            shape = " + ".join(["a.id"] * (1 + (i + number) % 7)) if i % 2 else "a.id"
            n, limit = i % ROWS, 5 + i % 20
            start = time.perf_counter()
            try:
                cursor.execute(QUERY.format(shape=shape, n=n, limit=limit))
                rows = cursor.fetchall()
                if len(rows) != min(limit, ROWS - n):
                    wrong.append(rows)
            except pymysql.Error as e:
                wrong.append(e)
            took.append(time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, burners(2 * (os.cpu_count() or 1)):
        server = NoriaServer(Path(place))
        try:
            server.start()
            with connected(server) as c, c.cursor() as cursor:
                cursor.execute("CREATE TABLE a (id INT PRIMARY KEY, name VARCHAR(20))")
                cursor.execute("CREATE TABLE b (n INT PRIMARY KEY, a INT)")
                cursor.executemany("INSERT INTO a VALUES (%s, %s)", [(i, f"Name {i}") for i in range(ROWS)])
                cursor.executemany("INSERT INTO b VALUES (%s, %s)", [(i, (7 * i) % ROWS) for i in range(ROWS)])
            took: list[float] = []
            wrong: list[object] = []
            threads = [threading.Thread(target=ask, args=(server, n, options.tries // CONNECTIONS, took, wrong))
                       for n in range(CONNECTIONS)]
            for t in threads:
                t.start()
            for t in threads:
                t.join()
            took.sort()
            print(f"{len(took)} queries, load {os.getloadavg()[0]:.1f}: median {1000 * took[len(took) // 2]:.1f} ms, "
                  f"p99 {1000 * took[len(took) * 99 // 100]:.0f} ms, longest {took[-1]:.2f} s; {len(wrong)} wrong")
            for answer in wrong[:3]:
                print(f"  {answer}")
        finally:
            server.stop()


if __name__ == "__main__":
    main()
