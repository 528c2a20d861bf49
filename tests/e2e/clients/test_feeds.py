"""A search index kept fresh by a feed, while everything is killed: nothing lost, nothing there twice."""

from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.serving import Served, execute, rows, until
from noria.spark.hosting.session import import_path
from ports import free_port

pytestmark = pytest.mark.long

EXAMPLE = Path(__file__).parents[3] / "examples" / "search_index.py"
PROGRAM = ("CREATE TABLE stories (id INT PRIMARY KEY, title VARCHAR(40))",
           "CREATE TABLE votes (story INT, who INT, PRIMARY KEY (story, who))",
           "CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes GROUP BY story",
           "CREATE VIEW pages AS SELECT s.id, s.title, c.n FROM stories s JOIN counts c ON c.story = s.id "
           "WHERE s.id = ?")


class Index:
    """The example, in a process that may be killed."""

    def __init__(self, path: Path, port: int):
        self._path, self._port, self._log = path, port, path.with_suffix(".log")
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(EXAMPLE), f"http://127.0.0.1:{self._port}", "pages", str(self._path)],
            env={**os.environ, "PYTHONPATH": import_path()}, stderr=self._log.open("ab"))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()

    def pages(self) -> list[tuple[Any, ...]]:
        if not self._path.exists():
            return []
        with sqlite3.connect(self._path, timeout=30) as index:
            try:
                return sorted(index.execute("SELECT key, text FROM pages"))
            except sqlite3.OperationalError:  # not made yet
                return []


@pytest.fixture
def port() -> int:
    return free_port()


def test_a_search_index(tmp_path: Path, port: int) -> None:
    server = Served(tmp_path / "data", "--http-port", str(port))
    index = Index(tmp_path / "index.db", port)
    try:
        c = server.connect()
        for text in PROGRAM:
            execute(c, text)
        for killed in ("index", "worker", "everything", "index"):
            while_writing(server, index, killed)
            same(server, index)
    finally:
        index.kill()
        server.close()


def while_writing(server: Served, index: Index, killed: str) -> None:
    rng, over = random.Random(killed), threading.Event()

    def write() -> None:
        while not over.is_set():
            try:
                with server.connect() as c:
                    for _ in range(200):
                        story = rng.randrange(30)
                        execute(c, rng.choice([
                            f"REPLACE INTO stories VALUES ({story}, 'title {rng.randrange(9)}')",
                            f"INSERT IGNORE INTO votes VALUES ({story}, {rng.randrange(9)}), ({story + 1}, 1)",
                            f"DELETE FROM votes WHERE story = {story}"]))
                        if over.is_set():
                            return
            except (pymysql.err.MySQLError, OSError):
                over.wait(0.2)  # it was killed

    writer = threading.Thread(target=write)
    writer.start()
    try:
        until("the index has pages", index.pages)
        if killed == "index":
            index.kill()
            index.start()
        elif killed == "worker":
            server.kill("worker")
            server.wait_up()
        else:
            server.kill("front", "driver", "worker")
            index.kill()
            server.start()
            index.start()
    finally:
        over.set()
        writer.join()


def same(server: Served, index: Index) -> None:
    with server.connect() as c:
        expected = sorted((id, f"{title} {n}") for id, title, n in
                          rows(c, "SELECT s.id, s.title, c.n FROM stories s JOIN counts c ON c.story = s.id"))
    try:
        until("the index is the view", lambda: index.pages() == expected)
    except AssertionError:
        raise AssertionError(f"{index.pages()} is not {expected}; the index says {index.said()[-2000:]}") from None
