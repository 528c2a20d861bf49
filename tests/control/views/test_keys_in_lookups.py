"""Lookups by columns that hold the primary key use it, whatever becomes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria

ROWS = 2_500  # more than an index is built over at once


@pytest.mark.parametrize("then", ["", ", ADD PRIMARY KEY (other)"])
def test_the_primary_key_goes(tmp_path: Path, then: str) -> None:
    """The lookup lost what it was answered by; the ALTER was half taken back, and the next statement ended the
    worker."""
    with noria.open(tmp_path / "db") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, title VARCHAR(20), other INT NOT NULL)")
        db.table("t").insert([(i, i % 50, f"P{i % 90}", i) for i in range(ROWS)])
        db.sql("CREATE VIEW w AS SELECT title, other FROM t WHERE id = ? AND a = ?")
        assert db.sql("SELECT * FROM w WHERE id = 7 AND a = 7").rows == [("P7", 7)]
        db.sql(f"ALTER TABLE t DROP PRIMARY KEY{then}")
        assert db.sql("SELECT * FROM w WHERE id = 8 AND a = 8").rows == [("P8", 8)]
        db.sql("UPDATE t SET title = 'new' WHERE id = 8")
        db.sql(f"INSERT INTO t VALUES (8, 8, 'twice', {ROWS})")
        assert sorted(db.sql("SELECT * FROM w WHERE id = 8 AND a = 8").rows) == [("new", 8), ("twice", ROWS)]
        assert db.sql("SELECT * FROM w WHERE id = 8 AND a = 9").rows == []
        db.sql("ALTER TABLE t ADD INDEX (a)")
        assert db.sql("SELECT * FROM w WHERE id = 9 AND a = 9").rows == [("P9", 9)]
