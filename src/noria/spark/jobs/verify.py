"""`noria verify`: Spark recomputes every view over a snapshot and compares it with the maintained state.

This checks LOWERINGS-AGREE and READER-CONVERGES: at the snapshot's watermark, a view's state is the bag of rows that
the second lowering computes.  For a partial view it compares the present keys; the caller reads some keys first, so
that they are present (`sample`).  Rows are compared by value and spelling, with multiplicities.  Doubles may differ by
the rounding of a sum in another order (`DOUBLE_TOLERANCE`).  Rows whose key has a NULL are ignored: no lookup finds
them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow.parquet as pq
import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from noria.core.types import Field, Kind, TableDef
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.spark.jobs import snapshot
from noria.spark.jobs.bases import SnapshotTables, ViewRowSource
from noria.spark.jobs.bootstrap import WEIGHT
from noria.spark.jobs.progress import Progress, ignore_progress
from noria.spark.jobs.snapshot import Misplaced, Repeated
from noria.spark.lowering import coding, lower
from noria.spark.lowering.expressions import equality_key
from noria.spark.lowering.relation import Relation

ERROR_CHARS = 2_000  # at most, of Spark's message if a view cannot be checked
DIFFERS = "expected <> maintained"  # compares a row's multiplicities
DOUBLE_TOLERANCE = 1e-9  # relative; summing n doubles in another order moves the sum by about n * 1e-16


@dataclass(frozen=True)
class MaintainedView:
    """A view's state at the snapshot's watermark, in Parquet files of the form of `dataflow/inspect/export.py`.

    `rows`: columns c<i> for the columns of the view's plan, e<i> for their errors, and `weight`.  `present`: the
    present keys of a partial view, columns k0, k1, … in the order of `view.key`, in any spelling.  It is None for a
    full view.
    """

    view: ViewDef
    rows: tuple[str, ...]
    present: tuple[str, ...] | None = None

    def has_empty_key(self) -> bool:
        """For a partial view without key columns: whether its only key () is present."""
        return any(pq.read_metadata(f).num_rows for f in self.present or ())


@dataclass(frozen=True)
class RowDifference:
    """A row that differs, with its multiplicity on each side."""

    row: tuple[Any, ...]
    expected: int
    maintained: int

    def __str__(self) -> str:
        return f"{self.row}: recomputed {self.expected}×, maintained {self.maintained}×"


@dataclass(frozen=True)
class ViewReport:
    """The result for a view.  `keys`: the number of present keys that were compared, None for a full view.  `of`: the
    keys of the recomputation.  `differences`: the first few of `differing` rows.  `error`: why it was not checked."""

    view: str
    rows: int = 0
    maintained: int = 0
    keys: int | None = None
    of: int | None = None
    differing: int = 0
    differences: tuple[RowDifference, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.differing and not self.error

    def __str__(self) -> str:
        scope = "all keys" if self.keys is None else f"{self.keys} present keys, of {self.of}"
        if self.error:
            return f"{self.view}: NOT CHECKED: {self.error}"
        if self.ok:
            return f"{self.view}: ok, {self.rows} rows of {scope} ({self.seconds:.1f} s)"
        shown = "".join(f"\n    {d}" for d in self.differences)
        return f"{self.view}: DIFFERS in {self.differing} rows of {self.rows} ({scope}){shown}"


@dataclass(frozen=True)
class VerifyReport:
    """The results for all views.  misplaced: misplaced rows of base tables, and repeated values of UNIQUE indexes."""

    views: tuple[ViewReport, ...]
    misplaced: tuple[Misplaced | Repeated, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.misplaced and all(v.ok for v in self.views)

    def __str__(self) -> str:
        bad = sum(not v.ok for v in self.views)
        verdict = f"verify: {len(self.views)} views agree" if not bad else f"verify: {bad} views do NOT agree"
        if self.misplaced:
            verdict += ", and rows of base tables are wrong"
        placed = [f"table {m.table}: {m}" for m in self.misplaced]
        return "\n".join([*map(str, self.views), *placed, verdict])


def verify(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
           views: Sequence[MaintainedView], shown: int = 5) -> VerifyReport:
    """Compare each view with its recomputation, several at a time.  If one cannot be checked, the others still are.

    shown: differing rows to report for each view.
    """
    progress(0, len(views), "verify: reading the tables")
    base = SnapshotTables(spark, checkpoint, tables, [m.view for m in views])
    try:
        misplaced: list[Misplaced | Repeated] = [*snapshot.misplaced(spark, checkpoint, tables)]
        misplaced += snapshot.repeated(spark, checkpoint, tables)
        reports = base.each(lambda m: _checked(base, m, shown), views, lambda m: f"verify {m.view.name}", progress)
    finally:
        base.close()
    progress(len(views), len(views), "verify")
    return VerifyReport(tuple(reports), tuple(misplaced))


def _checked(base: SnapshotTables, m: MaintainedView, shown: int) -> ViewReport:
    """Check a view, and report any exception as the view's error."""
    started = time.monotonic()
    missing = sorted(set(tables_of(m.view.plan)) - set(base.definitions))
    try:
        report = check(base, m, shown) if not missing else ViewReport(
            m.view.name, error=f"the snapshot does not hold {', '.join(missing)}")
    except Exception as e:
        report = ViewReport(m.view.name, error=f"{type(e).__name__}: {e}"[:ERROR_CHARS])
    return replace(report, seconds=time.monotonic() - started)


def check(base: SnapshotTables, m: MaintainedView, shown: int) -> ViewReport:
    """Compare a view with its recomputation; if they agree, by a single Spark action."""
    view, fields = m.view, m.view.plan.fields
    source = base.source(view, (*m.rows, *(m.present or ())))
    expected = _with_key(lower.coded(view.plan, source.tables(view)).rows, view)
    maintained = _with_key(_state(source, m), view)
    numbers = []
    if m.present is not None:
        present = _present(source, m)
        keys = expected.select(*(f"k{j}" for j in range(len(view.key)))).distinct() if view.key else None
        numbers += [_counted("keys", present)] + ([] if keys is None else [_counted("of", keys)])
        pairs = [F.col(f"k{j}") == F.col(f"q{j}") for j in range(len(view.key))]
        expected = expected.join(present, reduce(Column.__and__, pairs), "left_semi") if pairs else (
            expected if m.has_empty_key() else expected.limit(0))
    counted = _multiplicities(expected, maintained, fields)
    found = _numbers([*numbers, *_totals(counted)])
    rows, state_rows, count = found["expected"], found["maintained"], found["differing"]
    keys_found, of = (found["keys"], found.get("of", 1)) if m.present is not None else (None, None)
    if of and keys_found == 0:
        return ViewReport(view.name, keys=0, of=of, error=f"none of its {of} keys is present: nothing was compared")
    differing = counted.where(DIFFERS)
    if count and any(f.type.kind is Kind.DOUBLE for f in fields):
        differing = _beyond_rounding(differing.persist(), fields)
        count = differing.count()
    some = _examples(differing, fields, shown) if count else ()
    return ViewReport(view.name, rows, state_rows, keys_found, of, count, some)


def _counted(what: str, rows: DataFrame) -> DataFrame:
    return rows.agg(F.lit(what).alias("what"), F.count(F.lit(1)).alias("n"))


def _totals(counted: DataFrame) -> list[DataFrame]:
    """Count the rows of each side, and the rows that differ."""
    sums = counted.agg(*(F.coalesce(F.sum(side), F.lit(0)).alias(side) for side in ("expected", "maintained")),
                       F.count_if(F.expr(DIFFERS)).alias("differing"))
    return [sums.select(F.explode(F.array(*(F.struct(F.lit(n).alias("what"), F.col(n).cast("bigint").alias("n"))
                                            for n in sums.columns))).alias("x")).select("x.what", "x.n")]


def _numbers(parts: Sequence[DataFrame]) -> dict[str, int]:
    """Compute all numbers by one Spark action."""
    return {r["what"]: int(r["n"]) for r in reduce(DataFrame.unionAll, parts).collect()}


def sample(spark: SparkSession, progress: Progress = ignore_progress, *, checkpoint: str, tables: Sequence[TableDef],
           views: Sequence[ViewDef], most: int) -> dict[str, list[tuple[Any, ...]]]:
    """Return up to `most` keys of each view from its recomputation.  The caller reads them to make them present."""
    base = SnapshotTables(spark, checkpoint, tables, views)
    known = [v for v in views if set(tables_of(v.plan)) <= set(base.definitions)]
    try:
        keys = base.each(lambda v: _some_keys(v, base, most), known, lambda v: f"keys of {v.name}", progress)
    finally:
        base.close()
    return {v.name: some for v, some in zip(known, keys, strict=True)}


def _some_keys(view: ViewDef, base: SnapshotTables, most: int) -> list[tuple[Any, ...]]:
    relation = lower.coded(view.plan, base.source(view, ()).tables(view))
    keys = _with_key(relation.rows, view).select(*(F.col(f"c{k}").alias(f"c{j}") for j, k in enumerate(view.key)))
    failing = frozenset(j for j, k in enumerate(view.key) if k in relation.failing)
    shown = lower.flagged(Relation(keys.distinct().limit(most), view.key_fields, failing)).collect()
    return [tuple(r[f"c{j}"] for j in range(len(view.key))) for r in shown if not any(r[f"e{j}"] for j in failing)]


def _state(source: ViewRowSource, m: MaintainedView) -> DataFrame:
    """Return the maintained rows in coded columns, with their weight."""
    fields = m.view.plan.fields
    if not m.rows:
        schema = coding.shown_schema(fields).add(WEIGHT, "bigint")
        return lower.unflagged(source.rows([], schema), fields).rows
    return lower.unflagged(source.parquet(m.rows), fields).rows


def _with_key(rows: DataFrame, view: ViewDef) -> DataFrame:
    """Return the rows that a lookup can find, with the twins k0, k1, … of their key columns."""
    fields = view.plan.fields
    twins = [equality_key(F.col(f"c{k}"), fields[k].type).alias(f"k{j}") for j, k in enumerate(view.key)]
    rows = rows.select("*", *twins)
    return rows.where(reduce(Column.__and__, [F.col(f"k{j}").isNotNull() for j in range(len(twins))])
                      ) if twins else rows


def _present(source: ViewRowSource, m: MaintainedView) -> DataFrame:
    """Return the distinct present keys in columns q0, q1, …, coded and folded."""
    view = m.view
    types = [f.type for f in view.key_fields]
    if not types:  # the one key () is present or not
        return source.rows([(1,)] if m.has_empty_key() else [], "q bigint")
    if not m.present:
        return source.rows([], ", ".join(
            f"q{j} {coding.coded_type(t).simpleString()}" for j, t in enumerate(types)))
    keys = source.parquet(m.present)
    return keys.select(*(equality_key(coding.to_code(F.col(f"k{j}"), t), t).alias(f"q{j}")
                         for j, t in enumerate(types))).distinct()


def _multiplicities(expected: DataFrame, maintained: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """Count each row on both sides: columns c<i>, expected, maintained."""
    names = [f"c{i}" for i in range(len(fields))]
    zero = F.lit(0).cast("bigint")
    both = expected.select(*names, F.lit(1).cast("bigint").alias("expected"), zero.alias("maintained")).unionAll(
        maintained.select(*names, zero.alias("expected"), F.col(WEIGHT).alias("maintained")))
    return both.groupBy(*names).agg(F.sum("expected").alias("expected"), F.sum("maintained").alias("maintained"))


def _near(x: Column, y: Column) -> Column:
    """Whether two doubles are both NULL, both errors, or equal up to the tolerance."""
    close = F.abs(x - y) <= F.lit(DOUBLE_TOLERANCE) * F.greatest(F.abs(x), F.abs(y), F.lit(1e-300))
    return F.coalesce(x.eqNullSafe(y) | close, F.lit(False))


def _beyond_rounding(differing: DataFrame, fields: tuple[Field, ...]) -> DataFrame:
    """Remove the differences that rounding explains.  It groups rows that agree in all other columns and pairs them in
    the order of their doubles.  If all pairs of a group are near, the group is removed."""
    doubles = [i for i, f in enumerate(fields) if f.type.kind is Kind.DOUBLE]
    exact = [f"c{i}" for i in range(len(fields)) if i not in doubles]
    surplus = F.col("expected") - F.col("maintained")
    numbers = F.struct(*(F.col(f"c{i}") for i in doubles))

    def side(sign: int) -> Column:
        times = F.when(surplus * sign > 0, surplus * sign).otherwise(0).cast("int")
        return F.sort_array(F.flatten(F.collect_list(F.array_repeat(numbers, times))))

    groups = differing.groupBy(*exact).agg(side(1).alias("_e"), side(-1).alias("_m"))

    def pair_near(x: Column, y: Column) -> Column:
        return reduce(Column.__and__, [_near(x[f"c{i}"], y[f"c{i}"]) for i in doubles])

    same = (F.size("_e") == F.size("_m")) & F.forall(
        F.zip_with("_e", "_m", lambda x, y: F.coalesce(pair_near(x, y), F.lit(False))), lambda b: b)
    bad = groups.where(~same).select(*(F.col(c).alias(f"b{c}") for c in exact))
    if not exact:
        return differing.join(bad, F.lit(True), "left_semi")
    return differing.join(bad, reduce(Column.__and__, [F.col(c).eqNullSafe(F.col(f"b{c}")) for c in exact]),
                          "left_semi")


def _examples(differing: DataFrame, fields: tuple[Field, ...], shown: int) -> tuple[RowDifference, ...]:
    every = Relation(differing, fields, frozenset(range(len(fields))))
    few = lower.flagged(every, F.col("expected"), F.col("maintained")).orderBy(
        *(f"c{i}" for i in range(len(fields)))).limit(shown).collect()
    return tuple(RowDifference(tuple("<error>" if r[f"e{i}"] else r[f"c{i}"] for i in range(len(fields))),
                               r["expected"], r["maintained"]) for r in few)
