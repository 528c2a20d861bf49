"""Translates aggregate functions into Spark columns, over a group or a window.

`over` wraps each Spark aggregate: `of_group` leaves it unchanged, a window adds its frame.  Keeps true: a result is
exact where the kernels' is (SUM in two limbs, AVG rounded half away from zero).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyspark.sql.functions as F
from pyspark.sql import Column

from noria.core.types import Field, Kind, SqlType
from noria.plan.mir import Agg
from noria.spark.lowering import coding
from noria.spark.lowering.coding import WIDE, error_literal, is_error, narrowed

Over = Callable[[Column], Column]


def of_group(column: Column) -> Column:
    return column


def needs_order(a: Agg, fields: tuple[Field, ...]) -> bool:
    return a.function in ("min", "max") and a.column is not None and fields[a.column].type.folds


def aggregated(a: Agg, fields: tuple[Field, ...], failing: frozenset[int], order: Mapping[int, Column],
               over: Over = of_group) -> Column:
    """Return the aggregate's coded result.  An error among the values makes SUM and AVG an error, and COUNT counts it.
    For MIN and MAX an error is less than every value.  `failing`: the columns that can hold errors.  `order`: for MIN
    and MAX of CI text, the folded twin of the column."""
    if a.column is None:
        return over(F.count(F.lit(1)))
    column, t = F.col(f"c{a.column}"), fields[a.column].type
    value = column
    if needs_order(a, fields):  # compare the folded text, then the bytes of its spellings
        value = F.when(column.isNotNull(), F.struct(order[a.column].alias("f"), column.alias("t")))
    result = _text_of(AGGREGATES[a.function](value, t, a.type, over), value is not column)
    if a.column not in failing or a.function == "count":
        return result
    error = is_error(column, t)
    if a.function == "max":
        valid = _text_of(over(F.max(F.when(~error, value))), value is not column)
        return F.coalesce(valid, F.when(over(F.bool_or(error)), error_literal(a.type)))
    return F.when(over(F.bool_or(error)), error_literal(a.type)).otherwise(result)


def _text_of(result: Column, paired: bool) -> Column:
    return result["t"] if paired else result


def _exact_sum(column: Column, over: Over) -> Column:
    """Return the SUM of bigint codes as decimal(38,0).  It adds two limbs, which 2**31 rows cannot overflow."""
    high, low = over(F.sum(F.shiftright(column, 32))), over(F.sum(column.bitwiseAND(F.lit(0xFFFFFFFF))))
    return (high.cast("decimal(20,0)") * F.lit(2**32).cast("decimal(10,0)") + low.cast("decimal(20,0)")).cast(WIDE)


def _finite(column: Column) -> Column:
    """Turn an infinite double result into an error (NaN)."""
    return F.when(F.abs(column) == F.lit(float("inf")), F.lit(float("nan"))).otherwise(column)


def _sum(column: Column, t: SqlType, result: SqlType, over: Over) -> Column:
    return _finite(over(F.sum(column))) if t.kind is Kind.DOUBLE else narrowed(_exact_sum(column, over))


def _avg(column: Column, t: SqlType, result: SqlType, over: Over) -> Column:
    if t.kind is Kind.DOUBLE:
        return _finite(over(F.sum(column)) / over(F.count(column)))
    scaled = (_exact_sum(column, over) * F.lit(10 ** (result.scale - t.scale)).cast("decimal(19,0)")).cast(WIDE)
    return narrowed(coding.divided_half_away(scaled, over(F.count(column)).cast("decimal(19,0)")))


def _variance(column: Column, t: SqlType, result: SqlType, over: Over) -> Column:
    """Return the population variance: exact up to the last division where the sum of squares fits decimal(38,0).

    Otherwise, and for doubles, Spark's recurrence loses about as many digits as the mean has above the deviation.
    """
    moments = over(F.var_pop(_double(column)))
    if t.kind is Kind.DOUBLE:
        return _finite(moments)
    wide, n = column.cast("decimal(19,0)"), over(F.count(column)).cast("decimal(19,0)")
    squares, total = over(F.try_sum(wide * wide)), _exact_sum(column, over)
    numerator = F.try_subtract(F.try_multiply(squares, n).cast(WIDE), F.try_multiply(total, total).cast(WIDE))
    exact = F.try_divide(_double(numerator), _double(n) * _double(n) * F.lit(float(10 ** (2 * t.scale))))
    return F.coalesce(exact, moments / F.lit(float(10 ** (2 * t.scale))))


def _double(column: Column) -> Column:
    return column.cast("double")


def _bits(combined: Callable[[Column], Column], of_nothing: int
          ) -> Callable[[Column, SqlType, SqlType, Over], Column]:
    """Return the lowering of an aggregate of bits.  A result of 2**63 or more is an error."""
    def lowered(column: Column, t: SqlType, result: SqlType, over: Over) -> Column:
        found = F.coalesce(over(combined(column)), F.lit(of_nothing).cast("bigint"))
        return F.when(found < 0, error_literal(result)).otherwise(found)
    return lowered


AGGREGATES: dict[str, Callable[[Column, SqlType, SqlType, Over], Column]] = {
    "count": lambda column, t, result, over: over(F.count(column)),
    "sum": _sum,
    "avg": _avg,
    "min": lambda column, t, result, over: over(F.min(column)),
    "max": lambda column, t, result, over: over(F.max(column)),
    "variance": _variance,
    "bit_and": _bits(F.bit_and, -1),
    "bit_or": _bits(F.bit_or, 0),
    "bit_xor": _bits(F.bit_xor, 0),
}
