"""Converts rows of files to rows of a table by MySQL's strict rules, and sets bad rows aside.

It converts a column at once.  Only if a value does not fit does it convert the column's values one by one.  Keeps true:
each value of a good row has the column's `values.arrow_type` and fits its declaration.  Any other row is a reject with
the first reason found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from noria.core import values
from noria.core.batch import Codes
from noria.core.errors import SqlError, no_default, null_not_allowed
from noria.core.expressions.coerce import MAX_TEXT_BYTES, coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.expr import columns_of
from noria.core.expressions.functions import at_time
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import Column, Kind, TableDef
from noria.spark.loading.rows.fields import Reasons, prepared
from noria.spark.loading.rows.files import MISSING, BadFile, Chunk, MixedColumn, Reject
from noria.spark.loading.rows.reading import TextFormat
from noria.storage.tables.computed import Computed, computed_of, defaults_of, time_default
from noria.storage.tables.rules import broken, error_of, rules_of

FindOrphans = Callable[[Codes], Mapping[int, tuple[str, str]]]  # good rows -> the column and the reason, by row
NO_SYMBOLS: Any = None  # the codes of numbers and dates need no symbol table


@dataclass(frozen=True)
class ColumnMap:
    """For each column of the table, the name of the file's column, or None for the default."""

    names: tuple[str | None, ...]


def map_columns(table: TableDef, names: Sequence[str], path: str) -> ColumnMap:
    """Match the columns by name, ignoring case.

    Raises BadFile for a column that the table lacks, and for a missing column without a default.
    """
    by_name: dict[str, str] = {}
    known = {name.lower() for _, name in table.shape}
    extra = [n for n in names if n.strip().lower() not in known]
    if extra:
        raise BadFile(f"{path}: column{'s' if len(extra) > 1 else ''} {', '.join(extra)} not in table {table.name} "
                      f"({', '.join(name for _, name in table.shape)}); rename or drop them in the file")
    for n in names:
        if n.strip().lower() in by_name:
            raise BadFile(f"{path}: names column {n} twice")
        by_name[n.strip().lower()] = n
    if generated := [c.name for c in table.columns if c.generated and c.name.lower() in by_name]:
        raise BadFile(f"{path}: has values for the generated column {generated[0]}; drop it in the file")
    missing = [c.name for c in table.columns if c.name.lower() not in by_name and not _has_value(c)]
    if missing:
        raise BadFile(f"{path}: no column {', '.join(missing)}, which table {table.name} needs; add it to the file "
                      "or give it a default")
    return ColumnMap(tuple(by_name.get(c.name.lower()) for c in table.columns))


def _has_value(c: Column) -> bool:
    return bool(c.computed) or c.has_default or c.default_now or c.nullable or c.auto_increment or bool(c.dropped)


def defaults(table: TableDef, now: datetime) -> list[pa.Scalar]:
    """Return the default of each column as a scalar of its Arrow type."""
    out = []
    for c in table.columns:
        value: Any = now if c.default_now else c.default if c.has_default else None
        if c.computed == "time":
            value = constant(at_time(time_default(c), now, timedelta()))
        fitted = None if value is None else coerce(value, c, 1)
        out.append(pa.scalar(fitted, values.arrow_type(c.type)))
    return out


def convert(chunk: Chunk, mapping: ColumnMap, table: TableDef, fill: Sequence[pa.Scalar], path: str,
            csv: TextFormat | None = None, orphans: FindOrphans | None = None) -> tuple[pa.RecordBatch, list[Reject]]:
    """Return the chunk's good rows, with the table's column names, and its rejects.  csv: the options of a CSV file.

    orphans: finds those of the good rows that lack a parent.
    """
    arrays: list[pa.Array] = []
    bad: dict[int, tuple[str, str]] = {}
    for c, name, default in zip(table.columns, mapping.names, fill, strict=True):
        if name is None:
            arrays.append(pa.repeat(default, chunk.rows))
            continue
        source = chunk.columns[name]
        array, reasons = field(source, c, default, csv) if csv else column(source, c, default)
        arrays.append(array)
        for row, reason in reasons.items():
            bad.setdefault(row, (c.name, reason))
    for at in table.defaulted:
        if (rows := _without(chunk, mapping.names[at])) is not None:
            made, reasons = _computed(table, defaults_of(table), at, arrays, bad)
            arrays[at] = pc.if_else(pa.array(rows), made, arrays[at])
            bad.update({row: (table.columns[at].name, reason) for row, reason in reasons.items() if rows[row]})
    for at in table.generated:
        arrays[at], reasons = _computed(table, computed_of(table), at, arrays, bad)
        for row, reason in reasons.items():
            bad.setdefault(row, (table.columns[at].name, reason))
    for row, reason in _broken(table, arrays).items():
        bad.setdefault(row, ("", reason))
    if orphans is not None:
        bad.update(orphans(np.setdiff1d(np.arange(chunk.rows), np.array(list(bad), np.int64))))
    batch = pa.RecordBatch.from_arrays(arrays, [c.name for c in table.columns])
    rejects = list(chunk.rejects)
    if bad:
        keep = np.ones(chunk.rows, np.bool_)
        keep[list(bad)] = False
        batch = batch.filter(pa.array(keep))
        rejects += _rejects(chunk, bad, path)
    return batch, rejects


def _without(chunk: Chunk, name: str | None) -> npt.NDArray[np.bool_] | None:
    """The mask of rows without a value for a column; None if all have one."""
    if name is None:
        return np.ones(chunk.rows, np.bool_)
    source = chunk.columns[name]
    mask = np.array([v is MISSING for v in source.values], np.bool_) if isinstance(source, MixedColumn) else None
    return mask if mask is not None and mask.any() else None


def _computed(table: TableDef, every: Sequence[Computed], at: int, arrays: Sequence[pa.Array], bad: Collection[int]
              ) -> tuple[pa.Array, Reasons]:
    """A column of good rows from its expression, and the reasons of rows for which it has no value."""
    symbols, made = PlainSymbols(), next(c for c in every if c.at == at)
    rows = np.zeros((len(arrays), len(arrays[0])), np.int64)
    for c in made.reads:
        rows[c] = values.from_arrow(arrays[c], table.columns[c].type, symbols)
    codes, reasons = np.full(rows.shape[1], NULL_CODE), Reasons()
    good = np.setdiff1d(np.arange(rows.shape[1]), np.array(list(bad), np.int64))
    try:
        codes[good] = made.codes(rows[:, good], symbols)
    except SqlError:
        for row in good.tolist():
            try:
                codes[row] = made.codes(rows[:, [row]], symbols)[0]
            except SqlError as e:
                reasons[row] = _AT_ROW.sub("", e.message)
    return values.to_arrow(codes, table.columns[at].type, symbols), reasons


def _broken(table: TableDef, arrays: Sequence[pa.Array]) -> Reasons:
    """The rows that break a CHECK, with the error's message."""
    rules = rules_of(table)
    if not rules or not len(arrays[0]):
        return {}
    symbols, read = PlainSymbols(), {c for rule in rules for c in columns_of(rule.condition)}
    rows = np.zeros((len(arrays), len(arrays[0])), np.int64)
    for at in read:
        rows[at] = values.from_arrow(arrays[at], table.columns[at].type, symbols)
    found = np.flatnonzero(broken(rules, rows, symbols)).tolist()
    return {row: error_of(rules, rows[:, row], symbols).message for row in found}


def _rejects(chunk: Chunk, bad: Mapping[int, tuple[str, str]], path: str) -> list[Reject]:
    """Make the rejects of bad rows.  bad: for each row, the column and the reason."""
    rows, lines = sorted(bad), chunk.lines()
    if lines is not None and len(lines) != chunk.rows:  # several objects of JSON in one line
        lines = None
    picked = {}
    for n, array in chunk.columns.items():
        loose = isinstance(array, MixedColumn)
        picked[n] = [array.values[r] for r in rows] if loose else array.take(pa.array(rows)).to_pylist()
    out = []
    for i, r in enumerate(rows):
        named = {n: v[i] for n, v in picked.items() if v[i] is not MISSING}
        text = json.dumps(named, default=str, ensure_ascii=False)
        number = None if chunk.first_row is None else chunk.first_row + r
        name, reason = bad[r]
        out.append(Reject(path, number, text, reason, None if lines is None else lines[r], name or None))
    return out


# ------------------------------------------------------------------ one column
def field(texts: pa.Array, c: Column, default: pa.Scalar, reading: TextFormat) -> tuple[pa.Array, Reasons]:
    """Convert a column of CSV, as `column` does, after `fields.prepared`."""
    spelled, reasons = prepared(texts, c, reading)
    array, others = column(spelled, c, default)
    return array, {**others, **reasons}


def column(source: Any, c: Column, default: pa.Scalar) -> tuple[pa.Array, Reasons]:
    """Convert a column to its Arrow type.  A value that does not fit becomes NULL and has a reason, by row."""
    if not isinstance(source, MixedColumn):
        if pa.types.is_dictionary(source.type):
            source = source.dictionary_decode()
        if pa.types.is_timestamp(source.type) and source.type.unit == "ns":
            source = pc.round_temporal(source, unit="microsecond").cast(pa.timestamp("us", source.type.tz))
        converted = _text(source, c) if c.type.is_text else _plain(source, c)
        if converted is not None:
            return converted, {}
    return _one_by_one(source.to_pylist(), c, default.as_py())


def _text(source: pa.Array, c: Column) -> pa.Array | None:
    """Return a column of texts at once, or None if one is too long or is NULL where that is not allowed."""
    if values.particular(c.type) or c.type.declared == "char":
        return None
    if pa.types.is_integer(source.type):
        source = source.cast(pa.string())
    if not (pa.types.is_string(source.type) or pa.types.is_large_string(source.type)):
        return None
    if source.null_count and not c.nullable:
        return None
    longest = pc.max(pc.binary_length(source)).as_py() or 0
    if longest > (c.type.length or MAX_TEXT_BYTES) and (
            not c.type.length or pc.max(pc.utf8_length(source)).as_py() > c.type.length):
        return None
    return source.cast(pa.large_string())


def _plain(source: pa.Array, c: Column) -> pa.Array | None:
    """Convert a column of numbers or dates at once, or return None.  Arrow reads texts if all of them are plain."""
    wanted = values.arrow_type(c.type)
    if pa.types.is_string(source.type) or pa.types.is_large_string(source.type):
        if c.type.kind is Kind.INT and _may_be_hexadecimal(source):
            return None  # Arrow reads 0x10 as 16; for SQL it is no number
        try:
            source = source.cast(wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
    if source.null_count and not (c.nullable or c.auto_increment):
        return None
    try:
        codes = values.convert(source, c, 1, NO_SYMBOLS)
    except (SqlError, pa.ArrowInvalid):
        return None
    return values.to_arrow(codes, c.type, NO_SYMBOLS)


def _may_be_hexadecimal(texts: pa.Array) -> bool:
    """Whether the array's buffer, which may hold further texts, has an x."""
    data = texts.buffers()[2]
    return data is not None and bool(((np.frombuffer(data, np.uint8) | 0x20) == ord("x")).any())


_AT_ROW = re.compile(r" at row \d+$")


def _one_by_one(found: Sequence[Any], c: Column, default: Any) -> tuple[pa.Array, Reasons]:
    reasons: Reasons = {}
    good: list[Any] = []
    for row, value in enumerate(found):
        fitted = None
        try:
            if value is MISSING:
                if not _has_value(c):
                    raise no_default(c.name)
                fitted = default
            elif value is not None:
                fitted = coerce(value, c, 1)
            elif not (c.nullable or c.auto_increment):
                raise null_not_allowed(c.name)
        except SqlError as e:
            reasons[row] = _AT_ROW.sub("", e.message)
        good.append(fitted)
    if c.type.kind is Kind.DECIMAL:
        codes = [NULL_CODE if v is None else values.encode(v, c.type, NO_SYMBOLS) for v in good]
        return values.to_arrow(np.array(codes, np.int64), c.type, NO_SYMBOLS), reasons
    return pa.array(good, values.arrow_type(c.type)), reasons
