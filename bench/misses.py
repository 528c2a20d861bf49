"""Reads of keys that are missing, in turn with MariaDB's reads of a stored count: rate, and processor time of each.

The keys are drawn uniformly from many stories, and all are evicted before each run, so nearly every read misses.
Without a memory limit nothing is filled ahead.

    python bench/misses.py [--seconds 3] [--rounds 3] [--connections 1,8,32] [--stories 200000] [--votes 400000]
"""

from __future__ import annotations

import argparse

import mysql
from scale import looked, post


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", default="1,8,32")
    parser.add_argument("--stories", type=int, default=200_000)
    parser.add_argument("--votes", type=int, default=400_000)
    options = parser.parse_args()
    data = mysql.Data.make(options.stories, options.votes)
    read = next(w for w in mysql.WORKLOADS if w.name.startswith("prepared reads, to a stored count"))
    with mysql.servers("", "noria,mariadb", ("--memory-limit", "0")) as (noria, mariadb):
        assert isinstance(noria, mysql.NoriaServer)
        noria.load(data, warm=False)
        mariadb.load(data)
        for _ in range(options.rounds):
            for connections in map(int, options.connections.split(",")):
                post(noria, "/evict")
                before = looked(noria)
                ours = mysql.measure(noria, (*read.noria, "--skew=0"), connections, options.seconds, data)
                after = looked(noria)
                theirs = mysql.measure(mariadb, (*read.mariadb, "--skew=0"), connections, options.seconds, data)
                front, worker = (1e6 * (after[who] - before[who]) / (ours.per_second * options.seconds)
                                 for who in ("front", "workers"))
                print(f"{connections:3} conn   Noria {ours.per_second:8,.0f} ({ours.p95_ms:.2f} ms), a read: front end "
                      f"{front:.0f} us, worker {worker:.0f} us   MariaDB {theirs.per_second:8,.0f} "
                      f"({theirs.p95_ms:.2f} ms)   ratio {ours.per_second / theirs.per_second:.2f}", flush=True)


if __name__ == "__main__":
    main()
