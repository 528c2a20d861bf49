"""The acts of the demo.  Each is a function of the `DemoStage`; it shows one feature and prints measurements.

The acts (`ACTS`) follow a user.  A page's query counts votes on plain tables, then a view keeps the count.  Clients
read and vote while memory is reduced, a worker is killed, a view is added and rows stream in.  In the end Spark
recomputes every view.  Call `play`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noria.core.limits import STORE_SHARE
from noria.demo import generate, report, streaming, sysbench
from noria.demo.clients import READ, ClientProfile
from noria.demo.lobsters import Ints, Size, votes_of_stories
from noria.demo.mix import Mix
from noria.demo.screen import Screen, Stopwatch, megabytes
from noria.demo.server import DemoFailed, DemoServer

WRITES = 0.05  # share of votes in the mix
SHORT_SHARE = 0.6  # of --seconds, for the shorter measurements
HOT_STORIES = 500  # the most popular ones; they are in memory even while the worker is down
PAGE_VOTES = 15_000  # at most, of the page's story: a query that reads more needs a view
PAGE_READS = 200
NEW_USER = 9_000_000  # votes for the page; no other voter has this number
AFTERWARDS_S = 1.0
BACK_S = 60  # wait for the restart of a killed worker
LEAST_LIMIT = 2**20  # bytes; the server refuses a smaller limit
WORKER_SHARE = 0.9  # of the limit, for the worker; the rest is for the replies that the front end keeps
HOLD_SHARE = 0.6  # of the bytes of all states, which the small limit allows

TABLES = (
    "CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(100), url VARCHAR(120))",
    "CREATE TABLE users (id INT PRIMARY KEY, username VARCHAR(40))",
    "CREATE TABLE votes (user INT NOT NULL, story_id INT NOT NULL, PRIMARY KEY (story_id, user))",
)
VIEWS = (
    "CREATE INTERNAL VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id",
    "CREATE VIEW StoriesWithVC AS SELECT id, author, title, url, vcount FROM stories "
    "JOIN VoteCount ON VoteCount.story_id = stories.id WHERE id = ?",
)
PLAIN = ("SELECT id, author, title, url, COUNT(*) AS vcount FROM stories JOIN votes ON votes.story_id = stories.id "
         "WHERE id = {0} GROUP BY id, author, title, url")
KARMA = ("CREATE VIEW Karma AS SELECT author, SUM(vcount) AS karma FROM stories "
         "JOIN VoteCount ON VoteCount.story_id = stories.id WHERE author = ? GROUP BY author")


@dataclass(frozen=True)
class Options:
    """seconds: of the mix.  directory: for all files.  server: further options of `noria serve`."""

    size: Size
    seconds: float
    directory: Path
    server: tuple[str, ...] = ()
    clients: int = 4


@dataclass
class DemoStage:
    """The objects that the acts share.  restored: the server's first memory limit, in bytes."""

    options: Options
    screen: Screen
    server: DemoServer
    mix: Mix | None = None
    restored: int = 0

    @property
    def load(self) -> Mix:
        assert self.mix is not None, "the clients are started by the act of the mix"
        return self.mix

    def connection(self) -> Any:
        """Connect over the MySQL protocol."""
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self.server.mysql_port, user="demo", autocommit=True)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run the statements, and return the rows of the last one."""
        connection = self.connection()
        with connection, connection.cursor() as cursor:
            for text in statements:
                cursor.execute(text)
            return list(cursor.fetchall())


def play(options: Options, screen: Screen) -> bool:
    """Play all acts.  Returns whether every view agrees with Spark in the end.  Leaves no process behind."""
    options.directory.mkdir(parents=True, exist_ok=True)
    watch = Stopwatch()
    screen.section("Start a server: `noria serve`; Spark hosts its worker")
    with DemoServer(options.directory / "data", options.directory / "serve.log", list(options.server)) as server:
        with screen.working("starting") as tell:
            for step in server.await_ready():
                tell(0, 0, step)
        setup_s = watch.seconds()
        screen.say(f"ready after {setup_s:.1f} s: mysql -h 127.0.0.1 -P {server.mysql_port}, {server.url}")
        stage = DemoStage(options, screen, server)
        try:
            for act in ACTS:
                act(stage)
            agreed = verify(stage)
        finally:
            if stage.mix is not None:
                stage.mix.close()
        played_s = watch.seconds() - setup_s
    screen.section("Verdict")
    if agreed:
        screen.good("every view equals its query recomputed by Spark over the base tables")
    else:
        screen.bad("views DIFFER from their queries recomputed by Spark: see above")
    screen.say(f"the start of the server {setup_s:.0f} s, everything after it {played_s:.0f} s "
               f"({os.cpu_count()} cores)")
    return agreed


# ---------------------------------------------------------------- the acts
def tables(stage: DemoStage) -> None:
    """Create the tables of the paper's figure 2."""
    stage.screen.section("Tables: any MySQL client creates them")
    stage.sql(*TABLES)
    for text in TABLES:
        stage.screen.say(text, "dim")


def raw_files(stage: DemoStage) -> None:
    """Let Spark generate the data."""
    size, raw = stage.options.size, stage.options.directory / "raw"
    stage.screen.section("Made-up files, as large as a news site's: Spark generates them")
    watch = Stopwatch()
    with stage.screen.working("starting Spark") as tell:
        generate.run(size, raw, stage.options.directory / "generate.log", tell)
    per_story = votes_of_stories(size)
    stage.screen.say(f"{size.stories:,} stories and {size.users:,} users as CSV, {size.votes:,} votes as Parquet, in "
                     f"{watch.seconds():.1f} s with the start of Spark")
    stage.screen.say(f"Half of the stories have {np.median(per_story):.0f} votes or fewer, the most popular one has "
                     f"{per_story.max():,}: popularity as on Lobsters, a news site")


def load(stage: DemoStage) -> None:
    """Load the files, as the command `noria load` does."""
    stage.screen.section("Load the files: `noria load TABLE FILES`")
    for table, kind in (("stories", "csv"), ("users", "csv"), ("votes", "parquet")):
        files = [str(p) for p in generate.files(stage.options.directory / "raw", table)]
        request = {"table": table, "files": files, "format": kind,
                   "reject": str(stage.options.directory / f"{table}.rejected")}
        watch = Stopwatch()
        last: dict[str, Any] = {}
        with stage.screen.working(f"loading {table}") as tell:
            for last in stage.server.job("/load", request):
                tell(last.get("done", 0), last.get("total", 0), str(last.get("step", "")))
        rows, rejected, seconds = last.get("rows", 0), last.get("rejected", 0), watch.seconds()
        stage.screen.say(f"{rows:>9,} rows into {table:8} in {seconds:4.1f} s   {rows / seconds:>9,.0f} rows/s")
        if rejected:
            raise DemoFailed(f"{rejected} rows of {table} were rejected, and all should be right; see "
                             f"{request['reject']}")


def page(stage: DemoStage) -> None:
    """Read a page from plain tables, then by the view, and check that the rows are equal."""
    screen = stage.screen
    votes = votes_of_stories(stage.options.size)
    story = int(np.argmax(np.where(votes > PAGE_VOTES, 0, votes))) + 1
    screen.section("A page without a view: each time its query counts the votes of the story")
    screen.say(PLAIN.format(story), "dim")
    connection = stage.connection()
    with connection, connection.cursor() as cursor:
        plain, plain_ms = _timed(cursor, PLAIN.format(story))
        screen.say(f"{plain_ms:.1f} ms, asked for the first time: {votes[story - 1]:,} votes were read and counted")
        screen.section("The same page by a view: the count is kept up to date, a read looks it up")
        for text in VIEWS:
            cursor.execute(text)
            screen.say(text, "dim")
        screen.say(READ.format(story), "dim")
        first, first_ms = _timed(cursor, READ.format(story))
        again_ms = [_timed(cursor, READ.format(story))[1] for _ in range(PAGE_READS)]
        cursor.execute(f"INSERT INTO votes (user, story_id) VALUES ({NEW_USER}, {story})")
        voted, voted_ms = _timed(cursor, READ.format(story))
    _check_page(plain, first, voted)
    usual_ms = float(np.median(again_ms))
    screen.say(f"first read {first_ms:.1f} ms: the votes are counted, and the count is kept from now on")
    screen.say(f"every later read {usual_ms:.2f} ms, whatever the number of votes (median of {PAGE_READS} reads)")
    screen.say(f"a vote comes in: the next read, {voted_ms:.2f} ms, shows {voted[0][-1]:,} votes instead of "
               f"{first[0][-1]:,}")


def _timed(cursor: Any, text: str) -> tuple[list[tuple[Any, ...]], float]:
    """Run a statement.  Returns its rows, and the milliseconds until all were received."""
    watch = Stopwatch()
    cursor.execute(text)
    return list(cursor.fetchall()), watch.seconds() * 1000


def _check_page(plain: list[tuple[Any, ...]], first: list[tuple[Any, ...]], voted: list[tuple[Any, ...]]) -> None:
    if first != plain:
        raise DemoFailed(f"the view shows {first}, and the query on plain tables {plain}")
    if voted != [(*first[0][:-1], first[0][-1] + 1)]:
        raise DemoFailed(f"after one vote more than {first} the view shows {voted}")


def mixed(stage: DemoStage) -> None:
    """Measure clients: reads of pages in memory, first reads of others, then reads and votes by popularity."""
    options, screen = stage.options, stage.screen
    screen.section(f"Readers and voters: {options.clients} clients at once, each waits for its answer")
    with screen.working("starting clients"):
        stage.mix = mix = Mix(stage.server.mysql_port, options.size, options.clients)
    screen.say(f"clients: {mix.about}")
    stage.restored = round(stage.server.metrics()["worker_memory_limit"] / WORKER_SHARE)
    popular = _popular(stage)
    stage.sql(*(READ.format(story) for story in popular.tolist()))
    short = max(1.0, options.seconds * SHORT_SHARE)
    with screen.working(f"{short:g} s of reads of pages in memory"):
        mix.run(ClientProfile(0.0, popular))
        warm = mix.measured(short)
        mix.run(None)
        mix.cut()
    with screen.working(f"{short:g} s of first reads"):
        mix.run(*(ClientProfile(0.0, part, once=True) for part in _unread(stage, popular)))
        first = mix.whole(short)
    before = stage.server.metrics()
    with screen.working(f"{options.seconds:g} s of readers and voters"):
        mix.run(ClientProfile(WRITES))
        both = mix.measured(options.seconds)
    mix.run(None)
    mix.cut()
    report.show(screen, [report.row("pages in memory", warm), report.row("first reads", first),
                         report.row("readers and voters", both)])
    screen.say(f"pages in memory: the {len(popular)} most popular ones.  first reads: pages that nobody has read yet, "
               "whose votes are counted")
    screen.say(f"readers and voters: {100 - 100 * WRITES:.0f} % reads and {100 * WRITES:.0f} % votes, popular stories "
               "more often; latencies are milliseconds in which 50, 95 and 99 % are answered")
    report.hits(screen, before, stage.server.metrics())
    if sysbench.installed():
        with screen.working(f"{short:g} s of sysbench"):
            rate = sysbench.run(stage.server.mysql_port, options.size, short, 8, round(WRITES * 100),
                                options.directory)
        screen.say(f"sysbench, a client in C, 8 connections: {rate.per_s * (1 - WRITES):,.0f} reads/s and "
                   f"{rate.per_s * WRITES:,.0f} votes/s, 95 % within {rate.p95_ms:.1f} ms")


def _popular(stage: DemoStage) -> Ints:
    """Return the stories that are read most."""
    return np.argsort(votes_of_stories(stage.options.size))[::-1][:HOT_STORIES] + 1


def _unread(stage: DemoStage, popular: Ints) -> list[Ints]:
    """Return the other stories in random order, divided among the clients."""
    others = np.setdiff1d(np.arange(1, stage.options.size.stories + 1), popular)
    return np.array_split(stage.options.size.rng(7).permutation(others), stage.options.clients)


def every_key(stage: DemoStage) -> None:
    """Read every key, to compare the memory of partial and full states."""
    screen = stage.screen
    screen.section("Memory: only pages that were read are kept; now all are read once")
    partial = report.MemoryUse.of(stage.server)
    with screen.working("reading every story"):
        screen.say(_read_all(stage, "StoriesWithVC", stage.options.size.stories))
    report.sizes(screen, partial, report.MemoryUse.of(stage.server))


def _read_all(stage: DemoStage, view: str, keys: int) -> str:
    import noria

    watch = Stopwatch()
    with noria.connect(stage.server.url) as db:
        rows = db.view(view).lookup_many(np.arange(1, keys + 1).tolist()).num_rows
    return f"{keys:,} keys of {view} in {watch.seconds():.1f} s: {rows:,} rows"


def small_memory(stage: DemoStage) -> None:
    """Reduce the memory limit during the mix, and count evictions."""
    screen, server, mix = stage.screen, stage.server, stage.load
    screen.section("A smaller memory limit, set while serving: the least recently read pages are dropped")
    before = server.metrics()
    # Strings in use cannot be evicted: the limit covers them, a part of the states, and RocksDB's share.
    strings, stored = before["worker_symbols"], before["worker_storage"]
    states = before["worker_memory"] - strings - stored
    limit = max(LEAST_LIMIT, round((strings + HOLD_SHARE * states) / (1 - STORE_SHARE) / WORKER_SHARE))
    server.set_limit(limit)
    with screen.working("load under the limit"):
        mix.run(ClientProfile(WRITES))
        figures = mix.measured(max(1.0, stage.options.seconds * SHORT_SHARE))
    report.show(screen, [report.row(f"limit {megabytes(limit)}", figures)])
    after = server.metrics()
    evicted = after["worker_evictions"] - before["worker_evictions"]
    screen.say(f"{evicted:,.0f} keys evicted, which the next read derives again; memory "
               f"{megabytes(before['worker_memory'])} before, {megabytes(after['worker_memory'])} now")
    report.hits(screen, before, after)
    server.set_limit(stage.restored)


def second_view(stage: DemoStage) -> None:
    """Add a view during the mix."""
    screen, mix = stage.screen, stage.load
    screen.section("Change the program while it serves: a view of each author's karma, from the same counts")
    mix.run(ClientProfile(WRITES))
    mix.cut()
    watch = Stopwatch()
    with screen.working("adding the view"):
        stage.sql(KARMA)
        made_s = watch.seconds()
        popular = int(np.argmax(votes_of_stories(stage.options.size))) + 1
        author = stage.sql(READ.format(popular))[0][1]
        answer = stage.sql(f"SELECT author, karma FROM Karma WHERE author = {author}")
        answered_s = watch.seconds()
        figures = mix.measured(1.0)
    mix.run(None)
    mix.cut()
    screen.say(KARMA, "dim")
    screen.say(f"live after {made_s * 1000:.0f} ms, first answer after {answered_s * 1000:.0f} ms: author {author} has "
               f"karma {answer[0][1]}")
    shared = [line for (line,) in stage.sql(f"EXPLAIN SELECT author, karma FROM Karma WHERE author = {author}")
              if "shared with" in line]
    screen.say("EXPLAIN says what it computes together with the first view:")
    for line in shared:
        screen.say(line, "dim")
    report.show(screen, [report.row("readers and voters", figures)])


def worker_killed(stage: DemoStage) -> None:
    """Kill the worker by SIGKILL during reads and votes, and measure the outage."""
    screen, server, mix = stage.screen, stage.server, stage.load
    screen.section("Kill the worker (kill -9): pages in memory are served on, votes wait for the next worker")
    hot = _popular(stage)
    readers, voter = ClientProfile(0.0, hot), ClientProfile(1.0, hot)
    mix.run(*([readers] * (stage.options.clients - 1)), voter)
    stage.sql(*(READ.format(story) for story in hot.tolist()))
    mix.cut()
    pid = int(server.health()["worker_pid"])
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    with screen.working("waiting for the next worker"):
        up_s = _until_back(server, pid) - killed
        time.sleep(AFTERWARDS_S)  # load on the new worker
    samples, _ = mix.cut()
    mix.run(None)
    outage = report.MeasuredOutage.of(samples, killed)
    screen.say(f"worker process {pid} killed, {server.health()['worker_pid']} serves after {up_s:.1f} s")
    screen.say(f"{outage.reads:,} reads of {len(hot)} pages in memory were served meanwhile ({outage.reads_s:,.0f}/s), "
               f"99 % within {outage.p99_ms:.1f} ms, the slowest {outage.slowest_ms:.0f} ms; none failed")
    screen.say(f"votes go on {outage.writes_again_s:.2f} s after the kill: the one under way was sent again, and "
               "applied once")


def _until_back(server: DemoServer, killed_pid: int) -> float:
    """Wait until another worker serves.  Returns the time on the host's monotonic clock."""
    deadline = time.monotonic() + BACK_S
    while time.monotonic() < deadline:
        health = server.health()
        if health["status"] == "ok" and health["worker_pid"] != killed_pid:
            return time.monotonic()
        time.sleep(0.02)
    raise server.failed(f"no worker came up within {BACK_S} s after the kill")


def streamed(stage: DemoStage) -> None:
    """Write votes by a Spark stream, and follow a feed of a query's changes."""
    screen, options, size = stage.screen, stage.options, stage.options.size
    screen.section("A stream: Spark writes votes, a feed tells each change of a query's rows")
    popular = (f"SELECT id, title, vcount FROM StoriesWithVC WHERE vcount > "
               f"{int(np.quantile(votes_of_stories(size), 0.95))}")
    stage.sql(f"CREATE FEED {streaming.FEED} AS {popular}")
    screen.say(f"CREATE FEED {streaming.FEED} AS {popular}", "dim")
    follower = streaming.FeedFollower(stage.server.url)
    with screen.working("the feed's first rows"):
        rows = follower.start()
    watch = Stopwatch()
    with screen.working("starting Spark") as tell:
        votes = streaming.run(size, stage.server.url, options.directory / "stream",
                              options.directory / "stream.log", tell)
    screen.say(f"spark.readStream … .writeStream.format(\"noria\"): {votes:,} votes in batches of "
               f"{streaming.BATCH_VOTES:,}, {watch.seconds():.1f} s with Spark's start")
    if not follower.has(lambda: stage.sql(popular)):
        raise DemoFailed(f"what the feed told is not what its query gives (error: {follower.failed})")
    late = 1000 * np.median(follower.late)
    screen.say(f"{rows:,} rows and {follower.changes:,} changes were told, {late:.0f} ms after their commit at the "
               "median; they add up to the query's rows")
    stage.sql(f"DROP FEED {streaming.FEED}")


def verify(stage: DemoStage) -> bool:
    """Compare every view with Spark's recomputation.  Returns whether all agree."""
    screen = stage.screen
    screen.section("Check everything: `noria verify`, Spark recomputes every view from the tables and compares")
    with screen.working("reading every key, and votes on top"):
        for view, keys in (("StoriesWithVC", stage.options.size.stories), ("Karma", stage.options.size.users)):
            screen.say(_read_all(stage, view, keys))
        stage.load.run(ClientProfile(WRITES))
        figures = stage.load.measured(1.0)
        stage.load.run(None)
        stage.load.cut()
    report.show(screen, [report.row("all in memory", figures)])
    watch, agreed, compared = Stopwatch(), True, 0
    with screen.working("verifying") as tell:
        for step in stage.server.job("/verify", {"views": []}):
            if "view" not in step:
                tell(step.get("done", 0), step.get("total", 0), str(step.get("step", "")))
                continue
            if step["agrees"] is None:  # the view had no rows to compare
                continue
            compared += 1
            agreed = agreed and step["agrees"]
            say = screen.good if step["agrees"] else screen.bad
            say(f"{step['view']}: {'agrees' if step['agrees'] else 'DIFFERS'}, {step.get('rows', 0):,} rows compared")
            for difference in step.get("differences", []):
                screen.say(f"    {difference}")
    screen.say(f"in {watch.seconds():.1f} s")
    if not compared:
        raise DemoFailed("no view was verified, and there are two")
    return agreed


ACTS: tuple[Callable[[DemoStage], None], ...] = (tables, raw_files, load, page, mixed, every_key, small_memory,
                                                 worker_killed, second_view, streamed)
