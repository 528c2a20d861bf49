"""`noria serve` as a user meets it: the ready line, three MySQL clients, HTTP, load, verify, kills, stops."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

import noria
from noria.core.errors import SqlError

pytestmark = pytest.mark.spark
READY = re.compile(r"noria ready mysql=127\.0\.0\.1:(\d+) http=(127\.0\.0\.1:\d+)(?: filling=(\S+))?\n")
PROGRAM = (
    "CREATE TABLE stories (id INT PRIMARY KEY, title VARCHAR(40))",
    "CREATE TABLE votes (story_id INT NOT NULL, user INT NOT NULL, PRIMARY KEY (story_id, user))",
    "CREATE VIEW VoteCount AS SELECT story_id, COUNT(*) AS vcount FROM votes GROUP BY story_id",
    "CREATE VIEW StoriesWithVC AS SELECT id, title, vcount FROM stories JOIN VoteCount ON story_id = id WHERE id = ?",
)


class Served:
    """A `noria serve` process."""

    def __init__(self, data: Path, *options: str):
        self.data = data
        self.log = (data.parent / "serve.log").open("a+")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "noria", "serve", "--data-dir", str(data), "--mysql-port", "0", "--http-port", "0",
             *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = READY.fullmatch(self.line)
        if found is None:
            self.process.wait(60)
            self.log.seek(0)
            raise AssertionError(f"no ready line but {self.line!r}; the log:\n{self.log.read()[-3000:]}")
        self.mysql_port, self.url = int(found[1]), f"http://{found[2]}"

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        assert self.process.stdout is not None
        assert self.process.stdout.read() == "", "standard output has the ready line and nothing else"
        return code

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return json.loads(answer.read())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("node") / "data")
    with noria.connect(server.url) as db:
        for text in PROGRAM:
            db.sql(text)
        db.sql("INSERT INTO stories VALUES (1, 'One'), (2, 'Two')")
        db.sql("INSERT INTO votes VALUES (1, 1), (1, 2), (2, 1)")
    yield server
    if server.process.poll() is None:
        assert server.stop() == 0


def test_pymysql_in_text(served: Served) -> None:
    connection = pymysql.connect(host="127.0.0.1", port=served.mysql_port, user="anybody", autocommit=True)
    with connection, connection.cursor() as cursor:
        for _ in range(3):  # parsed, recognised, kept
            assert cursor.execute("SELECT title, vcount FROM StoriesWithVC WHERE id = 1") == 1
            assert cursor.fetchall() == (("One", 2),)
        cursor.execute("INSERT INTO votes VALUES (%s, %s)", (1, 50))
        cursor.execute("SELECT title, vcount FROM StoriesWithVC WHERE id = 1")
        assert cursor.fetchall() == (("One", 3),)
        with pytest.raises(pymysql.err.IntegrityError) as e:
            cursor.execute("INSERT INTO votes VALUES (1, 50)")
        assert e.value.args[0] == 1062
        cursor.execute("DELETE FROM votes WHERE user = 50")
        assert cursor.rowcount == 1


def test_mysql_connector_prepared(served: Served) -> None:
    connection = mysql.connector.connect(host="127.0.0.1", port=served.mysql_port, user="anybody", autocommit=True)
    cursor = connection.cursor(prepared=True)
    for story, rows in ((1, [("One", 2)]), (2, [("Two", 1)]), (3, []), (1, [("One", 2)])):
        cursor.execute("SELECT title, vcount FROM StoriesWithVC WHERE id = ?", (story,))
        assert cursor.fetchall() == rows
    cursor.execute("INSERT INTO votes VALUES (?, ?)", (2, 60))
    cursor.execute("SELECT vcount FROM StoriesWithVC WHERE id = ?", (2,))
    assert cursor.fetchall() == [(2,)]
    cursor.execute("DELETE FROM votes WHERE story_id = ? AND user = ?", (2, 60))
    connection.close()


@pytest.mark.mariadb
@pytest.mark.skipif(shutil.which("mariadb") is None, reason="Debian's mariadb client is not installed")
def test_the_mariadb_client(served: Served) -> None:
    text = "SHOW TABLES; DESCRIBE votes; SELECT title, vcount FROM StoriesWithVC WHERE id = 1;"
    out = subprocess.run(["mariadb", "--no-defaults", "-h127.0.0.1", f"-P{served.mysql_port}", "-uanybody",
                          "--skip-ssl", "--batch", "-e", text], capture_output=True, text=True, timeout=60, check=True)
    lines = out.stdout.splitlines()
    assert lines[1:5] == ["StoriesWithVC", "VoteCount", "stories", "votes"] and lines[-1] == "One\t2"


def test_http(served: Served) -> None:
    assert served.get("/health")["status"] == "ok"
    assert {v["name"] for v in served.get("/views")} >= {"VoteCount", "StoriesWithVC"}
    assert served.get("/graph")
    with urllib.request.urlopen(served.url + "/metrics", timeout=30) as answer:
        metrics = answer.read().decode()
    for name in ("noria_reads_total", "noria_writes_total", "noria_worker_up 1.0", "noria_worker_memory"):
        assert name in metrics
    with urllib.request.urlopen(served.url + "/graph?format=dot", timeout=30) as answer:
        assert answer.read().startswith(b"digraph")


def test_a_select_that_no_view_answers_goes_to_spark_and_says_so(served: Served) -> None:
    with noria.connect(served.url) as db:
        result = db.sql("SELECT COUNT(*) FROM (SELECT user FROM votes LIMIT 20000) AS u WHERE user > 1")
        assert result.rows == [(1,)]
        assert "answered by Spark" in result.warnings[0][2]


def test_load_and_verify(served: Served, tmp_path: Path) -> None:
    votes = tmp_path / "votes.csv"
    votes.write_text("story_id,user\n" + "".join(f"{i % 2 + 1},{1000 + i}\n" for i in range(2000)) + "bad,row\n")
    command = [sys.executable, "-m", "noria"]
    loaded = subprocess.run([*command, "load", "votes", str(votes), "--url", served.url], capture_output=True,
                            text=True, timeout=120, check=False)
    assert loaded.returncode == 3, loaded.stderr  # some rows were rejected
    assert "2,000 rows into votes" in loaded.stdout and "1 rows were rejected" in loaded.stdout
    assert "bad" in (tmp_path / "votes.rejected").read_text()
    with noria.connect(served.url) as db:
        assert db.view("StoriesWithVC").lookup(1) == [(1, "One", 1002)]
    verified = subprocess.run([*command, "verify", "--url", served.url], capture_output=True, text=True, timeout=120,
                              check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert "StoriesWithVC: agrees" in verified.stdout


def test_reads_go_on_while_the_worker_is_killed(served: Served) -> None:
    with noria.connect(served.url) as db:
        before = db.view("StoriesWithVC").lookup(2)
        shared = db.view("StoriesWithVC").attach()
        pid = int(re.findall(r"worker process (\d+)", Path(served.log.name).read_text())[-1])
        os.kill(pid, signal.SIGKILL)
        assert shared.lookup(2) == before
        db.sql("INSERT INTO votes VALUES (2, 777)")  # waits for the next worker, is applied once
        assert db.view("StoriesWithVC").lookup(2)[0][2] == before[0][2] + 1
        with pytest.raises(SqlError, match="Duplicate entry"):
            db.sql("INSERT INTO votes VALUES (2, 777)")
        db.sql("DELETE FROM votes WHERE user = 777")


def test_a_directory_in_use_is_refused_and_a_stop_leaves_nothing(served: Served) -> None:
    second = subprocess.run([sys.executable, "-m", "noria", "serve", "--data-dir", str(served.data)],
                            capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1 and "in use" in second.stderr and second.stdout == ""
    where = Path(served.get("/attach")["path"])
    assert where.is_dir()
    assert served.stop() == 0
    assert not where.exists()
    assert not list((served.data / "snapshots").iterdir())
