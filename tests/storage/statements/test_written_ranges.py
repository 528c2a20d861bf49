"""UPDATE and DELETE whose WHERE is a range: the rows that the condition is true of, whatever way leads to them."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client.api import Database
from noria.core.errors import SqlError
from noria.core.limits import WRITTEN_RANGE_ROWS
from noria.storage.statements.stage import TableStage
from seeds import seed

TABLE = ("CREATE TABLE t (id BIGINT, b INT, n INT, x DOUBLE, d DATE, s VARCHAR(10), PRIMARY KEY (id, b), KEY by_n (n), "
         "KEY by_d (d, n), UNIQUE by_x (x))")
COLUMNS = {"id": ("-3", "0", "4", "17", "17.5", "400"), "n": ("0", "3", "'3'", "9", "NULL"),
           "x": ("-1.5", "0", "2.25", "40"), "d": ("'2024-01-05'", "'2024-02-01'"), "s": ("'a5'", "'b'"), "b": ("1",)}


def rows(db: Any) -> list[tuple[Any, ...]]:
    found = db.sql("SELECT id, b, n, x, d, s FROM t").rows if isinstance(db, Database) else (
        db.execute("SELECT id, b, n, x, d, s FROM t").fetchall())
    return sorted(((*r[:4], str(r[4]), r[5]) for r in found), key=str)


@pytest.mark.parametrize("number", range(4))
def test_random_ones(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(f"{seed('NORIA_RANGES_SEED', 1)} {number}")
    if number % 2:  # some ranges of indexes have more rows than are looked at
        monkeypatch.setattr("noria.storage.statements.stage.FIRST_OF_RANGE", 2)
        monkeypatch.setattr("noria.storage.statements.stage.WRITTEN_RANGE_ROWS", 20)
    have = [(i // 2 - 5, i % 2, chance.choice((None, *range(10))), i * 0.25 - 3, f"2024-{1 + i % 3:02}-{1 + i % 28:02}",
             f"a{i % 10}") for i in range(200)]
    with noria.open(tmp_path / "data") as db, sqlite3.connect(":memory:") as other:
        db.sql(TABLE)
        other.execute("CREATE TABLE t (id INT, b INT, n INT, x REAL, d TEXT, s TEXT, PRIMARY KEY (id, b))")
        db.table("t").insert(have)
        other.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", have)
        for _ in range(60):
            terms = []
            for _ in range(chance.choice((1, 1, 2, 3))):
                column = chance.choice(list(COLUMNS))
                value, op = chance.choice(COLUMNS[column]), chance.choice(("<", "<=", ">", ">="))
                terms.append(chance.choice((f"{column} {op} {value}", f"{value} {op} {column}",
                                            f"{column} BETWEEN {value} AND {chance.choice(COLUMNS[column])}")))
            where = " AND ".join(terms)
            text = chance.choice((f"UPDATE t SET s = 'c', n = n + 1 WHERE {where}", f"UPDATE t SET n = 4 WHERE {where}",
                                  f"DELETE FROM t WHERE {where} AND b = 1", f"UPDATE t SET x = x + 1000 WHERE {where}"))
            db.sql(text)
            other.execute(text.replace("'3'", "3"))
            assert rows(db) == rows(other), text


def test_a_range_of_the_key_reads_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, KEY (n))")
        db.table("t").insert([(i, i // 3, i) for i in range(4 * WRITTEN_RANGE_ROWS)])
        scans = []
        scan = TableStage.scan
        monkeypatch.setattr(TableStage, "scan", lambda self: scans.append(1) or scan(self))
        assert db.sql("DELETE FROM t WHERE id < 10").affected == 10
        assert db.sql("UPDATE t SET m = 0 WHERE id BETWEEN 10 AND 19").affected == 10
        assert db.sql("DELETE FROM t WHERE 19 >= id").affected == 10
        assert db.sql("UPDATE t SET m = 0 WHERE n > 100 AND n < 103").affected == 6
        assert db.sql("DELETE FROM t WHERE id > 5 AND id < 3").affected == 0
        keys = []
        between = TableStage.rows_in_range
        monkeypatch.setattr(TableStage, "rows_in_range", lambda self, *range: keys.append(1) or between(self, *range))
        assert db.sql("UPDATE t SET m = 0 WHERE id > 50 AND n = n AND n BETWEEN 200 AND 201").affected == 6
        assert not scans and not keys, "the shorter one of two ranges"
        db.sql("UPDATE t SET m = 7 WHERE n > 5")
        assert scans, "most of the table"


class NoSpark:
    """Is asked for nothing but what is of many rows."""

    async def matching(self, *asked: Any) -> Any:
        raise SqlError(1105, "HY000", "Spark was asked")


def test_few_rows_of_a_large_table_are_not_for_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.core.limits.REWRITTEN_ROWS", 100)
    monkeypatch.setattr("noria.dataflow.graph.ranges.WRITTEN_RANGE_ROWS", 50)
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, m INT, KEY (n))")
        db.table("t").insert([(i, i // 3, i) for i in range(1_000)])
        monkeypatch.setattr(db.transport.executor.program.rewriting, "rewriter", NoSpark())
        assert db.sql("DELETE FROM t WHERE id <= 10").affected == 11
        assert db.sql("UPDATE t SET m = 0 WHERE n BETWEEN 20 AND 21 AND m > 3").affected == 6
        db.sql("UPDATE t SET n = 500 WHERE id >= 990")
        db.table("t").insert([(i, 500, 0) for i in range(1_000, 1_500)])
        assert db.sql("UPDATE t SET m = 1 WHERE n BETWEEN 320 AND 329").affected == 30
        many = ("DELETE FROM t WHERE id > 10", "DELETE FROM t WHERE m < 3", "UPDATE t SET m = 1 WHERE n < 300",
                "UPDATE t SET m = 1 WHERE n > 325 AND n <= 500", "UPDATE t SET m = 1 WHERE n >= 500")
        for text in many:
            with pytest.raises(SqlError, match="Spark was asked"):
                db.sql(text)


def test_statements_of_one_commit_see_each_other(tmp_path: Path) -> None:
    """Rows that those before have written, changed or deleted."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT, KEY (n))")
        db.table("t").insert([(i, i) for i in range(10)])
        run = db.transport.sessions.run

        async def together(*texts: str) -> None:
            await asyncio.gather(*(run(text, []) for text in texts))

        db.transport.run(together(
            "INSERT INTO t VALUES (20, 3)", "UPDATE t SET n = 50 WHERE id = 4", "DELETE FROM t WHERE id = 5",
            "UPDATE t SET n = n + 100 WHERE n >= 3 AND n <= 6", "DELETE FROM t WHERE id > 8"))
        assert sorted(db.sql("SELECT id, n FROM t").rows) == [(0, 0), (1, 1), (2, 2), (3, 103), (4, 50), (6, 106),
                                                              (7, 7), (8, 8)]
