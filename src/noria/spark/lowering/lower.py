"""Translates a plan (MIR) into a Spark DataFrame (design/decisions.md, 2: one plan, two lowerings).

`noria verify` compares views with this DataFrame.  It also answers queries without a view, and computes the first
states of full nodes.  Call `dataframe`.

Keeps true: LOWERINGS-AGREE.  Every relation has coded columns c0, c1, … (`coding.py`).  So duplicate names and
evaluation errors need no special case.  CI text is compared by its folded twin and shown as it was spelled.

    dataframe(Join(L, R, on)) = dataframe(L) ⋈ dataframe(R), and so on for every node: a homomorphism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, SparkSession

from noria.core.expressions.expr import Const
from noria.core.types import Field
from noria.core.values import evaluation_error
from noria.plan.batch_nodes import Limit, Sort
from noria.plan.constant_row import GivenRows, Nothing
from noria.plan.mir import (
    CARRYING,
    Aggregate,
    Base,
    Distinct,
    Filter,
    GroupConcat,
    Join,
    Mir,
    Project,
    Repeat,
    TopK,
    UnionAll,
    Window,
)
from noria.spark.lowering import coding, expressions, ordered
from noria.spark.lowering.aggregates import aggregated, needs_order
from noria.spark.lowering.coding import error_literal, is_error
from noria.spark.lowering.relation import Go, Relation, Tables, keyed


def dataframe(plan: Mir, tables: Tables) -> DataFrame:
    """Return the plan's rows in shown columns c0, c1, …  Reading a row with an evaluation error raises the error.

    tables: the base tables' rows in shown columns, matched by position; their names do not matter.  Raises ValueError
    if a table or one of its columns is missing, or the session's time zone is not UTC.
    """
    return shown(coded(plan, tables))


def shown(relation: Relation) -> DataFrame:
    """Convert coded columns to Spark's types.  Reading an evaluation error raises it with MySQL's code and text."""
    columns = []
    for i, f in enumerate(relation.fields):
        column = relation.column(i)
        if i in relation.failing:
            error = evaluation_error(f.type)
            raised = F.raise_error(F.lit(f"{error.code} ({error.state}): {error.message} in '{f.name}'"))
            column = F.when(is_error(column, f.type), raised.cast(coding.coded_type(f.type))).otherwise(column)
        columns.append(coding.to_shown(column, f.type).alias(f"c{i}"))
    return relation.rows.select(*columns)


def flagged(relation: Relation, *more: Column) -> DataFrame:
    """Convert coded columns to Spark's types, and mark errors, so that files can store rows with errors.

    Each column i that can hold an error gets a boolean column e<i>.  If e<i> is true, the value is an error and c<i> is
    NULL.  more: further columns to select.
    """
    columns, flags = [], []
    for i, f in enumerate(relation.fields):
        column = relation.column(i)
        if i in relation.failing:
            flags.append(is_error(column, f.type).alias(f"e{i}"))
            column = F.when(~is_error(column, f.type), column)
        columns.append(coding.to_shown(column, f.type).alias(f"c{i}"))
    return relation.rows.select(*columns, *flags, *more)


def unflagged(rows: DataFrame, fields: tuple[Field, ...]) -> Relation:
    """Convert the rows of files to coded columns: the inverse of `flagged`.  All other columns are kept."""
    columns, names = [], set(rows.columns)
    failing = frozenset(i for i in range(len(fields)) if f"e{i}" in names)
    for i, f in enumerate(fields):
        column = coding.to_code(F.col(f"c{i}"), f.type)
        if i in failing:
            column = F.when(F.col(f"e{i}"), error_literal(f.type)).otherwise(column)
        columns.append(column.alias(f"c{i}"))
    own = {f"{p}{i}" for i in range(len(fields)) for p in "ce"}
    return Relation(rows.select(*columns, *(F.col(n) for n in rows.columns if n not in own)), fields, failing)


def coded(plan: Mir, tables: Tables) -> Relation:
    """Return the plan's rows in coded columns.  Equal nodes of the plan are lowered once.

    Raises ValueError for a node that has no lowering here.
    """
    memo: dict[Mir, Relation] = {}

    def go(node: Mir) -> Relation:
        if node not in memo:
            lowering = LOWERINGS.get(type(node))
            if lowering is None:
                raise ValueError(f"no Spark lowering for a plan node of type {type(node).__name__}: {node}")
            memo[node] = lowering(node, go, tables)
        return memo[node]

    return go(plan)


def _base(node: Base, go: Go, tables: Tables) -> Relation:
    name = node.table.name
    if name not in tables:
        raise ValueError(f"the plan reads table {name}, which the snapshot does not hold: {', '.join(sorted(tables))}")
    rows, fields = tables[name], node.fields
    if len(rows.columns) < len(fields):
        raise ValueError(f"table {name} has {len(fields)} columns, its rows have {len(rows.columns)}")
    coding.require_utc(rows.sparkSession)
    rows = rows.toDF(*(f"c{i}" for i in range(len(rows.columns))))  # may include columns that were added later
    return Relation(rows.select(*(coding.to_code(F.col(f"c{i}"), f.type).alias(f"c{i}")
                                  for i, f in enumerate(fields))), fields)


def _nothing(node: Nothing, go: Go, tables: Tables) -> Relation:
    rows = SparkSession.active().range(0).select(F.col("id").alias("c0"))
    return Relation(rows, node.fields)


def _given(node: GivenRows, go: Go, tables: Tables) -> Relation:
    """One array of structures, which is exploded."""
    rows = node.rows or ((None,) * node.width,)
    structures = [F.struct(*(expressions.lower(Const(f.type, True, v), []).column.alias(f"c{i}")
                             for i, (f, v) in enumerate(zip(node.fields, row, strict=True)))) for row in rows]
    found = SparkSession.active().range(1).select(F.explode(F.array(*structures)).alias("row")).select("row.*")
    return Relation(found if node.rows else found.where(F.lit(False)), node.fields)


def _filter(node: Filter, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    condition = expressions.condition(expressions.lower(node.predicate, source.values()))
    return Relation(source.rows.where(condition), source.fields, source.failing)


def _project(node: Project, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    values = [expressions.lower(e, source.values()) for e in node.exprs]
    rows = source.rows.select(*(v.column.alias(f"c{i}") for i, v in enumerate(values)))
    return Relation(rows, node.fields, frozenset(i for i, v in enumerate(values) if v.fails))


def _join(node: Join, go: Go, tables: Tables) -> Relation:
    left, right = go(node.left), go(node.right)
    a = keyed(left.rows, "l", left.fields, tuple(x for x, _ in node.on))
    b = keyed(right.rows, "r", right.fields, tuple(y for _, y in node.on))
    width = len(left.fields)
    terms = [F.col(f"lk{j}").eqNullSafe(F.col(f"rk{j}")) if j in node.null_safe else F.col(f"lk{j}") == F.col(f"rk{j}")
             for j in range(len(node.on))]  # NULL keys match nothing
    if node.residual is not None:
        values = [replace(v, column=F.col(f"{side}{i}")) for side, r in (("l", left), ("r", right))
                  for i, v in enumerate(r.values())]
        terms.append(expressions.condition(expressions.lower(node.residual, values)))
    joined = a.join(b, reduce(Column.__and__, terms), "left" if node.outer else "inner")
    rows = joined.select(*(F.col(f"l{i}").alias(f"c{i}") for i in range(width)),
                         *(F.col(f"r{i}").alias(f"c{i + width}") for i in range(len(right.fields))))
    return Relation(rows, node.fields, left.failing | {i + width for i in right.failing})


def _aggregate(node: Aggregate, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    fields = source.fields
    ordered = tuple(a.column for a in node.aggs if a.column is not None and needs_order(a, fields))
    rows = keyed(source.rows, "c", fields, (*node.group, *ordered))
    order = {c: F.col(f"ck{len(node.group) + j}") for j, c in enumerate(ordered)}
    out: list[Column] = []
    for j, k in enumerate(node.group):
        if fields[k].type.folds:  # the group shows its byte-least spelling
            out.append(F.min(F.col(f"c{k}")).alias(f"g{j}"))
    out += [aggregated(a, fields, source.failing, order).alias(f"a{j}") for j, a in enumerate(node.aggs)]
    by = [F.col(f"ck{j}") for j in range(len(node.group))]
    grouped = rows.groupBy(*by).agg(*out) if out else rows.select(*by).distinct()
    width = len(node.group)
    shown = [f"g{j}" if fields[k].type.folds else f"ck{j}" for j, k in enumerate(node.group)]
    final = [F.col(name).alias(f"c{j}") for j, name in enumerate(shown)]
    final += [F.col(f"a{j}").alias(f"c{j + width}") for j in range(len(node.aggs))]
    failing = {j for j, k in enumerate(node.group) if k in source.failing}
    failing |= {j + width for j, a in enumerate(node.aggs) if a.function in CARRYING
                or (a.function in ("min", "max") and a.column in source.failing)}
    return Relation(grouped.select(*final), node.fields, frozenset(failing))


def _repeat(node: Repeat, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    times = source.column(node.count)
    if node.count in source.failing:
        times = F.when(~is_error(times, source.fields[node.count].type), times)
    rows = source.rows.where(times > 0).withColumn("again", F.explode(F.sequence(F.lit(1).cast("bigint"), times)))
    return Relation(rows.drop("again"), source.fields, source.failing)


def _distinct(node: Distinct, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    everything = Aggregate(node.input, tuple(range(node.width)), (), ())
    return Relation(_aggregate(everything, go, tables).rows, node.fields, source.failing)


def _union_all(node: UnionAll, go: Go, tables: Tables) -> Relation:
    left, right = go(node.left), go(node.right)
    return Relation(left.rows.unionAll(right.rows), node.fields, left.failing | right.failing)


# ------------------------------------------------------------------ nodes that only Spark runs
def _sort(node: Sort, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    width = len(source.fields)
    rows = keyed(source.rows, "c", source.fields, tuple(c for c, _ in node.order))
    order = [F.col(f"ck{j}").desc_nulls_last() if descending else F.col(f"ck{j}").asc_nulls_first()
             for j, (_, descending) in enumerate(node.order)]
    ordered = rows.orderBy(*order).select(*(f"c{i}" for i in range(width)))
    return Relation(ordered, source.fields, source.failing)


def _limit(node: Limit, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    rows = source.rows.offset(node.offset) if node.offset else source.rows
    rows = rows if node.limit is None else rows.limit(node.limit)
    return Relation(rows, source.fields, source.failing)


LOWERINGS: dict[type[Mir], Callable[[Any, Go, Tables], Relation]] = {
    Base: _base, Nothing: _nothing, GivenRows: _given, Filter: _filter, Project: _project, Join: _join,
    Aggregate: _aggregate, Distinct: _distinct, UnionAll: _union_all, Repeat: _repeat, Sort: _sort, Limit: _limit,
    Window: ordered.window, GroupConcat: ordered.group_concat, TopK: ordered.top,
}
