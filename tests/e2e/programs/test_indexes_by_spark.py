"""A real server and an index that Spark makes: while others write, killed, and with each process at work on it gone."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import noria
from e2e.meanwhile import Statement, clients
from e2e.serving import Served, alive, execute, import_path, rows, serving, until
from noria.core.limits import WORKER_INDEX_ROWS

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]
ROWS = WORKER_INDEX_ROWS + 50_000
KINDS = 1_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("indexes") / "data",
                 "CREATE TABLE v (id INT PRIMARY KEY, kind INT NOT NULL, a INT DEFAULT 1, b INT DEFAULT 2)",
                 "CREATE VIEW one AS SELECT id, kind FROM v WHERE id = ?") as server:
        with noria.connect(server.url) as db:
            for at in range(0, ROWS, 50_000):
                ids = np.arange(at, min(at + 50_000, ROWS))
                db.table("v").insert(pa.table({"id": ids, "kind": ids % KINDS, "a": ids % 3, "b": ids % KINDS}))
        yield server


def made_by_spark(served: Served, statement: Statement) -> None:
    """Until Spark is at it."""
    with served.connect() as c:
        def seen() -> bool:
            shown = rows(c, "SHOW NORIA MIGRATIONS")
            assert shown or statement.is_alive(), statement.error
            return any("made by Spark" in str(r) for r in shown)

        until("Spark makes the index", seen)
        until("its snapshot is there", lambda: list((served.data / "snapshots").glob("index-*/checkpoint")))


def left_over(served: Served) -> bool:
    return bool(list((served.data / "snapshots").glob("index-*")))


def test_others_write_meanwhile(served: Served) -> None:
    written: list[int] = []

    def write(c: object, n: int) -> None:
        execute(c, "INSERT INTO v (id, kind) VALUES (%s, 5)", (-1 - n,))
        if n % 2:
            execute(c, "DELETE FROM v WHERE id = %s", (-1 - n,))
        else:
            written.append(n)

    with clients(served, write, lambda c, n: rows(c, f"SELECT kind FROM one WHERE id = {n}")):
        statement = Statement(served, "CREATE INDEX by_kind ON v (kind)")
        made_by_spark(served, statement)
        before = len(written)
        assert statement.outcome() is None
        assert len(written) > before
    assert until("nothing of it lies about", lambda: not left_over(served))
    with served.connect() as c:
        found = {i for i, in rows(c, "SELECT id FROM v WHERE kind = 5")}
        assert {i for i in found if i >= 0} == set(range(5, ROWS, KINDS))
        assert len([i for i in found if i < 0]) == len(written)
        assert "by_kind" in rows(c, "SHOW CREATE TABLE v")[0][1]
        execute(c, "DROP INDEX by_kind ON v")
        execute(c, "DELETE FROM v WHERE id < 0")


def test_killed(served: Served) -> None:
    statement = Statement(served, "CREATE INDEX by_a ON v (a)")
    made_by_spark(served, statement)
    with served.connect() as c:
        execute(c, f"KILL QUERY {statement.number}")
        error = statement.outcome()
        assert error is not None and error.args[0] == 1317
        assert until("nothing is built", lambda: rows(c, "SHOW NORIA MIGRATIONS") == [])
        assert until("nothing of it lies about", lambda: not left_over(served))


def test_each_process_that_works_on_it_dies(served: Served) -> None:
    """A view by a new key waits for its index, through all of this."""
    statement = Statement(served, "CREATE VIEW of_b AS SELECT id, b FROM v WHERE b = ?")
    made_by_spark(served, statement)
    [*_, batch] = until("the batch driver is ready",
                        lambda: re.findall(r"batch process \d+, JVM process (\d+)", served.log()))
    os.kill(int(batch), signal.SIGKILL)
    until("the JVM is gone", lambda: not alive(int(batch)))
    made_by_spark(served, statement)
    served.kill("worker")
    assert statement.outcome() is None
    with served.connect() as c:
        assert {i for i, _ in rows(c, "SELECT * FROM of_b WHERE b = 5")} == set(range(5, ROWS, KINDS))
    assert until("nothing of it lies about", lambda: not left_over(served))
    assert served.run("verify").returncode == 0


def test_the_files_are_the_index(served: Served) -> None:
    served.stop()
    checked = subprocess.run([sys.executable, "-m", "noria", "check", str(served.data)], capture_output=True, text=True,
                             check=False, env={**os.environ, "PYTHONPATH": import_path()})
    assert checked.returncode == 0, checked.stdout + checked.stderr
    served.start()
