"""The rate and duration of INSERTs whose rows belong to several workers, with one worker and with more.

Such an INSERT is applied on all of its workers or on none.  So it needs three synced commits, one after the other,
instead of one.  INSERTs of many clients share them (`runtime/transactions/group_commit.py`).

    plain     rows with keys from the client
    unique    AUTO_INCREMENT and a UNIQUE name, which all workers must check first

    python bench/several.py [--workers 1,2,3] [--connections 1,16,64] [--rows 4] [--seconds 5]
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pymysql

from mysql import PASSWORD, USER, NoriaServer

TABLES = {"plain": "CREATE TABLE plain (id BIGINT PRIMARY KEY, kind INT, name VARCHAR(40))",
          "unique": "CREATE TABLE named (id BIGINT PRIMARY KEY AUTO_INCREMENT, kind INT, name VARCHAR(40) UNIQUE)"}
KINDS = 1_000
PROCESSES = 2


def statement(rng: random.Random, work: str, rows: int) -> str:
    numbers = [rng.randrange(2**50) for _ in range(rows)]
    if work == "plain":
        return "INSERT INTO plain VALUES " + ", ".join(f"({n}, {n % KINDS}, 'n{n}')" for n in numbers)
    return "INSERT INTO named (kind, name) VALUES " + ", ".join(f"({n % KINDS}, 'n{n}')" for n in numbers)


def client(seed: str, port: int, work: str, connections: int, rows: int, seconds: float, out: Any) -> None:
    took: list[float] = []

    def one(number: int) -> None:
        rng = random.Random(f"{seed}.{number}")
        with pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, autocommit=True) as connection:
            end = time.perf_counter() + seconds
            with connection.cursor() as cursor:
                while (began := time.perf_counter()) < end:
                    cursor.execute(statement(rng, work, rows))
                    took.append(time.perf_counter() - began)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out.put(took)


def run(server: NoriaServer, work: str, connections: int, rows: int, seconds: float) -> Any:
    out: Any = multiprocessing.Queue()
    processes = min(PROCESSES, connections)
    children = [multiprocessing.Process(target=client, args=(f"{time.time()}.{n}", server.port, work,
                                                             connections // processes, rows, seconds, out))
                for n in range(processes)]
    for child in children:
        child.start()
    took = np.concatenate([out.get() for _ in children])
    for child in children:
        child.join()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,3")
    parser.add_argument("--connections", default="1,16,64")
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    for workers in map(int, options.workers.split(",")):
        with tempfile.TemporaryDirectory(prefix="noria-bench-") as place:
            server = NoriaServer(Path(place), options=("--workers", str(workers)))
            server.start()
            try:
                with pymysql.connect(host="127.0.0.1", port=server.port, user=USER, password=PASSWORD) as c, \
                        c.cursor() as cursor:
                    for text in TABLES.values():
                        cursor.execute(text)
                for work in TABLES:
                    for connections in map(int, options.connections.split(",")):
                        took = run(server, work, connections, options.rows, options.seconds)
                        median, slow = 1e3 * np.quantile(took, (0.5, 0.99))
                        print(f"{work:7} N={workers} {connections:3} connections: {len(took) / options.seconds:7,.0f} "
                              f"a second, median {median:.1f} ms, 99 % {slow:.1f} ms", flush=True)
            finally:
                server.stop()


if __name__ == "__main__":
    main()
