"""Figure 10 of the paper: the view StoriesWithRatings is added while clients read and write (section 8.5).

Clients read stories with their count of votes by id, and write votes.  Then the program gets a table of ratings and
a view of each story's mean rating, in which an old vote counts as three stars.  From then on clients also read the
new view and write ratings.  There are five transitions, one after the other on one server; each is undone before the
next:

    reuse, partial                 the new view uses the existing vote counts; keys by Zipf 1.08, and uniform
    no reuse, partial              it counts the votes again
    reuse, full; no reuse, full    its key is computed (id + 0), so that none of its states can be partial

Each client is a connection of MySQL's protocol with one statement at a time, at most --pace a second.  With --pace 0
it sends the next one after the answer; as all share the machine, more clients then slow each other down.

For each transition it prints the duration, the time to the new view's first answer, and the longest statements.  It
also prints the throughput before, during and after it, and the share of reads of the new view without an upquery.  At
the end of each, it compares the new view's rows with the loaded and acknowledged rows.

    python bench/figure10.py [--scale 0.02] [--seconds 10] [--pace 200] [--only WORD] [--svg FILE]

Scale 1 is the paper's: 2 million stories, 30 million votes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql

import noria
from figure10_plot import plot
from mysql import NORIA_READ, PASSWORD, SKEW, STORIES, USER, VIEWS, VOTES, Data, NoriaServer
from server import loaded

STARS = 3  # the rating of an old vote
USERS = 10_000_000_000  # user ids of one client in one transition; loaded votes have smaller ids
BATCH = 10  # rows of a write
WARM_S = 1.0  # for processes to start and statements to be parsed
SAMPLE_S = 0.25  # between two samples of the server's counters
RATINGS = ("CREATE TABLE ratings (story_id INT NOT NULL, user BIGINT NOT NULL, stars INT NOT NULL, "
           "PRIMARY KEY (story_id, user))")
COUNTED = f"SELECT story_id, {STARS} * vcount, vcount FROM VoteCount"
AGAIN = f"SELECT story_id, {STARS}, 1 FROM votes"
VIEW = ("CREATE VIEW StoriesWithRatings AS SELECT {key} AS k, author, title, url, stars, n, stars / n AS rating "
        "FROM stories JOIN (SELECT story_id, SUM(stars) AS stars, SUM(n) AS n FROM (SELECT story_id, stars, 1 AS n "
        "FROM ratings UNION ALL {votes}) AS given GROUP BY story_id) AS rated ON rated.story_id = stories.id "
        "WHERE {key} = ?")
# All columns of the view: a SELECT of fewer columns would get a view of its own.
RATING_READ = "SELECT k, author, title, url, stars, n, rating FROM StoriesWithRatings WHERE k = ?"
UNDO = ("DROP VIEW StoriesWithRatings", "DROP TABLE ratings")


@dataclass(frozen=True)
class Transition:
    name: str
    reuse: bool
    full: bool
    uniform: bool = False

    @property
    def program(self) -> tuple[str, ...]:
        return RATINGS, VIEW.format(key="id + 0" if self.full else "id", votes=COUNTED if self.reuse else AGAIN)


TRANSITIONS = (
    Transition("reuse, partial, Zipf", True, False),
    Transition("reuse, partial, uniform", True, False, uniform=True),
    Transition("no reuse, partial, Zipf", False, False),
    Transition("no reuse, full, Zipf", False, True),
    Transition("reuse, full, Zipf", True, True),  # makes VoteCount full, so it is the last
)


# ---------------------------------------------------------------- the clients
@dataclass(frozen=True)
class Role:
    """A kind of client.  read: its SELECT.  table: without one, the table that it writes.  new: it begins after the
    transition."""

    name: str
    connections: int
    read: str = ""
    table: str = ""
    new: bool = False


ROLES = (Role("reads of StoriesWithVC", 2, read=NORIA_READ), Role("votes", 2, table="votes"),
         Role("reads of StoriesWithRatings", 2, read=RATING_READ, new=True),
         Role("ratings", 1, table="ratings", new=True))


@dataclass(frozen=True)
class Keys:
    """The distribution of stories in statements."""

    stories: int
    uniform: bool

    def draw(self, seed: int) -> Iterator[int]:
        rng = np.random.default_rng(seed)
        sums = np.cumsum(1.0 / np.arange(1, self.stories + 1) ** SKEW)
        while True:
            some = (rng.integers(0, self.stories, 4096) if self.uniform
                    else np.searchsorted(sums, rng.random(4096) * sums[-1]))
            yield from (np.minimum(some, self.stories - 1) + 1).tolist()


@dataclass(frozen=True)
class Work:
    role: Role
    keys: Keys
    port: int
    first: int  # the number of the first connection, unique among all transitions
    pace: float


@dataclass
class Done:
    """The statements of a role: the begin, duration (s) and rows of each.

    count, stars: by story, the acknowledged rows and the sum of their stars.
    """

    began: np.ndarray
    took: np.ndarray
    rows: np.ndarray
    count: np.ndarray
    stars: np.ndarray
    errors: list[str]

    @property
    def ended(self) -> np.ndarray:
        return self.began + self.took

    def rate(self, start: float, end: float) -> float:
        return float(self.rows[(self.ended >= start) & (self.ended < end)].sum() / max(1e-9, end - start))

    def within(self, start: float, end: float) -> np.ndarray:
        """Return the durations, in ms, of the statements that ran in a period."""
        return 1e3 * self.took[(self.began < end) & (self.ended > start)]


def process(work: Work, ready: Any, begin: Any, stop: Any, out: Connection) -> None:
    """Run the connections of one role in a process."""
    found: list[tuple[float, float, int]] = []
    count, stars = (np.zeros(work.keys.stories + 1, np.int64) for _ in range(2))
    errors: list[str] = []
    threads = [Thread(target=client, args=(work, work.first + i, ready, begin, stop, found, count, stars, errors))
               for i in range(work.role.connections)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    columns = np.array(found, dtype=float).reshape(-1, 3)
    columns = columns[np.argsort(columns[:, 0])]
    out.send(Done(columns[:, 0], columns[:, 1], columns[:, 2].astype(np.int64), count, stars, errors))


def client(work: Work, number: int, ready: Any, begin: Any, stop: Any, found: list[tuple[float, float, int]],
           count: np.ndarray, stars: np.ndarray, errors: list[str]) -> None:
    keys, user = work.keys.draw(number), USERS * (number + 1)
    next(keys)
    read = work.role.read.replace("?", "%s")
    connection = pymysql.connect(host="127.0.0.1", port=work.port, user=USER, password=PASSWORD, database="noria",
                                 autocommit=True)
    with connection, connection.cursor() as cursor:
        ready.release()
        begin.wait()
        due = time.time()
        while not stop.is_set():
            some = [next(keys) for _ in range(1 if read else BATCH)]
            start = time.time()
            try:
                if read:
                    cursor.execute(read, some)
                    cursor.fetchall()
                else:
                    user += BATCH
                    cursor.execute(insert(work.role.table, some, user))
                    np.add.at(count, some, 1)
                    np.add.at(stars, some, [1 + (user + i) % 5 for i in range(BATCH)])
                found.append((start, time.time() - start, len(some)))
            except pymysql.Error as e:
                errors.append(f"{start:.3f} {time.time() - start:.1f} s: {e}")
            if work.pace:
                due = max(due + 1 / work.pace, time.time())  # a late statement is not made up for
                stop.wait(max(0.0, due - time.time()))


def insert(table: str, stories: list[int], user: int) -> str:
    if table == "votes":
        return "INSERT INTO votes VALUES " + ", ".join(f"({s}, {user + i})" for i, s in enumerate(stories))
    return "INSERT INTO ratings VALUES " + ", ".join(
        f"({s}, {user + i}, {1 + (user + i) % 5})" for i, s in enumerate(stories))


@contextmanager
def clients(keys: Keys, port: int, first: int, pace: float) -> Iterator[tuple[Any, dict[str, Done]]]:
    """Run all roles during the block.  The event starts the new ones.  Afterwards the dictionary has their results."""
    context = multiprocessing.get_context("spawn")
    now, later, stop, ready = context.Event(), context.Event(), context.Event(), context.Semaphore(0)
    done: dict[str, Done] = {}
    pipes = []
    for role in ROLES:
        mine, theirs = context.Pipe(False)
        p = context.Process(target=process, args=(Work(role, keys, port, first, pace), ready,
                                                  later if role.new else now, stop, theirs))
        p.start()
        pipes.append((role, p, mine))
        first += role.connections
    try:
        for _ in range(sum(role.connections for role in ROLES)):
            ready.acquire()
        now.set()
        yield later, done
    finally:
        stop.set()
        now.set()
        later.set()
        for role, p, pipe in pipes:
            done[role.name] = pipe.recv()
            p.join()


# ---------------------------------------------------------------- the server
class Counters:
    """Samples the server's counters every SAMPLE_S seconds: time, upqueries, memory."""

    def __init__(self, server: NoriaServer):
        self._url, self._stop, self.samples = server.http, Event(), list[tuple[float, float, float]]()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with noria.connect(self._url) as db:
            while not self._stop.wait(SAMPLE_S):
                status = dict(db.sql("SHOW NORIA STATUS").rows)
                self.samples.append((time.time(), float(status["upqueries_total"]), float(status["worker_memory"])))

    def close(self) -> np.ndarray:
        self._stop.set()
        self._thread.join()
        return np.array(self.samples)


def fill(server: NoriaServer, directory: Path, data: Data) -> None:
    story = [data.story(i) for i in range(1, data.stories + 1)]
    stories = pa.table(dict(zip(("id", "author", "title", "url"), zip(*story, strict=True), strict=True)))
    path = directory / "votes.parquet"
    pq.write_table(pa.table({"story_id": data.votes.astype(np.int32), "user": np.arange(len(data.votes))}), path)
    with noria.connect(server.http) as db:
        for text in (STORIES, VOTES, *VIEWS):
            db.sql(text)
        db.table("stories").insert(stories)
        rate = loaded(server, "votes", path, len(data.votes))
        path.unlink()
        print(f"{len(data.votes):,} votes loaded at {rate:,.0f}/s", flush=True)
        took = []
        for some in data.shares():
            start = time.time()
            db.view("StoriesWithVC").lookup_many(some)
            took.append(time.time() - start)
        print(f"all stories of StoriesWithVC are present after {sum(took):.0f} s; the first read of the most popular "
              f"took {took[0]:.2f} s", flush=True)


# ---------------------------------------------------------------- one transition
@dataclass(frozen=True)
class Run:
    """The result of a transition.  Times are of time.time().  hits: (time, share of new reads without an upquery)."""

    transition: Transition
    begin: float
    start: float
    end: float
    finish: float
    done: dict[str, Done]
    hits: np.ndarray
    memory: tuple[float, float]

    @property
    def first_answer(self) -> float:
        """The time from the transition's start to the new view's first answer, in seconds."""
        ended = self.done[ROLES[2].name].ended
        return float(ended.min() - self.start) if len(ended) else float("inf")


def run(server: NoriaServer, transition: Transition, data: Data, number: int, seconds: float, pace: float) -> Run:
    counters = Counters(server)
    keys = Keys(data.stories, transition.uniform)
    try:
        with clients(keys, server.port, number * 16, pace) as (new, done), connected(server) as cursor:
            time.sleep(WARM_S)
            begin = time.time()
            time.sleep(seconds)
            start = time.time()
            for text in transition.program:
                cursor.execute(text)
            end = time.time()
            new.set()
            time.sleep(2 * seconds)
            finish = time.time()
    finally:
        samples = counters.close()
    memory = tuple(float(np.interp(t, samples[:, 0], samples[:, 2])) / 1e6 for t in (start, finish))
    return Run(transition, begin, start, end, finish, done, hits(samples, done[ROLES[2].name], end, finish), memory)


@contextmanager
def connected(server: NoriaServer) -> Iterator[Any]:
    connection = pymysql.connect(host="127.0.0.1", port=server.port, user=USER, password=PASSWORD, database="noria",
                                 autocommit=True, read_timeout=3600)
    with connection, connection.cursor() as cursor:
        yield cursor


def hits(samples: np.ndarray, reads: Done, start: float, end: float) -> np.ndarray:
    """Return (time, share of new reads without an upquery).

    All keys of the old view are present, so all upqueries are for the new one.
    """
    chosen = samples[(samples[:, 0] >= start) & (samples[:, 0] < end)]
    out = []
    for (t0, asked0, _), (t1, asked1, _) in pairwise(chosen):
        if answered := reads.rate(t0, t1) * (t1 - t0):
            out.append((t1, max(0.0, 1 - (asked1 - asked0) / answered)))
    return np.array(out).reshape(-1, 2)


def wrong(server: NoriaServer, r: Run, votes: np.ndarray) -> list[str]:
    """Compare rows of the new view with the loaded and acknowledged ones, for popular and for other stories.

    Return a line for each difference.
    """
    ratings = r.done["ratings"]
    if any(r.done[name].errors for name in ("votes", "ratings")):
        return ["a write failed: nothing is known"]
    rng, found = np.random.default_rng(1), []
    with connected(server) as cursor:
        for story in (*range(1, 51), *rng.integers(1, len(votes), 150).tolist()):
            cursor.execute(RATING_READ.replace("?", "%s"), (story,))
            expected = (int(STARS * votes[story] + ratings.stars[story]), int(votes[story] + ratings.count[story]))
            rows = [(int(row[4]), int(row[5])) for row in cursor.fetchall()]
            if rows != [expected]:
                found.append(f"story {story}: {rows}, expected {expected}")
    return found


def report(r: Run) -> str:
    spans = (("before", r.begin, r.start), ("transition", r.start, r.end), ("1 s after", r.end, r.end + 1),
             ("after", r.end + 1, r.finish))
    lines = [f"\n{r.transition.name}: transition {r.end - r.start:.2f} s, the new view's first answer after "
             f"{r.first_answer:.2f} s; memory {r.memory[0]:.0f} -> {r.memory[1]:.0f} MB"]
    for role in ROLES:
        d = r.done[role.name]
        parts = []
        for name, start, end in spans[2 * role.new:]:
            took = d.within(start, end)
            tail = f"{np.quantile(took, 0.999):.0f}, {took.max():.0f} ms" if len(took) else "-"
            parts.append(f"{name} {d.rate(start, end):,.0f}/s [{tail}]")
        lines.append(f"  {role.name:28}{'   '.join(parts)}")
        lines += [f"    {len(d.errors)} errors, the first at {d.errors[0]}"] if d.errors else []
    if len(r.hits):
        at = (r.end + s for s in (1, 2, 5, 10, 20))
        shares = (f"{t - r.end:.0f} s: {np.interp(t, r.hits[:, 0], r.hits[:, 1]):.0%}" for t in at if t < r.finish)
        lines.append(f"  new reads without an upquery  {', '.join(shares)}, {r.hits[-1, 1]:.0%} at the end")
    return "\n".join(lines)


def panel(r: Run) -> dict[str, Any]:
    return {"name": r.transition.name, "start": r.start, "end": r.end, "from": r.begin, "to": r.finish, "hits": r.hits,
            "lines": {role.name: (r.done[role.name].ended, r.done[role.name].rows) for role in ROLES}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02)
    parser.add_argument("--seconds", type=float, default=10, help="before a transition; twice as long after it")
    parser.add_argument("--pace", type=float, default=200, help="statements a second of a client; 0: as it can")
    parser.add_argument("--only", default="", help="transitions whose name begins with this")
    parser.add_argument("--memory-limit", default="8G")
    parser.add_argument("--svg", type=Path, help="a file for the plot")
    a = parser.parse_args()
    data = Data.make(max(1000, round(2e6 * a.scale)), round(30e6 * a.scale))
    title = f"{data.stories:,} stories, {len(data.votes):,} votes"
    print(f"{title}; [99.9 %, longest] of the statements under way; writes in {BATCH}s, counted in rows", flush=True)
    votes, runs = np.bincount(data.votes, minlength=data.stories + 1), []
    with tempfile.TemporaryDirectory(prefix="noria-bench-", ignore_cleanup_errors=True) as directory:
        server = NoriaServer(Path(directory), options=("--memory-limit", a.memory_limit))
        server.start()
        try:
            fill(server, Path(directory), data)
            for number, transition in enumerate(t for t in TRANSITIONS if t.name.startswith(a.only)):
                r = run(server, transition, data, number, a.seconds, a.pace)
                votes += r.done["votes"].count
                print(report(r), *(wrong(server, r, votes) or ["  200 stories compared: right"]), sep="\n", flush=True)
                runs.append(r)
                with connected(server) as cursor:
                    for text in UNDO:
                        cursor.execute(text)
        finally:
            server.stop()
    if a.svg:
        a.svg.write_text(plot([panel(r) for r in runs], title))


if __name__ == "__main__":
    main()
