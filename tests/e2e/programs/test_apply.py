"""A real server whose whole program is changed by `noria apply`: while clients write and read, interrupted, and with
its processes killed in the middle."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pymysql
import pytest

import noria
from e2e.serving import Served, execute, rows, serving, until
from noria.spark.hosting.session import import_path
from noria.sql.program.difference import difference
from noria.sql.program.outline import read
from seeds import crash_rounds, kinds

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ROWS = 300_000
ROUNDS = crash_rounds()
OLD = """
CREATE TABLE v (id INT PRIMARY KEY, author INT NOT NULL, user INT NOT NULL);
CREATE TABLE a (id INT PRIMARY KEY, town INT NOT NULL);
CREATE VIEW hot AS SELECT id, author FROM v WHERE id = ?;
CREATE MATERIALIZED VIEW counts AS SELECT author, COUNT(*) AS n FROM v GROUP BY author;
"""
NEW = """
-- a column, an index, a table, a view that changes, one that sees the column, one that goes
CREATE TABLE v (id INT PRIMARY KEY, author INT NOT NULL, user INT NOT NULL, weight INT NOT NULL DEFAULT 2,
                KEY by_user (user));
CREATE TABLE a (id INT PRIMARY KEY, town INT NOT NULL);
CREATE TABLE flags (id INT PRIMARY KEY AUTO_INCREMENT, why TEXT) AUTO_INCREMENT = 100;
CREATE MATERIALIZED VIEW counts AS SELECT a.town, COUNT(*) AS n, MAX(v.id) AS last FROM v JOIN a ON a.id = v.author
  GROUP BY a.town;
CREATE MATERIALIZED VIEW weights AS SELECT author, SUM(weight) AS w FROM v GROUP BY author;
CREATE MATERIALIZED VIEW flagged AS SELECT why, COUNT(*) AS n FROM flags GROUP BY why;
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("apply") / "data") as server:
        assert apply(server, OLD).returncode == 0
        ids = np.arange(ROWS)
        with noria.connect(server.url) as db:
            db.table("a").insert([(i, i % 50) for i in range(1_000)])
            for at in range(0, ROWS, 50_000):
                part = ids[at:at + 50_000]
                db.table("v").insert(pa.table({"id": part, "author": part % 1_000, "user": part % 777}))
        yield server


def file_of(served: Served, text: str) -> Path:
    path = served.data.parent / "program.sql"
    path.write_text(text)
    return path


def apply(served: Served, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    return served.run("apply", str(file_of(served, text)), "--yes", "--drop", *options)


def begun(served: Served, text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "noria", "apply", str(file_of(served, text)), "--yes", "--drop",
                             "--url", served.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**os.environ, "PYTHONPATH": import_path()})


def is_now(served: Served, text: str) -> bool:
    exported = served.run("export-program")
    assert exported.returncode == 0, exported.stderr
    return difference(read(exported.stdout), read(text), True).empty


class Clients:
    """They write, and read what they wrote, meanwhile; both views that have the name `counts` are understood."""

    def __init__(self, served: Served):
        self.served, self.written, self.failures = served, list[int](), list[BaseException]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(n,)) for n in range(2)]

    def _go(self, number: int) -> None:
        try:
            with self.served.connect() as c:
                for id in range(ROWS + number, 2 * ROWS, 2):
                    if self._stop.is_set():
                        return
                    execute(c, "INSERT INTO v (id, author, user) VALUES (%s, %s, 1)", (id, id % 1_000))
                    self.written.append(id)
                    assert rows(c, "SELECT id, author FROM v WHERE id = %s", id) == [(id, id % 1_000)]
                    assert len(rows(c, "SELECT * FROM counts")) in (50, 1_000)
        except BaseException as e:
            self.failures.append(e)

    @contextmanager
    def going(self) -> Iterator[None]:
        for t in self._threads:
            t.start()
        try:
            until("clients are at it", lambda: self.failures or len(self.written) > 20)
            yield
        finally:
            self._stop.set()
            for t in self._threads:
                t.join(60)
        assert not self.failures, self.failures


def back(served: Served) -> None:
    """The old program again; the column that v got goes with the table, so the rows are made anew."""
    dropped = apply(served, OLD[OLD.index("CREATE TABLE a"):OLD.index("CREATE VIEW hot")])
    assert dropped.returncode == 0, dropped.stderr
    assert apply(served, OLD).returncode == 0
    ids = np.arange(ROWS)
    with noria.connect(served.url) as db:
        for at in range(0, ROWS, 50_000):
            part = ids[at:at + 50_000]
            db.table("v").insert(pa.table({"id": part, "author": part % 1_000, "user": part % 777}))


def test_a_dry_run_and_what_it_says(served: Served) -> None:
    before = served.get("/graph")
    shown = apply(served, NEW, "--dry-run")
    assert shown.returncode == 0 and served.get("/graph") == before and is_now(served, OLD)
    for said in ("+ table flags", "~ table v: ALTER TABLE `v` ADD COLUMN `weight` int NOT NULL DEFAULT '2', ADD KEY",
                 f"the index by_user is built over {ROWS:,} rows", "~ view counts", "the old one answers until",
                 f"filled from {ROWS + 1_000:,} rows", "- view hot", "+ view weights", "to be filled: about"):
        assert said in shown.stdout, (said, shown.stdout)


def test_interrupted(served: Served) -> None:
    process = begun(served, NEW)
    with served.connect() as c:
        until("something is built", lambda: rows(c, "SHOW NORIA MIGRATIONS"))
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1 and "interrupted: the program is as it was" in said, said
        assert is_now(served, OLD) and len(rows(c, "SELECT * FROM counts")) == 1_000
        assert until("nothing is built", lambda: not rows(c, "SHOW NORIA MIGRATIONS"))


@pytest.mark.parametrize("what", kinds(("worker",), ("front",), ("worker", "jvm", "driver", "front")))
def test_killed_in_the_middle(served: Served, what: tuple[str, ...]) -> None:
    """The old program or the new one, never a part; a front end that stays goes on with it by itself."""
    chance = random.Random(str(what))
    for _ in range(ROUNDS):
        process = begun(served, NEW)
        with served.connect() as c:
            until("something is built", lambda: rows(c, "SHOW NORIA MIGRATIONS"))
        threading.Event().wait(chance.random())
        served.kill(*what)
        _, said = process.communicate(timeout=180)
        if "front" in what:
            served.start()
        served.wait_up()
        old, new = is_now(served, OLD), is_now(served, NEW)
        assert old != new, served.run("export-program").stdout
        assert new or "front" in what, said
        with served.connect() as c:
            towns = {r[0]: r[1] for r in rows(c, "SELECT * FROM counts")}
            assert sum(towns.values()) == ROWS and len(towns) == (50 if new else 1_000)
            changes = rows(c, "SHOW NORIA HISTORY")
            assert ("weights" in changes[0][3]) == new, changes[0]
        if new:
            back(served)


@pytest.mark.long
def test_applied_under_load(served: Served) -> None:
    with served.connect() as c:
        clients = Clients(served)
        with clients.going():
            done = apply(served, NEW)
        assert done.returncode == 0, done.stderr
        again = apply(served, NEW, "--dry-run")
        assert "nothing to do" in again.stdout and is_now(served, NEW)
        want = Counter[int]()
        for id in (*range(ROWS), *clients.written):
            want[id % 1_000 % 50] += 1
        assert {t: n for t, n, _ in rows(c, "SELECT * FROM counts")} == dict(want)
        total = ROWS + len(clients.written)
        assert sum(w for _, w in rows(c, "SELECT * FROM weights")) == 2 * total
        execute(c, "INSERT INTO flags (why) VALUES ('first')")
        assert rows(c, "SELECT id FROM flags WHERE why = 'first'") == [(100,)]
        with pytest.raises(pymysql.err.ProgrammingError, match="hot"):
            rows(c, "SELECT * FROM hot WHERE id = 1")
        assert rows(c, "SHOW INDEX FROM v WHERE Key_name = 'by_user'")
    assert served.run("verify").returncode == 0


@pytest.mark.long
def test_the_export_makes_the_same_program_elsewhere(served: Served, tmp_path: Path) -> None:
    exported = served.run("export-program").stdout
    with serving(tmp_path / "other") as other:
        assert apply(other, exported).returncode == 0
        assert other.run("export-program").stdout == exported
        other.stop()
        other.start()
        assert other.run("export-program").stdout == exported
