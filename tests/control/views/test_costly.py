"""SELECTs over few rows are answered by their worker, however busy the machine; what was too costly is tried again."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import noria
from control.databases import each_worker
from noria.client.api import Database
from noria.core.errors import SqlError
from noria.core.limits import FORGET_COSTLY_S

SELF_JOIN = ("SELECT a.id, b.id FROM t a JOIN t b ON a.k = b.k WHERE a.x BETWEEN ? AND ? AND b.y BETWEEN ? AND ? "
             "ORDER BY 1, 2")


class NoSpark:
    """Is asked for nothing."""

    async def query(self, *asked: Any) -> Any:
        raise AssertionError("Spark was asked for three rows")


class SlowSpark:
    """Has no answer; or fails.  asked, given_up: how often."""

    def __init__(self, error: SqlError | None = None) -> None:
        self.error, self.asked, self.given_up = error, 0, 0

    async def query(self, *asked: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up += 1


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def busy(db: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """More than a second passes between two looks at the clock, in which the worker has not computed."""
    for worker in each_worker(db):
        clock = partial(next, itertools.count(0, 1_100_000_000))
        monkeypatch.setattr(worker.environment, "clock", clock)
        monkeypatch.setattr(worker.engine, "clock", clock)
        monkeypatch.setattr(worker.environment, "processor", lambda: 0)
    executor = db.transport.executor
    monkeypatch.setattr(executor, "_bulk", NoSpark())
    monkeypatch.setattr(executor.program.adhoc_views, "hold_ms", 2_000)
    monkeypatch.setattr(executor.reads, "_hold_ms", 2_000)
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT, y INT, k INT)")
    db.sql("INSERT INTO t VALUES (1, 1, 1, 1), (2, 2, 2, 1), (3, 3, 3, 2)")
    return db


def test_a_self_join_of_three_rows_by_two_ranges(busy: Database) -> None:
    for n in range(6):
        found = busy.sql(SELF_JOIN, [1, 3, 1, n]).rows
        assert found == [(a, b) for a in (1, 2, 3) for b in (1, 2, 3) if b <= n and (a < 3) == (b < 3)]


def test_its_class(busy: Database) -> None:
    texts = ("SELECT COUNT(*) FROM (SELECT DISTINCT a.x FROM t a LEFT JOIN t b ON a.k = b.id "
             "WHERE a.y > {} OR b.x = 2) q",
             "SELECT k, SUM(x) FROM t WHERE y > {} GROUP BY k", "SELECT MAX(y) FROM t WHERE x BETWEEN {} AND 9")
    for text in texts:
        for n in (0, 0, 1, 0, 1):
            assert busy.sql(text.format(n)).rows


def test_what_took_too_long_is_tried_again_after_a_while(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    program = db.transport.executor.program
    now = [100.0]
    adhoc = program.adhoc_views
    monkeypatch.setattr(adhoc, "clock", lambda: now[0])
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, x INT)")
    db.sql("CREATE VIEW v AS SELECT COUNT(*) AS n FROM t")
    view = program.view("v")
    adhoc.cost_too_much(view)
    assert adhoc.is_costly(view)
    now[0] += FORGET_COSTLY_S - 1
    assert adhoc.is_costly(view)
    now[0] += 1
    assert not adhoc.is_costly(view)
    adhoc.cost_too_much(view)
    db.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    assert not adhoc.is_costly(view), "under another program it may cost something else"


PAIRS = "SELECT x.id, COUNT(*) AS c FROM n x JOIN n y ON x.a = y.a GROUP BY x.id"  # too many for a one-shot


def pairs(db: Database, monkeypatch: pytest.MonkeyPatch, spark: Any) -> set[int]:
    """All counts, by a view that nobody waits for where Spark can answer."""
    executor = db.transport.executor
    monkeypatch.setattr(executor, "_bulk", spark)
    monkeypatch.setattr(executor.program.adhoc_views, "hold_ms", 0)
    db.sql("CREATE TABLE n (id INT PRIMARY KEY, a INT)")
    db.table("n").insert([(i, i % 3) for i in range(3_000)])
    return {c for _, c in db.sql(PAIRS).rows}


def test_few_rows_are_never_for_spark(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert pairs(db, monkeypatch, NoSpark()) == {1_000}


def test_the_view_answers_where_spark_is_slower(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.core.limits.SPARK_ROWS", 0)
    monkeypatch.setattr("noria.core.limits.FILL_PATIENCE_S", 0)
    spark = SlowSpark()
    assert pairs(db, monkeypatch, spark) == {1_000}
    assert (spark.asked, spark.given_up) == (1, 1)


def test_the_view_answers_where_spark_fails(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.core.limits.SPARK_ROWS", 0)
    monkeypatch.setattr("noria.core.limits.FILL_PATIENCE_S", 0)
    spark = SlowSpark(SqlError(1105, "HY000", "there is no driver"))
    assert pairs(db, monkeypatch, spark) == {1_000}
    assert spark.asked == 1
