"""A file of a table that cannot be read: statements and views over the table say so, everything else is served."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria
from noria.core.errors import SqlError

ROWS = 3000
# Of several workers all have rows for the first ones, worker 0 for the others.
EVERYWHERE = ("SELECT c FROM bads WHERE n = 3", "SELECT c FROM bad_all", "DELETE FROM bad")
AT_0 = ("SELECT n FROM both_of WHERE id = 1500", "INSERT INTO bad VALUES (-1, 1, '')",
        "CREATE VIEW more AS SELECT n FROM bad WHERE id = ?")


@pytest.mark.parametrize(("workers", "worker"), [(1, 0), (2, 0), (3, 2)])
def test_a_damaged_table_takes_no_other_with_it(tmp_path: Path, workers: int, worker: int) -> None:
    path = str(tmp_path / "data")
    with noria.open(path, workers=workers) as db:
        for table in ("good", "bad"):
            db.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY, n INT, body VARCHAR(100), INDEX n (n))")
            db.sql(f"CREATE VIEW {table}s AS SELECT n, COUNT(*) AS c FROM {table} GROUP BY n")
            db.sql(f"CREATE VIEW {table}_all AS SELECT COUNT(*) AS c FROM {table}")
            text = "x" * 90
            db.sql(f"INSERT INTO {table} VALUES " + ", ".join(f"({i}, {i % 10}, '{i}{text}')" for i in range(ROWS)))
        db.sql("CREATE VIEW both_of AS SELECT g.id, b.n FROM good g JOIN bad b ON b.id = g.id WHERE g.id = ?")
    base = tmp_path / "data" / f"worker-{worker}" / "base"
    damage(base, "t2")
    for _ in range(2):
        with noria.open(path, workers=workers) as db:
            assert db.sql("SELECT c FROM goods WHERE n = 3").rows == [(ROWS // 10,)]
            for statement in EVERYWHERE if worker else EVERYWHERE + AT_0:
                with pytest.raises(SqlError) as told:
                    db.sql(statement)
                assert told.value.code == 1194 and "'bad' is marked as crashed" in told.value.message, statement
                assert ".sst" in told.value.message
            db.sql("INSERT INTO good VALUES (-1, 3, '')")
            assert db.sql("SELECT c FROM goods WHERE n = 3").rows == [(ROWS // 10 + 1,)]
            db.sql("DELETE FROM good WHERE id = -1")
            assert db.sql("SELECT c FROM good_all").rows == [(ROWS,)]
    with noria.open(path, workers=workers) as db:
        for view in ("both_of", "bads", "bad_all"):
            db.sql(f"DROP VIEW {view}")
        db.sql("DROP TABLE bad")
        db.sql("CREATE TABLE bad (id INT PRIMARY KEY, n INT)")
        db.sql("INSERT INTO bad VALUES (1, 2)")
        assert db.sql("SELECT n FROM bad WHERE id = 1").rows == [(2,)]


def damage(base: Path, family: str) -> None:
    """Change a byte within the largest file of a family."""
    import re

    from noria.storage.rocks.engine import RocksEngine
    from noria.storage.rocks.options import RocksMemory

    engine = RocksEngine(str(base), RocksMemory())
    engine.separate(family)
    engine.flush()
    listed = engine.family(family).property_value("rocksdb.sstables")
    engine.close()
    files = [base / f"{int(n):06d}.sst" for n in re.findall(r"^ *(\d+):", listed, re.MULTILINE)]
    largest = max(files, key=lambda p: p.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
