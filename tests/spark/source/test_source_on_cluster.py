"""The data source from a session outside, on `local-cluster`, while tasks, Python processes and an executor fail: rows
are read and written once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.serving import Served, execute, import_path, rows

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600),
              pytest.mark.skipif(not os.environ.get("NORIA_CLUSTER"), reason="takes minutes: make cluster")]
ROWS = 60_000  # more than are written as statements
PROGRAM = Path(__file__).parent / "outside_session.py"


@pytest.mark.parametrize("workers", (1, 3))
def test_rows_are_read_and_written_once_whatever_fails(tmp_path: Path, workers: int) -> None:
    server = Served(tmp_path / "data", "--workers", str(workers))
    try:
        with server.connect() as c:
            for table in ("few", "many", "copied"):
                execute(c, f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, name VARCHAR(20))")
            execute(c, "CREATE VIEW names AS SELECT name, COUNT(*) AS n, SUM(id) AS total FROM many GROUP BY name")
            done = subprocess.run([sys.executable, str(PROGRAM), server.url, str(ROWS), str(tmp_path / "checkpoint")],
                                  env={**os.environ, "PYTHONPATH": import_path()}, capture_output=True, text=True,
                                  timeout=500, check=False)
            assert done.returncode == 0, done.stderr[-6000:]
            found = json.loads(done.stdout.splitlines()[-1])
            left = [i for i in range(ROWS) if i % 3]
            assert rows(c, "SELECT COUNT(*), SUM(id) FROM few") == [(ROWS, sum(range(ROWS)))]
            assert rows(c, "SELECT COUNT(*), SUM(id) FROM many") == [(len(left), sum(left))]
            assert rows(c, "SELECT COUNT(*), SUM(id) FROM copied") == [(len(left), sum(left))]
            counts = {"table": len(left), "view": 10, "query": len([i for i in left if i < 1000])}
            for what, count in counts.items():
                assert found[what] == found[what + " plain"], what
                assert found[what][0][0] == str(count), what
    finally:
        server.close()
