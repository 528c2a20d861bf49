"""Several servers of one data directory, and ZooKeeper says who leads: whatever becomes of the leader, the next one has
all that was acknowledged, and never do two lead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pymysql
import pytest

from e2e.serving import Served, execute, rows, until
from e2e.zookeeper import zookeeper
from noria.server.standby import DEPOSED

pytestmark = [pytest.mark.long, pytest.mark.spark]


class Follower(Served):
    """A server that another one leads: it is not ready before that one is gone."""

    def wait_ready(self) -> None:
        until("it stands by", lambda: "ready to take over" in self.log(), 90)
        assert " leads" in self.log()

    def leads(self) -> float:
        """Seconds until it did."""
        begun = time.monotonic()
        super().wait_ready()
        return time.monotonic() - begun


def test_one_leads_and_the_other_takes_over(tmp_path: Path) -> None:
    with zookeeper(tmp_path / "zk") as (address, keeper):
        lease = ("--lease", f"zk://{address}/noria")
        first = Served(tmp_path / "data", *lease)
        second = Follower(tmp_path / "data", *lease)
        third = None
        try:
            with first.connect() as c:
                execute(c, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
                execute(c, "INSERT INTO t VALUES (1, 10), (2, 20)")
                assert rows(c, "SELECT n FROM t WHERE id = 2") == [(20,)]
            first.kill("front")
            print(f"taken over from a killed one after {second.leads():.1f} s")
            first.nothing_left()
            with second.connect() as c:
                assert rows(c, "SELECT id, n FROM t ORDER BY id") == [(1, 10), (2, 20)]
                execute(c, "INSERT INTO t VALUES (3, 30)")
            third = Follower(tmp_path / "data", *lease)
            os.kill(second.process.pid, signal.SIGSTOP)
            print(f"from a frozen one after {third.leads():.1f} s")
            assert second.process.wait(30) == -signal.SIGKILL, "who leads by now has seen to it"
            second.nothing_left()
            with third.connect() as c:
                assert rows(c, "SELECT id, n FROM t ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
                execute(c, "UPDATE t SET n = 11 WHERE id = 1")
                keeper.kill()
                assert third.process.wait(30) == DEPOSED, third.log()[-2000:]
                with pytest.raises(pymysql.MySQLError):
                    execute(c, "UPDATE t SET n = 12 WHERE id = 1")
            third.nothing_left()
        finally:
            for server in (first, second, third):
                if server is not None:
                    server.close()


def test_without_zookeeper_there_is_no_leader(tmp_path: Path) -> None:
    for text, why in (("zk://127.0.0.1:1/noria", "no ZooKeeper answers at 127.0.0.1:1"),
                      ("127.0.0.1:2181", "is no address of a lease: zk://HOST:PORT")):
        found = subprocess.run([sys.executable, "-m", "noria", "serve", "--data-dir", str(tmp_path / "data"),
                                "--mysql-port", "0", "--http-port", "0", "--lease", text],
                               capture_output=True, text=True, timeout=120, check=False)
        assert found.returncode == 1 and why in found.stderr and found.stdout == ""
