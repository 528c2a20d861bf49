"""`noria serve --workers 2`: a client notices nothing of it, and of the death of a worker only that it waits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.serving import Served, alive, execute, rows, until

pytestmark = pytest.mark.long

PROGRAM = ("CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(20))",
           "CREATE TABLE votes (id INT PRIMARY KEY AUTO_INCREMENT, story INT, who INT)",
           "CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story",
           "CREATE VIEW karma AS SELECT s.author, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id "
           "WHERE s.author = ? GROUP BY s.author")


def test_two_workers(tmp_path: Path) -> None:
    server = Served(tmp_path / "data", "--workers", "2")
    try:
        c = server.connect()
        for text in PROGRAM:
            execute(c, text)
        with c.cursor() as cursor:
            cursor.executemany("INSERT INTO stories VALUES (%s, %s, %s)", [(i, i % 4, f"t{i}") for i in range(40)])
        own_writes(c)
        keys_change(c)
        once(server, c)
        explained = "\n".join(str(r) for r in rows(c, "EXPLAIN SELECT n FROM karma WHERE author = 1"))
        assert "exchange by author" in explained and "spread by" in explained and "(broad)" in explained
        one_dies_while_clients_write(server, c)
        spark_takes_part(server, c)
        all_die(server, c)
    finally:
        server.close()
    other = subprocess.run([sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "data"),
                            "--mysql-port", "0", "--http-port", "0"], capture_output=True, text=True, timeout=120)
    assert other.returncode == 1 and "was written by 2 workers, not by 1 worker: start with --workers 2" in other.stderr


def own_writes(c: Any) -> None:
    """Each is seen by who wrote it, whichever worker has the view's key."""
    for i in range(60):
        execute(c, "INSERT INTO votes (story, who) VALUES (%s, %s)", (i % 20, i))
        assert rows(c, "SELECT n FROM counts WHERE story = %s", (i % 20,)) == [(i // 20 + 1,)]
        (before,), = rows(c, "SELECT COALESCE(SUM(n), 0) FROM (SELECT n FROM karma WHERE author = 1) k") or [(0,)]
        assert before is not None
    assert [rows(c, "SELECT n FROM karma WHERE author = %s", (a,)) for a in range(4)] == [[(15,)]] * 4
    for i in range(20):  # statements of both workers
        execute(c, "INSERT INTO votes (story, who) VALUES (30, 1), (31, 2), (32, 3), (33, 4)")
        assert [rows(c, "SELECT n FROM counts WHERE story = %s", (s,)) for s in range(30, 34)] == [[(i + 1,)]] * 4
    execute(c, "DELETE FROM votes WHERE story >= 30")
    assert [rows(c, "SELECT n FROM counts WHERE story = %s", (s,)) for s in range(30, 34)] == [[]] * 4


def once(server: Served, c: Any) -> None:
    """Of rows of both workers, each tried without a view; where that took a busy worker too long, there is one."""
    before = server.metric("one_shots_total")
    assert rows(c, "SELECT s.author, COUNT(*), MAX(v.id) FROM stories s JOIN votes v ON v.story = s.id "
                   "GROUP BY s.author ORDER BY s.author") == [(a, 15, 57 + a) for a in range(4)]
    assert rows(c, "SELECT DISTINCT who FROM votes WHERE who > 56") == [(57,), (58,), (59,)]
    assert server.metric("one_shots_total") == before + 2


def keys_change(c: Any) -> None:
    """Rows go to other workers, and what is UNIQUE is so among both."""
    with c.cursor() as cursor:
        assert cursor.execute("UPDATE stories SET id = id + 1000 WHERE author = 3") == 10
        with pytest.raises(pymysql.IntegrityError, match=r"Duplicate entry '[0-9]+' for key 'stories\.PRIMARY'"):
            cursor.execute("UPDATE stories SET id = id - 1000 + 1 WHERE author = 3")
        assert cursor.execute("UPDATE stories SET id = id - 1000 WHERE author = 3") == 10
        cursor.execute("CREATE TABLE users (id INT PRIMARY KEY, email VARCHAR(30) UNIQUE)")
        cursor.executemany("INSERT INTO users VALUES (%s, %s)", [(i, f"{i}@x") for i in range(20)])
        with pytest.raises(pymysql.IntegrityError, match=r"Duplicate entry '7@X' for key 'users\.email'"):
            cursor.execute("INSERT INTO users VALUES (100, '7@X')")
        assert cursor.execute("REPLACE INTO users VALUES (3, '4@x')") == 3
        assert cursor.execute("INSERT INTO users VALUES (50, '5@x') ON DUPLICATE KEY UPDATE id = 51") == 2
    assert rows(c, "SELECT id FROM users WHERE email = '5@x'") == [(51,)]
    assert rows(c, "SELECT COUNT(*) FROM users") == [(19,)]


def one_dies_while_clients_write(server: Served, c: Any) -> None:
    """What was acknowledged is there once; the other worker goes on."""
    kept, _ = pids = server.health()["worker_pids"]
    stop, done, errors = threading.Event(), [0], []

    def client() -> None:
        own = server.connect()
        n = 0
        while not stop.is_set():
            try:
                execute(own, "INSERT INTO votes (story, who) VALUES (%s, 1), (%s, 2)", (n % 20, (n + 7) % 20))
                done[0] += 1
            except pymysql.MySQLError as e:
                errors.append(e)
            n += 1
        own.close()

    thread = threading.Thread(target=client)
    thread.start()
    try:
        for which in (1, 0):
            os.kill(pids[which], signal.SIGKILL)
            pids = until("another worker", partial(others, server, which, pids[which]))
            assert pids[1 - which] == kept and alive(kept)
            kept = pids[which]
            before = done[0]
            until("more writes", lambda b=before: done[0] > b + 20)
    finally:
        stop.set()
        thread.join()
    assert not errors
    assert rows(c, "SELECT COUNT(*) FROM votes") == [(60 + 2 * done[0],)]
    total = sum(rows(c, "SELECT n FROM karma WHERE author = %s", (a,))[0][0] for a in range(4))
    assert total == 60 + 2 * done[0]


def others(server: Served, which: int, was: int) -> list[int]:
    """The workers' processes, when one has another one and all serve."""
    health = server.health()
    return list(health["worker_pids"]) if health["status"] == "ok" and health["worker_pids"][which] != was else []


def spark_takes_part(server: Served, c: Any) -> None:
    """A load goes to both workers or to none, `verify` compares what both maintain; what cannot be says so."""
    csv = server.data.parent / "stories.csv"
    csv.write_text("id,author,title\n" + "".join(f"{i},{i % 4},x{i}\n" for i in range(1000, 3000)))
    before = rows(c, "SELECT COUNT(*) FROM stories")[0][0]
    loaded = server.run("load", "stories", str(csv))
    assert loaded.returncode == 0, loaded.stderr
    assert rows(c, "SELECT COUNT(*) FROM stories") == [(before + 2000,)]
    users = server.data.parent / "users.csv"
    users.write_text("id,email\n" + "".join(f"{i},{'8@X' if i == 209 else f'new{i}@x'}\n" for i in range(200, 220)))
    taken = server.run("load", "users", str(users))
    assert taken.returncode != 0 and "Duplicate entry '8@" in taken.stderr
    assert rows(c, "SELECT COUNT(*) FROM users") == [(19,)]
    verified = server.run("verify")
    assert verified.returncode == 0, verified.stdout


def all_die(server: Served, c: Any) -> None:
    """Spark's process, and with it all workers."""
    count, pids = rows(c, "SELECT COUNT(*) FROM votes"), server.health()["worker_pids"]
    os.kill(int(re.findall(r"ready: .*driver process \d+, JVM process (\d+)", server.log())[0]), signal.SIGKILL)
    until("other workers", lambda: server.health()["status"] == "ok" and server.health()["worker_pids"] != pids)
    assert rows(c, "SELECT COUNT(*) FROM votes") == count
    execute(c, "ALTER TABLE votes ADD COLUMN weight INT DEFAULT 3")
    assert rows(c, "SELECT SUM(weight) FROM votes") == [(3 * count[0][0],)]
