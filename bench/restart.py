"""A start after a kill: when the views answer, with a checkpoint of their states and without.

One server, with one or several workers, is killed and started again.  In turn its checkpoint is there or was removed;
then it builds all states from the tables.  For each start it prints the seconds from the command to the ready line, and
from there to right answers of all views.  It also prints how many reads failed or were wrong meanwhile.

    python bench/restart.py [--rows 300000] [--workers 3] [--starts 3]
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import pymysql

from mysql import PASSWORD, USER, NoriaServer

TABLES = ("CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(60) NOT NULL)",
          "CREATE TABLE likes (post INT NOT NULL, user INT NOT NULL, PRIMARY KEY (post, user))")
VIEWS = {
    "authors": "SELECT author, COUNT(*) AS n, MAX(title) AS t FROM posts GROUP BY author",
    "liked": "SELECT post, COUNT(*) AS n FROM likes GROUP BY post",
    "top_authors": "SELECT author, n, t FROM authors ORDER BY n DESC, author LIMIT 100",
    "total": "SELECT COUNT(*) AS posts, SUM(n) AS likes FROM liked",
    "top_posts": "SELECT p.id, p.title, l.n FROM posts AS p JOIN liked AS l ON l.post = p.id "
                 "ORDER BY l.n DESC, p.id LIMIT 100",
}
READS = ("SELECT * FROM top_authors", "SELECT * FROM total", "SELECT * FROM top_posts")
PART = 5_000


def connect(server: NoriaServer) -> Any:
    return pymysql.connect(host=server.host, port=server.port, user=USER, password=PASSWORD, database="noria",
                           autocommit=True, read_timeout=600)


def fill(cursor: Any, rows: int) -> None:
    for text in TABLES:
        cursor.execute(text)
    for start in range(0, rows, PART):
        ids = range(start, min(start + PART, rows))
        cursor.execute("INSERT INTO posts VALUES " + ", ".join(f"({i}, {i % (rows // 10)}, 'Title {i}')" for i in ids))
        cursor.execute("INSERT INTO likes VALUES " + ", ".join(f"({i * i % (rows // 3)}, {i})" for i in ids))
    for name, text in VIEWS.items():
        cursor.execute(f"CREATE VIEW {name} AS {text}")


def answers(cursor: Any) -> list[Any]:
    out = []
    for text in READS:
        cursor.execute(text)
        out.append(sorted(cursor.fetchall()))
    return out


def files(server: NoriaServer, workers: int) -> list[Path]:
    return [server.directory / "data" / f"worker-{w}" / "states" for w in range(workers)]


def until_saved(server: NoriaServer, workers: int) -> None:
    until = time.monotonic() + 300
    while not all(f.exists() for f in files(server, workers)):
        if time.monotonic() > until:
            raise SystemExit("no checkpoint was written within 300 s")
        time.sleep(0.2)


def killed(server: NoriaServer) -> None:
    process = server._process
    assert process is not None
    process.send_signal(signal.SIGKILL)
    process.wait()


def started(server: NoriaServer, expected: list[Any]) -> tuple[float, float, int]:
    """Seconds to the ready line, seconds from there to right answers, and reads without one."""
    began = time.perf_counter()
    server.start()
    ready, failed = time.perf_counter(), 0
    with connect(server) as connection, connection.cursor() as cursor:
        while True:
            try:
                if answers(cursor) == expected:
                    break
            except pymysql.Error:
                pass
            failed += 1
            time.sleep(0.05)
    return ready - began, time.perf_counter() - ready, failed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--starts", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="noria-restart-") as directory:
        server = NoriaServer(Path(directory), options=("--workers", str(args.workers)))
        server.start()
        try:
            with connect(server) as connection, connection.cursor() as cursor:
                fill(cursor, args.rows)
                expected = answers(cursor)
            seen: dict[str, list[tuple[float, float, int]]] = {"with a checkpoint": [], "without": []}
            for number in range(2 * args.starts):
                until_saved(server, args.workers)
                killed(server)
                which = list(seen)[number % 2]
                if which == "without":
                    for file in files(server, args.workers):
                        file.unlink()
                seen[which].append(started(server, expected))
                ready, right, failed = seen[which][-1]
                print(f"{which}: ready after {ready:.1f} s, all answers right {right:.2f} s later, {failed} failed",
                      flush=True)
        finally:
            server.stop()
        for which, each in seen.items():
            ready, right = (statistics.median(e[n] for e in each) for n in (0, 1))
            print(f"{args.workers} workers, {args.rows:,} rows, {which}: ready {ready:.1f} s, "
                  f"right {right:.2f} s (medians)")


if __name__ == "__main__":
    main()
