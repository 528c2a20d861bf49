"""SQL types and Spark's: every one of docs/sql.md has an equal, and what has none says what to do."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from noria.spark.source.conditions import bounds, kept, parsed
from noria.spark.source.types import NoSuchType, as_sent, schema_of, spark_type, sql_type
from noria.spark.source.writer import created


def test_what_has_no_equal_says_what_to_do() -> None:
    with pytest.raises(NoSuchType, match=r"'g' has the SQL type geometry.*query"):
        spark_type("geometry", "g")
    for kind in (T.ArrayType(T.LongType()), T.MapType(T.StringType(), T.LongType()), T.StructType([]), T.VariantType(),
                 T.YearMonthIntervalType(), T.NullType()):
        with pytest.raises(NoSuchType, match=r"'x' is .*to_json"):
            sql_type(T.StructField("x", kind))
    with pytest.raises(NoSuchType, match=r"at most 18 digits here: cast it to decimal\(18,2\) or double"):
        sql_type(T.StructField("x", T.DecimalType(38, 2)))


def test_a_new_table_has_the_columns_of_the_dataframe() -> None:
    schema = T.StructType([T.StructField("id", T.StringType()), T.StructField("n", T.IntegerType(), False)])
    assert created("t", schema, ["ID"]) == (
        "CREATE TABLE IF NOT EXISTS `t` (`id` VARCHAR(255) NOT NULL, `n` INT NOT NULL, PRIMARY KEY (`ID`))")
    with pytest.raises(ValueError, match="names 'x', which is no column: id, n"):
        created("t", schema, ["x"])


def test_intervals_travel_as_times() -> None:
    long = timedelta(hours=838, minutes=59, seconds=59, microseconds=7)
    batch = pa.record_batch([pa.array([timedelta(0), -long, long, None], pa.duration("us"))], names=["t"])
    assert as_sent(batch).column(0).to_pylist() == ["00:00:00.000000", "-838:59:59.000007", "838:59:59.000007", None]


def test_columns_may_be_null_where_the_table_says_so() -> None:
    schema = schema_of([{"name": "a", "type": "tinyint(1)", "nullable": False}, {"name": "b", "type": "json"}])
    assert [(f.dataType.simpleString(), f.nullable) for f in schema.fields] == [("tinyint", False), ("string", True)]


# ------------------------------------------------------------------ the option "where"
def test_comparisons_are_told_from_what_they_are_not() -> None:
    batch = pa.record_batch({"Id": [1, 2, 3, None], "d": pa.array([1, 2, 3, 4]).cast(pa.timestamp("us"))})
    for text, found in (("id >= 2 AND 3 > Id", [2]), ("id BETWEEN 1 AND 2", [1, 2]), ("`id` IN (3, -1)", [3]),
                        ("(id = 1)", [1]), ("d > '1970-01-01 00:00:00.000002'", [3, None]), ("", [1, 2, 3, None])):
        assert kept(batch, parsed(text)).column(0).to_pylist() == found, text
    for text, said in (("id > 1 OR id < 0", "joined by AND"), ("id + 1 > 2", "takes comparisons"),
                       ("id >", "no condition"),
                       ("id LIKE 'x'", "takes comparisons"), ("id > (SELECT 1)", "takes comparisons")):
        with pytest.raises(ValueError, match=said):
            parsed(text)
    with pytest.raises(ValueError, match=r"compares 'id' with 1\.5, which is no value of it"):
        kept(batch, parsed("id > 1.5"))
    with pytest.raises(ValueError, match="'t' is none: read a query"):
        kept(pa.record_batch({"t": ["a"]}), parsed("t = 'a'"))
    assert bounds(parsed("id >= 2 AND id < 9 AND d = '1'"), "ID") == {"least": ["2"], "most": ["9"]}
