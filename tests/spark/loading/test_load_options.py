r"""The options of a load that say how a file is written, each with a file as people have it."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from noria.core.types import TableDef
from noria.spark.loading.rows.dates import DateFormat
from noria.spark.loading.rows.escapes import Escapes
from noria.spark.loading.rows.files import BadFile, Reject
from noria.spark.loading.rows.reading import of_request
from spark.loaded_files import read
from sql.catalogs import DictCatalog

Row = tuple[Any, ...]


def table(columns: str) -> TableDef:
    return DictCatalog(f"CREATE TABLE t ({columns})").tables["t"]


@pytest.fixture
def loaded(spark: SparkSession, tmp_path: Path) -> Any:
    """A function of a file's name, its bytes, the table's columns and the request to load: rows and rejects."""

    def load(name: str, data: bytes, definition: str, /, **request: Any) -> tuple[list[Row], list[Reject]]:
        path = tmp_path / name
        path.write_bytes(data)
        reading = of_request({"files": [str(path)], **request})
        return read(spark, path, table(definition), reading, tmp_path / f"place-{name}")

    return load


# ------------------------------------------------------------------ files that people have
@pytest.mark.spark
def test_a_german_spreadsheet(loaded: Any) -> None:
    """Semicolons, decimal commas, dates as 31.12.2025, windows-1252; names of its own in the header."""
    data = ("Artikel;Preis;Menge;Tag;Zeit\r\nKäse;12,50;1;31.12.2025;31.12.2025 23:59:30\r\n"
            '"Brot; dunkel";-0,5;;1.2.2026;01.02.2026\r\n€;1.234,50;1;1.1.2026;\r\nx;1;1;2026-01-01;\r\n'
            "y;1;1;31.02.2026;\r\n").encode("windows-1252")
    rows, rejects = loaded("preise.csv", data, "name TEXT, price DECIMAL(8,2), n INT, day DATE, at DATETIME",
                           delimiter=";", decimal=",", date_format="%d.%m.%Y", encoding="windows-1252",
                           columns=["name", "price", "n", "day", "at"])
    assert rows == [("Käse", Decimal("12.50"), 1, date(2025, 12, 31), datetime(2025, 12, 31, 23, 59, 30)),
                    ("Brot; dunkel", Decimal("-0.50"), None, date(2026, 2, 1), datetime(2026, 2, 1))]
    assert [(r.line, r.column) for r in rejects] == [(4, "price"), (5, "day"), (6, "day")]
    assert rejects[0].reason == ("Incorrect decimal value: '1.234,50' for column 'price': the decimal point is a comma "
                                 "(--decimal)")
    assert rejects[1].reason == ("Incorrect date value: '2026-01-01' for column 'day': it is not as --date-format "
                                 "%d.%m.%Y")
    assert '"€"' in rejects[0].text


@pytest.mark.spark
def test_a_dump_of_mysql(loaded: Any) -> None:
    r"""As SELECT … INTO OUTFILE and mysqldump --tab write it: tabs, \N, backslashes, no header, no quotes."""
    data = rb"""1	plain	2026-01-02 03:04:05
2	\N	\N
3	tab\	tab	\N
4	line\
end and \\ and "quote	\N
5	\\N	\N
6	\0\n\Z\t\r\bx\y	\N
7		\N
8	cr""" + b"\rin\t\\N\nx\tbad\t\\N\n"
    rows, rejects = loaded("t.txt", data, "id INT, s TEXT, at DATETIME", delimiter="\\t", header=False, quote="",
                           escape="\\")
    assert [r[1] for r in rows] == ["plain", None, "tab\ttab", 'line\nend and \\ and "quote', "\\N",
                                    "\0\n\x1a\t\r\bxy", "", "cr\rin"]
    assert rows[0] == (1, "plain", datetime(2026, 1, 2, 3, 4, 5))
    assert [(r.line, r.row, r.reason) for r in rejects] == [
        (None, 9, "Incorrect integer value: 'x' for column 'id'")]


@pytest.mark.spark
@pytest.mark.parametrize("name,data,request_,expected", [
    ("tabs.tsv", b"a\tb\n1\tx,y\n", {}, [(1, "x,y")]),
    ("piped.csv", b"a|b\n1|x\n", {"delimiter": "|"}, [(1, "x")]),
    ("doubled.csv", b"a,b\n1,'it''s, \"so\"'\n", {"quote": "'"}, [(1, 'it\'s, "so"')]),
    ("escaped.csv", b'a,b\n1,"say \\"hi\\", \\\\"\n', {"escape": "\\"}, [(1, 'say "hi", \\')]),
    ("doubles.csv", b'a,b\n1,"say ""hi"""\n', {"escape": '"'}, [(1, 'say "hi"')]),
    ("unquoted.csv", b'a,b\n1,"x\n', {"quote": ""}, [(1, '"x')]),
    ("nulls.csv", b'a,b\n1,NULL\n2,"NULL"\n3,\n', {"null": "NULL"}, [(1, None), (2, "NULL"), (3, "")]),
    ("empties.csv", b'a,b\n1,\n2,""\n', {"null": ""}, [(1, None), (2, "")]),
    ("rows.csv", b"1,x\n2,y\n", {"header": False}, [(1, "x"), (2, "y")]),
    ("turned.csv", b"x,1\n", {"header": False, "columns": ["B", "a"]}, [(1, "x")]),
    ("renamed.csv", "Größe,Text\n1,x\n".encode(), {"columns": ["a", "b"]}, [(1, "x")]),
    ("latin.csv", "a,b\n1,é\n".encode("latin-1"), {"encoding": "latin-1"}, [(1, "é")]),
    ("wide.csv", "a,b\r\n1,€\r\n".encode("utf-16"), {"encoding": "utf-16"}, [(1, "€")]),
    ("wide.json", '[{"a": 1, "b": "€"}]'.encode("utf-16"), {"encoding": "utf-16"}, [(1, "€")]),
    ("mysqls.csv", "a,b\n1,é\n".encode(), {"encoding": "utf8mb4"}, [(1, "é")]),
    ("lines.csv", b'a;b\n1;"x\ny"\n', {"delimiter": ";", "multiline": True}, [(1, "x\ny")]),
])
def test_options(loaded: Any, name: str, data: bytes, request_: dict[str, Any], expected: list[Row]) -> None:
    assert loaded(name, data, "a INT, b TEXT", **request_) == (expected, [])


@pytest.mark.spark
def test_bytes_that_the_encoding_has_not_are_rejects(loaded: Any) -> None:
    rows, rejects = loaded("a.csv", b"a\n\xe4\nx\x81y\nz\n", "a TEXT", encoding="windows-1252")
    assert rows == [("ä",), ("z",)]
    assert [(r.line, r.reason) for r in rejects] == [(3, "the row is not WINDOWS-1252")]


@pytest.mark.spark
@pytest.mark.parametrize("name,data,request_,says", [
    ("a.json", b'{"a": 1}', {"delimiter": ";", "decimal": ","}, "--delimiter, --decimal is for CSV"),
    ("a.parquet", b"PAR1", {"encoding": "latin-1"}, "--encoding is for CSV and JSON"),
    ("a.csv", b"a,b\n1,2\n", {"columns": ["a"]}, r"its header has 2 fields \(a, b\), --columns names 1"),
    ("a.csv", b"a\xe4\n", {}, "the header is not UTF-8: say which --encoding the file has"),
    ("a.csv", b"", {}, "no header line; say that there is none"),
])
def test_what_no_file_heeds_is_refused(loaded: Any, name: str, data: bytes, request_: dict[str, Any], says: str
                                       ) -> None:
    with pytest.raises(BadFile, match=says):
        loaded(name, data, "a TEXT", **request_)


@pytest.mark.parametrize("request_,says", [
    ({"delimiter": ";;"}, "--delimiter"), ({"delimiter": ""}, "--delimiter"), ({"delimiter": "\n"}, "--delimiter"),
    ({"delimiter": "é"}, "one character of ASCII"), ({"quote": "''"}, "--quote"), ({"escape": "ab"}, "--escape"),
    ({"delimiter": '"'}, "different characters"), ({"escape": ","}, "different characters"),
    ({"decimal": ";"}, "--decimal"), ({"null": "a,b"}, "--null"), ({"null": "a\n"}, "--null"),
    ({"date_format": "%d.%m"}, r"%d.%m' is not understood: it says the year \(%Y or %y\) nowhere"),
    ({"date_format": "%d.%m.%Y %y"}, "the year .* twice"), ({"date_format": "%d.%m.%Y %q"}, "it has '%q'"),
    ({"date_format": "%d.%m.%Y %I"}, "%I with %p"), ({"date_format": "dd.MM.yyyy"}, "nowhere"),
    ({"encoding": "utf-9"}, "--encoding"), ({"encoding": "base64"}, "--encoding"),
    ({"encoding": "rot13"}, "--encoding"),
    ({"columns": ["a", ""]}, "empty"), ({"columns": ["a", "A"]}, "twice"),
])
def test_what_cannot_be_followed_names_its_option(request_: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        of_request(request_)


# ------------------------------------------------------------------ dates
@pytest.mark.parametrize("wanted,text,expected", [
    ("%d.%m.%Y", "1.2.2026", "2026-02-01"), ("%d.%m.%Y", " 01.02.2026 ", "2026-02-01"),
    ("%d.%m.%Y", "01.02.2026 3:04", "2026-02-01 3:04"), ("%d.%m.%Y", "01.02.26", None),
    ("%m/%d/%y", "12/31/25", "25-12-31"), ("%d-%b-%Y", "31-DEC-2025", "2025-12-31"),
    ("%d %B %Y", "31 December 2025", "2025-12-31"), ("%d %B %Y", "31 Decembr 2025", None),
    ("%m/%d/%Y %I:%M %p", "12/31/2025 11:59 PM", "2025-12-31 23:59:00.0"),
    ("%m/%d/%Y %I:%M %p", "12/31/2025 12:00 am", "2025-12-31 00:00:00.0"),
    ("%m/%d/%Y %I:%M %p", "12/31/2025 13:00 PM", None),
    ("%Y%m%dT%H%M%S.%f", "20251231T235958.25", "2025-12-31 23:59:58.25"), ("%d.%m.%Y", "", None),
    ("%Y.%m.%d%%", None, None),
])
def test_dates_of_a_format(wanted: str, text: str | None, expected: str | None) -> None:
    assert DateFormat.of(wanted).dates(pa.array([text, None], pa.string())).to_pylist() == [expected, None]


# ------------------------------------------------------------------ escapes
def mysqls(text: str | None) -> str:
    """A field as SELECT … INTO OUTFILE writes it, between tabs and without quotes."""
    if text is None:
        return "\\N"
    return "".join({"\0": "\\0"}.get(c, f"\\{c}" if c in "\t\n\\" else c) for c in text)


@given(st.lists(st.tuples(*[st.none() | st.text("a\t\n\\N\0\1\2é\"r", max_size=6)] * 2), max_size=8), st.integers(1, 9),
       st.randoms())
def test_escapes_come_back_however_the_file_is_cut(rows: list[tuple[str | None, str | None]], most: int,
                                                   rng: random.Random) -> None:
    escapes = Escapes("\\", "\t", "")
    data, made = "".join("\t".join(map(mysqls, r)) + "\n" for r in rows).encode(), b""
    while data:
        cut = rng.randint(1, most)
        made, data = made + escapes.of(data[:cut]), data[cut:]
    made += escapes.of(b"", last=True)
    lines = made.decode().split("\n")[:-1]
    assert len(lines) == len(rows)
    fields = [f for line in lines for f in line.split("\t")]
    assert len(fields) == 2 * len(rows)
    texts = escapes.unescaped(pa.array([None if f == "\\N" else f for f in fields], pa.string())).to_pylist()
    assert list(zip(texts[::2], texts[1::2], strict=True)) == rows
