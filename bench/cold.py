"""The first seconds of a read load on a view of which no key is present, beside MariaDB's stored counts.

Each server is driven for one slice after the other, in turn, by sysbench.  Only Noria's first slice begins cold: from
then on the view has the keys that were read, and those that were filled ahead.

    python bench/cold.py [--seconds 5] [--slices 4] [--connections 8] [--stories 100000] [--votes 1000000] [--uniform]
"""

from __future__ import annotations

import argparse

import mysql


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--slices", type=int, default=4)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--stories", type=int, default=100_000)
    parser.add_argument("--votes", type=int, default=1_000_000)
    parser.add_argument("--uniform", action="store_true", help="every story is read as often: most first reads miss")
    options = parser.parse_args()
    data = mysql.Data.make(options.stories, options.votes)
    read = next(w for w in mysql.WORKLOADS if w.name.startswith("prepared reads, to a stored count"))
    more = ("--skew=0",) if options.uniform else ()
    with mysql.servers("", "noria,mariadb") as (noria, mariadb):
        assert isinstance(noria, mysql.NoriaServer)
        noria.load(data, warm=False)
        mariadb.load(data)
        for n in range(options.slices):
            ours = mysql.measure(noria, (*read.noria, *more), options.connections, options.seconds, data)
            theirs = mysql.measure(mariadb, (*read.mariadb, *more), options.connections, options.seconds, data)
            print(f"seconds {n * options.seconds:3} to {(n + 1) * options.seconds:3}: Noria {ours.per_second:9,.0f} "
                  f"({ours.p95_ms:.2f} ms), MariaDB {theirs.per_second:9,.0f} ({theirs.p95_ms:.2f} ms), ratio "
                  f"{ours.per_second / theirs.per_second:.2f}", flush=True)


if __name__ == "__main__":
    main()
