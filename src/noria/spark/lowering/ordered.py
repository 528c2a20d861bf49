"""Translates operators over ordered groups to Spark: window functions, GROUP_CONCAT and top-k.

The order is that of `core/ranking.py`.  NULL is least, then an error, then the values; text compares by its collation.
Ties are broken by all columns in turn, ascending, each followed by the bytes of its text.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyspark.sql.functions as F
from pyspark.sql import Column, DataFrame, WindowSpec
from pyspark.sql import Window as Frame

from noria.core.expressions.coerce import MAX_TEXT_BYTES
from noria.core.ranking import Order
from noria.core.types import Kind
from noria.plan import calls
from noria.plan.mir import CARRYING, PICKING, RANKING, Agg, GroupConcat, Over, TopK, Window
from noria.spark.lowering import expressions
from noria.spark.lowering.aggregates import aggregated
from noria.spark.lowering.coding import error_literal, is_error
from noria.spark.lowering.relation import Go, Relation, Tables


class _Groups:
    """A relation's rows, grouped and ordered.  Each column c<i> has a twin e<i> with the values that `=` compares."""

    def __init__(self, source: Relation, group: Sequence[int], order: Order):
        self.source, self.group, self.order = source, group, order
        width = len(source.fields)
        twins = [expressions.equality_key(F.col(f"c{i}"), f.type).alias(f"e{i}") for i, f in enumerate(source.fields)]
        self.rows: DataFrame = source.rows.select(*(f"c{i}" for i in range(width)), *twins)
        self._by = [F.col(f"e{i}") for i in group] or [F.lit(1)]

    def ordered(self) -> list[Column]:
        """Return the sort columns of the ORDER BY."""
        return [x for c, descending in self.order for x in self._directed(c, descending)]

    def total(self) -> list[Column]:
        """Return the sort columns of the ORDER BY, then all columns, each with the bytes of its text."""
        out = self.ordered()
        for i, f in enumerate(self.source.fields):
            out += self._directed(i, False)
            out += [F.col(f"c{i}").asc()] if f.type.folds else []
        return out

    def _directed(self, column: int, descending: bool) -> list[Column]:
        key, t = F.col(f"e{column}"), self.source.fields[column].type
        keys = [key.isNotNull(), ~is_error(F.col(f"c{column}"), t)] if column in self.source.failing else []
        return [k.desc_nulls_last() if descending else k.asc_nulls_first() for k in [*keys, key]]

    def window(self, order: Sequence[Column]) -> WindowSpec:
        w = Frame.partitionBy(*self._by)
        return w.orderBy(*order) if order else w


def window(node: Window, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    groups = _Groups(source, node.partition, node.order)
    rows = groups.rows.withColumn("rn", F.row_number().over(groups.window(groups.total())))
    width = len(source.fields)
    out = [_over(c, groups).alias(f"c{width + i}") for i, c in enumerate(node.calls)]
    failing = {width + i for i, c in enumerate(node.calls) if c.function in CARRYING
               or (c.column in source.failing and c.function in (*PICKING, "min", "max"))}
    return Relation(rows.select(*(f"c{i}" for i in range(width)), *out), node.fields, source.failing | failing)


def _over(call: Over, groups: _Groups) -> Column:
    if call.function == "row_number":
        return F.col("rn").cast("bigint")
    peers = groups.window(groups.ordered() or [F.lit(1)])
    each_row = groups.window([F.col("rn")])
    if call.function == "ntile":
        return F.ntile(min(call.by, _MOST)).over(each_row).cast("bigint")
    if call.function in RANKING:
        ranked = _RANKS[call.function]().over(peers)
        return ranked if call.type.kind is Kind.DOUBLE else ranked.cast("bigint")
    frame = _frame(call.frame, groups, peers, each_row)
    if call.column is None or call.function not in PICKING:
        fields, failing = groups.source.fields, groups.source.failing
        twins = {i: F.col(f"e{i}") for i in range(len(fields))}
        return aggregated(Agg(call.function, call.column, call.type), fields, failing, twins, lambda c: c.over(frame))
    value = F.col(f"c{call.column}")
    if call.function in ("lag", "lead"):
        return (F.lag if call.function == "lag" else F.lead)(value, call.by).over(each_row)
    place = F.struct(F.col("rn"), value.alias("v"))
    if call.function == "nth_value":
        return _nth(place, min(call.by, _MOST), call.frame, frame, each_row)
    chosen = F.min(place) if call.function == "first_value" else F.max(place)
    return chosen.over(frame)["v"]


def _nth(place: Column, by: int, frame: calls.Frame, window: WindowSpec, each_row: WindowSpec) -> Column:
    """The value of a frame's row `by`, from (row number, value) of each row."""
    if frame.rows and (frame.start is not None or frame.end is not None):
        return F.nth_value(place, by).over(window)["v"]
    if frame.start is None:
        found = F.nth_value(place, by).over(each_row.rowsBetween(Frame.unboundedPreceding, Frame.unboundedFollowing))
        return F.when(F.max(place["rn"]).over(window) >= by, found["v"])
    return F.get(F.array_sort(F.collect_list(place).over(window)), F.lit(by - 1))["v"]


_MOST = 2**31 - 1  # the greatest number that Spark's functions take
_RANKS = {"rank": F.rank, "dense_rank": F.dense_rank, "percent_rank": F.percent_rank, "cume_dist": F.cume_dist}


def _frame(frame: calls.Frame, groups: _Groups, peers: WindowSpec, each_row: WindowSpec) -> WindowSpec:
    first, last = Frame.unboundedPreceding, Frame.unboundedFollowing
    if frame.rows and (frame.start, frame.end) == (None, None):
        return groups.window([]).rowsBetween(first, last)
    start = first if frame.start is None else max(min(frame.start, _MOST), -_MOST)
    end = last if frame.end is None else max(min(frame.end, _MOST), -_MOST)
    return each_row.rowsBetween(start, end) if frame.rows else peers.rangeBetween(start, end)


def group_concat(node: GroupConcat, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    t = source.fields[node.column].type
    groups = _Groups(source, node.group, (*node.order, (node.column, False)))
    text = F.col(f"c{node.column}")
    rows = groups.rows.withColumn("rn", F.row_number().over(groups.window(groups.total())))
    kept = text.isNotNull()
    if node.distinct:
        same = Frame.partitionBy(*(F.col(f"e{i}") for i in (*node.group, *node.distinct)))
        rows = rows.withColumn("first", F.min(F.when(text.isNotNull(), F.col("rn"))).over(same))
        kept = kept & (F.col("rn") == F.col("first"))
    texts = F.array_sort(F.collect_list(F.when(kept, F.struct(F.col("rn"), text.alias("t")))))
    joined = F.array_join(F.transform(texts, lambda x: x["t"]), node.separator)
    joined = F.when(F.size(texts) > 0, joined)
    wrong = (F.octet_length(joined) > MAX_TEXT_BYTES)
    if node.column in source.failing:
        wrong = F.coalesce(F.bool_or(is_error(text, t)), F.lit(False)) | F.coalesce(wrong, F.lit(False))
    joined = F.when(wrong, error_literal(t)).otherwise(joined)
    shown = [F.min(F.col(f"c{i}")) if source.fields[i].type.folds else F.first(F.col(f"c{i}")) for i in node.group]
    by = [F.col(f"e{i}") for i in node.group]
    out = rows.groupBy(*by).agg(*(c.alias(f"g{j}") for j, c in enumerate(shown)), joined.alias("joined"))
    columns = [*(F.col(f"g{j}").alias(f"c{j}") for j in range(len(shown))), F.col("joined").alias(f"c{len(shown)}")]
    failing = {j for j, i in enumerate(node.group) if i in source.failing} | {len(shown)}
    return Relation(out.select(*columns), node.fields, frozenset(failing))


def top(node: TopK, go: Go, tables: Tables) -> Relation:
    source = go(node.input)
    groups = _Groups(source, node.group, node.order)
    width = len(source.fields)
    if node.group:
        rows = groups.rows.withColumn("rn", F.row_number().over(groups.window(groups.total())))
        rows = rows.where((F.col("rn") > node.offset) & (F.col("rn") <= node.offset + node.limit))
    else:  # no window: it would send all rows to one task
        rows = groups.rows.orderBy(*groups.total())
        rows = (rows.offset(node.offset) if node.offset else rows).limit(node.limit)
    return Relation(rows.select(*(f"c{i}" for i in range(width))), node.fields, source.failing)
