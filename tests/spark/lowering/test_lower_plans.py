"""LOWERINGS-AGREE: random plans in Spark, the engine, SQLite and the slow reference give the same rows.

All plans of a seed are one Spark job: each relation as a column of JSON texts, tagged and put under each other.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from typing import Any

import pyspark.sql.functions as F
import pytest
from pyspark.sql import DataFrame, SparkSession

from dataflow.engine_rig import Rig
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.limits import ERROR_CODE
from noria.core.symbols import fold
from noria.core.types import BIGINT, DOUBLE, INT, TEXT, Column, Kind, TableDef, decimal
from noria.core.values import decode
from noria.dataflow.inspect.validate import recompute
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.calls import BIT_FUNCTIONS, PEERS, RANKING, WHOLE, Frame, agg, over
from noria.plan.mir import (
    Aggregate,
    Base,
    Distinct,
    Filter,
    GroupConcat,
    Mir,
    Project,
    UnionAll,
    Window,
    show,
)
from noria.plan.optimizer import error_reporting_plan
from noria.plan.view import ViewDef
from noria.spark.lowering import coding, lower
from reference import mir_reference, random_plans
from spark import mir_sqlite

pytestmark = pytest.mark.spark


def shown_tables(spark: SparkSession, tables: list[TableDef], rows: dict[str, list[tuple[Any, ...]]]
                 ) -> dict[str, DataFrame]:
    return {t.name: spark.createDataFrame(rows[t.name], coding.shown_schema(t.fields)).coalesce(1) for t in tables}


def spark_rows(plans: list[Mir], tables: dict[str, DataFrame]) -> list[list[tuple[Any, ...]]]:
    """Coded rows of all plans, in one job."""
    tagged = []
    for i, plan in enumerate(plans):
        rows = lower.coded(plan, tables).rows
        packed = F.to_json(F.array(*(F.to_json(F.struct(F.col(c).alias("v"))) for c in rows.columns)))
        tagged.append(rows.select(F.lit(i).alias("plan"), packed.alias("row")))
    out: list[list[tuple[Any, ...]]] = [[] for _ in plans]
    for plan, row in reduce(DataFrame.unionAll, tagged).collect():
        out[plan].append(tuple(json.loads(v).get("v") for v in json.loads(row)))
    return out


def sqlite_code(value: Any, t: Any) -> Any:
    """A value as Spark's relations code it: bytes as the text that carries them, a TIME in microseconds."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return int(value.scaleb(t.scale)) if isinstance(value, Decimal) else value


def engine_rows(rig: Rig, view: ViewDef) -> list[tuple[Any, ...]]:
    """A view's rows recomputed by the engine's operators, in the coding of Spark's relations."""
    out = []
    for row, weight in recompute(rig.engine)[rig.engine.readers[view.name]].items():
        out += [tuple(_spark_code(c, f.type, rig) for c, f in zip(row, view.plan.fields, strict=True))] * weight
    return out


def _spark_code(code: int, t: Any, rig: Rig) -> Any:
    value = decode(code, t, rig.symbols)
    if t.is_bytes:
        return sqlite_code(value, t)
    return code if value is not None and t.kind not in (Kind.TEXT, Kind.DOUBLE) else value


def bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows as a bag; doubles to twelve digits, for sums in another order."""
    return Counter(tuple(float(f"{v:.12g}") if isinstance(v, float) else v for v in r) for r in rows)


def folded(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without spellings: the reference shows another one for the greatest of equal texts."""
    return [tuple(fold(v) if isinstance(v, str) else v for v in r) for r in rows]


def same(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]], plan: Mir, seed: int, who: str) -> None:
    x, y = bag(a), bag(b)
    assert x == y, f"seed {seed}: {who}\n{plan}\nonly Spark {dict(x - y)}\nonly {who} {dict(y - x)}"


@pytest.fixture(params=["compiled", "interpreted"])
def quick(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """Without adaptive execution, which makes a job of each stage; once with and once without Spark's compiler
    of whole stages, because the two evaluate expressions by different code."""
    settings = {"spark.sql.adaptive.enabled": "false",
                "spark.sql.codegen.wholeStage": str(request.param == "compiled").lower()}
    before = {k: spark.conf.get(k) for k in settings}
    for k, v in settings.items():
        spark.conf.set(k, v)
    yield spark
    for k, v in before.items():
        spark.conf.set(k, v)


@pytest.mark.parametrize("seed", range(3))
def test_random_plans_agree(quick: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    tables = random_plans.tables(rng)
    views = [v for _ in range(3) for v in random_plans.views(rng, tables)]
    views = [v for v in views if "bit_" not in show(v.plan)]  # errors: SQLite has none
    views = [ViewDef(f"v{i}", v.plan, v.key, v.visible) for i, v in enumerate(views)][:6]
    rig = Rig(tables, views)
    for _ in range(25):
        rig.random_write(rng)
    db = mir_sqlite.connect()
    for t in tables:
        codes = [tuple(sqlite_code(v, c.type) for v, c in zip(r, t.columns, strict=True)) for r in rig.rows[t.name]]
        mir_sqlite.fill(db, t.name, len(t.columns), codes)
    plans = [v.plan for v in views]
    found = spark_rows(plans, shown_tables(quick, tables, rig.rows))
    assert sum(map(len, found)) > 0
    for view, rows in zip(views, found, strict=True):
        if mir_sqlite.knows(view.plan):
            same(rows, mir_sqlite.rows(db, view.plan), view.plan, seed, "SQLite")
        same(rows, engine_rows(rig, view), view.plan, seed, "engine")
        slow = [tuple(sqlite_code(v, f.type) for v, f in zip(r, view.plan.fields, strict=True))
                for r in mir_reference.run(view.plan, rig.rows)]
        same(folded(rows), folded(slow), view.plan, seed, "reference")


@pytest.mark.parametrize("quick", ["interpreted"], indirect=True)
def test_frames_and_further_aggregates(quick: SparkSession) -> None:
    """Against the slow reference: each function over each kind of frame, bits, and variances of large numbers."""
    rng = random.Random(7)
    table = TableDef("t", (Column("g", INT), Column("o", INT), Column("n", BIGINT), Column("d", decimal(18, 3)),
                           Column("f", DOUBLE), Column("s", TEXT)), table_id=1)
    rows = [(rng.choice([1, 2, None]), rng.randrange(4), rng.choice([10**15 + rng.randrange(9), 2**40, None]),
             rng.choice([Decimal(10**14 + rng.randrange(9)) / 1000, None]), rng.choice([0.5, 2.25, 1e3, None]),
             rng.choice(["a", "A", "b", None])) for _ in range(30)]
    base = Base(table)
    frames = [PEERS, WHOLE, Frame(True), Frame(False, 0, None), Frame(False, 0, 0), Frame(True, -2, 1),
              Frame(True, 1, 3), Frame(True, -4, -2), Frame(True, None, -1), Frame(True, 2, None)]
    picks = [over(f, c, base.fields, frame, by) for frame in frames
             for f, c, by in (("first_value", 4, 1), ("last_value", 5, 1), ("nth_value", 4, 2), ("sum", 2, 1),
                              ("avg", 3, 1), ("count", 4, 1), ("min", 5, 1), ("max", 4, 1), ("sum", 4, 1))]
    ranks = [over(f, None, base.fields, by=3) for f in RANKING]
    aggs = [agg("variance", c, base.fields) for c in (2, 3, 4)]
    aggs += [agg(f, 2, base.fields) for f in BIT_FUNCTIONS]
    pairs = GroupConcat(base, (0,), 5, (4, 5), ((1, True),), "|", "texts")
    plans: list[Mir] = [Window(base, (0,), ((1, False),), tuple(picks), tuple(map(str, picks))), pairs,
                        Window(base, (0,), ((1, True),), tuple(ranks), tuple(map(str, ranks))),
                        Aggregate(base, (0,), tuple(aggs), tuple(map(str, aggs)))]
    for plan, found in zip(plans, spark_rows(plans, shown_tables(quick, [table], {"t": rows})), strict=True):
        slow = [tuple(sqlite_code(v, f.type) for v, f in zip(r, plan.fields, strict=True))
                for r in mir_reference.run(plan, {"t": rows})]
        same(folded(found), folded(slow), plan, 7, "reference")


def _case(spark: SparkSession) -> tuple[TableDef, dict[str, DataFrame], Any]:
    table = TableDef("t", (Column("a", INT), Column("b", TEXT), Column("d", DOUBLE)), table_id=1)
    rows = [(1, "x", 0.5), (2, "X", 0.5), (1, "X", 0.5), (None, None, None), (1, "é", -1.0), (3, "E", -1.0)]
    db = mir_sqlite.connect()
    mir_sqlite.fill(db, "t", 3, rows)
    return table, shown_tables(spark, [table], {"t": rows}), db


@pytest.mark.parametrize("quick", ["interpreted"], indirect=True)
def test_nodes_that_only_spark_runs(quick: SparkSession) -> None:
    table, tables, db = _case(quick)
    base = Base(table)
    texts = Project(base, (col(1, TEXT),), ("b",))
    plans: list[Mir] = [
        Distinct(texts), Distinct(base), UnionAll(texts, texts), Distinct(UnionAll(base, base)),
        Limit(Sort(base, ((1, False), (0, True))), 3, 1), Limit(Sort(base, ((0, True), (1, True))), 2),
        Limit(Sort(base, ((0, False), (1, False))), None, 4), Limit(base, 0),
        Aggregate(Limit(Sort(base, ((0, True),)), 1), (), (agg("sum", 0, base.fields),), ("s",)),
    ]
    for plan, rows in zip(plans, spark_rows(plans, tables), strict=True):
        same(rows, mir_sqlite.rows(db, plan), plan, 0, "SQLite")


def test_sort_keeps_its_order_to_the_end(spark: SparkSession) -> None:
    table, tables, _ = _case(spark)
    rows = lower.dataframe(Sort(Base(table), ((1, True), (0, False))), tables).collect()
    found = [(r["c1"] and r["c1"].lower(), r["c0"]) for r in rows]  # 'x' and 'X' are equal here
    assert found == [("x", 1), ("x", 1), ("x", 2), ("é", 1), ("e", 3), (None, None)]


def test_reading_an_error_raises_what_mysql_says(spark: SparkSession) -> None:
    table, tables, _ = _case(spark)
    product = functions.call("mul", col(0, INT), const(2**62, BIGINT))
    plan = Project(Base(table), (col(0, INT), product), ("a", "big"))
    with pytest.raises(Exception, match=r"1690 \(22003\): BIGINT value is out of range in 'big'"):
        lower.dataframe(plan, tables).collect()
    flags = lower.flagged(lower.coded(plan, tables)).collect()
    assert sorted((r["c0"] or 0, r["c1"], r["e1"]) for r in flags if r["c0"] != 1) == [
        (0, None, False), (2, None, True), (3, None, True)]
    assert len(lower.dataframe(Filter(plan, functions.call("gt", col(1, BIGINT), const(0, BIGINT))), tables
                               ).select("c0").collect()) == 3


@pytest.mark.parametrize("quick", ["interpreted"], indirect=True)
def test_errors_in_aggregates(quick: SparkSession) -> None:
    """By themselves SUM and AVG fail, COUNT counts the error, for MIN and MAX it is the least value; in the plan of a
    view an error of one row is one of all aggregates of its group."""
    table = TableDef("t", (Column("id", INT), Column("a", BIGINT), Column("d", DOUBLE)), table_id=1)
    rows = [(0, 2**62, 1e300), (1, 1, 1.0), (2, None, None), (3, 5, -2.0)]
    doubled = functions.call("mul", col(1, BIGINT), const(2, BIGINT))
    exprs = (doubled, functions.call("mul", col(2, DOUBLE), col(2, DOUBLE)))
    source = Project(Base(table), exprs, ("a", "d"))
    names = ("count", "sum", "avg", "min", "max")
    aggs = tuple(agg(n, c, source.fields) for c in (0, 1) for n in names)
    plan = Aggregate(source, (), aggs, tuple(f"x{i}" for i in range(len(aggs))))
    (found,) = lower.coded(plan, shown_tables(quick, [table], {"t": rows})).rows.collect()
    shown = [_error_told(v) for v in found]
    assert shown == [3, "error", "error", "error", 10, 3, "error", "error", "error", 4.0]
    exact = Aggregate(source, (), aggs[:5], tuple(names))
    rig = Rig([table], [ViewDef("v", exact, (), exact.width)])
    rig.write([("t", r, 1) for r in rows])
    (kernels,) = recompute(rig.engine)[rig.engine.readers["v"]]
    (told,) = lower.coded(error_reporting_plan(exact), shown_tables(quick, [table], {"t": rows})).rows.collect()
    assert [_error_told(c) for c in kernels] == [_error_told(v) for v in told] == ["error"] * 5


def _error_told(value: Any) -> Any:
    return "error" if value == ERROR_CODE or value != value else value


def test_a_table_that_is_not_there_is_named(spark: SparkSession) -> None:
    table, tables, _ = _case(spark)
    with pytest.raises(ValueError, match="the plan reads table u, which the snapshot does not hold: t"):
        lower.dataframe(Base(TableDef("u", table.columns, table_id=2)), tables)
