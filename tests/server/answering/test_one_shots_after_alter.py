"""A query without a view after a change of columns, while the data-flow holds a base table node made before it."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria

ROWS = 3_000
CHANGES = ("ALTER TABLE n RENAME COLUMN b TO z", "ALTER TABLE n ADD COLUMN z INT DEFAULT 4",
           "ALTER TABLE n DROP COLUMN b, RENAME COLUMN c TO z",
           "ALTER TABLE n MODIFY b VARCHAR(9), RENAME COLUMN c TO z")


@pytest.mark.parametrize("limit", [100, 100_000], ids=["in slices", "at once"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_query_after_a_change_of_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int, limit: int
                                           ) -> None:
    monkeypatch.setattr("noria.server.answering.view_lookups.ONE_SHOT_ROWS", limit)
    for change in CHANGES:
        with noria.open(tmp_path / str(CHANGES.index(change)), workers=workers) as db:
            db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT, b INT DEFAULT 4, c INT DEFAULT 4)")
            db.sql("CREATE VIEW counts AS SELECT a, COUNT(*) AS k FROM n WHERE a = ? GROUP BY a")
            db.table("n").insert([{"id": i, "a": i % 7} for i in range(ROWS)])
            db.sql(change)
            want = [(i, i % 7, 4) for i in range(ROWS)]
            assert sorted(db.sql("SELECT id, a, z FROM n").rows) == want, change
            assert sorted(db.sql("SELECT id, a, z FROM n WHERE a + z = 7").rows) == [r for r in want if r[1] == 3]
