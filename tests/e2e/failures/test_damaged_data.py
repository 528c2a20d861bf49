"""A real server and damaged data: a lost log ends `noria serve` with why, a damaged block costs its table; a backup of
the running server comes back."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pymysql
import pytest
from rocksdict import Options, Rdict

from e2e.serving import Served, execute, rows
from noria.storage.offline.snapshot import open_read_only
from noria.storage.rocks.engine import DEFAULT, DELTAS, META

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(900)]
SRC = str(Path(__file__).parents[3] / "src")


def noria(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "noria", *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": SRC}, check=False)


def test_backup_loss_and_damage(tmp_path: Path) -> None:
    server = Served(tmp_path / "data")
    with server.connect() as connection:
        for table in ("good", "bad"):
            execute(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, body TEXT, INDEX n (n))")
        execute(connection, "CREATE MATERIALIZED VIEW goods AS SELECT n, COUNT(*) AS c FROM good GROUP BY n")
        execute(connection, "CREATE MATERIALIZED VIEW bads AS SELECT n, COUNT(*) AS c FROM bad GROUP BY n")
        for start in range(0, 4000, 1000):
            for table in ("good", "bad"):
                values = ", ".join(f"({i}, {i % 10}, '{os.urandom(100).hex()}')" for i in range(start, start + 1000))
                execute(connection, f"INSERT INTO {table} VALUES {values}")
    backed_up(server, tmp_path)
    with server.connect() as connection:
        execute(connection, f"INSERT INTO good VALUES (20000, 77, '{os.urandom(1000).hex()}')")
    server.kill("worker", "jvm", "driver", "front")
    base = tmp_path / "data" / "worker-0" / "base"
    log = max(base.glob("*.log"), key=lambda p: p.stat().st_size)
    whole = log.read_bytes()
    os.truncate(log, len(whole) // 2)  # the last record may be the delta log's, which nobody waits for
    out = noria("serve", "--data-dir", str(tmp_path / "data"), "--mysql-port", "0", "--http-port", "0")
    assert out.returncode == 1 and "were acknowledged" in out.stderr.splitlines()[-1], out.stderr[-2000:]
    assert "noria check --accept-loss" in out.stderr.splitlines()[-1]
    checked = noria("check", str(tmp_path / "data"))
    assert checked.returncode == 1 and "were acknowledged" in checked.stdout
    log.write_bytes(whole)
    assert noria("check", str(tmp_path / "data")).returncode == 0
    one_table_damaged(server, base)


def backed_up(server: Served, tmp_path: Path) -> None:
    """While somebody writes: what was acknowledged before is in it, rows come in order and none is missing."""
    stop, written = threading.Event(), [0]

    def write() -> None:
        with server.connect() as connection:
            while not stop.is_set():
                execute(connection, f"INSERT INTO good VALUES ({10_000 + written[0]}, 77, 'x')")
                written[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        before = written[0]
        out = server.run("backup", str(tmp_path / "backup"))
        assert out.returncode == 0, out.stderr
    finally:
        stop.set()
        writer.join()
    out = noria("restore", str(tmp_path / "backup"), str(tmp_path / "restored"))
    assert out.returncode == 0 and "2 tables" in out.stdout, out.stderr
    assert noria("check", str(tmp_path / "restored")).returncode == 0
    again = Served(tmp_path / "restored")
    with again.connect() as connection:
        count = rows(connection, "SELECT c FROM goods WHERE n = 77")
        assert before <= (count[0][0] if count else 0) <= written[0]
        assert rows(connection, "SELECT c FROM bads WHERE n = 3") == [(400,)]
        execute(connection, "INSERT INTO good VALUES (99999, 78, 'new')")
    again.close()


def files_of_tables(base: Path) -> list[Path]:
    """Those of column families of tables and indexes: the catalog and the delta log are other families."""
    families = [f for f in Rdict.list_cf(str(base), Options(raw_mode=True)) if f not in (DEFAULT, META, DELTAS)]
    opened = open_read_only(str(base), families)
    try:
        listed = [opened.get_column_family(f).property_value("rocksdb.sstables") or "" for f in families]
    finally:
        opened.close()
    numbers = [n for text in listed for n in re.findall(r"^ *(\d+):", text, re.MULTILINE)]
    return [base / f"{int(n):06}.sst" for n in numbers]


def one_table_damaged(server: Served, base: Path) -> None:
    server.start()
    server.stop()  # what was in the log is in files now
    largest = max(files_of_tables(base), key=lambda p: p.stat().st_size)
    data = largest.read_bytes()
    largest.write_bytes(data[:len(data) // 3] + bytes([data[len(data) // 3] ^ 1]) + data[len(data) // 3 + 1:])
    found = noria("check", str(server.data)).stdout
    table, other = ("bad", "good") if "table bad" in found else ("good", "bad")
    assert largest.name in found and f"table {table}" in found
    server.start()
    worker = server.pid("worker")
    with server.connect() as connection:
        for statement in (f"SELECT c FROM {table}s WHERE n = 3", f"SELECT body FROM {table} WHERE id = 5",
                          f"INSERT INTO {table} VALUES (-1, 3, 'x')", f"DELETE FROM {table} WHERE id = 1"):
            with pytest.raises(pymysql.err.MySQLError) as told:
                rows(connection, statement)
            assert told.value.args[0] == 1194 and f"'{table}' is marked as crashed" in told.value.args[1]
        assert rows(connection, f"SELECT c FROM {other}s WHERE n = 3") == [(400,)]
        execute(connection, f"INSERT INTO {other} VALUES (-1, 3, 'x')")
        assert rows(connection, f"SELECT c FROM {other}s WHERE n = 3") == [(401,)]
        assert server.pid("worker") == worker, "without a new start"
        execute(connection, f"DROP VIEW {table}s")
        execute(connection, f"DROP TABLE {table}")
        execute(connection, f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, body TEXT, INDEX n (n))")
        execute(connection, f"INSERT INTO {table} VALUES (-1, 3, 'x')")
        assert rows(connection, f"SELECT n FROM {table} WHERE id = -1") == [(3,)]
    server.close()
