"""A data directory for another number of workers: every row is there once, at its worker, with its index entries."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import noria
from noria.client import Database
from noria.control.leases import Claim
from noria.spark.jobs import reshard as job
from noria.spark.jobs.resharding import Resharding
from noria.storage import resharding
from noria.storage.check import Check
from noria.storage.errors import StoreError
from noria.storage.shards import BEFORE, RESHARD, bases, check_workers, workers_of

pytestmark = pytest.mark.spark
TABLES = (
    "CREATE TABLE numbers (id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT, d DECIMAL(18,6), INDEX (n))",
    "CREATE TABLE pairs (a INT, b VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, c DOUBLE, PRIMARY KEY (b, a), UNIQUE (c))",
    "CREATE TABLE exact (t VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, x VARBINARY(9), day DATE, at DATETIME(6))",
    "CREATE TABLE bag (n INT, t TEXT, INDEX (n))",
    "CREATE TABLE empty (id INT PRIMARY KEY)",
)
VIEW = "CREATE VIEW counted AS SELECT n, COUNT(*) AS c, MAX(t) AS most FROM bag WHERE n = ? GROUP BY n"
READS = ("SELECT * FROM numbers", "SELECT * FROM pairs", "SELECT * FROM exact", "SELECT * FROM bag",
         "SELECT n, COUNT(*) AS c FROM numbers GROUP BY n")


def filled(path: Path, workers: int, rng: random.Random, rows: int) -> list[list[Any]]:
    """What is read of it."""
    words = ["", "a", "A", "é", "e", "zz €", "x" * 15]
    with noria.open(path, workers=workers) as db:
        for text in (*TABLES, VIEW):
            db.sql(text)
        for i in range(rows):
            n = rng.choice([None, *range(9)])
            db.sql("INSERT INTO numbers (n, d) VALUES (?, ?)",
                   [n, rng.choice([None, "-0.000001", f"{10**12 - 1 - i}.000001"])])
            db.sql("REPLACE INTO pairs VALUES (?, ?, ?)", [rng.randrange(9), rng.choice(words),
                   rng.choice([None, i / 7])])
            db.sql("REPLACE INTO exact VALUES (?, ?, ?, ?)", [
                f"{rng.choice(words)}{i % 20}", rng.choice([None, b"\0\xff"]), rng.choice([None, "2024-02-29"]),
                "2024-01-01 10:00:00.000001"])
            db.sql("INSERT INTO bag VALUES (?, ?), (?, ?)", [n, rng.choice(words)] * 2)
        db.sql("DELETE FROM numbers WHERE n = 3")
        db.sql("ALTER TABLE exact ADD COLUMN more INT DEFAULT 7")
        db.sql("INSERT INTO exact (t, more) VALUES ('last', 8)")
        return read(db)


def read(db: Database) -> list[list[Any]]:
    found = [sorted(map(tuple, db.sql(q)), key=repr) for q in READS]
    return [*found, *([tuple(r) for r in db.sql("SELECT * FROM counted WHERE n = ?", [n])] for n in range(9))]


def to(path: Path, workers: int, spark: Callable[[], Any] | None = None) -> str:
    claim = Claim(path)
    try:
        return Resharding(path, workers, claim.epoch, lambda *step: None, spark or _none).run()
    finally:
        claim.release()


def _none() -> SparkSession:
    raise AssertionError("little needs no Spark")


def whole(path: Path, workers: int, wanted: list[list[Any]]) -> None:
    for base in bases(path):
        assert Check(str(base), lambda *step: None).run().findings == []
    assert workers_of(path) == workers
    with noria.open(path, workers=workers) as db:
        assert read(db) == wanted


@pytest.mark.parametrize("way", [(1, 3, 2), (2, 1, 2), (3, 2, 1)], ids=str)
def test_from_some_workers_to_others(tmp_path: Path, way: tuple[int, ...]) -> None:
    rng = random.Random(str(way))
    wanted = filled(tmp_path / "data", way[0], rng, 30)
    for before, workers in pairwise(way):
        with pytest.raises(StoreError, match="noria reshard"):
            check_workers(tmp_path / "data", workers)
        to(tmp_path / "data", workers)
        whole(tmp_path / "data", workers, wanted)
        whole(tmp_path / "data" / BEFORE, before, wanted)
        with pytest.raises(StoreError, match="earlier reshard"):
            to(tmp_path / "data", workers + 1)
        resharding.forget(tmp_path / "data")
    with noria.open(tmp_path / "data", workers=way[-1]) as db:
        top = max(r[0] for r in wanted[0])
        db.sql("INSERT INTO numbers (n) VALUES (1)")
        assert max(r[0] for r in db.sql("SELECT id FROM numbers")) > top
        db.sql("INSERT INTO bag VALUES (1, 'new')")
        assert len(db.sql("SELECT * FROM bag")) == len(wanted[3]) + 1


@pytest.mark.parametrize("way", [(1, 2), (2, 3)], ids=str)
def test_large_tables_by_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                               way: tuple[int, int]) -> None:
    monkeypatch.setattr(job, "LITTLE_ROWS", 100)
    monkeypatch.setattr(job, "PART_ROWS", 20)
    wanted = filled(tmp_path / "data", way[0], random.Random(str(way)), 70)
    to(tmp_path / "data", way[1], lambda: spark)
    whole(tmp_path / "data", way[1], wanted)
    assert not (tmp_path / "data" / RESHARD).exists()
