"""Files cut into splits and chunks: every row once, as a row or as a reject.  No Spark."""

from __future__ import annotations

import csv
import io
import json
import random
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noria.core.types import BIGINT, DATE, DATETIME, DOUBLE, INT, TEXT, Column, SqlType, TableDef, decimal
from noria.spark.loading.rows import files
from noria.spark.loading.rows.files import BadFile, InputFile, Reject
from noria.spark.loading.rows.reading import TextFormat
from spark.loaded_files import NOW, rows_of

TABLE = TableDef("t", (
    Column("id", INT, nullable=False), Column("name", SqlType(TEXT.kind, length=5)), Column("price", decimal(8, 2)),
    Column("day", DATE), Column("at", DATETIME), Column("x", DOUBLE), Column("n", BIGINT, has_default=True, default=7)))


def read(path: Path, table: TableDef = TABLE, **reading: Any) -> tuple[list[tuple[Any, ...]], list[Reject]]:
    """The good rows of a file as Python values, and the rejects."""
    how = TextFormat(**reading)
    return rows_of([InputFile(str(path), str(path), files.format_of(str(path), how))], table, how)


def reasons(rejects: list[Reject]) -> list[str]:
    return [r.reason for r in rejects]


def test_csv_values_and_rejects(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(
        "\ufeffID,Name,price,day,at,x\r\n"
        "1,abc,1.5,2020-02-29,2020-02-29 10:11:12,0.25\r\n"
        '2,"a,""b",2.005,20200301,2020-03-01,1e3\r\n'
        "3,,,,,\r\n"
        "4,\\N,\\N,\\N,\\N,\\N\r\n"
        "5.5,élan,-1,2020-1-2,2020-01-02T03:04:05.6, 7\r\n"
        "x,abc,1,,,\r\n"
        "7,toolong,1,,,\r\n"
        "99999999999,a,1,,,\r\n"
        ",a,1,,,\r\n"
        "8,a,1234567.89,,,\r\n"
        "9,a,1,2020-02-30,,\r\n"
        "10,a,1\r\n"
        "11,a,1,,,,,\r\n"
        "12,a,1,,,nan\r\n".encode() + b"13,\xff\xfe,1,,,\r\n14,z,0,,,\r\n")
    rows, rejects = read(path)
    assert rows[:5] == [
        (1, "abc", Decimal("1.50"), NOW.replace(2020, 2, 29).date(), datetime(2020, 2, 29, 10, 11, 12), 0.25, 7),
        (2, 'a,"b', Decimal("2.01"), datetime(2020, 3, 1).date(), datetime(2020, 3, 1), 1000.0, 7),
        (3, "", None, None, None, None, 7),
        (4, None, None, None, None, None, 7),
        (6, "élan", Decimal("-1.00"), datetime(2020, 1, 2).date(), datetime(2020, 1, 2, 3, 4, 6), 7.0, 7)]
    assert [r[0] for r in rows[5:]] == [14]
    told = {json.loads(r.text)["ID"] if r.text.startswith("{") else r.text[:3]: r.reason for r in rejects}
    assert told["x"] == "Incorrect integer value: 'x' for column 'id'"
    assert told["7"] == "Data too long for column 'name'"
    assert told["99999999999"] == "Out of range value for column 'id'"
    assert told[""] == "Column 'id' cannot be null"
    assert told["8"] == "Out of range value for column 'price'"
    assert "date" in told["9"].lower()
    assert told["10,"] == "the row has 3 fields, 6 are expected"
    assert told["11,"] == "the row has 8 fields, 6 are expected"
    assert told["13,"] == "the row is not UTF-8"
    assert "12" in told and len(rejects) == 10


def test_what_only_arrow_takes_for_a_number_is_a_reject(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id\n1\n0x10\n0XA\n")
    rows, rejects = read(path, TableDef("t", (Column("id", INT),)))
    assert rows == [(1,)]
    assert reasons(rejects) == ["Data truncated for column 'id'"] * 2


def test_years_mean_the_same_beside_bad_rows(tmp_path: Path) -> None:
    path, table = tmp_path / "a.csv", TableDef("t", (Column("y", SqlType(INT.kind, bits=16, declared="year")),))
    for bad, count in (("", 0), ("x\n", 1)):
        path.write_text(f"y\n0000\n0\n00\n70\n1999\n{bad}")
        rows, rejects = read(path, table)
        assert [r[0] for r in rows] == [0, 2000, 2000, 1970, 1999] and len(rejects) == count


@pytest.mark.parametrize("seed", range(30))
def test_csv_rows_once_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(files, "SPLIT_BYTES", rng.randint(1, 120))
    monkeypatch.setattr(files, "CHUNK_BYTES", rng.randint(1, 50))
    multiline = rng.random() < 0.3
    texts = ["", "a", 'q"q', "c,c", "é日", "x" * 30, *(["l\nl", "\n"] if multiline else [])]
    expected = [(i, rng.choice(texts)) for i in range(rng.randint(0, 25))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=rng.choice(["\n", "\r\n"]))
    header = rng.random() < 0.5
    if header:
        writer.writerow(["i", "t"])
    writer.writerows(expected)
    data = out.getvalue().encode()
    path = tmp_path / "a.csv"
    path.write_bytes(data if rng.random() < 0.5 else data.rstrip(b"\r\n") if expected and expected[-1][1] else data)
    table = TableDef("t", (Column("i", INT), Column("t", TEXT)))
    rows, rejects = read(path, table, header=header, multiline=multiline)
    assert rejects == []
    assert rows == expected


@pytest.mark.parametrize("seed", range(10))
def test_json_lines_once_however_they_are_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(files, "SPLIT_BYTES", rng.randint(1, 200))
    monkeypatch.setattr(files, "CHUNK_BYTES", rng.randint(1, 80))
    table = TableDef("t", (Column("i", INT), Column("t", TEXT)))
    lines, good = [], []
    for i in range(rng.randint(1, 30)):
        what = rng.random()
        if what < 0.15:
            lines.append(rng.choice(["{", "[1]", "3", '{"i": 1, "z": 2}', '{"i": "x"}', '{"i": 1e30}']))
        else:
            text = rng.choice(["", "é", '"', "2020-01-01", "a\nb", None])
            lines.append(json.dumps({"i": i, "t": text} if what < 0.9 else {"t": text, "I": str(i)}))
            good.append((i, text))
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(['{"i": 0, "t": "first"}', *lines]) + rng.choice(["", "\n", "\n\n"]))
    rows, rejects = read(path, table)
    assert sorted(rows, key=str) == sorted([(0, "first"), *good], key=str)
    assert len(rejects) == len(lines) - len(good)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
@pytest.mark.parametrize("seed", range(15))
def test_rejects_have_their_line_however_it_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, form: str
                                                   ) -> None:
    """Of every kind of bad row, among empty lines and good rows.  A line of blanks is a row of CSV."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    monkeypatch.setattr(files, "SPLIT_BYTES", rng.randint(1, 200))
    monkeypatch.setattr(files, "CHUNK_BYTES", rng.randint(1, 80))
    kinds = {"csv": [b"1,a", b"", b"x,badvalue", b"1,badarity,2", b"1,bad\xff", b"99999999999,badrange", b"  "],
             "jsonl": [b'{"i": 1}', b"", b'{"i": "x", "t": "badvalue"}', b"{bad", b'"bad\xff"', b'{"i": 1, "bad": 1}',
                       b" "]}
    wanted = ["badvalue", "badarity", "bad\\xff", "badrange", "{bad", '"bad"']
    lines = [rng.choice(kinds[form]) for _ in range(rng.randint(1, 40))]
    path = tmp_path / f"a.{form}"
    head = [b"i,t"] if form == "csv" else []
    path.write_bytes(rng.choice([b"\n", b"\r\n"]).join([*head, *lines]) + rng.choice([b"", b"\n"]))
    _, rejects = read(path, TableDef("t", (Column("i", INT), Column("t", TEXT))))
    bad = {n for n, line in enumerate(lines, 1 + len(head)) if b"bad" in line or (form == "csv" and line == b"  ")}
    assert {r.line for r in rejects} == bad and len(rejects) == len(bad) and all(r.row is None for r in rejects)
    for r in rejects:
        assert r.line is not None
        text = (b"\n".join([*head, *lines]).split(b"\n"))[r.line - 1].decode(errors="backslashreplace")
        assert r.text == text or all(w in r.text for w in wanted if w in text), (r, text)
        if text[:1] == "x" or '"i": "x"' in text or text.startswith("9"):
            assert r.column == "i"


def test_json_keeps_decimals_and_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"id": 1, "price": 123456.78, "n": null}\n{"ID": 2, "price": "0.125", "n": 9007199254740993}\n'
                    'garbage\n{"id": 3, "wrong": 1}\n{"id": {"a": 1}}\n{"id": null}\n{"id": 4, "name": 12}\n')
    rows, rejects = read(path)
    assert [(r[0], r[1], r[2], r[6]) for r in rows] == [
        (1, None, Decimal("123456.78"), None), (2, None, Decimal("0.13"), 9007199254740993), (4, "12", None, 7)]
    assert [r.split(":")[0] for r in reasons(rejects)] == [
        "the line is not JSON", "unknown column 'wrong'", "Incorrect integer value", "Column 'id' cannot be null"]


def test_parquet_types_are_converted_or_rejected(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({
        "id": pa.array([1.0, 2.5, None, 4e10], pa.float64()),
        "name": pa.array(["a", "b", "c", "d"]).dictionary_encode(),
        "price": pa.array([1, 2, 3, 4], pa.int32()),
        "at": pa.array([0, 1_700_000_000_000_000_000, 1, 2], pa.timestamp("ns", "Europe/Zurich"))})
    pq.write_table(table, path, row_group_size=2)
    rows, rejects = read(path)
    assert [(r[0], r[1], r[2], r[4]) for r in rows] == [
        (1, "a", Decimal("1.00"), datetime(1970, 1, 1)), (2, "b", Decimal("2.00"), datetime(2023, 11, 14, 22, 13, 20))]
    assert [(r.row, r.reason) for r in rejects] == [
        (3, "Column 'id' cannot be null"), (4, "Out of range value for column 'id'")]


def _bad(tmp_path: Path, name: str, data: bytes, **reading: Any) -> str:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(BadFile) as told:
        read(path, **reading)
    assert str(path) in str(told.value)
    return str(told.value)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    pq.write_table(pa.table({"id": list(range(1000))}), good)
    assert "truncated" in _bad(tmp_path, "cut.parquet", good.read_bytes()[:-20])
    assert "truncated" in _bad(tmp_path, "empty.parquet", b"")
    damaged = bytearray(good.read_bytes())
    damaged[4:60] = b"\xff" * 56
    assert "row group 0 cannot be read" in _bad(tmp_path, "damaged.parquet", bytes(damaged))
    assert "not in table t" in _bad(tmp_path, "extra.csv", b"id,zzz\n1,2\n")
    assert "no column id" in _bad(tmp_path, "missing.csv", b"name\nx\n")
    assert "twice" in _bad(tmp_path, "twice.csv", b"id,ID\n1,2\n")
    assert "no header" in _bad(tmp_path, "none.csv", b"")
    assert "not UTF-8" in _bad(tmp_path, "latin.csv", b"id,n\xe4me\n")
    assert "one of csv, json, parquet" in _bad(tmp_path, "what.bin", b"")
