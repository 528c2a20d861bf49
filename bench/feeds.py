"""Feeds: the delay until a follower receives a change, and the cost of a feed for writes.

A server has a view of counts over votes.  One client votes, one row with each statement, and each is synced.  Another
one follows the view's feed over HTTP.  Runs with and without a feed alternate.  `bench/mysql.py` measures MariaDB's
single inserts.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import noria
from mysql import NoriaServer
from noria.client.api import Database

PROGRAM = ("CREATE TABLE votes (story INT, who INT, PRIMARY KEY (story, who))",
           "CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story")


def told(db: Database, votes: int) -> list[float]:
    """Return the times, in ms, from the begin of each statement until the follower has its change."""
    at: dict[int, float] = {}
    ready, over = threading.Event(), threading.Event()
    sent: dict[int, float] = {}

    def follow() -> None:
        for some in db.view("counts").changes():
            now = time.perf_counter()
            if some.kind == "whole":
                ready.set()
            for sign, (story, _) in some:
                if sign > 0 and some.kind == "changes":
                    at.setdefault(story, now)
            if len(at) == votes:
                over.set()
                return

    follower = threading.Thread(target=follow)
    follower.start()
    ready.wait()
    for i in range(votes):
        sent[1_000_000 + i] = time.perf_counter()
        db.sql(f"INSERT INTO votes VALUES ({1_000_000 + i}, 1)")
    over.wait(60)
    follower.join()
    return [1000 * (at[s] - sent[s]) for s in sent]


def written(db: Database, first: int, votes: int) -> float:
    """Return statements a second."""
    begun = time.perf_counter()
    for i in range(votes):
        db.sql(f"INSERT INTO votes VALUES ({first + i % 1000}, {first + i})")
    return votes / (time.perf_counter() - begun)


def shown(latencies: list[float]) -> str:
    cuts: Any = statistics.quantiles(latencies, n=100)
    return f"median {cuts[49]:.1f} ms, 95 % {cuts[94]:.1f} ms, 99 % {cuts[98]:.1f} ms, longest {max(latencies):.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=2000, help="statements of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noria-bench-") as directory:
        server = NoriaServer(Path(directory))
        try:
            server.start()
            measure(noria.connect(server.http), options.votes)
        finally:
            server.stop()


def measure(db: Database, votes: int) -> None:
    for text in PROGRAM:
        db.sql(text)
    for turn in range(3):
        first = 10_000_000 * (turn + 2)
        without = written(db, first, votes)
        if turn:
            next(db.view("counts").changes())
        else:
            print(f"told: {shown(told(db, votes))}")
        with_feed = written(db, first + 5_000_000, votes)
        db.sql("DROP FEED `counts@changes`")
        print(f"writes a second: without a feed {without:.0f}, with one {with_feed:.0f} ({with_feed / without:.2f})")


if __name__ == "__main__":
    main()
