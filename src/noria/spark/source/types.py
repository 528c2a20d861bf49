"""Translates SQL types to Spark's types and back.

    TINYINT SMALLINT INT BIGINT           byte short int long; UNSIGNED: the next larger one (BIGINT UNSIGNED: long)
    FLOAT DOUBLE DECIMAL(p,s)             float double decimal(p,s)
    CHAR VARCHAR TEXT ENUM SET JSON       string
    BINARY VARBINARY BLOB                 binary
    DATE DATETIME TIMESTAMP               date timestamp_ntz timestamp
    TIME                                  interval day to second
    YEAR                                  short

A Spark boolean is written as BOOL, which is a TINYINT in SQL and may hold 2; so it is read as a byte.  Spark's other
types (array, map, struct, …) have no SQL type here.  They are refused, and the error says what to do.

Keeps true: a value that is written and read again is unchanged, or its type is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from noria.core.limits import MAX_DECIMAL_DIGITS
from noria.spark.source.errors import UserError

_TYPE = re.compile(r"(\w+)(?:\(([^)]*)\))?( unsigned)?")
_SIGNED: dict[str, T.DataType] = {
    "tinyint": T.ByteType(), "smallint": T.ShortType(), "mediumint": T.IntegerType(), "int": T.IntegerType(),
    "bigint": T.LongType()}
_UNSIGNED: dict[str, T.DataType] = {
    "tinyint": T.ShortType(), "smallint": T.IntegerType(), "mediumint": T.IntegerType(), "int": T.LongType(),
    "bigint": T.LongType()}
_OTHERS: dict[str, T.DataType] = {
    "year": T.ShortType(), "float": T.FloatType(), "double": T.DoubleType(), "date": T.DateType(),
    "datetime": T.TimestampNTZType(), "timestamp": T.TimestampType(), "time": T.DayTimeIntervalType(),
    **dict.fromkeys("char varchar tinytext text mediumtext longtext json enum set".split(), T.StringType()),
    **dict.fromkeys("binary varbinary tinyblob blob mediumblob longblob".split(), T.BinaryType())}


class NoSuchType(UserError):
    """The other side lacks a column's type.  The message names the column and says what to do."""


def spark_type(sql: str, column: str) -> T.DataType:
    """Return Spark's type for a column of this SQL type.  Raises NoSuchType.

    >>> spark_type("int unsigned", "n").simpleString(), spark_type("decimal(9,2)", "n").simpleString()
    ('bigint', 'decimal(9,2)')
    """
    found = _TYPE.match(sql.lower())
    name, arguments, unsigned = found.groups() if found is not None else ("", None, None)
    if name == "decimal":
        precision, _, scale = (arguments or "10").partition(",")
        return T.DecimalType(int(precision), int(scale or 0))
    spark = (_UNSIGNED if unsigned else _SIGNED).get(name) or _OTHERS.get(name)
    if spark is None:
        raise NoSuchType(f"the column '{column}' has the SQL type {sql}, which Spark has no equal of: read a query "
                         f"that casts "
                         "it (option \"query\")")
    return spark


def schema_of(columns: Sequence[dict[str, Any]]) -> T.StructType:
    """Return Spark's schema.  columns: dictionaries with name, type and nullable."""
    return T.StructType([T.StructField(c["name"], spark_type(c["type"], c["name"]), c.get("nullable", True))
                         for c in columns])


_SQL: dict[type[T.DataType], str] = {
    T.BooleanType: "BOOL", T.ByteType: "TINYINT", T.ShortType: "SMALLINT", T.IntegerType: "INT", T.LongType: "BIGINT",
    T.FloatType: "FLOAT", T.DoubleType: "DOUBLE", T.StringType: "TEXT", T.BinaryType: "LONGBLOB", T.DateType: "DATE",
    T.TimestampType: "TIMESTAMP(6)", T.TimestampNTZType: "DATETIME(6)", T.DayTimeIntervalType: "TIME(6)"}
KEY_CHARACTERS = 255  # of a text column that is part of a key


def sql_type(field: T.StructField, is_key: bool = False) -> str:
    """Return the SQL type of a new table's column for a Spark column.  Raises NoSuchType."""
    kind = field.dataType
    if isinstance(kind, T.DecimalType):
        if kind.precision > MAX_DECIMAL_DIGITS:
            most, scale = MAX_DECIMAL_DIGITS, min(kind.scale, MAX_DECIMAL_DIGITS)
            raise NoSuchType(f"the column '{field.name}' is {kind.simpleString()}, and a DECIMAL has at most {most} "
                             f"digits here: cast it to decimal({most},{scale}) or double")
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, T.VarcharType | T.CharType):
        return f"VARCHAR({kind.length})"
    found = _SQL.get(type(kind))
    if found is None:
        raise NoSuchType(f"the column '{field.name}' is {kind.simpleString()}, which no column can be here: select "
                         f"its parts, "
                         "or turn it into a text with to_json or CAST … AS STRING")
    return f"VARCHAR({KEY_CHARACTERS})" if is_key and found == "TEXT" else found


def check_written(schema: T.StructType) -> None:
    """Raise NoSuchType for the first column that cannot be sent.  Any DECIMAL passes, as its values may fit."""
    for field in schema.fields:
        if not isinstance(field.dataType, T.DecimalType):
            sql_type(field)


# ------------------------------------------------------------------ Arrow
def arrow_schema(schema: T.StructType) -> pa.Schema:
    """Return the Arrow schema of the batches that Spark expects."""
    return to_arrow_schema(schema, timezone="UTC")


def as_spark(columns: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch of the server's columns, with the types that Spark expects."""
    cast = [c if c.type == f.type else c.cast(f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=schema)


def as_sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch of Spark's for the server: timestamps are in UTC, and intervals are texts."""
    return pa.RecordBatch.from_arrays([_sent(c) for c in batch.columns], names=batch.schema.names)


def _sent(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    if pa.types.is_duration(kind):
        return _clock(column.cast(pa.duration("us")).cast(pa.int64()))
    return column


def _clock(micros: pa.Array) -> pa.Array:
    """Format microseconds as [-]HHH:MM:SS.ffffff."""
    size, sign = pc.abs(micros), pc.if_else(pc.less(micros, 0), "-", "")

    def part(unit: int, of: int | None, digits: int) -> pa.Array:
        quotient = pc.divide(size, unit)
        left = quotient if of is None else pc.subtract(quotient, pc.multiply(pc.divide(quotient, of), of))
        return pc.utf8_lpad(left.cast(pa.string()), digits, "0")

    hours, minutes = part(3_600_000_000, None, 2), part(60_000_000, 60, 2)
    seconds, fraction = part(1_000_000, 60, 2), part(1, 1_000_000, 6)
    clock = pc.binary_join_element_wise(hours, minutes, seconds, ":")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(sign, clock, ""), fraction, ".")
