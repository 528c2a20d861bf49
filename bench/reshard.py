"""Rates of `noria load` of many votes into one worker, and of `noria reshard` of these rows to several workers.

    python bench/reshard.py [--rows 10000000] [--workers 2] [--dir DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import noria
from mysql import NoriaServer

TABLE = "CREATE TABLE votes (story INT, user INT, up INT NOT NULL, PRIMARY KEY (story, user))"
STORIES = 100_000


def votes(path: Path, rows: int) -> None:
    """Write votes of users for stories, in random order, to eight files."""
    order = np.random.default_rng(1).permutation(rows)
    for n, some in enumerate(np.array_split(order, 8)):
        columns = [some % STORIES, some // STORIES, some & 1]
        pq.write_table(pa.table([pa.array(c.astype(np.int32)) for c in columns], ["story", "user", "up"]),
                       path / f"votes-{n}.parquet")


def size(directory: Path) -> int:
    return sum(p.stat().st_size for p in directory.rglob("*.sst"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--dir", type=Path)
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.dir) as place:
        run(Path(place), chosen.rows, chosen.workers)


def run(place: Path, rows: int, workers: int) -> None:
    (place / "files").mkdir()
    votes(place / "files", rows)
    server = NoriaServer(place)
    server.start()
    try:
        with noria.connect(server.http) as db:
            db.sql(TABLE)
            started = time.perf_counter()
            for step in db.transport.load({"table": "votes", "files": [str(p) for p in sorted(
                    (place / "files").iterdir())], "format": "parquet", "reject": str(place / "rejected")}):
                last = step
            load = time.perf_counter() - started
            assert last["rows"] == rows, last
    finally:
        server.stop()
    data = place / "data"
    nbytes = size(data / "worker-0")
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "noria", "reshard", "--data-dir", str(data), "--workers", str(workers)],
                   check=True)
    took = time.perf_counter() - started
    new = [size(data / f"worker-{w}") for w in range(workers)]
    for what, seconds, of in (("load", load, nbytes), ("reshard", took, sum(new))):
        print(f"{what:8} {rows:,} rows  {seconds:6.1f} s  {rows / seconds:10,.0f} rows/s  {of / 1e6:7.1f} MB of SST "
              f"files  {of / 1e6 / seconds:5.1f} MB/s", flush=True)
    print("of each worker:", ", ".join(f"{n / 1e6:.1f} MB" for n in new))


if __name__ == "__main__":
    main()
