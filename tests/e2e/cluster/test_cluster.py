"""`noria serve --master spark://…`: workers are where Spark has slots; one whose daemon dies comes up at another's; on
a host that the server does not share memory with they are reached over TCP, where that is asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.serving import Served, execute, rows, until
from e2e.standalone import ELSEWHERE, can_hide_memory, standalone
from runtime.certificates import certificate

pytestmark = [pytest.mark.spark,
              pytest.mark.skipif("NORIA_CLUSTER" not in os.environ, reason="ten JVMs: `make cluster`")]


def test_a_standalone_cluster(tmp_path: Path) -> None:
    with standalone(tmp_path / "spark") as cluster:
        cluster.add("127.0.0.1", 2)
        cluster.add("127.0.0.2", 2)
        server = Served(tmp_path / "data", "--master", cluster.url, "--workers", "2")
        try:
            c = server.connect()
            execute(c, "CREATE TABLE t (id INT PRIMARY KEY, g INT)")
            execute(c, "CREATE VIEW counts AS SELECT g, COUNT(*) AS n FROM t WHERE g = ? GROUP BY g")
            for i in range(30):
                execute(c, "INSERT INTO t VALUES (%s, %s)", (i, i % 3))
                assert rows(c, "SELECT n FROM counts WHERE g = %s", (i % 3,)) == [(i // 3 + 1,)]
            pids = server.health()["worker_pids"]
            hosts = [cluster.host_of(pid) for pid in pids]
            assert set(hosts) == {"127.0.0.1", "127.0.0.2"}
            begun = time.monotonic()
            cluster.kill(hosts[1])
            with c.cursor() as cursor:
                cursor.executemany("INSERT INTO t VALUES (%s, %s)", [(i, 0) for i in range(30, 40)])
            until("another worker", lambda: server.health()["worker_pids"][1] not in (0, pids[1]))
            print(f"a daemon and its worker were lost for {time.monotonic() - begun:.1f} s")
            assert cluster.host_of(server.health()["worker_pids"][1]) == hosts[0]
            assert rows(c, "SELECT n FROM counts WHERE g = 0") == [(20,)]
            assert rows(c, "SELECT COUNT(*) FROM t WHERE id >= 0") == [(40,)]
        finally:
            server.close()


def test_a_lost_host_is_replaced_by_what_stands_ready(tmp_path: Path) -> None:
    """All processes of a worker's host end at once, while a client writes: nothing acknowledged is lost."""
    with standalone(tmp_path / "spark") as cluster:
        for host in ("127.0.0.1", "127.0.0.2"):
            cluster.add(host, 4)
        server = Served(tmp_path / "data", "--master", cluster.url, "--workers", "2", "--standby-slots", "2")
        try:
            c = server.connect()
            execute(c, "CREATE TABLE t (id INT PRIMARY KEY, g INT)")
            execute(c, "CREATE VIEW counts AS SELECT g, COUNT(*) AS n FROM t WHERE g = ? GROUP BY g")
            until("processes stand ready", lambda: cluster.python_workers() >= 4)
            written, longest = list[int](), 0.0
            for n in range(400):
                begun = time.monotonic()
                if n == 100:
                    lost = cluster.host_of(server.health()["worker_pids"][1])
                    begun = time.monotonic()
                    cluster.lose(lost)
                until(f"row {n} is written", partial(_writes, c, n), 200)
                written.append(n)
                longest = max(longest, time.monotonic() - begun)
            print(f"a host with a worker was lost: a write took {longest:.1f} s")
            assert all(cluster.host_of(pid) != lost for pid in server.health()["worker_pids"])
            assert rows(c, "SELECT COUNT(*) FROM t WHERE id >= 0") == [(len(written),)]
            assert rows(c, "SELECT n FROM counts WHERE g = 1") == [(sum(n % 3 == 1 for n in written),)]
        finally:
            server.close()


def _writes(c: pymysql.Connection[Any], n: int) -> bool:
    """A row; written twice is written once."""
    try:
        execute(c, "REPLACE INTO t VALUES (%s, %s)", (n, n % 3))
        return True
    except pymysql.err.MySQLError:
        c.ping(reconnect=True)
        return False


@pytest.mark.skipif(not can_hide_memory(), reason="needs the right to mount")
def test_a_host_without_the_servers_memory(tmp_path: Path) -> None:
    with standalone(tmp_path / "spark") as cluster:
        cluster.add("127.0.0.3", 2, ELSEWHERE)
        found = subprocess.run([sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "data"),
                                "--mysql-port", "0", "--http-port", "0", "--master", cluster.url],
                               capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 1 and found.stdout == ""
    assert "Spark has placed it on" in found.stderr and "Start the server with --cluster-host" in found.stderr


@pytest.mark.skipif(not can_hide_memory(), reason="needs the right to mount")
def test_two_hosts(tmp_path: Path) -> None:
    """A worker on each; either is killed, the far one frozen too: nothing acknowledged is lost."""
    cert, key = certificate(tmp_path, "cluster")
    with standalone(tmp_path / "spark") as cluster:
        cluster.add("127.0.0.1", 2)
        cluster.add("127.0.0.3", 2, ELSEWHERE)
        server = Served(tmp_path / "data", "--master", cluster.url, "--workers", "2", "--cluster-host", "127.0.0.1",
                        "--cluster-cert", str(cert), "--cluster-key", str(key))
        try:
            c, written = server.connect(), 0
            execute(c, "CREATE TABLE t (id INT PRIMARY KEY, g INT)")
            execute(c, "CREATE VIEW counts AS SELECT g, COUNT(*) AS n FROM t WHERE g = ? GROUP BY g")

            def write() -> None:
                nonlocal written
                execute(c, "INSERT INTO t VALUES (%s, %s)", (written, written % 3))
                written += 1
                assert rows(c, "SELECT n FROM counts WHERE g = %s", ((written - 1) % 3,)) == [((written + 2) // 3,)]

            for _ in range(60):
                write()
            assert {cluster.host_of(pid) for pid in server.health()["worker_pids"]} == {"127.0.0.1", "127.0.0.3"}
            for how, where in ((signal.SIGKILL, "127.0.0.1"), (signal.SIGSTOP, "127.0.0.3"),
                               (signal.SIGKILL, "127.0.0.3")):
                pids = server.health()["worker_pids"]
                hosts = [cluster.host_of(pid) for pid in pids]
                victim = hosts.index(where) if where in hosts else 0  # Spark may have placed both on one
                begun = time.monotonic()
                os.kill(pids[victim], how)
                for _ in range(6):
                    write()
                until("another worker", partial(_another, server, victim, pids[victim]))
                print(f"{how.name} of a worker on {hosts[victim]}: writes waited {time.monotonic() - begun:.1f} s")
            assert rows(c, "SELECT COUNT(*), COUNT(DISTINCT id) FROM t") == [(written, written)]
        finally:
            server.close()


def _another(server: Served, worker: int, pid: int) -> bool:
    return server.health()["worker_pids"][worker] not in (0, pid)
