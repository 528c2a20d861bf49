"""Changes of the program while 8 connections read and write: the duration of each, and the delays of other statements.

Each connection runs one statement at a time, at most 200 a second.  Half of them read a story with its count from a
view, one in ten with a new key; the other half vote.  For each change it prints the duration, the longest statement of
any connection meanwhile, the 99.9th percentile of reads and of writes, and the worker's memory before and after.  The
first line is for a period without changes.  MariaDB then runs those changes that it has (ALL_SERVERS), under the same
load.  A rejected change is printed with its error.

    python bench/change.py [--votes 2000000] [--stories 40000] [--only WORD] [--servers noria,mariadb] [--workers N]

It does not use sysbench, whose own delays would hide those of the server.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

import noria
from mysql import NORIA_READ, PASSWORD, STORED_READ, STORIES, USER, VIEWS, VOTES, Data, MariaDb, NoriaServer
from server import loaded

PROCESSES, THREADS = 4, 2
PAUSE_S = 1 / 200  # between two statements of a connection
SETTLE_S = 3.0
LATER = 10_000_000_000  # users who vote while a change is made


@dataclass(frozen=True)
class Change:
    """A change and its statements.  first, undo: statements before and after it, which are not timed."""

    name: str
    statements: tuple[str, ...]
    undo: tuple[str, ...] = ()
    first: tuple[str, ...] = ()


CHANGES = (
    Change("partial view by a new key", ("CREATE VIEW by_user AS SELECT story_id FROM votes WHERE user = ?",)),
    Change("full aggregate", ("CREATE MATERIALIZED VIEW by_count AS SELECT story_id, COUNT(*) AS c FROM votes "
                              "GROUP BY story_id HAVING c = ?",), ("DROP VIEW by_count",)),
    Change("count of all", ("CREATE MATERIALIZED VIEW everything AS SELECT COUNT(*) AS c FROM votes",),
           ("DROP VIEW everything",)),
    Change("full join with aggregate",
           ("CREATE MATERIALIZED VIEW authors AS SELECT author, COUNT(*) AS c FROM votes JOIN stories ON id = story_id "
            "GROUP BY author HAVING c = ?",), ("DROP VIEW authors",)),
    Change("full top-k", ("CREATE MATERIALIZED VIEW top AS SELECT story_id, COUNT(*) AS c FROM votes GROUP BY story_id "
                          "ORDER BY c DESC LIMIT 10",)),
    Change("full copy of a table", ("CREATE MATERIALIZED VIEW copied AS SELECT story_id, user FROM votes",), ()),
    Change("CREATE OR REPLACE", ("CREATE OR REPLACE VIEW copied AS SELECT user, story_id FROM votes",)),
    Change("DROP VIEW", ("DROP VIEW copied",)),
    Change("CREATE INDEX", ("CREATE INDEX by_kind ON votes (kind)",), ("DROP INDEX by_kind ON votes",),
           ("ALTER TABLE votes ADD COLUMN kind INT NOT NULL DEFAULT 1",)),
    Change("ADD COLUMN", ("ALTER TABLE votes ADD COLUMN weight INT NOT NULL DEFAULT 1",)),
    Change("RENAME COLUMN", ("ALTER TABLE votes RENAME COLUMN weight TO heft",)),
    Change("MODIFY COLUMN", ("ALTER TABLE votes MODIFY COLUMN heft BIGINT NOT NULL DEFAULT 1",)),
    Change("UPDATE of all rows", ("UPDATE votes SET heft = heft + 1",)),
    Change("DELETE of a third", ("DELETE FROM votes WHERE story_id % 3 = 1",)),
    Change("DROP COLUMN", ("ALTER TABLE votes DROP COLUMN heft",)),
    Change("TRUNCATE", ("TRUNCATE TABLE votes",)),
)
ALL_SERVERS = ("CREATE INDEX", "ADD COLUMN", "RENAME COLUMN", "MODIFY COLUMN", "UPDATE of all rows",
               "DELETE of a third", "DROP COLUMN", "TRUNCATE")


# ---------------------------------------------------------------- the load
@dataclass
class Timed:
    """Statements: the begin and duration of each, in seconds.  kind: 0 for a read, 1 for a write."""

    began: np.ndarray
    took: np.ndarray
    kind: np.ndarray

    def within(self, start: float, end: float, kind: int | None = None) -> np.ndarray:
        """Return the durations, in ms, of the statements that ran in a period."""
        chosen = (self.began < end) & (self.began + self.took > start)
        return 1e3 * self.took[chosen if kind is None else chosen & (self.kind == kind)]


def _client(number: int, port: int, read: str, stories: int, stop: Any, out: Connection) -> None:
    """Run the connections of one process of the load."""
    found: list[list[tuple[float, float, int]]] = [[] for _ in range(THREADS)]
    threads = [Thread(target=_statements, args=(number * THREADS + t, port, read, stories, stop, found[t]))
               for t in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    out.send([row for rows in found for row in rows])


def _statements(number: int, port: int, read: str, stories: int, stop: Any, found: list[tuple[float, float, int]]
                ) -> None:
    rng, user = random.Random(number), LATER * (number + 1)
    connection = pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD, database="noria",
                                 autocommit=True)
    with connection, connection.cursor() as cursor:
        while not stop.is_set():
            kind, story = rng.randrange(2), rng.randrange(stories // 2) + 1
            if rng.random() < 0.1:
                story += stories // 2  # was not read before the load
            start = time.time()
            if kind:
                user += 1
                cursor.execute("INSERT INTO votes (story_id, user) VALUES (%s, %s)", (story, user))
            else:
                cursor.execute(read.replace("?", "%s"), (story,))
                cursor.fetchall()
            took = time.time() - start
            found.append((start, took, kind))
            stop.wait(max(0.0, PAUSE_S - took))


@contextmanager
def load(server: Any, read: str, stories: int) -> Iterator[list[Timed]]:
    """Run the load during the block.  Afterwards the list has its measurements."""
    context = multiprocessing.get_context("spawn")
    stop, measured = context.Event(), []
    pipes, processes = [], []
    for number in range(PROCESSES):
        mine, theirs = context.Pipe(False)
        process = context.Process(target=_client, args=(number, server.port, read, stories, stop, theirs))
        process.start()
        pipes.append(mine)
        processes.append(process)
    try:
        yield measured
    finally:
        stop.set()
        rows = [row for pipe in pipes for row in pipe.recv()]
        for process in processes:
            process.join()
        measured.append(Timed(*(np.array(column) for column in zip(*rows, strict=True))))


# ---------------------------------------------------------------- the changes
@dataclass(frozen=True)
class Made:
    name: str
    start: float
    end: float
    before: float
    after: float
    error: str = ""


def memory(server: Any) -> float:
    """Return the worker's memory in MB; 0 for MariaDB."""
    if not isinstance(server, NoriaServer):
        return 0.0
    with noria.connect(server.http) as db:
        return float(dict(db.sql("SHOW NORIA STATUS").rows)["worker_memory"]) / 1e6


def make(server: Any, cursor: Any, change: Change) -> Made:
    for text in change.first:
        cursor.execute(text)
    before, start = memory(server), time.time()
    error = ""
    try:
        for text in change.statements:
            cursor.execute(text)
    except pymysql.Error as e:
        error = f"   refused: {e}"
    end = time.time()
    return Made(change.name, start, end, before, memory(server), error)


def run(server: Any, read: str, stories: int, changes: tuple[Change, ...]) -> None:
    made: list[Made] = []
    with load(server, read, stories) as measured:
        connection = pymysql.connect(host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database="noria",
                                     autocommit=True, read_timeout=3600)
        with connection, connection.cursor() as cursor:
            time.sleep(2 * SETTLE_S)  # clients connect and caches fill
            made.append(Made("nothing", time.time() - SETTLE_S, time.time(), 0, 0))
            for change in changes:
                made.append(make(server, cursor, change))
                time.sleep(SETTLE_S)
                for text in change.undo:
                    with suppress(pymysql.Error):
                        cursor.execute(text)
    (timed,) = measured
    for m in made:
        print(line(server.name, m, timed), flush=True)


def line(server: str, m: Made, timed: Timed) -> str:
    def quantile(kind: int) -> float:
        took = timed.within(m.start, m.end, kind)
        return float(np.quantile(took, 0.999)) if len(took) else 0.0

    longest = timed.within(m.start, m.end)
    return (f"{server:8}{m.name:28}{m.end - m.start:8.2f} s   longest {longest.max(initial=0):8.1f} ms   99.9 %: reads "
            f"{quantile(0):7.1f} ms, writes {quantile(1):7.1f} ms   {len(longest):6} statements   "
            f"memory {m.before:6.0f} -> {m.after:6.0f} MB{m.error}")


# ---------------------------------------------------------------- tables
def fill(server: NoriaServer, directory: Path, data: Data) -> None:
    table = pa.table({"story_id": data.votes.astype(np.int32), "user": np.arange(len(data.votes))})
    pq.write_table(table, directory / "votes.parquet")
    with noria.connect(server.http) as db:
        for text in (STORIES, VOTES, *VIEWS):
            db.sql(text)
        db.table("stories").insert([data.story(i) for i in range(1, data.stories + 1)])
        loaded(server, "votes", directory / "votes.parquet", len(data.votes))
        for some in data.shares():
            if some[-1] <= data.stories // 2:
                db.view("StoriesWithVC").lookup_many(some)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--votes", type=int, default=2_000_000)
    parser.add_argument("--stories", type=int, default=40_000)
    parser.add_argument("--only", default="", help="changes whose name contains this")
    parser.add_argument("--servers", default="noria,mariadb")
    parser.add_argument("--workers", type=int, default=1, help="of Noria")
    a = parser.parse_args()
    data, chosen = Data.make(a.stories, a.votes), tuple(c for c in CHANGES if a.only in c.name)
    print(f"{a.votes:,} votes for {a.stories:,} stories; {PROCESSES * THREADS} connections, at most "
          f"{1 / PAUSE_S:.0f} statements a second each", flush=True)
    with tempfile.TemporaryDirectory(prefix="noria-bench-", ignore_cleanup_errors=True) as directory:
        for kind in a.servers.split(","):
            place = Path(directory, kind)
            place.mkdir()
            options = ("--workers", str(a.workers))
            server: Any = NoriaServer(place, options=options) if kind == "noria" else MariaDb(place)
            server.start()
            try:
                if kind == "noria":
                    fill(server, place, data)
                    run(server, NORIA_READ, a.stories, chosen)
                else:
                    server.load(data)
                    run(server, STORED_READ, a.stories, tuple(c for c in chosen if c.name in ALL_SERVERS))
            finally:
                server.stop()


if __name__ == "__main__":
    main()
