"""An embedded database has no Spark: what a server leaves to it, its own worker makes."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria
from noria.runtime.worker import worker_main

ROWS = 5_000


def test_indexes_and_first_states_of_large_tables_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index over many rows waited for files that nobody made, and a view for a replay that nobody did."""
    monkeypatch.setattr(worker_main, "WORKER_INDEX_ROWS", 100)
    monkeypatch.setattr(worker_main, "WORKER_BOOTSTRAP_ROWS", 100)
    with noria.open(str(tmp_path / "data")) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, {i % 10}, {i % 7})" for i in range(ROWS)))
        db.sql("CREATE INDEX by_b ON t (b)")
        db.sql("CREATE VIEW some AS SELECT id, a FROM t WHERE a = ?")
        db.sql("CREATE MATERIALIZED VIEW groups AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n > 1")
        assert len(db.sql("SELECT id FROM some WHERE a = 3").rows) == ROWS // 10
        assert sorted(db.sql("SELECT a, n FROM groups").rows) == [(a, ROWS // 10) for a in range(10)]
        assert db.sql("SHOW NORIA MIGRATIONS").rows == []
