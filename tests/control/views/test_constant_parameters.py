"""Parameters that no lookup has a place for are constants: the same rows as in SQLite, whatever the values."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import noria
from seeds import seed

ROWS = 200
SELECTS = (
    "SELECT a + ? FROM t WHERE id = ?",
    "SELECT a + ?, ? FROM t WHERE a = ?",
    "SELECT id FROM t WHERE a = COALESCE(?, a)",
    "SELECT id FROM t WHERE s = COALESCE(?, 'x3')",
    "SELECT COUNT(*) FROM t WHERE a > ? + 1",
    "SELECT id FROM t WHERE a = ? AND s <> COALESCE(?, s)",
    "SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > COALESCE(?, 2)",
    "SELECT id FROM t WHERE id IN (SELECT id FROM t WHERE a = ?)",
    "SELECT COUNT(*) FROM t WHERE (SELECT COUNT(*) FROM t b WHERE b.a = ?) > 3",
    "SELECT CASE WHEN a = ? THEN ? ELSE id END FROM t WHERE id < 9",
    "SELECT id FROM t WHERE id = ? AND (a = ? OR ? IS NULL)",
    "SELECT x FROM (SELECT a + ? AS x FROM t) d WHERE x = ?",
)


@pytest.mark.parametrize("text", SELECTS)
def test_as_sqlite(tmp_path: Path, text: str) -> None:
    chance, lite = random.Random(f"{seed('CONSTANT_SEED', 7)} {text}"), sqlite3.connect(":memory:")
    with noria.open(tmp_path / "d") as db:
        for run in (db.sql, lite.execute):
            run("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20))")
            run("INSERT INTO t VALUES " + ", ".join(f"({i}, {i % 7}, 'x{i % 5}')" for i in range(ROWS)))
        for _ in range(12):
            values: list[Any] = [chance.choice((None, 0, 1, 3, 6, 7, 150, -1)) for _ in range(text.count("?"))]
            got, want = db.sql(text, values).rows, lite.execute(text, values).fetchall()
            assert Counter(map(str, map(tuple, got))) == Counter(map(str, want)), values
