"""The fields of a CSV file as the texts that a table's column reads: its decimal point, its dates, its empty fields.

Keeps true: what a text means depends on the column's type and the load's options alone, so `--create`, which tries
types on the same fields, finds the types with which the load succeeds.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from noria.core.types import Column, Kind, SqlType
from noria.spark.loading.dates import DateFormat, bad_date
from noria.spark.loading.reading import Reading

Reasons = dict[int, str]  # by row
_NUMBERS = (Kind.INT, Kind.DECIMAL, Kind.DOUBLE)
_MOMENTS = {Kind.DATE: "date", Kind.DATETIME: "datetime"}


def prepared(texts: pa.Array, c: Column, reading: Reading) -> tuple[pa.Array, Reasons]:
    """The fields of a column in SQL's spelling, and why some are none, which are NULL then."""
    if not takes_empty(c.type):
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    if c.type.kind in _NUMBERS and reading.decimal == ",":
        return _with_point(texts, c)
    if c.type.kind in _MOMENTS and reading.date_format:
        return _dated(texts, c, DateFormat.of(reading.date_format))
    if c.type.declared == "year":  # as texts 0 and 00 are 2000
        return pc.replace_substring_regex(texts, r"^\s*0{1,3}\s*$", "2000"), {}
    return texts, {}


def takes_empty(type: SqlType) -> bool:
    """Is the empty text a value of this type?  Of other types an empty field is NULL."""
    return type.is_text or type.kind is Kind.SET or (type.kind is Kind.ENUM and "" in type.members)


def _with_point(texts: pa.Array, c: Column) -> tuple[pa.Array, Reasons]:
    """12,5 is 12.5; what has a point is no number, rather than one that is a thousand times larger."""
    kind = {Kind.INT: "integer", Kind.DECIMAL: "decimal"}.get(c.type.kind, "double")
    has_point = pc.match_substring(texts, ".")
    reasons = {row: f"Incorrect {kind} value: '{texts[row].as_py()}' for column '{c.name}': the decimal point is a "
                    "comma (--decimal)" for row in _where(has_point)}
    return pc.replace_substring(_without(texts, has_point), ",", "."), reasons


def _dated(texts: pa.Array, c: Column, wanted: DateFormat) -> tuple[pa.Array, Reasons]:
    dates = wanted.dates(texts)
    bad = pc.and_(texts.is_valid(), dates.is_null())
    return dates, {row: bad_date(texts[row].as_py(), _MOMENTS[c.type.kind], c.name, wanted) for row in _where(bad)}


def _where(found: pa.Array) -> list[int]:
    rows: list[int] = pc.indices_nonzero(pc.fill_null(found, False)).to_pylist()
    return rows


def _without(texts: pa.Array, bad: Any) -> pa.Array:
    return pc.if_else(pc.fill_null(bad, False), pa.scalar(None, texts.type), texts)
