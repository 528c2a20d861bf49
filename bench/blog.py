"""First and later reads of a blog's pages: users, posts, comments and likes, compared with MariaDB with proper indexes.

Each page is one query, and no view is declared.  For each page it measures the first read after the inserts, the second
one, the first read of another page of the same kind, and later reads (median of 20).  It repeats this after a restart,
after a kill of Noria's worker (MariaDB runs on), and while other connections write 50 times a second.  The servers take
turns with each read, and their rows must be equal.  Rows are inserted 1,000 at a time.

    python bench/blog.py [--rows 100000]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pymysql

from mysql import PASSWORD, USER, MariaDb, NoriaServer, Server

TABLES = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(60) NOT NULL, joined DATETIME NOT NULL)",
    "CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(120) NOT NULL, body TEXT NOT NULL, "
    "created_at DATETIME NOT NULL, KEY (author, created_at), KEY (created_at))",
    "CREATE TABLE comments (id INT PRIMARY KEY, post INT NOT NULL, author INT NOT NULL, text VARCHAR(200) NOT NULL, "
    "created_at DATETIME NOT NULL, KEY (post, created_at), KEY (author))",
    "CREATE TABLE likes (post INT NOT NULL, user INT NOT NULL, PRIMARY KEY (post, user), KEY (user))",
)
PAGES = {
    "home: the newest posts": "SELECT p.id, p.title, u.name, p.created_at FROM posts p JOIN users u ON u.id = p.author "
                              "ORDER BY p.created_at DESC, p.id DESC LIMIT {limit}",
    "post: with its author": "SELECT p.title, p.body, u.name FROM posts p JOIN users u ON u.id = p.author "
                             "WHERE p.id = {id}",
    "comments of a post": "SELECT c.text, u.name, c.created_at FROM comments c JOIN users u ON u.id = c.author "
                          "WHERE c.post = {id} ORDER BY c.created_at, c.id",
    "likes of a post": "SELECT COUNT(*) FROM likes WHERE post = {id}",
    "profile: a user's posts with their likes": "SELECT p.id, p.title, COUNT(l.user) AS n FROM posts p LEFT JOIN likes "
                                                "l ON l.post = p.id WHERE p.author = {id} GROUP BY p.id, p.title "
                                                "ORDER BY n DESC, p.id LIMIT 10",
    "top posts": "SELECT p.id, p.title, COUNT(*) AS n FROM posts p JOIN likes l ON l.post = p.id "
                 "GROUP BY p.id, p.title ORDER BY n DESC, p.id LIMIT {limit}",
}
BEGAN = datetime(2024, 1, 1)
TIMES, WRITES_S = 20, 50


def rows_of(table: str, count: int) -> Iterator[tuple[Any, ...]]:
    chance = random.Random(table)
    for i in range(1, count + 1):
        at = BEGAN + timedelta(seconds=37 * i)
        if table == "users":
            yield i, f"User {i}", at
        elif table == "posts":
            yield i, chance.randint(1, count), f"Post number {i}", f"What post {i} says. " * 5, at
        elif table == "comments":
            yield i, chance.randint(1, count), chance.randint(1, count), f"Comment {i}", at
        else:
            yield min(int(chance.paretovariate(0.8)), count), i


def connected(server: Server) -> Any:
    return pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD, database="noria",
                           autocommit=True, read_timeout=130)


def fill(server: Server, count: int) -> float:
    start = time.perf_counter()
    with connected(server) as c, c.cursor() as cursor:
        for text in TABLES:
            cursor.execute(text)
        for table in ("users", "posts", "comments", "likes"):
            some: list[tuple[Any, ...]] = []
            for row in rows_of(table, count):
                some.append(row)
                if len(some) == 1_000:
                    insert(cursor, table, some)
                    some = []
            insert(cursor, table, some)
    return time.perf_counter() - start


def insert(cursor: Any, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)


class Reader:
    """A connection to a server."""

    def __init__(self, server: Server):
        self.server = server
        self.connection = connected(server)

    def __call__(self, text: str) -> tuple[float, Any]:
        """Run a query.  Return its duration in ms, and the rows or the error."""
        start = time.perf_counter()
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(text)
                rows: Any = cursor.fetchall()
        except pymysql.Error as e:
            rows = e
        return (time.perf_counter() - start) * 1000, rows


def measure(what: str, readers: Sequence[Reader], texts: Callable[[int], str], times: int) -> None:
    took: list[list[float]] = [[] for _ in readers]
    for n in range(times):
        found = []
        for at, read in enumerate(readers):
            ms, rows = read(texts(n))
            took[at].append(ms)
            found.append(rows)
        if isinstance(found[0], Exception):
            print(f"    {what:<24} Noria: {found[0]}", flush=True)
        elif len(found) > 1 and sorted(map(str, found[0])) != sorted(map(str, found[1])):
            print(f"    {what:<24} DIFFERENT ROWS: {texts(n)}", flush=True)
    medians = [statistics.median(t) for t in took]
    most = max(took[0])
    ratio = f"{medians[0] / medians[1]:8.2f}" if len(medians) > 1 else " " * 8
    shown = " ".join(f"{m:10.2f}" for m in medians)
    print(f"    {what:<24} {shown} {ratio}{f'   longest {most:.1f}' if times > 1 else ''}", flush=True)


def pages(title: str, readers: Sequence[Reader], rows: int) -> None:
    print(f"\n{title}{'':<{max(29 - len(title), 1)}} Noria ms MariaDB ms  ratio", flush=True)
    chance = random.Random(title)
    for page, text in PAGES.items():
        print(f"  {page}", flush=True)
        first = {"id": chance.randint(1, rows), "limit": 20}
        other = {"id": chance.randint(1, rows), "limit": 30}
        measure("first", readers, lambda n, text=text, v=first: text.format(**v), 1)
        measure("again", readers, lambda n, text=text, v=first: text.format(**v), 1)
        measure("another", readers, lambda n, text=text, v=other: text.format(**v), 1)
        measure("later", readers, lambda n, text=text, v=first: text.format(**v), TIMES)


def kill_worker(server: NoriaServer) -> float:
    """Kill the worker.  Return the seconds until its successor serves."""
    health = f"http://{server.http.rpartition('@')[2]}/health"

    def serving() -> int:
        try:
            with urllib.request.urlopen(health, timeout=10) as answer:
                return int(json.loads(answer.read())["worker_pid"])
        except urllib.error.URLError:
            return 0

    start, killed = time.perf_counter(), serving()
    os.kill(killed, signal.SIGKILL)
    while serving() in (0, killed):
        time.sleep(0.01)
    return time.perf_counter() - start


@contextmanager
def writing(servers: Sequence[Server], rows: int) -> Iterator[None]:
    """While the block runs, insert and delete likes on each server."""
    over = threading.Event()

    def write(server: Server) -> None:
        chance = random.Random(7)
        with connected(server) as c, c.cursor() as cursor:
            while not over.wait(1 / WRITES_S):
                post, user = chance.randint(1, rows), rows + chance.randint(1, 1000)
                cursor.execute(f"INSERT IGNORE INTO likes VALUES ({post}, {user})")
                cursor.execute(f"DELETE FROM likes WHERE post = {post} AND user = {user}")

    threads = [threading.Thread(target=write, args=(s,)) for s in servers]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        over.set()
        for t in threads:
            t.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for name in ("noria", "maria"):
            (directory / name).mkdir()
        server, maria = NoriaServer(directory / "noria"), MariaDb(directory / "maria")
        try:
            maria.start()
            server.start()
            for s in (server, maria):
                print(f"{4 * options.rows:,} rows into {s.name}: {fill(s, options.rows):.1f} s", flush=True)
            pages("after the rows came", [Reader(server), Reader(maria)], options.rows)
            server.stop()
            server.start()
            pages("after a restart", [Reader(server), Reader(maria)], options.rows)
            print(f"\nworker killed, another one serves after {kill_worker(server):.1f} s", flush=True)
            pages("after a kill", [Reader(server), Reader(maria)], options.rows)
            with writing([server, maria], options.rows):
                pages("beside writes", [Reader(server), Reader(maria)], options.rows)
        finally:
            server.stop()
            maria.stop()


if __name__ == "__main__":
    main()
