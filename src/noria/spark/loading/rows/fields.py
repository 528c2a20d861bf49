"""Rewrites the fields of a CSV column in SQL's spelling: decimal point, dates, empty fields.

Keeps true: the meaning of a field depends only on the column's type and the load's options.  So `--create`, which tries
types on the same fields, finds the types with which the load succeeds.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from noria.core.types import Column, Kind, SqlType
from noria.spark.loading.rows.dates import DateFormat, bad_date
from noria.spark.loading.rows.reading import TextFormat

Reasons = dict[int, str]  # by row
_NUMBERS = (Kind.INT, Kind.DECIMAL, Kind.DOUBLE)
_MOMENTS = {Kind.DATE: "date", Kind.DATETIME: "datetime"}


def prepared(texts: pa.Array, c: Column, reading: TextFormat) -> tuple[pa.Array, Reasons]:
    """Return the fields of a column in SQL's spelling.  An invalid field becomes NULL and has a reason."""
    if not takes_empty(c.type):
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)
    if c.type.kind in _NUMBERS and reading.decimal == ",":
        return _with_point(texts, c)
    if c.type.kind in _MOMENTS and reading.date_format:
        return _dated(texts, c, DateFormat.of(reading.date_format))
    if c.type.declared == "year":  # the texts 0 and 00 mean 2000
        return pc.replace_substring_regex(texts, r"^\s*0{1,3}\s*$", "2000"), {}
    return texts, {}


def takes_empty(type: SqlType) -> bool:
    """Whether the empty text is a value of this type.  For other types an empty field is NULL."""
    return type.is_text or type.kind is Kind.SET or (type.kind is Kind.ENUM and "" in type.members)


def _with_point(texts: pa.Array, c: Column) -> tuple[pa.Array, Reasons]:
    """Read 12,5 as 12.5.  A field with a point is rejected: it could be a thousands separator."""
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
