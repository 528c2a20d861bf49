"""A server whose views are large is killed: it serves them at once when it is back, with every acknowledged row."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from e2e.serving import Served, execute, processes_with, rows, serving, until
from noria.storage.commits import state_file

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
ROWS = 60_000
TOP = "SELECT author, n FROM top ORDER BY n DESC, author LIMIT 5"
VIEWS = (
    "CREATE VIEW counted AS SELECT author, COUNT(*) AS n, MAX(title) AS t FROM posts GROUP BY author",
    "CREATE VIEW top AS SELECT author, n FROM counted ORDER BY n DESC, author LIMIT 100",
)


def saved_at(data: Path, workers: int) -> int:
    """When the checkpoint of all workers was written, in nanoseconds; 0: there is none."""
    files = [data / f"worker-{w}" / state_file.FILE for w in range(workers)]
    return min(f.stat().st_mtime_ns if f.exists() else 0 for f in files)


def top(server: Served) -> list[tuple[object, ...]]:
    with server.connect() as connection:
        return rows(connection, TOP)


@pytest.mark.parametrize("workers", [1, 3])
def test_views_answer_at_once_after_a_kill(tmp_path: Path, workers: int) -> None:
    table = "CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40))"
    with serving(tmp_path / "data", table, workers=str(workers)) as server:
        with server.connect() as connection:
            for start in range(0, ROWS, 10_000):
                execute(connection, "INSERT INTO posts VALUES " + ", ".join(
                    f"({i}, {i % 5_000}, 'Title {i % 777}')" for i in range(start, start + 10_000)))
            for view in VIEWS:
                execute(connection, view)
            rows(connection, TOP)
            rows(connection, "SELECT COUNT(*) FROM counted")
        first = until("a checkpoint is written", lambda: saved_at(server.data, workers))
        for number, whom in enumerate(("worker", "all", "worker")):
            with server.connect() as connection:
                execute(connection, "INSERT INTO posts VALUES " + ", ".join(
                    f"({ROWS + 100 * number + i}, {number}, 'New')" for i in range(20 + number)))
                expected = rows(connection, TOP)
            assert expected[0] == (number, 32 + number)
            log = len((server.data / "spark.log").read_text())  # of Spark, which has what workers note
            if whom == "worker":
                server.kill("worker")
            else:
                for pid in processes_with(server.tag):
                    os.kill(pid, signal.SIGKILL)
                server.process.wait()
                server.nothing_left()
                server.start()
                assert "filling" not in server.ready_line
            assert top(server) == expected
            if workers == 1 or whom == "all":  # one of several takes the others' states
                until("the log tells", lambda log=log: len(re.findall(
                    "states restored", (server.data / "spark.log").read_text()[log:])) == workers)
        assert saved_at(server.data, workers) >= first
