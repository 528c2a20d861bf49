"""One program over 1, 2 and 4 workers (figure 9 of the paper): throughput, delay, processor time and messages.

    keyed      95 % reads of a row by its primary key, 5 % updates of it, uniform: one worker handles a statement
    shuffled   95 % reads of a story's count of votes, 5 % votes: the worker of a vote's key sends it to the worker of
               its story, which counts it
    misses     reads of all counts once after an eviction of all keys

On a machine with few cores, more workers do not raise the throughput.  Processor time predicts it for a core for each
worker.  While the workers' time for a statement stays the same, N workers do N times as many, up to the front end's
limit.  Both times are printed.

With --each, the number of connections is for each worker.  So N workers have N times as much to do, and each still has
several statements for a commit and a tick.

    python bench/scale.py [--workers 1,2,4] [--stories 20000] [--seconds 15] [--connections 8] [--each]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import tempfile
import time
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql

import noria
from mysql import PASSWORD, USER, NoriaServer

TABLES = ("CREATE TABLE stories (id INT PRIMARY KEY, title VARCHAR(40), score INT NOT NULL)",
          "CREATE TABLE votes (id BIGINT PRIMARY KEY AUTO_INCREMENT, story INT NOT NULL, user INT NOT NULL)",
          "CREATE VIEW one AS SELECT id, title, score FROM stories WHERE id = ?",
          "CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
WORK = {"keyed": ("SELECT title, score FROM one WHERE id = %s", "UPDATE stories SET score = score + 1 WHERE id = %s"),
        "shuffled": ("SELECT n FROM counts WHERE story = %s", "INSERT INTO votes (story, user) VALUES (%s, 1)")}
WRITES = 0.05
PROCESSES = 2


def client(number: int, port: int, work: str, stories: int, connections: int, seconds: float, out: Any) -> None:
    """Run statements on randomly chosen connections of one process, one after the other."""
    rng, (read, write) = random.Random(number), WORK[work]
    cursors = [pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, autocommit=True).cursor()
               for _ in range(connections)]
    took: tuple[list[float], list[float]] = [], []
    end = time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        writes = rng.random() < WRITES
        cursor = rng.choice(cursors)
        cursor.execute(write if writes else read, (rng.randrange(stories),))
        cursor.fetchall()
        took[writes].append(time.perf_counter() - now)
    out.put(took)


def run(server: NoriaServer, work: str, stories: int, connections: int, seconds: float) -> dict[str, float]:
    before = looked(server)
    out: Any = multiprocessing.Queue()
    each = max(connections // PROCESSES, 1)
    children = [multiprocessing.Process(target=client, args=(n, server.port, work, stories, each, seconds, out))
                for n in range(PROCESSES)]
    for child in children:
        child.start()
    found = [out.get() for _ in children]
    for child in children:
        child.join()
    after = looked(server)
    reads, writes = (np.concatenate([f[kind] for f in found]) for kind in (0, 1))
    done, used = len(reads) + len(writes), {k: after[k] - before[k] for k in before}
    return {"per second": done / seconds, "read p95 ms": 1e3 * float(np.quantile(reads, 0.95)),
            "write p95 ms": 1e3 * float(np.quantile(writes, 0.95)),
            "front end us": 1e6 * used["front"] / done, "workers us": 1e6 * used["workers"] / done,
            "workers us/write": 1e6 * used["workers"] / max(len(writes), 1),
            "messages/write": used["messages"] / max(len(writes), 1)}


def misses(server: NoriaServer, stories: int) -> dict[str, float]:
    post(server, "/evict")
    before = looked(server)
    with pymysql.connect(host="127.0.0.1", port=server.port, user=USER, password=PASSWORD) as c, c.cursor() as cursor:
        started = time.perf_counter()
        for story in range(stories):
            cursor.execute(WORK["shuffled"][0], (story,))
            cursor.fetchall()
        took = time.perf_counter() - started
    after = looked(server)
    return {"per second": stories / took, "front end us": 1e6 * (after["front"] - before["front"]) / stories,
            "workers us": 1e6 * (after["workers"] - before["workers"]) / stories,
            "messages/miss": (after["messages"] - before["messages"]) / stories}


def looked(server: NoriaServer) -> dict[str, float]:
    """Return the processor seconds of the front end and of all workers, and the messages among workers."""
    assert server._process is not None
    pids = json.loads(get(server, "/health"))["worker_pids"]
    sent = re.search(r"^noria_worker_messages_total (\S+)$", get(server, "/metrics"), re.MULTILINE)
    return {"front": seconds_of(server._process.pid), "workers": sum(map(seconds_of, pids)),
            "messages": float(sent[1]) if sent else 0.0}


def seconds_of(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def get(server: NoriaServer, path: str) -> str:
    return post(server, path, None)


def post(server: NoriaServer, path: str, data: bytes | None = b"{}") -> str:
    url = re.sub(r"//.*@", "//", server.http) + path
    login = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def fill(server: NoriaServer, stories: int) -> None:
    with noria.connect(server.http) as db:
        for text in TABLES:
            db.sql(text)
        ids = np.arange(stories)
        db.table("stories").insert(pa.table({"id": ids, "title": [f"story {i}" for i in ids], "score": ids * 0}))
        for _ in range(5):
            db.table("votes").insert(pa.table({"story": ids, "user": ids}))
        db.view("one").lookup_many(ids.tolist())
        db.view("counts").lookup_many(ids.tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,2,4")
    parser.add_argument("--stories", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--each", action="store_true", help="so many connections for each worker")
    options = parser.parse_args()
    found: dict[tuple[str, int], dict[str, float]] = {}
    for workers in map(int, options.workers.split(",")):
        connections = options.connections * (workers if options.each else 1)
        with tempfile.TemporaryDirectory(prefix="noria-bench-") as place:
            server = NoriaServer(Path(place), options=("--workers", str(workers)))
            server.start()
            try:
                fill(server, options.stories)
                for work in WORK:
                    run(server, work, options.stories, connections, 3)
                    found[work, workers] = run(server, work, options.stories, connections, options.seconds)
                found["misses", workers] = misses(server, options.stories)
            finally:
                server.stop()
        for (work, n), figures in found.items():
            if n == workers:
                print(f"{work:9} N={n}  " + "  ".join(f"{k} {v:,.2f}" for k, v in figures.items()), flush=True)
    for work in (*WORK, "misses"):
        of = {n: f for (w, n), f in found.items() if w == work}
        first = of[min(of)]
        for n, f in of.items():
            each = {k: f[k] / max(first[k], 1e-9) for k in ("workers us", "front end us")}
            bound = 1e6 / max(f["front end us"], f["workers us"] / n)
            print(f"{work:9} N={n}: processor time of a statement: {each['workers us']:.2f} × at workers, "
                  f"{each['front end us']:.2f} × at the front end, of N={min(of)}; with a core for each at most "
                  f"{bound:,.0f} a second")


if __name__ == "__main__":
    main()
