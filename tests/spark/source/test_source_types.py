"""SQL types and Spark's: every one of docs/reference/sql.md has an equal, and what has none says what to do."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T

from noria.spark.source import NoriaDataSource
from noria.spark.source.conditions import bounds, kept, parsed, typed
from noria.spark.source.errors import HIDDEN, OptionError, UserError
from noria.spark.source.python import SAID, use_python
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
    assert bounds(parsed("id >= 2 AND id < 9 AND d = '1'"), "ID") == {"least": ["2"], "most": ["9"]}


def rows_where(text: str, **columns: tuple[str, list[Any]]) -> list[Any]:
    """The first column's values in the rows of which the condition is true.  columns: SQL type and values."""
    batch = pa.record_batch({n: values for n, (_, values) in columns.items()})
    return kept(batch, typed(parsed(text), {n: sql for n, (sql, _) in columns.items()})).column(0).to_pylist()


@pytest.mark.parametrize("text,found", [
    ("t = 'ann'", ["Ann", "ANN"]), ("t IN ('eve', 'bob')", ["Éve", "bob"]), ("'B' < T", ["Éve", "bob", "cy"]),
    ("t BETWEEN 'b' AND 'c'", ["bob"]), ("t = ''", [""]), ("bin = 'Ann'", ["Ann"]), ("bin IN ('ann')", []),
    ("bin > 'a'", ["Éve", "bob", "cy"]), ("e = 'X'", ["Ann", "cy"]), ("t = 'ann' AND e = 'x'", ["Ann"]),
])
def test_texts_compare_by_their_collation(text: str, found: list[str]) -> None:
    texts = ["Ann", "ANN", "Éve", "bob", "cy", "", None]
    assert rows_where(text, t=("varchar(9)", texts), bin=("varchar(9) COLLATE utf8mb4_bin", texts),
                      e=("enum('x','y')", ["x", "y", "y", "y", "x", "y", "y"])) == found


@pytest.mark.parametrize("text,says", [
    ("t = 5", "with 5: put it in quotes"), ("e < 'x'", "by = and IN only"), ("j = '1'", "not at all"),
    ("b = 'x'", "'b' is none"),
])
def test_texts_that_do_not_compare(text: str, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        rows_where(text, t=("text", ["a"]), e=("enum('x')", ["x"]), j=("json", ["1"]), b=("blob", [b"x"]))


def test_a_key_of_texts_has_no_bounds() -> None:
    assert bounds(typed(parsed("k >= 'a'"), {"K": "varchar(9)"}), "k") == {"least": [], "most": []}


# ------------------------------------------------------------------ what users get wrong
def test_unknown_options_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HIDDEN, raising=False)
    schema = schema_of([{"name": "id", "type": "int"}])
    for ask, options, says in (
            (lambda s: s.schema(), {"table": "t", "colums": "a"}, 'no option "colums": did you mean "columns"'),
            (lambda s: s.schema(), {"feed": "t", "where": "a"}, 'a stream of noria has no option "where"'),
            (lambda s: s.reader(schema), {"table": "t", "path": "x"}, 'no option "path": there are url'),
            (lambda s: s.streamReader(schema), {"feed": "t", "startingOffset": "x"}, 'mean "startingOffsets"'),
            (lambda s: s.writer(schema, False), {"table": "t", "onDuplicat": "x"}, 'mean "onDuplicate"'),
            (lambda s: s.streamWriter(schema, False), {"table": "t", "primarykeys": "x"}, 'mean "primaryKey"')):
        with pytest.raises(OptionError, match=says):
            ask(NoriaDataSource(options))
    assert os.environ.pop(HIDDEN) == "1"  # Spark's worker tells it in one line


@pytest.mark.parametrize("url,says", [
    ("ftp://x", "is no server's address"), ("http://x:99999", "is no server's address"),
    ("http://127.0.0.1:9", "did not answer"), ("", "the option \"url\" is missing"),
])
def test_a_wrong_url_is_told(monkeypatch: pytest.MonkeyPatch, url: str, says: str) -> None:
    monkeypatch.setenv(HIDDEN, "")
    with pytest.raises(UserError, match=says) as told:
        NoriaDataSource({"url": url, "table": "t"}).schema()
    assert told.value.__cause__ is None and "\n" not in str(told.value)


def test_a_port_of_another_protocol_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HIDDEN, "")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        def greet() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"J\0\0\0\n8.0.36\0\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(UserError, match=r"did not answer .*: does it run, and is this its HTTP port\?"):
            NoriaDataSource({"url": f"http://127.0.0.1:{port}", "table": "t"}).schema()
        thread.join()


def test_the_python_of_the_tasks_has_noria(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SAID, raising=False)
    local = SimpleNamespace(master="local[2]", pythonExec="python3")
    use_python(local)
    assert local.pythonExec == sys.executable
    bare = tmp_path / "python3"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    for master, python in (("spark://x:7077", str(bare)), ("spark://x:7077", "/nonexistent/python3")):
        with pytest.raises(RuntimeError, match=f"Set {SAID}={re.escape(sys.executable)} in the environment before"):
            use_python(SimpleNamespace(master=master, pythonExec=python))
    monkeypatch.setenv(SAID, str(bare))
    with pytest.raises(RuntimeError, match="noria is not installed in that Python"):
        use_python(SimpleNamespace(master="local[2]", pythonExec=str(bare)))
    use_python(SimpleNamespace(master="spark://x:7077", pythonExec=sys.executable))
