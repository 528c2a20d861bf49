"""The delay that a snapshot of the tables causes to writes, with rows in memory that no file has yet.

The load of change.py runs: 8 connections, each with at most 200 statements a second.  Before each snapshot, rows are
inserted that stay in the store's write buffers if they fit.  Then the snapshot is made as by `noria backup`, or as by
`noria verify`, which includes all views.  For each it prints the duration, the longest statement of any connection
meanwhile, and the 99.9th percentile of reads and of writes.

    python bench/snapshots.py [--workers N] [--rows 1000000] [--times 3] [--stories 40000] [--what backup,verify]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa

import noria
from change import LATER, SETTLE_S, Made, line, load
from mysql import NORIA_READ, STORIES, VIEWS, VOTES, Data, NoriaServer
from noria.client.transport import HttpTransport

CHUNK = 50_000  # rows of an INSERT


def fill(server: NoriaServer, stories: int, first: int, rows: int) -> None:
    """Insert votes of new users."""
    rng = np.random.default_rng(first)
    with noria.connect(server.http) as db:
        for at in range(0, rows, CHUNK):
            users = LATER * 100 + first + np.arange(at, min(at + CHUNK, rows))
            db.table("votes").insert(pa.table({"story_id": rng.integers(1, stories + 1, len(users)), "user": users}))


def taken(server: NoriaServer, what: str) -> Made:
    """Make a snapshot and measure its time: of a backup until its path is reported, of `verify` until it begins."""
    start = time.time()
    with closing(HttpTransport(server.http).lines(f"/{what}", {})) as lines:
        next(lines)
        if what == "verify":
            next(lines)
        return Made(what, start, time.time(), 0, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1_000_000, help="inserted before each snapshot")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--stories", type=int, default=40_000)
    parser.add_argument("--what", default="backup,verify")
    a = parser.parse_args()
    data, made = Data.make(a.stories, a.stories), []
    with tempfile.TemporaryDirectory(prefix="noria-bench-", ignore_cleanup_errors=True) as directory:
        server = NoriaServer(Path(directory), options=("--workers", str(a.workers)))
        server.start()
        try:
            with noria.connect(server.http) as db:
                for text in (STORIES, VOTES, *VIEWS):
                    db.sql(text)
                db.table("stories").insert([data.story(i) for i in range(1, a.stories + 1)])
                db.view("StoriesWithVC").lookup_many(list(range(1, a.stories // 2 + 1)))
            with load(server, NORIA_READ, a.stories) as measured:
                time.sleep(2 * SETTLE_S)
                made.append(Made("nothing", time.time() - SETTLE_S, time.time(), 0, 0))
                for what in a.what.split(",") * a.times:
                    fill(server, a.stories, len(made) * a.rows, a.rows)
                    time.sleep(SETTLE_S)
                    made.append(taken(server, what))
                    time.sleep(SETTLE_S)
            (timed,) = measured
            for m in made:
                print(line(f"{a.workers} w", m, timed), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
