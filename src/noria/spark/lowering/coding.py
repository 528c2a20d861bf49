"""Maps SQL types to Spark types, in two forms, and converts columns between them.

*Shown* columns have Spark's own types (bigint, double, decimal, string, binary, date, timestamp_ntz, interval).
*Coded* columns have the kernels' codes.  These are bigint for integers, unscaled decimals, dates and datetimes
(microseconds), times, ENUM (place) and SET (mask).  A double is a double, a text a string, and bytes are the string
that carries them (`core/values.py`).  NULL is Spark's NULL.  As in the kernels, an evaluation error is a value of the
column (`ERROR_CODE`, NaN, `ERROR_TEXT`).  So it passes through joins, groups and unions without a second column.

Keeps true: `to_code` and `to_shown` are inverse for every value that is no error.  The session's time zone is UTC
(`require_utc` checks this), because Spark's timestamp functions use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

import pyspark.sql.functions as F
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T

from noria.core.limits import ERROR_CODE, MAX_DECIMAL_DIGITS, MAX_INT, MIN_INT
from noria.core.types import Field, Kind, SqlType

ERROR_TEXT = "\ufdd0noria: evaluation error\ufdd1"  # has Unicode noncharacters, which no client's text has
DAY_US = 86_400_000_000
WIDE = "decimal(38,0)"  # holds every product of two codes, and every sum of 2**31 codes
SPARK_DIGITS = 38  # of a decimal
RESULT_DIGITS = 19  # a computed code can need as many: 2**63 has 19 digits


def require_utc(spark: SparkSession) -> None:
    """Raise ValueError unless the session's time zone is UTC: in another one, dates would shift."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in ("UTC", "Etc/UTC", "Z", "+00:00"):
        raise ValueError(f"the Spark session's time zone is {zone}; set spark.sql.session.timeZone to UTC")


def shown_type(t: SqlType, computed: bool = False) -> T.DataType:
    """Return Spark's type of a shown column.  A computed decimal has all digits that a code can have."""
    if t.kind is Kind.DECIMAL:
        return T.DecimalType(RESULT_DIGITS if computed else min(max(t.precision, 1), SPARK_DIGITS), t.scale)
    if t.is_bytes:
        return T.BinaryType()
    return {
        Kind.INT: T.LongType(), Kind.DOUBLE: T.DoubleType(), Kind.TEXT: T.StringType(),
        Kind.DATE: T.DateType(), Kind.DATETIME: T.TimestampNTZType(), Kind.TIME: T.DayTimeIntervalType(),
        Kind.ENUM: T.StringType(), Kind.SET: T.StringType(),
    }[t.kind]


def coded_type(t: SqlType) -> T.DataType:
    return {Kind.DOUBLE: T.DoubleType(), Kind.TEXT: T.StringType()}.get(t.kind, T.LongType())


def shown_schema(fields: Sequence[Field]) -> T.StructType:
    """Return the schema of shown columns c0, c1, …: columns are known by position, not by name."""
    return T.StructType([T.StructField(f"c{i}", shown_type(f.type), True) for i, f in enumerate(fields)])


def to_code(column: Column, t: SqlType) -> Column:
    """Convert a shown column to its codes."""
    if t.kind is Kind.DECIMAL:
        return (column.cast(T.DecimalType(RESULT_DIGITS, t.scale)) * F.lit(10**t.scale).cast("decimal(19,0)")
                ).cast("bigint")
    if t.kind is Kind.DATE:
        return F.unix_date(column).cast("bigint") * F.lit(DAY_US)
    if t.kind is Kind.DATETIME:
        return F.unix_micros(column.cast("timestamp"))
    if t.kind is Kind.DOUBLE:
        return column + F.lit(0.0)  # -0.0 becomes 0.0
    if t.kind is Kind.TIME:
        return _micros_of(column)
    if t.is_bytes:
        return F.decode(column, "ISO-8859-1")
    if t.kind is Kind.ENUM:
        places = F.array_position(F.array(*map(F.lit, t.members)), column)
        return places.cast("bigint")
    if t.kind is Kind.SET:
        return _mask_of(column, t)
    return column.cast(coded_type(t))


def _micros_of(column: Column) -> Column:
    """Convert a day-time interval to microseconds."""
    return F.extract(F.lit("SECOND"), column).cast("decimal(20,6)").cast("decimal(38,6)").__mul__(
        F.lit(10**6)).cast("bigint") + (
        F.extract(F.lit("DAY"), column).cast("bigint") * 86_400 + F.extract(F.lit("HOUR"), column).cast("bigint") * 3600
        + F.extract(F.lit("MINUTE"), column).cast("bigint") * 60) * F.lit(10**6)


def _mask_of(column: Column, t: SqlType) -> Column:
    """Convert a SET's text (members, separated by commas) to its mask."""
    chosen = F.split(column, ",")
    bits = [F.when(F.array_contains(chosen, m), F.lit(1 << i)).otherwise(F.lit(0)) for i, m in enumerate(t.members)]
    mask = bits[0].cast("bigint")
    for bit in bits[1:]:
        mask = mask + bit.cast("bigint")
    return F.when(column.isNotNull(), mask)


def to_shown(column: Column, t: SqlType) -> Column:
    """Convert a coded column without errors to Spark's own type."""
    if t.kind is Kind.DECIMAL:
        unit = F.lit(f"{Decimal(1).scaleb(-t.scale):f}").cast(T.DecimalType(t.scale or 1, t.scale))
        return (column.cast("decimal(19,0)") * unit).cast(T.DecimalType(RESULT_DIGITS, t.scale))
    if t.kind is Kind.DATE:
        return F.date_from_unix_date((column / F.lit(DAY_US)).cast("int"))
    if t.kind is Kind.DATETIME:
        return F.timestamp_micros(column).cast("timestamp_ntz")
    if t.kind is Kind.TIME:
        return F.make_dt_interval(secs=(column.cast("decimal(19,0)") * F.lit("0.000001").cast("decimal(7,6)"))
                                  .cast("decimal(18,6)"))
    if t.is_bytes:
        return F.encode(column, "ISO-8859-1")
    return listed_text(column, t) if t.is_listed else column


def listed_text(column: Column, t: SqlType) -> Column:
    """Convert an ENUM's place to its member, a SET's mask to its members, separated by commas."""
    members = F.array(*map(F.lit, t.members))
    if t.kind is Kind.ENUM:
        return F.when(column == 0, F.lit("")).otherwise(F.try_element_at(members, column.cast("int")))
    chosen = [F.when((F.shiftright(column, i)).bitwiseAND(F.lit(1)) == 1, F.lit(m)) for i, m in enumerate(t.members)]
    return F.when(column.isNotNull(), F.concat_ws(",", *chosen))


def error_literal(t: SqlType) -> Column:
    """Return the coded value of a failed evaluation."""
    if t.kind is Kind.TEXT:
        return F.lit(ERROR_TEXT)
    if t.kind is Kind.DOUBLE:
        return F.lit(float("nan"))
    return F.lit(ERROR_CODE)


def is_error(column: Column, t: SqlType) -> Column:
    """Return a boolean column: true where the coded value is an error.  It is never NULL."""
    if t.kind is Kind.DOUBLE:
        return F.coalesce(F.isnan(column), F.lit(False))
    return F.coalesce(column == error_literal(t), F.lit(False))


def code_bounds(t: SqlType) -> tuple[int, int]:
    """Return the least and the greatest code of an exact number type (INT or DECIMAL)."""
    if t.kind is Kind.DECIMAL:
        most = MAX_INT if t.precision >= MAX_DECIMAL_DIGITS else 10**t.precision - 1
        least = max(-most, MIN_INT)
    else:
        most, least = min(2 ** (t.bits - (not t.unsigned)) - 1, MAX_INT), max(-(2 ** (t.bits - 1)), MIN_INT)
    return (0 if t.unsigned else least), most


def narrowed(wide: Column) -> Column:
    """Convert a decimal(38,0) result to a code.  A number beyond the codes becomes an error; NULL stays NULL."""
    fits = (wide >= F.lit(MIN_INT).cast(WIDE)) & (wide <= F.lit(MAX_INT).cast(WIDE))
    return F.when(fits, wide.cast("bigint")).when(wide.isNotNull(), F.lit(ERROR_CODE))


def divided_half_away(numerator: Column, denominator: Column) -> Column:
    """Divide two decimal(38,0) exactly and round half away from zero.  The result is NULL if the denominator is zero or
    either argument is NULL.  A quotient beyond decimal(38,0) is replaced by 10**31, which is beyond all codes, too."""
    n, d = F.abs(numerator), F.abs(denominator)
    twice, divisor = (n * 2 + d).cast(WIDE), (d * 2).cast(WIDE)
    divisor = F.when(divisor != 0, divisor)
    exact = F.try_divide((twice - twice % divisor).cast(WIDE), divisor).cast(WIDE)
    beyond = F.when(divisor.isNotNull() & numerator.isNotNull(), F.lit(str(10**31)).cast(WIDE))
    magnitude = F.coalesce(exact, beyond)
    return F.when((numerator < 0) != (denominator < 0), (-magnitude).cast(WIDE)).otherwise(magnitude)
