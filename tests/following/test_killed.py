"""`noria follow` as it is run: loaded by Spark while the source is written, then the follower, the server, a worker and
the source are killed in turn; when the source rests, all rows of both are equal.

NORIA_FOLLOW_KILLS=n kills so many times, at random.  It takes a minute and a half and is left out of CI, unless that is
given; test_exactly_once.py has the same rules without processes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.mariadb import INSTALLED
from e2e.serving import Served, until
from following.sources import SourceDb
from following.writers import write
from noria.spark.hosting.session import import_path
from ports import free_port

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.mariadb,
              pytest.mark.skipif(not INSTALLED, reason="MariaDB is not installed")]
KILLS = int(os.environ.get("NORIA_FOLLOW_KILLS", "0"))
if os.environ.get("CI") and not KILLS:
    pytest.skip("in CI only with NORIA_FOLLOW_KILLS", allow_module_level=True)


TABLE = "CREATE TABLE {} (id INT PRIMARY KEY, v INT, u INT UNIQUE)"


class Following:
    """The process, started again whenever it was killed."""

    def __init__(self, source: SourceDb, server: Served, log: Path):
        self._source, self._url, self._log = source, server.url, log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "noria", "follow", self._source.url, "--url", self._url], stdout=log, stderr=log,
                env={**os.environ, "PYTHONPATH": import_path()})

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def said(self) -> str:
        return self._log.read_text()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[SourceDb]:
    db = SourceDb(tmp_path)
    yield db
    db.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path / "data", "--workers", "2", "--http-port", str(free_port()))
    yield served
    served.close()


def all_rows(server: Served, tables: str) -> dict[str, list[tuple[Any, ...]]]:
    found = {}
    with server.connect() as connection, connection.cursor() as cursor:
        for table in tables:
            cursor.execute(f"SELECT * FROM {table}")
            found[table] = sorted(cursor.fetchall(), key=repr)
    return found


def shown(server: Served) -> dict[str, Any]:
    with server.connect() as connection, connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute("SHOW NORIA FOLLOWING")
        row: dict[str, Any] = cursor.fetchone() or {}
    return row


def is_following(server: Served) -> bool:
    return shown(server).get("State") == "following"


def caught_up(source: SourceDb, server: Served) -> None:
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        end = "{}:{}".format(*cursor.fetchone()[:2])

    def there() -> bool:
        row = shown(server)
        return row.get("State") == "following" and row["Position"] == end and float(row["Lag_s"]) < 5

    try:
        until("the source's binlog is applied", there)
    except AssertionError as e:
        raise AssertionError(f"{e}: {shown(server)}, {end}") from None


def restarted(server: Served) -> None:
    server.process.kill()
    server.process.wait()
    server._kill_all()
    server.start()


def test_whoever_is_killed(source: SourceDb, server: Served, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source.run(TABLE.format("a"), "INSERT INTO a SELECT seq, seq, NULL FROM seq_1_to_60")
    draw, over = random.Random(KILLS), threading.Event()
    follower = Following(source, server, tmp_path / "follow.log")
    request.addfinalizer(follower.kill)

    def writes(seed: int) -> None:
        mine = random.Random(seed)
        while not over.wait(0.1):
            try:
                write(source, mine, 5)
            except pymysql.MySQLError:
                over.wait(0.2)  # the source was killed, or has no table b yet

    def worker() -> None:
        with urllib.request.urlopen(f"{server.url}/health") as answer:
            os.kill(draw.choice(json.loads(answer.read())["worker_pids"]), signal.SIGKILL)

    def again(what: Any) -> None:
        what.kill()
        what.start()

    kills = [lambda: again(follower), worker, lambda: again(source), lambda: restarted(server)]
    writers = [threading.Thread(target=writes, args=(i,)) for i in range(2)]
    for w in writers:
        w.start()
    try:
        until("it follows", lambda: is_following(server), 200)
        source.run(TABLE.format("b"))
        for kill in [draw.choice(kills) for _ in range(KILLS)] or kills:
            kill()
            at = shown(server).get("Position")
            until("changes come", lambda at=at: shown(server).get("Position") != at and is_following(server), 120)
    finally:
        over.set()
        for w in writers:
            w.join()
        follower_said = follower.said()
    assert follower.process.poll() is None, follower_said
    caught_up(source, server)
    assert all_rows(server, "ab") == {t: r for t, r in source.rows().items() if t != "w"}, follower_said
    follower.process.send_signal(signal.SIGINT)
    assert follower.process.wait(30) == 0 and follower.said().endswith("stopped; start it again to go on\n")
    with server.connect() as connection, connection.cursor() as cursor:
        with pytest.raises(pymysql.MySQLError, match="read-only: it follows mysql://127"):
            cursor.execute("DELETE FROM a")
        (tmp_path / "a.csv").write_text("id,v,u\n77777,1,1\n")
        done = server.run("load", "a", str(tmp_path / "a.csv"))
        assert done.returncode == 1 and "read-only: it follows" in done.stderr
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            assert f'noria_follow_lag_seconds{{source="{source.address.source}"}}' in answer.read().decode()
        done = server.run("follow", source.url, "--release")
        assert done.returncode == 0, done.stderr
        cursor.execute("DELETE FROM a")
