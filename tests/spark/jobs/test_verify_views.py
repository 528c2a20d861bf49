"""`verify`, first states and queries over a checkpoint, against an engine that holds the same rows."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import noria
from control.databases import each_worker
from dataflow.engine_rig import Rig
from noria.core.batch import concat
from noria.core.errors import SqlError
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import BIGINT, DOUBLE, INT, TEXT, Column, TableDef
from noria.dataflow.inspect import export
from noria.dataflow.inspect.validate import bag, recompute
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.mir import Aggregate, Base, Join, Project, agg
from noria.plan.view import ViewDef
from noria.spark.jobs import local, snapshot
from noria.spark.jobs.bootstrap import bootstrap
from noria.spark.jobs.query import explain, query
from noria.spark.jobs.verify import MaintainedView, VerifyReport, verify
from noria.spark.lowering import lower
from reference import random_plans
from spark.checkpoints import checkpoint

pytestmark = pytest.mark.spark


def maintained(path: Path, rig: Rig, views: list[ViewDef]) -> list[MaintainedView]:
    """The engine's views as files."""
    out = []
    for v in views:
        rows, present = export.view_tables(rig.engine, v.name, rig.symbols)
        names = [str(path / f"{v.name}.{what}.parquet") for what in ("rows", "present")]
        pq.write_table(rows, names[0])
        if present is not None:
            pq.write_table(present, names[1])
        out.append(MaintainedView(v, (names[0],), None if present is None else (names[1],)))
    return out


@pytest.fixture
def quick(spark: SparkSession) -> Any:
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    yield spark
    spark.conf.set("spark.sql.adaptive.enabled", "true")


@pytest.fixture(params=[pytest.param("rows that the driver reads", marks=pytest.mark.long), "rows that tasks read"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By which way `verify` reads tables and views."""
    if request.param == "rows that tasks read":
        monkeypatch.setattr("noria.spark.jobs.local.ROWS", -1)
    return str(request.param)


@pytest.mark.parametrize("seed", range(2))
def test_random_views_are_verified(quick: SparkSession, where: str, tmp_path: Path, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = [replace(v, name=f"v{i}_{v.name}") for i in range(2) for v in random_plans.views(rng, tables)]
    rig = Rig(tables, views)
    for _ in range(30):
        rig.random_write(rng)
        view = rng.choice(views)
        rig.engine.read(view.name, rig.random_key(rng, view))
    path = checkpoint(tmp_path, tables, rig.rows)
    told: list[tuple[Any, ...]] = []
    report = verify(quick, lambda *x: told.append(x), checkpoint=path, tables=tables,
                    views=maintained(tmp_path, rig, views))
    assert report.ok, f"seed {seed}\n{report}"
    assert len(report.views) == len(views) and told[-1][:2] == (len(views), len(views))
    assert any(v.rows for v in report.views)


STORIES = TableDef("stories", (Column("id", INT, False), Column("title", TEXT), Column("score", DOUBLE)), (0,),
                   table_id=1)
VOTES = TableDef("votes", (Column("story", INT), Column("user", TEXT), Column("weight", DOUBLE)), table_id=2)


def _votes() -> tuple[Rig, list[ViewDef]]:
    source = Base(VOTES)
    sums = agg("count_star", None, source.fields), agg("sum", 2, source.fields)
    by_user = Aggregate(source, (1,), sums, ("n", "w"))
    whole = Aggregate(source, (), (agg("count", 0, source.fields), agg("avg", 2, source.fields)), ("n", "w"))
    views = [ViewDef("by_user", by_user, (0,), 3), ViewDef("whole", whole, (), 2), ViewDef("rows", source, (0,), 3)]
    rig = Rig([STORIES, VOTES], views)
    users = ["ann", "Ann", "bob", "élan", "Elan", None]
    rig.write([("votes", (i % 4, users[i % 6], 0.1 * i), 1) for i in range(60)])
    keys = [rig.symbols.intern(u) for u in ("ANN", "elan", "nobody")]
    rig.engine.read("by_user", np.array([keys]))
    rig.engine.read("rows", np.array([[1, 9]]))
    rig.engine.read("whole", np.empty((0, 1), np.int64))
    return rig, views


def _changed(m: MaintainedView, change: Any) -> MaintainedView:
    path = f"{m.rows[0]}.{len(os.listdir(os.path.dirname(m.rows[0])))}"
    pq.write_table(change(pq.read_table(m.rows[0])), path)
    return replace(m, rows=(path,))


def _with(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)


def test_what_differs_is_found_and_shown(quick: SparkSession, where: str, tmp_path: Path) -> None:
    rig, views = _votes()
    path = checkpoint(tmp_path, [STORIES, VOTES], rig.rows)

    def run(*some: MaintainedView) -> VerifyReport:
        return verify(quick, checkpoint=path, tables=[STORIES, VOTES], views=some)

    by_user, whole, rows = maintained(tmp_path, rig, views)
    report = run(by_user, whole, rows)
    assert report.ok, str(report)
    assert [(v.rows, v.maintained, v.keys) for v in report.views] == [(2, 2, 3), (1, 1, None), (15, 15, 2)]
    nearly = _changed(by_user, lambda t: _with(t, "c2", pc.multiply(t["c2"], 1 + 1e-12)))
    lost = _changed(rows, lambda t: t.slice(1))
    twice = _changed(rows, lambda t: _with(t, "weight", pc.multiply(t["weight"], 2)))
    spelled = _changed(by_user, lambda t: _with(t, "c0", pc.ascii_upper(t["c0"])))
    wrong = _changed(by_user, lambda t: _with(t, "c2", pc.add(t["c2"], 0.001)))
    failed = replace(rows, rows=("/nowhere.parquet",))
    report = run(nearly, lost, twice, spelled, wrong, failed)
    assert [v.differing for v in report.views] == [0, 1, len(pq.read_table(rows.rows[0])), 4, 4, 0], str(report)
    assert [v.ok for v in report.views] == [True, False, False, False, False, False]
    (difference,) = report.views[1].differences
    assert (difference.expected, difference.maintained) == (1, 0)
    assert "NOT CHECKED" in str(report) and "5 views do NOT agree" in str(report)
    assert "recomputed" in str(report)


def test_a_sum_of_more_digits_than_its_type_declares(quick: SparkSession, where: str, tmp_path: Path) -> None:
    table = TableDef("ends", (Column("id", INT, False), Column("n", BIGINT, False)), (0,), table_id=1)
    source = Base(table)
    view = ViewDef("sums", Aggregate(source, (0,), (agg("sum", 1, source.fields),), ("s",)), (0,), 2)
    rig = Rig([table], [view])
    rig.write([("ends", (0, -(2**63) + 3), 1), ("ends", (1, 2**63 - 1), 1)])
    for id in range(2):
        rig.engine.read("sums", np.array([[id]]))
    report = verify(quick, checkpoint=checkpoint(tmp_path, [table], rig.rows), tables=[table],
                    views=maintained(tmp_path, rig, [view]))
    assert report.ok and report.views[0].keys == 2, str(report)


@pytest.mark.one_worker("its checkpoint is all there is")
def test_small_tables_are_what_tasks_read(spark: SparkSession, tmp_path: Path) -> None:
    """Of every type: the least and the greatest values, and NULL."""
    with noria.open(tmp_path / "base") as db:
        db.sql("CREATE TABLE every (id INT PRIMARY KEY, a BIGINT, b BIGINT UNSIGNED, c DECIMAL(18,6), d DOUBLE, "
               "e FLOAT, f VARCHAR(9), g TEXT COLLATE utf8mb4_bin, h VARBINARY(9), i DATE, j DATETIME(6), "
               "k TIMESTAMP NULL, l TIME(6), m YEAR, n ENUM('x', 'y'), o SET('x', 'y'), q BOOL, r JSON)")
        db.table("every").insert([
            [1, -(2**63) + 2, 0, "-999999999999.999999", -1e308, -1.5, "", "", b"", "0001-01-01",
             "0001-01-01 00:00:00.000001", "1970-01-01 00:00:01", "-838:59:59", 1901, "x", "", False, "{}"],
            [2, 2**63 - 1, 2**63 - 1, "999999999999.999999", 1e308, 1.5, "€" * 9, "a\0b", b"\0\xff", "9999-12-31",
             "9999-12-31 23:59:59.999999", "2038-01-19 03:14:07", "838:59:59", 2155, "y", "x,y", True, "[1]"],
            [3, *[None] * 17]])
        store, path = each_worker(db)[0].engine.store, str(tmp_path / "checkpoint")
        store.checkpoint(path)
        table = store.tables()["every"]
    far, near = snapshot.table(spark, path, table), local.table(local.session(spark), path, table)
    assert near.schema == far.schema and near.rdd.getNumPartitions() == 1
    assert sorted(map(repr, near.collect())) == sorted(map(repr, far.collect()))
    assert local.small_tables(path, [table]) == {"every"}


def test_first_states_hold_the_plans_rows_with_errors(quick: SparkSession, tmp_path: Path) -> None:
    rig, _ = _votes()
    big = functions.call("mul", col(0, INT), const(2**62, BIGINT))
    plan = Project(Base(VOTES), (col(1, TEXT), big, col(2, DOUBLE)), ("u", "big", "w"))
    rig.add_view(ViewDef("v", plan, (), 3))
    path = checkpoint(tmp_path, [STORIES, VOTES], rig.rows)
    made = bootstrap(quick, checkpoint=path, tables=[STORIES, VOTES], plan=plan, out=str(tmp_path / "out"))
    assert made.rows == 60
    parts = [b for f in made.files for b in pq.ParquetFile(f).iter_batches()]
    rows = concat(list(export.batches_of(parts, plan.fields, rig.symbols)), plan.width)
    assert bag(rows) == recompute(rig.engine)[rig.engine.readers["v"]]


def test_queries_over_a_checkpoint(quick: SparkSession, tmp_path: Path) -> None:
    rig, _ = _votes()
    path = checkpoint(tmp_path, [STORIES, VOTES], rig.rows)
    ordered = Limit(Sort(Base(VOTES), ((0, True), (2, False))), 3)
    both = {"checkpoint": path, "tables": [STORIES, VOTES]}
    answer = query(quick, **both, plan=ordered, visible=2).rows
    assert answer.column_names == ["story", "user"]
    assert list(zip(*answer.to_pydict().values(), strict=True)) == [(3, "élan"), (3, "Ann"), (3, None)]
    assert query(quick, **both, plan=Base(STORIES)).rows.num_rows == 0
    with pytest.raises(SqlError, match="more than 59 rows"):
        query(quick, **both, plan=Base(VOTES), max_rows=59)
    big = functions.call("mul", col(0, INT), const(2**62, BIGINT))
    with pytest.raises(SqlError, match="BIGINT value is out of range"):
        query(quick, **both, plan=Project(Base(VOTES), (big,), ("big",)))
    text = explain(quick, plan=ordered)
    assert "not maintained" in text and "sort #0 desc, #2" in text and "table votes" in text and "Scan" in text


def test_a_checkpoint_of_another_program_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = checkpoint(tmp_path, [STORIES], {"stories": [(1, "a", None)]})
    other = TableDef("stories", (Column("id", TEXT),), table_id=1)
    with pytest.raises(ValueError, match="table stories has other columns in the snapshot"):
        snapshot.tables(spark, path, [other])
    assert [tuple(r) for r in snapshot.tables(spark, path, [STORIES])["stories"].collect()] == [(1, "a", None)]
    assert Counter(snapshot.tables(spark, path, [STORIES, VOTES]).keys()) == Counter(["stories"])


def test_tables_are_not_taken_for_small(spark: SparkSession, tmp_path: Path) -> None:
    """What `mapInArrow` gives has no size before it ran: Spark must not broadcast it on a guess."""
    path = checkpoint(tmp_path, [STORIES, VOTES], {"stories": [(1, "a", None)], "votes": []})
    base = snapshot.tables(snapshot.session(spark), path, [STORIES, VOTES])
    rows = lower.coded(Join(Base(STORIES), Base(VOTES), ((0, 0),), True), base).rows
    plan = rows._jdf.queryExecution().toString()
    assert "SortMergeJoin" in plan and "BroadcastHashJoin" not in plan
