"""What a running server holds while shapes of SELECT, views and connections come and go by the thousands.

Every distinct SELECT is asked three times: a one-shot, one more while an ad-hoc view of its own is made, and that view;
each cycle creates, reads and drops a named view, in the server, by another process's shared memory and over HTTP; each
connection reads by a text.  After each part of the work: descriptors, mappings, threads and resident memory of every
process, and what is in the run directory.  What a process keeps within a bound (ad-hoc views, replies, statements) is
full after the warm-up.

    PYTHONPATH=src:tests python tests/soak/soak.py [--selects 100000] [--cycles 1000] [--connections 2000] [--parts 10]
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import noria
from e2e.serving import Served
from noria.views.reader import attach

COLUMNS = [f"c{n}" for n in range(14)]
TABLE = f"CREATE TABLE t (id INT PRIMARY KEY, {', '.join(c + ' INT' for c in COLUMNS[:10])}, " + ", ".join(
    c + " VARCHAR(20)" for c in COLUMNS[10:]) + ")"
ROWS = 50
PROCESSES = ("front", "driver", "jvm", "worker", "attached")
POOLS = (("jvm", "threads"), ("jvm", "maps"))  # each thread has two
KEPT_ADHOC = 500  # views: the warm-up makes more


@dataclass(frozen=True)
class Held:
    """Of one process at one moment."""

    files: int
    maps: int
    threads: int
    resident_mb: float

    @staticmethod
    def of(pid: int) -> Held:
        proc = Path(f"/proc/{pid}")
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        with (proc / "maps").open() as maps:
            lines = sum(1 for _ in maps)
        return Held(len(os.listdir(proc / "fd")), lines, int(status["Threads"]),
                    round(int(status["RssAnon"].split()[0]) / 1024, 1))


@dataclass(frozen=True)
class Look:
    """Of everything at one moment; seconds: of one new shape in this part of the work, on the average."""

    work: str
    processes: dict[str, Held]
    run_mb: float
    run_files: int
    select_ms: float


class Reader:
    """A process that reads views from shared memory: `python soak.py --attach URL`, a view's name a line."""

    def __init__(self, url: str):
        self.process = subprocess.Popen([sys.executable, __file__, "--attach", url], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))})

    def read(self, name: str) -> str:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait(30)


def attached(url: str) -> None:
    """The reading process: each view by a new object, and by one that stays for all."""
    db = noria.connect(url)
    views = attach(db.transport.attachment()["path"])
    for line in sys.stdin:
        name = line.strip()
        shared, kept = db.view(name).attach().lookup(1), views.view(name).lookup((1,))
        print("same" if shared == kept else f"{shared} {kept}", flush=True)


class Soak:
    def __init__(self, server: Served):
        self.server = server
        self.connection = server.connect()
        self.cursor = self.connection.cursor()
        self.cursor.execute(TABLE)
        rows = [[n, *[n * k for k in range(10)], *[f"text {n} {k}" for k in range(4)]] for n in range(ROWS)]
        self.cursor.executemany(f"INSERT INTO t VALUES ({', '.join(['%s'] * 15)})", rows)
        # First of other columns each: the same ones in another order are read in the view that has them.
        self.shapes = itertools.chain(itertools.combinations(COLUMNS, 5), itertools.permutations(COLUMNS, 5))
        self.reader = Reader(server.url)
        self.db = noria.connect(server.url)
        self.cycles = 0

    def select(self, number: int) -> float:
        """New shapes; the mean time of one in ms."""
        start = time.perf_counter()
        for columns in itertools.islice(self.shapes, number):
            for key in (1, 1, 2):  # an upquery, a hit, another upquery
                self.cursor.execute(f"SELECT {', '.join(columns)} FROM t WHERE id = {key}")
                assert len(self.cursor.fetchall()) == 1
        return 1000 * (time.perf_counter() - start) / max(number, 1)

    def cycle(self, number: int) -> None:
        for _ in range(number):
            self.cycles += 1
            key = COLUMNS[self.cycles % 10]
            name = f"cycled{self.cycles % 7}"
            self.cursor.execute(f"CREATE VIEW {name} AS SELECT id, c11, {key} FROM t WHERE {key} = ?")
            self.cursor.execute(f"SELECT * FROM {name} WHERE {key} = 1")
            assert self.reader.read(name) == "same"
            self.db.view(name).lookup_many([1, 2, 3])
            self.cursor.execute(f"DROP VIEW {name}")

    def connect(self, number: int) -> None:
        for n in range(number):
            with self.server.connect() as connection, connection.cursor() as cursor:
                cursor.execute(f"SELECT c1, c12 FROM t WHERE id = {n % ROWS}")

    def look(self, work: str, select_ms: float) -> Look:
        pids = {p: self.reader.process.pid if p == "attached" else self.server.pid(p) for p in PROCESSES}
        run = Path(self.db.transport.attachment()["path"]).parent
        found = [p.stat() for p in run.rglob("*") if p.is_file()]
        return Look(work, {p: Held.of(pid) for p, pid in pids.items()}, sum(s.st_blocks for s in found) / 2048,
                    len(found), select_ms)

    def run(self, selects: int, cycles: int, connections: int, parts: int) -> Iterator[Look]:
        """A look after the warm-up, then one after each part."""
        self.select(KEPT_ADHOC + 100)
        self.cycle(10)
        self.connect(20)
        yield self.look("warm-up", 0.0)
        for part in range(parts):
            ms = self.select(selects // parts)
            self.cycle(cycles // parts)
            self.connect(connections // parts)
            yield self.look(f"{part + 1}/{parts}", ms)

    def close(self) -> None:
        self.reader.close()
        self.connection.close()


def shown(look: Look) -> str:
    held = " | ".join(f"{p} " + " ".join(f"{getattr(h, f.name):g}" for f in fields(h))
                      for p, h in look.processes.items())
    return f"{look.work:>8} | {held} | run {look.run_mb:.1f} MB {look.run_files} | {look.select_ms:.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--selects", type=int, default=100_000)
    parser.add_argument("--cycles", type=int, default=1_000)
    parser.add_argument("--connections", type=int, default=2_000)
    parser.add_argument("--parts", type=int, default=10)
    parser.add_argument("--attach", help=argparse.SUPPRESS)  # this is the reading process
    options = parser.parse_args()
    if options.attach:
        attached(options.attach)
        return
    print("of each process: descriptors, mappings, threads, resident MB; the run directory; the mean time of a shape",
          flush=True)
    with tempfile.TemporaryDirectory(prefix="noria-soak-") as place:
        server = Served(Path(place) / "data")
        try:
            soak = Soak(server)
            for look in soak.run(options.selects, options.cycles, options.connections, options.parts):
                print(shown(look), flush=True)
            soak.close()
        finally:
            server.close()


def is_flat(looks: list[Look], slack: dict[str, Any]) -> list[str]:
    """What grew between the first look and the last one by more than the slack, in words.  What leaks grows in every
    part of the work by its share; a pool that Spark starts once, of some 25 threads, in one."""
    before, after = looks[0], looks[-1]

    def grew(process: str, name: str) -> bool:
        held = [getattr(look.processes[process], name) for look in looks]
        each = [b - a for a, b in itertools.pairwise(held)]
        leaks = (process, name) not in POOLS or all(g >= slack[name] / len(each) for g in each)
        return leaks and held[-1] > held[0] + slack[name]

    grown = [f"{p}: {f.name} {getattr(before.processes[p], f.name)} -> {getattr(after.processes[p], f.name)}"
             for p in PROCESSES for f in fields(Held) if grew(p, f.name)]
    for name in ("run_mb", "run_files"):
        if getattr(after, name) > getattr(before, name) + slack[name]:
            grown.append(f"{name}: {getattr(before, name)} -> {getattr(after, name)}")
    return grown


if __name__ == "__main__":
    main()
