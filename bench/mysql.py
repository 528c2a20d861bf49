"""Noria compared with Debian's MariaDB over the same protocol, driven by sysbench, in one run on one machine.

Both servers hold the paper's application: stories, and votes spread over them by Zipf 1.08 (section 8.2).
MariaDB runs with its own data directory and `innodb_flush_log_at_trx_commit=1`.  Noria also syncs its log before it
acknowledges.  Each line is one workload with one number of connections, on both servers in turn.  Their order
alternates, so that drift affects both.  Both have all data in memory: MariaDB in its buffer pool, Noria in its view.

    python bench/mysql.py [--seconds 5] [--stories 40000] [--votes 2000000] [--connections 1,8,32] [--only WORD]

Against an already running Noria: --noria HOST:PORT,HTTPPORT (its tables must not exist yet).
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pymysql
from pyarrow.csv import WriteOptions, write_csv

HERE = Path(__file__).parent
SKEW = 1.08
SEED = 20181008
USER, PASSWORD = "bench", "bench"

STORIES = "CREATE TABLE stories (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80), url VARCHAR(120))"
VOTES = "CREATE TABLE votes (story_id INT NOT NULL, user BIGINT NOT NULL, PRIMARY KEY (story_id, user))"
COUNTED = ("CREATE TABLE counted (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(80), url VARCHAR(120), "
           "vcount BIGINT NOT NULL)")
VIEWS = (
    "CREATE INTERNAL VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id",
    "CREATE VIEW StoriesWithVC AS SELECT id, author, title, url, vcount FROM stories "
    "JOIN VoteCount ON VoteCount.story_id = stories.id WHERE id = ?",
)
NORIA_READ = "SELECT id, author, title, url, vcount FROM StoriesWithVC WHERE id = ?"
STORED_READ = "SELECT id, author, title, url, vcount FROM counted WHERE id = ?"
NATURAL_READ = (
    "SELECT id, author, title, url, vcount FROM stories JOIN (SELECT story_id, COUNT(*) AS vcount FROM votes "
    "WHERE story_id = {id} GROUP BY story_id) AS c ON c.story_id = stories.id"
).format(id="?")


@dataclass(frozen=True)
class Workload:
    """A workload for both servers.  goal: the least ratio Noria / MariaDB, by number of connections."""

    name: str
    noria: tuple[str, ...]
    mariadb: tuple[str, ...]
    goal: dict[int, float]


def _reads(query: str, prepared: bool) -> tuple[str, ...]:
    return ("--workload=read", f"--query={query}", f"--prepared={'on' if prepared else 'off'}")


def _mix(query: str, writes: int, counted: bool) -> tuple[str, ...]:
    return ("--workload=mix", f"--query={query}", f"--writes={writes}", f"--counted={'on' if counted else 'off'}")


ALL = dict.fromkeys((1, 8, 32), 0.0)
WORKLOADS = (
    Workload("prepared reads, to a stored count", _reads(NORIA_READ, True), _reads(STORED_READ, True),
             dict.fromkeys(ALL, 1.2)),
    Workload("text reads, to a stored count", _reads(NORIA_READ, False), _reads(STORED_READ, False),
             dict.fromkeys(ALL, 0.8)),
    Workload("prepared reads, to join and count", _reads(NORIA_READ, True), _reads(NATURAL_READ, True),
             dict.fromkeys(ALL, 30.0)),
    Workload("single synced inserts", ("--workload=insert",), ("--workload=insert",), {8: 0.8, 32: 1.0}),
    Workload("95/5 mix", _mix(NORIA_READ, 5, False), _mix(STORED_READ, 5, True), {}),
    Workload("50/50 mix", _mix(NORIA_READ, 50, False), _mix(STORED_READ, 50, True), {}),
)


@dataclass(frozen=True)
class Data:
    """The stories and votes.  Vote i is of user i, so no pair repeats."""

    stories: int
    votes: np.ndarray

    @staticmethod
    def make(stories: int, votes: int) -> Data:
        rng = np.random.default_rng(SEED)
        weights = 1.0 / np.arange(1, stories + 1) ** SKEW
        drawn = rng.choice(stories, size=votes, p=weights / weights.sum()) + 1
        drawn[:stories] = np.arange(1, stories + 1)[: len(drawn)]  # each story has a vote
        return Data(stories, drawn)

    def shares(self, votes: int = 100_000) -> list[list[int]]:
        """Return all stories in parts of about `votes` votes, or of one story, for single lookups of a cold view.

        A story counts as five votes more, for its own cost.
        """
        groups = np.cumsum(np.bincount(self.votes, minlength=self.stories + 1)[1:] + 5) // votes
        return [some.tolist() for some in np.split(np.arange(1, self.stories + 1), np.flatnonzero(np.diff(groups)) + 1)]

    def story(self, i: int) -> tuple[int, int, str, str]:
        return i, i % 9200, f"Story number {i} of the benchmark", f"https://example.com/{i}"


def free_port() -> int:
    """Return a TCP port on which no process listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Server:
    """A server for sysbench."""

    name: str
    host = "127.0.0.1"
    port: int


class MariaDb(Server):
    """Debian's mariadbd with its own directory, port and socket."""

    name = "MariaDB"

    def __init__(self, directory: Path):
        self.directory, self.port = directory, free_port()
        self.socket = directory / "mysqld.sock"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        data = self.directory / "data"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
             "--skip-test-db", "--user=root"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        init = self.directory / "init.sql"
        init.write_text(f"CREATE DATABASE noria;\nCREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
                        f"GRANT ALL ON *.* TO '{USER}'@'%';\n")
        log = (self.directory / "error.log").open("wb")
        self._process = subprocess.Popen(
            [shutil.which("mariadbd") or "/usr/sbin/mariadbd", "--no-defaults", f"--datadir={data}", "--user=root",
             f"--socket={self.socket}", f"--port={self.port}", "--bind-address=127.0.0.1",
             f"--pid-file={self.directory}/pid", f"--init-file={init}", "--innodb-flush-log-at-trx-commit=1",
             "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=512M", "--skip-log-bin",
             "--character-set-server=utf8mb4", f"--secure-file-priv={self.directory}"], stdout=log, stderr=log)
        self._await()

    def _await(self) -> None:
        assert self._process is not None
        for _ in range(600):
            if self._process.poll() is not None:
                log = (self.directory / "error.log").read_text(errors="replace")
                raise SystemExit(f"mariadbd did not start; its log ends:\n{log[-2000:]}")
            with contextlib.suppress(pymysql.Error):
                self.connect().close()
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        raise SystemExit("mariadbd did not answer within a minute")

    def connect(self) -> pymysql.Connection:
        return pymysql.connect(host=self.host, port=self.port, user=USER, password=PASSWORD, database="noria",
                               autocommit=True)

    def load(self, data: Data) -> None:
        with self.connect() as c, c.cursor() as cursor:
            for text in (STORIES, VOTES, COUNTED):
                cursor.execute(text)
            stories = self.directory / "stories.tsv"
            stories.write_text("".join("\t".join(map(str, data.story(i))) + "\n" for i in range(1, data.stories + 1)))
            votes = self.directory / "votes.tsv"
            write_csv(pa.table({"story_id": data.votes, "user": np.arange(len(data.votes))}), votes,
                      WriteOptions(include_header=False, delimiter="\t"))
            for table, path in (("stories", stories), ("votes", votes)):
                cursor.execute(f"LOAD DATA INFILE '{path}' INTO TABLE {table}")
            cursor.execute("INSERT INTO counted SELECT s.*, COUNT(v.user) FROM stories s JOIN votes v "
                           "ON v.story_id = s.id GROUP BY s.id")
            cursor.execute("ANALYZE TABLE stories, votes, counted")

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


class NoriaServer(Server):
    """`noria serve` on free ports with a new data directory, or the running server `at`."""

    name = "Noria"

    def __init__(self, directory: Path, at: str = "", options: tuple[str, ...] = ()):
        self.directory, self._at, self._options = directory, at, options
        self._process: subprocess.Popen[str] | None = None
        self.http = ""

    def start(self) -> None:
        if self._at:
            mysql, http_port = self._at.split(",")
            self.host, port = mysql.split(":")
            self.port, self.http = int(port), f"http://{self.host}:{http_port}"
            return
        password = self.directory / "password"
        password.touch(0o600)
        password.write_text(PASSWORD + "\n")
        log = (self.directory / "serve.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "noria", "serve", "--data-dir", str(self.directory / "data"), "--mysql-port", "0",
             "--http-port", "0", "--user", USER, "--password-file", str(password), *self._options],
            stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if m := re.match(r"noria ready mysql=(\S+):(\d+) http=(\S+)", line):
                self.host, self.port, self.http = m[1], int(m[2]), f"http://{USER}:{PASSWORD}@{m[3]}"
                return
        raise SystemExit(f"noria did not start; its log ends:\n{Path(log.name).read_text()[-2000:]}")

    def load(self, data: Data, warm: bool = True) -> None:
        """warm: read every story once, so that the view has it."""
        import noria

        with noria.connect(self.http) as db:
            for text in (STORIES, VOTES, *VIEWS):
                db.sql(text)
            rows = [data.story(i) for i in range(1, data.stories + 1)]
            db.table("stories").insert(rows)
            users = np.arange(len(data.votes))
            for at in range(0, len(users), 50_000):
                part = slice(at, at + 50_000)
                db.table("votes").insert(pa.table({"story_id": data.votes[part], "user": users[part]}))
            if warm:
                db.view("StoriesWithVC").lookup_many(np.arange(1, data.stories + 1).tolist())

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(60)


@dataclass(frozen=True)
class Figure:
    per_second: float
    p95_ms: float


_offset = 0


def measure(server: Server, workload: tuple[str, ...], connections: int, seconds: float, data: Data) -> Figure:
    """Run sysbench once.  Each run votes as other users."""
    global _offset
    _offset += 1
    command = [
        "sysbench", str(HERE / "sysbench" / "votes.lua"), "--db-driver=mysql", f"--mysql-host={server.host}",
        f"--mysql-port={server.port}", f"--mysql-user={USER}", f"--mysql-password={PASSWORD}", "--mysql-db=noria",
        f"--threads={connections}", f"--time={seconds:g}", "--events=0", f"--rand-seed={SEED}",
        f"--keys={data.stories}", f"--skew={SKEW}", f"--users={_offset * 10**9}", *workload, "run",
    ]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    rate = re.search(r"transactions:\s+\d+\s+\(([\d.]+) per sec", out.stdout)
    tail = re.search(r"95th percentile:\s+([\d.]+)", out.stdout)
    if out.returncode or not rate or not tail:
        raise SystemExit(f"sysbench against {server.name} failed:\n{' '.join(command)}\n{out.stdout}{out.stderr}")
    return Figure(float(rate[1]), float(tail[1]))


@contextlib.contextmanager
def servers(noria_at: str, kinds: str, options: tuple[str, ...] = ()) -> Iterator[list[MariaDb | NoriaServer]]:
    with tempfile.TemporaryDirectory(prefix="noria-bench-") as directory:
        started: list[MariaDb | NoriaServer] = []
        try:
            for kind in kinds.split(","):
                place = Path(directory, kind)
                place.mkdir()
                server = MariaDb(place) if kind == "mariadb" else NoriaServer(place, noria_at, options)
                started.append(server)
                server.start()
            yield started
        finally:
            for server in started:
                server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=int, default=5, help="a run; sysbench takes whole ones")
    parser.add_argument("--stories", type=int, default=40_000)
    parser.add_argument("--votes", type=int, default=2_000_000)
    parser.add_argument("--connections", default="1,8,32")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--servers", default="noria,mariadb")
    parser.add_argument("--noria", default="", help="HOST:PORT,HTTPPORT of a running server")
    options = parser.parse_args()
    data = Data.make(options.stories, options.votes)
    print(f"{options.stories} stories, {len(data.votes)} votes, Zipf {SKEW}, seed {SEED}; "
          f"{options.seconds:g} s a run; events/s (95 % of them within ms)")
    with servers(options.noria, options.servers) as pair:
        for server in pair:
            server.load(data)
        for workload in WORKLOADS:
            if options.only in workload.name:
                for connections in map(int, options.connections.split(",")):
                    print(line(pair, workload, connections, options.seconds, data), flush=True)


def line(pair: list[MariaDb | NoriaServer], workload: Workload, connections: int, seconds: float, data: Data) -> str:
    order = pair if connections != 8 else pair[::-1]
    figures = {s.name: measure(s, workload.noria if isinstance(s, NoriaServer) else workload.mariadb, connections,
                               seconds, data) for s in order}
    text = f"{workload.name:36}{connections:3} conn"
    for server in pair:
        f = figures[server.name]
        text += f"   {server.name} {f.per_second:9,.0f} ({f.p95_ms:.2f} ms)"
    if len(pair) == 2:
        ratio = figures["Noria"].per_second / figures["MariaDB"].per_second
        goal = workload.goal.get(connections)
        text += f"   ratio {ratio:.2f}" + (f" (goal {goal}: {'met' if ratio >= goal else 'MISSED'})" if goal else "")
    return text


if __name__ == "__main__":
    main()
