"""A one-shot over several workers that reads two versions of a table.

A view keeps the columns with which it was made, and a SELECT over it reads the table as it is now.  Each version reads
other texts, so the rows that one of them has received do not serve the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import noria

JOINED = "SELECT r.n FROM v AS r JOIN t AS m ON m.k"


@pytest.mark.parametrize("workers", [1, 3])
def test_a_select_over_a_view_of_earlier_columns(tmp_path: Path, workers: int) -> None:
    with noria.open(tmp_path / "data", workers=workers) as db:
        db.sql("CREATE TABLE t (k INT NOT NULL, c VARCHAR(6))")
        db.sql("INSERT INTO t VALUES (2, 'a'), (1, 'b'), (6, 'c'), (0, 'd'), (3, NULL)")
        db.sql("CREATE VIEW v AS SELECT 1 AS n FROM t AS l JOIN t AS m ON 1 GROUP BY m.c")
        assert len(db.sql(JOINED).rows) == 20
        db.sql("ALTER TABLE t ADD COLUMN a DATETIME")
        assert len(db.sql(JOINED).rows) == 20
