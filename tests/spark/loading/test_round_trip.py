"""What an export writes, a load reads back to equal rows: every type, every format, in one table of many columns.

And a table that `--create` makes of files takes every row of them."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from noria.core.types import TableDef
from noria.plan.mir import Base
from noria.spark.jobs.files import write
from noria.spark.loading.inferring import infer
from noria.spark.loading.rows.reading import TextFormat
from spark.checkpoints import checkpoint
from spark.loaded_files import read
from sql.catalogs import DictCatalog

pytestmark = pytest.mark.spark
FORMATS = ("csv", "json", "parquet")
PLACES = itertools.count()
# few large examples: each is a checkpoint and three jobs of Spark
few = settings(max_examples=2, phases=[Phase.explicit, Phase.generate], deadline=None,
               suppress_health_check=list(HealthCheck))


class Values(NamedTuple):
    """Of a type: those at its edges, which every table has, and any."""

    edges: Sequence[Any]
    others: st.SearchStrategy[Any]


TEXTS = Values(["", " ", "\\N", '"\\N"', '"', '""', "a,b", "l\nl", "\r", "\r\n", "\\", "\\\\", "é日", "NULL", "0",
                "\u2028", "\ufeff", "\t", "'", "\0", "x" * 9], st.text(st.characters(codec="utf-8"), max_size=9))
CHARS = Values([t.rstrip(" ") for t in TEXTS.edges], TEXTS.others.map(lambda t: t.rstrip(" ")))
JSONS = Values(["null", '""', '"\\\\N"', "[]", '{"a": [1, "\\n", 1.5]}', "true", "-1"], st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('a"\\\n é', max_size=4),
    lambda inner: st.lists(inner, max_size=2), max_leaves=3).map(json.dumps))
DOUBLES = Values([0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308,
                  -1.7976931348623157e308, 0.1, 1e15, 1e16, -1e-7, 123456789.123456789, 2.0**63],
                 st.floats(allow_nan=False, allow_infinity=False))
FLOATS = Values([3.4028234663852886e38, 1.401298464324817e-45, 0.10000000149011612, 16777216.0],
                st.floats(allow_nan=False, allow_infinity=False, width=32))
BYTES = Values([b"", b"\0", b"\xff\xfe", b"\\N", b"a,b"], st.binary(max_size=9))


def integers(least: int, most: int) -> Values:
    return Values([least, most, 0, 1], st.integers(least, most))


def fixed(digits: int, scale: int) -> Values:
    most = 10**digits - 1
    return Values([Decimal(n).scaleb(-scale) for n in (most, -most, 0, 1, -1)],
                  st.integers(-most, most).map(lambda n: Decimal(n).scaleb(-scale)))


def moments(scale: int, least: datetime = datetime(1, 1, 1), most: datetime = datetime.max) -> Values:
    unit = 10 ** (6 - scale)

    def cut(moment: datetime) -> datetime:
        return moment.replace(microsecond=moment.microsecond // unit * unit)
    return Values([cut(m) for m in (least, most, datetime(2000, 2, 29, 23, 59, 59, 100_001))],
                  st.datetimes(least, most).map(cut))


def times(scale: int) -> Values:
    unit, most = 10 ** (6 - scale), (838 * 3600 + 59 * 60 + 59) * 10**6
    return Values([timedelta(microseconds=m) for m in (0, most, -most, unit, -unit)],
                  st.integers(-most // unit, most // unit).map(lambda n: timedelta(microseconds=n * unit)))


def one_of(*members: Any) -> Values:
    return Values(members, st.sampled_from(members))


KINDS: dict[str, Values] = {
    "TINYINT": integers(-128, 127), "TINYINT UNSIGNED": integers(0, 255), "SMALLINT UNSIGNED": integers(0, 2**16 - 1),
    "MEDIUMINT": integers(-(2**23), 2**23 - 1), "INT": integers(-(2**31), 2**31 - 1),
    "INT UNSIGNED": integers(0, 2**32 - 1), "BIGINT": integers(-(2**63) + 2, 2**63 - 1),
    "BIGINT UNSIGNED": integers(0, 2**63 - 1), "BOOL": one_of(0, 1, 2), "YEAR": one_of(0, 1901, 1970, 2000, 2155),
    "FLOAT": FLOATS, "DOUBLE": DOUBLES, "DECIMAL(18,0)": fixed(18, 0), "DECIMAL(18,18)": fixed(18, 18),
    "DECIMAL(9,2)": fixed(9, 2),
    "CHAR(9)": CHARS, "VARCHAR(9)": TEXTS, "TEXT": TEXTS, "VARCHAR(9) COLLATE utf8mb4_bin": TEXTS, "JSON": JSONS,
    "ENUM('x','y z','1','q\"')": one_of("x", "y z", "1", 'q"'), "ENUM('','a')": one_of("", "a"),
    "SET('p','q','r \"')": one_of("", "p", "p,q", 'p,r "', 'r "'),
    "DATE": Values([date(1, 1, 1), date(1582, 10, 10), date(9999, 12, 31)], st.dates()),
    "DATETIME": moments(0), "DATETIME(3)": moments(3), "DATETIME(6)": moments(6),
    "TIMESTAMP(6)": moments(6, datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7, 999_999)),
    "TIME": times(0), "TIME(2)": times(2), "TIME(6)": times(6),
}
OF_BYTES: dict[str, Values] = {
    "BINARY(3)": one_of(b"\0\0\0", b"\xff\0a"), "VARBINARY(9)": BYTES, "BLOB": BYTES}
DRAWN = 6  # rows beside those of the edges
STRICT = ("VARCHAR(9)", "SET('p','q','r \"')", "ENUM('','a')", "INT", "DATE", "DOUBLE")  # as NOT NULL columns, too
COLUMNS = [*((kind, True) for kind in KINDS), *((kind, False) for kind in STRICT)]


def table_of(columns: Iterable[tuple[str, bool]]) -> TableDef:
    """columns: types, and whether they may be NULL."""
    text = ", ".join(f"c{i} {kind} {'NULL' if nullable else 'NOT NULL'}" for i, (kind, nullable) in enumerate(columns))
    return DictCatalog(f"CREATE TABLE t (id INT PRIMARY KEY, {text})").tables["t"]


def rows_of(kinds: Sequence[tuple[Values, bool]]) -> st.SearchStrategy[list[list[Any]]]:
    edges = max(len(k.edges) for k, _ in kinds) + 1

    def column(kind: Values, nullable: bool) -> st.SearchStrategy[list[Any]]:
        fixed = [*([None] if nullable else ()), *kind.edges]
        some = [fixed[i % len(fixed)] for i in range(edges)]
        return st.lists(kind.others, min_size=DRAWN, max_size=DRAWN).map(lambda drawn: some + drawn)

    return st.tuples(*[column(*k) for k in kinds]).map(
        lambda drawn: [list(r) for r in zip(itertools.count(), *drawn, strict=False)])


def back(spark: SparkSession, form: str, path: str, table: TableDef, place: Path) -> list[Any]:
    """All rows out and in again, as Spark's jobs have them."""
    plan = Base(table)
    written = write(spark, checkpoint=path, tables=[table], plan=plan, visible=len(table.columns), format=form,
                    out=str(place / form))
    rows, rejects = read(spark, place / form, table, TextFormat(multiline=form == "csv"), place / f"plain-{form}")
    assert rejects == []
    assert written.rows == len(rows)
    return sorted(rows, key=lambda r: r[0])


@few
@given(rows=rows_of([(KINDS[kind], nullable) for kind, nullable in COLUMNS]))
def test_every_type_by_every_format(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory,
                                    rows: list[list[Any]]) -> None:
    place, table = tmp_path_factory.mktemp("round"), table_of(COLUMNS)
    path = checkpoint(place, [table], {"t": rows})
    for form in FORMATS:
        assert_same(table, back(spark, form, path, table, place), rows)


def test_bytes_by_parquet(spark: SparkSession, tmp_path: Path) -> None:
    table = table_of([(kind, nullable) for kind in OF_BYTES for nullable in (True, False)])
    edges = [b for kind in OF_BYTES.values() for b in (kind.edges[0], kind.edges[-1])]
    rows = [[0, *edges], [1, *[None if i % 2 == 0 else b for i, b in enumerate(edges)]]]
    path = checkpoint(tmp_path, [table], {"t": rows})
    assert_same(table, back(spark, "parquet", path, table, tmp_path), rows)


def assert_same(table: TableDef, found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for i, c in enumerate(table.columns):
        mine, theirs = [r[i] for r in found], [r[i] for r in expected]
        if c.type.declared == "json":
            mine, theirs = ([None if v is None else json.loads(v) for v in some] for some in (mine, theirs))
        assert mine == theirs, (c.name, c.type.sql())


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_without_rows(spark: SparkSession, tmp_path: Path, form: str) -> None:
    table = table_of([("INT", True), ("TEXT", False)])
    path = checkpoint(tmp_path, [table], {"t": []})
    assert back(spark, form, path, table, tmp_path) == []


# ------------------------------------------------------------------ --create
def made(spark: SparkSession, path: Path, reading: TextFormat, keys: tuple[str, ...] = ()) -> TableDef:
    statement = infer(spark, table="t", files=[str(path)], reading=reading, keys=keys,
                      place=str(path.parent / f"place-{next(PLACES)}")).statement
    return DictCatalog(statement).tables["t"]


def types(table: TableDef) -> list[str]:
    return [c.type.sql() for c in table.columns]


FIELDS = st.sampled_from([
    "", "0", "-1", "007", "+1", " 7", "12.50", "12.5", ".5", "5.", ".", "-", "1e3", "1.5E-3", "1e400", "0x10", "nan",
    "inf", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "99999999999999999999",
    "0.1234567890123456", "123456789012345678.5", "1.123456789012345678", "2026-01-02", "2026-02-30", "2026-1-2",
    "2026-01-02 03:04", "2026-01-02T03:04:05.123456Z", "2026-01-02 03:04:05.1234567", "0000-00-00", "true", "\\N", "x"])


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(columns=st.lists(st.lists(FIELDS, min_size=1, max_size=4), min_size=60, max_size=60))
def test_a_made_table_takes_all_rows_of_csv(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory,
                                            columns: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("made") / "a.csv"
    rows = list(itertools.zip_longest(*columns, fillvalue=""))
    with path.open("w", newline="") as out:
        csv.writer(out).writerows([[f"c{i}" for i in range(len(columns))], *rows])
    table = made(spark, path, TextFormat())
    found, rejects = read(spark, path, table, TextFormat(), path.parent / "plain")
    assert rejects == [] and len(found) == len(rows)
    for i, c in enumerate(table.columns):  # nothing is lost
        for row, stored in zip(rows, found, strict=True):
            assert faithful(row[i], stored[i]), (row[i], stored[i], c.type.sql())


def faithful(text: str, stored: Any) -> bool:
    if text in ("", "\\N"):
        return stored in ("", None)
    if isinstance(stored, int | Decimal | float):
        return float(text) == float(stored) and (isinstance(stored, float) or Decimal(text.strip()) == Decimal(stored))
    return isinstance(stored, date) or bool(stored == text)


@settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
@given(columns=st.lists(st.lists(
    st.sampled_from(["1", "-2.50", "1e3", "12345678901234567890", "2147483648", "true", "null", '"x"', '"12.5"', '""',
                     '"2026-01-02"', '"2026-01-02 03:04:05"', "0.1234567890123456", "1e400"]), min_size=1, max_size=3),
    min_size=40, max_size=40))
def test_a_made_table_takes_all_rows_of_json(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory,
                                             columns: list[list[str]]) -> None:
    path = tmp_path_factory.mktemp("made") / "a.json"
    rows = list(itertools.zip_longest(*columns, fillvalue="null"))
    path.write_text("".join("{" + ", ".join(f'"c{i:02}": {v}' for i, v in enumerate(r)) + "}\n" for r in rows))
    table = made(spark, path, TextFormat())
    found, rejects = read(spark, path, table, TextFormat(), path.parent / "plain")
    assert rejects == [] and len(found) == len(rows)


def test_types_of_csv(spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "money": ["12.50", "3", "-0.05"], "plz": ["01069", "99999", ""], "phone": ["+4930", "1", ""],
        "id": ["99999999999999999999", "1", ""], "small": ["1", "", "\\N"], "large": ["1", "3000000000", ""],
        "measured": ["0.12345", "1.5", "7"], "rate": ["1.0937", "2", ""],
        "sci": ["1e-9", "2", ""],
        "exact": ["1.123456789012345678", "1", ""],
        "day": ["2026-01-02", "", ""], "at": ["2026-01-02", "2026-01-02 03:04:05", ""], "empty": ["", "", ""],
        "word": ["a", "1", "2"]}
    path = tmp_path / "a.csv"
    path.write_text("\n".join(",".join(r) for r in [list(columns), *zip(*columns.values(), strict=True)]) + "\n")
    assert dict(zip(columns, types(made(spark, path, TextFormat())), strict=True)) == {
        "money": "decimal(18,2)", "plz": "text", "phone": "text", "id": "text", "small": "int", "large": "bigint",
        "measured": "double", "rate": "decimal(18,4)", "sci": "double", "exact": "text", "day": "date",
        "at": "datetime(6)", "empty": "text", "word": "text"}


def test_types_by_the_options_of_the_load(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("12,50\t31.12.2025\t31.12.2025 10:11\t1.5\t-\tä\n".encode("latin-1"))
    reading = TextFormat(header=False, columns=("price", "day", "at", "version", "n", "t"), delimiter="\t", decimal=",",
                         date_format="%d.%m.%Y", null="-", encoding="latin-1")
    table = made(spark, path, reading, ("T",))
    assert types(table) == ["decimal(18,2)", "date", "datetime(6)", "text", "text", "varchar(255)"]
    assert read(spark, path, table, reading, tmp_path / "plain") == ([(
        Decimal("12.50"), date(2025, 12, 31), datetime(2025, 12, 31, 10, 11), "1.5", None, "ä")], [])


def parquets() -> Iterator[tuple[str, pa.Array, str]]:
    """Columns, and the types of the table that is made."""
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_901)
    for unit in ("s", "ms", "us", "ns"):
        yield f"at_{unit}", pa.array([moment.replace(microsecond=0), None], pa.timestamp(unit)), "datetime(6)"
    yield "zoned", pa.array([moment.replace(tzinfo=UTC), None], pa.timestamp("ns", "Europe/Berlin")), "timestamp(6)"
    yield "odd_ns", pa.array([1500, None], pa.timestamp("ns")), "datetime(6)"
    yield "u8", pa.array([255, None], pa.uint8()), "smallint"
    yield "u32", pa.array([2**32 - 1, None], pa.uint32()), "bigint"
    yield "u64", pa.array([2**63 - 1, None], pa.uint64()), "bigint"
    yield "listed", pa.array(["a", None]).dictionary_encode(), "text"
    yield "large", pa.array(["a", None], pa.large_string()), "text"
    yield "time", pa.array([1_000_001, None], pa.time64("us")), "time(6)"
    yield "nothing", pa.nulls(2), "text"
    yield "money", pa.array([Decimal("1.50"), None]), "decimal(3,2)"
    yield "float", pa.array([1.5, None], pa.float32()), "float"
    yield "flag", pa.array([True, None]), "tinyint(1)"
    yield "bytes", pa.array([b"\0\xff", None]), "longblob"


def test_types_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    path, columns = tmp_path / "a.parquet", list(parquets())
    pq.write_table(pa.table({n: c for n, c, _ in columns}), path)
    table = made(spark, path, TextFormat())
    assert dict(zip([c.name for c in table.columns], types(table), strict=True)) == {n: t for n, _, t in columns}
    (first, second), rejects = read(spark, path, table, TextFormat(), tmp_path / "plain")
    assert rejects == [] and set(second) == {None}
    assert first[3] == datetime(2026, 1, 2, 3, 4, 5)
    assert first[5] == datetime(1970, 1, 1, 0, 0, 0, 2)  # rounded
