"""Groups over several workers: each worker aggregates its own rows, and their results are combined."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.limits import BUILD_AT_ONCE_ROWS

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, g INT, x INT, d DECIMAL(8,3), s VARCHAR(9))"
VIEWS = {
    "total": "SELECT AVG(x), AVG(d), SUM(x), COUNT(*), COUNT(d), MIN(s), MAX(d) FROM t",
    "each": "SELECT g, AVG(x), AVG(d), SUM(d), COUNT(*), MIN(s), MAX(x) FROM t WHERE g = ? GROUP BY g",
    "kinds": "SELECT DISTINCT s FROM t",
    "best": "SELECT id, d FROM t ORDER BY d DESC, id LIMIT 5",
    "pairs": "SELECT AVG(n) FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g) q",
}


def answers(directory: Path, workers: int) -> tuple[list[Any], set[str]]:
    """The rows of the views after every fourth random change, and the operators before exchanges."""
    rng, shown_rows = random.Random(5), list[Any]()
    with noria.open(directory, workers=workers) as db:
        db.sql(TABLE)
        for name, text in VIEWS.items():
            db.sql(f"CREATE VIEW {name} AS {text}")
        for i in range(40):
            x, d = rng.randint(-2**31, 2**31 - 1), rng.randint(-99_999_999, 99_999_999) / 1000
            values = [rng.randrange(4), x, d, repr(rng.choice(["a", "B", "b", ""]))]
            shown = ", ".join("NULL" if rng.random() < 0.15 else str(v) for v in values)
            db.sql(f"INSERT INTO t VALUES ({i}, {shown})")
            if i % 4 == 3:
                db.sql(f"DELETE FROM t WHERE id = {rng.randrange(i)}")
                db.sql(f"UPDATE t SET x = {i}, g = 3 - g WHERE id = {rng.randrange(i)}")
                shown_rows.append([sorted(db.sql(f"SELECT * FROM {v}").rows, key=str) for v in VIEWS if v != "each"])
                shown_rows.append([db.sql(f"SELECT * FROM each WHERE g = {g}").rows for g in range(5)])
        does = {row[1] for row in db.sql("SHOW NORIA GRAPH").rows}
    return shown_rows, {text for text in does if text.endswith(" of each worker")}


def test_answers_are_those_of_one_worker(tmp_path: Path) -> None:
    alone, none = answers(tmp_path / "1", 1)
    assert not none
    for workers in (2, 3):
        have, parts = answers(tmp_path / str(workers), workers)
        assert have == alone
        described = " ".join(parts)
        assert len(parts) == 5 and "aggregate " in described and "distinct " in described and "top " in described


def test_a_view_that_waits_for_its_first_state_is_read_after_a_restart(tmp_path: Path,
                                                                      caplog: pytest.LogCaptureFixture) -> None:
    """The request for the state must wait for workers that are still recovering; it once logged an error."""
    for times in range(2):
        with noria.open(tmp_path / "data", workers=2) as db:
            if not times:
                db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
                db.sql("CREATE MATERIALIZED VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
                db.table("t").insert([(i, i % 7) for i in range(3 * BUILD_AT_ONCE_ROWS)])
            assert len(db.sql("SELECT * FROM v").rows) == 7
    assert not [r for r in caplog.records if r.levelname == "ERROR"]
