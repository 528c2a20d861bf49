"""`noria front-end`: a front end that has no shared memory with the server, as on another host."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.serving import Served, execute, rows, until
from e2e.standalone import ELSEWHERE, can_hide_memory
from noria.runtime.worker.resources import private_bytes
from noria.spark.hosting.session import import_path
from ports import free_port
from runtime.certificates import certificate

pytestmark = pytest.mark.long

READY = re.compile(r"noria front-end ready mysql=127\.0\.0\.1:(\d+)\n")
MOST_BYTES = 160 * 2**20  # of a front end that has done little; what it takes is in bench/RESULTS.md


class FarFrontEnd:
    """Its process, which is started again at the same port."""

    def __init__(self, *options: str):
        self.options, self.port = options, 0
        self.start()

    def start(self) -> None:
        self.process = front_end(*self.options, "--mysql-port", str(self.port))
        assert self.process.stdout is not None
        found = READY.fullmatch(self.process.stdout.readline())
        assert found is not None, self.process.communicate()
        self.port = int(found[1])

    def connect(self) -> Any:
        return pymysql.connect(host="127.0.0.1", port=self.port, user="root", autocommit=True, read_timeout=120,
                               ssl_disabled=True)


def front_end(*options: str) -> subprocess.Popen[str]:
    elsewhere = ELSEWHERE if can_hide_memory() else ()
    return subprocess.Popen([*elsewhere, sys.executable, "-m", "noria", "front-end", *options], text=True,
                            stdout=subprocess.PIPE, stderr=sys.stderr, env={**os.environ, "PYTHONPATH": import_path()})


class Load:
    """A client that writes and reads its own writes through a front end, and connects again whenever it is cut off."""

    def __init__(self, connect: Callable[[], Any], first: int):
        self.connect, self.next, self.acknowledged, self.errors = connect, first, list[int](), list[str]()
        self.wrong: list[Any] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            with suppress(pymysql.MySQLError, OSError), closing(self._connected()) as c:
                while not self._stop.is_set():
                    self._once(c)

    def _connected(self) -> Any:
        try:
            return self.connect()
        except pymysql.MySQLError as e:
            self.errors.append(str(e))
            raise

    def _once(self, c: Any) -> None:
        self.next, number = self.next + 1, self.next
        try:
            execute(c, "INSERT INTO t VALUES (%s, %s)", (number, number))
            self.acknowledged.append(number)
            found = rows(c, "SELECT n FROM counts WHERE g = %s", (number,))
            if found != [(1,)]:
                self.wrong.append((number, found))
        except pymysql.MySQLError as e:
            self.errors.append(str(e))
            raise

    def goes_on(self) -> None:
        before = len(self.acknowledged)
        until("writes are acknowledged again", lambda: len(self.acknowledged) > before + 5, 300)

    def end(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.timeout(900)  # a server starts twice
def test_a_front_end_on_another_host(tmp_path: Path) -> None:
    """Killed under load, and the server under it: what was acknowledged is there, and errors say what is down."""
    cert, key = certificate(tmp_path, "cluster")
    port = free_port()
    tls = ("--cluster-cert", str(cert), "--cluster-key", str(key))
    server = Served(tmp_path / "data", "--workers", "2", "--cluster-host", "127.0.0.1", "--cluster-port", str(port),
                    *tls)
    reach = ("--controller", f"127.0.0.1:{port}", "--secret-file", str(tmp_path / "data" / "workers.secret"), *tls)
    fronts: list[FarFrontEnd] = []
    try:
        who_is_not_let_in(tmp_path, reach)
        fronts += [FarFrontEnd(*reach), FarFrontEnd(*reach)]
        definitions_reach_all(server, fronts)
        with closing(server.connect()) as near:
            execute(near, "CREATE TABLE t (id INT PRIMARY KEY, g INT)")
            execute(near, "CREATE VIEW counts AS SELECT g, COUNT(*) AS n FROM t WHERE g = ? GROUP BY g")
        loads = [Load(front.connect, i * 1_000_000) for i, front in enumerate(fronts)]
        try:
            under_load(server, fronts, loads)
        finally:
            for load in loads:
                load.end()
        with closing(server.connect()) as near:
            found = {n for n, in rows(near, "SELECT id FROM t")}
        for load in loads:
            assert not load.wrong and found.issuperset(load.acknowledged)
        taken = [private_bytes(front.process.pid) for front in fronts]
        print(f"private memory of front ends on other hosts: {[n // 2**20 for n in taken]} MB")
        assert max(taken) < MOST_BYTES
        it_ends_cleanly(fronts)
    finally:
        for front in fronts:
            front.process.kill()
            front.process.communicate()
        server.close()


def who_is_not_let_in(tmp_path: Path, reach: tuple[str, ...]) -> None:
    wrong = tmp_path / "wrong.secret"
    wrong.write_bytes(b"x" * 32)
    wrong.chmod(0o600)
    child = front_end(*reach, "--secret-file", str(wrong), "--mysql-port", "0")
    assert child.wait(120) == 1 and child.communicate()[0] == ""


def definitions_reach_all(server: Served, fronts: list[FarFrontEnd]) -> None:
    with closing(server.connect()) as near, closing(fronts[0].connect()) as a, closing(fronts[1].connect()) as b:
        for i in range(3):
            execute(a, "CREATE TABLE d (id INT PRIMARY KEY, x INT)")
            execute(near, "INSERT INTO d VALUES (1, %s)", (i,))
            for _ in range(4):
                assert [rows(c, "SELECT x FROM d WHERE id = 1") for c in (a, b, near)] == [[(i,)]] * 3
            execute(b, "ALTER TABLE d ADD COLUMN y INT DEFAULT 7")
            assert rows(a, "SELECT * FROM d WHERE id = 1") == [(1, i, 7)]
            execute(near, "DROP TABLE d")
            for c in (a, b):
                try:
                    rows(c, "SELECT x FROM d WHERE id = 1")
                except pymysql.MySQLError as e:
                    assert e.args[0] == 1146


def under_load(server: Served, fronts: list[FarFrontEnd], loads: list[Load]) -> None:
    for load in loads:
        load.goes_on()
    fronts[0].process.kill()  # one front end: the other one's clients notice nothing
    fronts[0].process.communicate()
    loads[1].goes_on()
    assert not loads[1].errors
    fronts[0].start()
    loads[0].goes_on()
    server.kill("front")
    for load in loads:
        until("clients are told what is down", lambda load=load: any(
            "which this front end serves for, is not reached since" in e for e in load.errors))
    begun = time.monotonic()
    server.start()
    for load in loads:
        load.goes_on()
    print(f"the server was back, and writes acknowledged, after {time.monotonic() - begun:.1f} s")


def it_ends_cleanly(fronts: list[FarFrontEnd]) -> None:
    with closing(fronts[0].connect()) as idle:
        rows(idle, "SELECT 1")
        for front in fronts:
            front.process.send_signal(signal.SIGTERM)
        for front in fronts:
            assert front.process.wait(30) == 0
