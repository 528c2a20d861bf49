"""Loads through Spark into a store: what comes in is what the files hold, less what the reject file holds."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from noria.core.errors import SqlError
from noria.core.statements import Insert
from noria.core.types import BIGINT, INT, TEXT, TEXT_BIN, Column, IndexDef, Kind, SqlType, TableDef
from noria.core.values import decode
from noria.spark.loading import load as loading
from noria.spark.loading import merging
from noria.spark.loading.load import LoadReport, LoadSpec, load
from noria.spark.loading.rows.files import BadFile
from noria.spark.loading.rows.reading import TextFormat
from noria.spark.loading.tasks.tasks import LoadRefused
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore

pytestmark = pytest.mark.spark
Row = tuple[Any, ...]


class Stored:
    """A store with one table, and loads into it."""

    def __init__(self, path: Path, *columns: Column, key: tuple[int, ...] = (), indexes: tuple[IndexDef, ...] = ()):
        self.path, self.symbols = path, SymbolTable()
        self.store = RocksStore(str(path / "data"), self.symbols)
        self.store.create_table(TableDef("t", columns, key, indexes))
        self.store.set_recipe((), 1, 1)
        self.table = self.store.tables()["t"]
        self.seq = 1

    def spec(self, files: list[str], **more: Any) -> LoadSpec:
        self.seq += 1
        indexes = tuple((i.columns, i.unique) for i in self.store.table("t").indexes)
        return LoadSpec(self.table, tuple(files), str(self.path / f"sst{self.seq}"), str(self.path / "rejects.jsonl"),
                        indexes=indexes, **more)

    def load(self, spark: SparkSession, files: list[str], **more: Any) -> LoadReport:
        report = load(spark, spec=self.spec(files, **more))
        taken = {family: list(paths) for family, paths in report.files}
        self.store.ingest("t", taken, report.rows, report.auto_increment, 1, self.seq)
        return report

    def rows(self) -> list[Row]:
        types = [c.type for c in self.table.columns]
        out, after = [], None
        while True:
            batch, after = self.store.scan("t", after, 1000)
            out += [tuple(decode(c, t, self.symbols) for c, t in zip(r, types, strict=True)) for r in batch.rows()]
            if after is None:
                return out

    def rejects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "rejects.jsonl").read_text().splitlines()]


@pytest.fixture
def many_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are cut into ranges, too."""
    monkeypatch.setattr(loading, "SMALL_BYTES", 0)
    monkeypatch.setattr(loading, "TARGET_BYTES", 20_000)


def test_keys_sorted_first_of_a_key_kept(spark: SparkSession, tmp_path: Path, many_ranges: None) -> None:
    rng = random.Random(5)
    to = Stored(tmp_path, Column("k", TEXT, False), Column("n", INT), key=(0,))
    words = ["a", "A", "é", "E", "zz", "", "b c", "日本"] + [f"w{i}" for i in range(3000)]
    rows = [(rng.choice(words), i) for i in range(5000)]
    paths = []
    for f in range(3):
        mine = rows[f * 2000 : (f + 1) * 2000]
        paths.append(str(tmp_path / f"{f}.parquet"))
        pq.write_table(pa.table({"n": [n for _, n in mine], "K": [k for k, _ in mine]}), paths[-1], row_group_size=700)
    told: list[tuple[int, int, str]] = []
    report = load(spark, lambda *x: told.append(x), spec=to.spec(paths))
    to.store.ingest("t", {f: list(p) for f, p in report.files}, report.rows, 0, 1, to.seq)
    first: dict[str, Row] = {}
    for k, n in rows:
        first.setdefault("e" if k in "éE" and k else k.lower(), (k, n))
    assert len(report.files[0][1]) > 1
    assert sorted(to.rows()) == sorted(first.values())
    assert report.rows == len(first) and report.rejected == len(rows) - len(first)
    rejects = to.rejects()
    left_out = Counter(json.loads(r["text"])["n"] for r in rejects)
    assert left_out == Counter(n for _, n in rows) - Counter(n for _, n in first.values())
    assert all(r["reason"].startswith("Duplicate entry '") for r in rejects)
    assert told and told[-1][0] == told[-1][1] and "loading t" in told[-1][2]


def test_rows_for_statements_in_the_order_of_the_files(spark: SparkSession, tmp_path: Path,
                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Each good row once, with defaults, without columns that were dropped; bad ones with their place."""
    monkeypatch.setattr("noria.spark.loading.rows.files.SPLIT_BYTES", 300)
    gone = Column("gone", INT, dropped=1)
    stored = Stored(tmp_path, Column("id", INT, nullable=False, auto_increment=True), gone,
                    Column("n", INT, has_default=True, default=7), Column("s", TEXT), key=(0,))
    first, second = tmp_path / "1.csv", tmp_path / "2.jsonl"
    first.write_text("id,s\n" + "".join(f"{'x' if i == 70 else '' if i == 71 else i},a{i}\n" for i in range(1, 100)))
    second.write_text('[{"id": 5, "n": 1, "s": "again"},\n\n{"id": 6, "n": "y"}]')
    report = merging.rows(spark, spec=stored.spec([str(first), str(second)]))
    pieces = [pa.ipc.open_file(path).read_all() for path in report.files]
    assert {tuple(p.schema.names) for p in pieces} == {("id", "n", "s")}
    rows = [tuple(row.values()) for p in pieces for row in p.to_pylist()]
    assert rows == [*((None if i == 71 else i, 7, f"a{i}") for i in range(1, 100) if i != 70), (5, 1, "again")]
    assert (report.rows, report.rejected, len(report.files) > 3) == (99, 2, True)
    assert [(r["file"], r["line"], r["row"], r["column"]) for r in stored.rejects()] == [
        (str(first), 71, None, "id"), (str(second), None, 2, "n")]


def test_a_bag_keeps_equal_rows_and_takes_more_later(spark: SparkSession, tmp_path: Path) -> None:
    to = Stored(tmp_path, Column("a", INT, False), Column("b", TEXT_BIN))
    path = str(tmp_path / "rows.csv")
    Path(path).write_text("a,b\n1,x\n1,x\nno,y\n2,\n")
    report = to.load(spark, [path, path])
    assert (report.rows, report.rejected) == (6, 2)
    to.store.write([Insert("t", (0, 1), [(9, "z")])], 1, 100)
    to.seq = 100
    to.load(spark, [path])
    assert Counter(to.rows()) == Counter({(1, "x"): 6, (2, ""): 3, (9, "z"): 1})
    assert {os.path.basename(r["file"]) for r in to.rejects()} == {"rows.csv"}


def test_numbers_are_given_after_those_in_the_files(spark: SparkSession, tmp_path: Path) -> None:
    to = Stored(tmp_path, Column("id", BIGINT, False, auto_increment=True), Column("b", INT), key=(0,))
    one, two = tmp_path / "1.csv", tmp_path / "2.jsonl"
    one.write_text("id,b\n,1\n50,2\n0,3\n")
    two.write_text('{"b": 4}\n{"id": 7, "b": 5}\n')
    report = to.load(spark, [str(one), str(two)], auto_increment=20)
    assert to.rows() == [(7, 5), (50, 2), (51, 1), (52, 3), (53, 4)]
    assert report.auto_increment == 53
    to.store.write([Insert("t", (1,), [(6,)])], 1, 100)
    assert to.rows()[-1] == (54, 6)


def test_numbers_end_where_the_column_ends(spark: SparkSession, tmp_path: Path) -> None:
    tiny = SqlType(Kind.INT, bits=8)
    to = Stored(tmp_path, Column("id", tiny, False, auto_increment=True), Column("b", INT), key=(0,))
    fits, too_many = tmp_path / "fits.csv", tmp_path / "too_many.csv"
    fits.write_text("id,b\n124,1\n,2\n,3\n,4\n")
    too_many.write_text("id,b\n124,1\n,2\n,3\n,4\n,5\n")
    with pytest.raises(SqlError) as e:
        load(spark, spec=to.spec([str(too_many)]))
    assert e.value.code == 1467
    to.load(spark, [str(fits)])
    assert [r[0] for r in to.rows()] == [124, 125, 126, 127]


def test_indexes_are_built_and_unique_ones_kept(spark: SparkSession, tmp_path: Path, many_ranges: None) -> None:
    indexes = (IndexDef("by_b", (1,)), IndexDef("u", (2,), unique=True))
    to = Stored(tmp_path, Column("id", INT, False), Column("b", TEXT), Column("c", INT), key=(0,), indexes=indexes)
    rng = random.Random(2)
    rows = [(i, f"b{rng.randrange(40)}", i * 3 if i % 5 else None) for i in range(3000)]
    rng.shuffle(rows)
    path = str(tmp_path / "rows.parquet")
    twice = (rows[0][0], "other", -1)
    pq.write_table(pa.Table.from_pylist([dict(zip("abc", r, strict=True)) for r in [*rows, twice]]
                                        ).rename_columns(["id", "b", "c"]), path, row_group_size=900)
    report = to.load(spark, [path])
    assert (report.rows, report.rejected) == (3000, 1)
    assert sorted(to.rows(), key=str) == sorted(rows, key=str)
    import numpy as np

    for key, column in (("b7", 1), ("OTHER", 1)):
        code = to.symbols.intern(key)
        found, _ = to.store.lookup("t", (column,), np.array([[code]]))
        assert len(found) == sum(r[1] == key for r in rows)
    assert len(to.store.lookup("t", (2,), np.array([[33]]))[0]) == 1
    bad = tmp_path / "bad.csv"
    bad.write_text("id,b,c\n9001,x,-5\n9002,y,-5\n")
    with pytest.raises(SqlError, match="repeat a key of the UNIQUE index on t \\(c\\)"):
        load(spark, spec=to.spec([str(bad)]))


def test_what_refuses_a_load_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    to = Stored(tmp_path, Column("a", INT, False))
    path = tmp_path / "rows.csv"
    path.write_text("a\n" + "x\n" * 10 + "1\n")
    spec = to.spec([str(path)], max_rejects=9)
    with pytest.raises(LoadRefused, match=r"more than the 9 allowed.*Incorrect integer value: 'x' for column 'a'"):
        load(spark, spec=spec)
    assert not os.path.exists(spec.out)
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"a": list(range(1000))}), good)
    damaged = bytearray(good.read_bytes())
    damaged[4:60] = b"\xff" * 56
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    spec = to.spec([str(good), str(tmp_path / "damaged.parquet")])
    with pytest.raises(BadFile, match=r"damaged.parquet: row group 0 cannot be read"):
        load(spark, spec=spec)
    assert not os.path.exists(spec.out)


def test_empty_files_load_nothing(spark: SparkSession, tmp_path: Path) -> None:
    to = Stored(tmp_path, Column("a", INT, False), key=(0,))
    (tmp_path / "a.csv").write_text("a\n")
    (tmp_path / "b.csv").write_text("")
    pq.write_table(pa.table({"a": pa.array([], pa.int32())}), tmp_path / "c.parquet")
    report = load(spark, spec=to.spec([str(tmp_path / "a.csv"), str(tmp_path / "c.parquet")]))
    assert (report.rows, report.files, report.rejected, report.reject_file) == (0, (), 0, "")
    reading = TextFormat(header=False)
    assert load(spark, spec=to.spec([str(tmp_path / "b.csv")], reading=reading)).rows == 0
