"""Reads a checkpoint outside the store, in Spark's tasks: a table as Arrow batches, by ranges of its key.

Any number of processes may read one checkpoint; nothing writes to it.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rocksdict import AccessType, Options, Rdict

from noria.core.errors import not_supported
from noria.core.expressions.coerce import coerce
from noria.core.expressions.zero_date import ZERO_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import NO_SYMBOLS
from noria.core.types import MOMENTS, Column, TableDef
from noria.core.values import DAY_MICROS, arrow_type, bytes_of, convert, from_arrow, to_arrow
from noria.storage.format.catalog import family_of, read_catalog
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys, unpack_parts
from noria.storage.rocks import reading, recovery
from noria.storage.rocks.engine import DEFAULT, META
from noria.storage.rocks.errors import StoreError, opening_error
from noria.storage.rocks.options import table_options
from noria.storage.rocks.reading import Family
from noria.storage.rocks.shared import SHARED, part_of
from noria.storage.tables.computed import computed_of
from noria.storage.tables.sst import ENTRY
from noria.storage.tables.table import Index

BATCH_ROWS = 50_000
_HEAD_BYTES = 12  # leading bytes of a key, which place it among others


class KeyRange(NamedTuple):
    """Keys from `first` (None: the start) to before `end` (None: the end)."""

    first: bytes | None = None
    end: bytes | None = None


def open_read_only(path: str, names: list[str]) -> Rdict:
    """Open families of a checkpoint for reading; any number of processes may do so.

    Raises StoreError if the checkpoint does not exist (any more): RocksDB would create a directory for it.
    """
    if not os.path.exists(os.path.join(path, "CURRENT")):
        raise StoreError(f"there is no checkpoint {path} (any more)")
    try:
        options = table_options(recovery.tracked_options())  # untracked, opening would write to the MANIFEST
        return Rdict(path, options, {n: table_options() for n in names}, AccessType.read_only(False))
    except Exception as e:
        raise opening_error(path, e) from e


@contextmanager
def opened(path: str, name: str) -> Iterator[Family]:
    """Open one family of a checkpoint for reading, be it a part of the shared one."""
    names = {SHARED, name} & set(_families(path))
    if not names:
        raise StoreError(f"the checkpoint {path} has no column family {name}")
    db = open_read_only(path, sorted(names))
    try:
        family = part_of({n: db.get_column_family(n) for n in names}, name)
        assert family is not None
        yield family
    finally:
        family = None
        db.close()


def _families(path: str) -> list[str]:
    if not os.path.exists(os.path.join(path, "CURRENT")):
        raise StoreError(f"there is no checkpoint {path} (any more)")
    try:
        return [n for n in Rdict.list_cf(path, Options(raw_mode=True)) if n != DEFAULT]
    except Exception as e:
        raise opening_error(path, e) from e


def read_tables(path: str) -> dict[str, TableDef]:
    """The tables of a checkpoint, by name."""
    db = open_read_only(path, [META])
    try:
        _, tables, _ = read_catalog(db.get_column_family(META).get)
        return {t.name: t for t in tables}
    finally:
        db.close()


def read_checkpoint(
    path: str, table: TableDef, ranges: Sequence[KeyRange] = (KeyRange(),), columns: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The table's rows in these ranges.  columns: positions, None: all; their types are `values.arrow_type`'s."""
    wanted = list(range(len(table.columns))) if columns is None else list(columns)
    with opened(path, family_of(table)) as family:
        for first, end in ranges:
            for some in reading.slices(family, BATCH_ROWS, "values", first, end):
                yield from _batches(some, table, wanted)


def read_entries(path: str, table: TableDef, index: Index, ranges: Sequence[KeyRange] = (KeyRange(),),
                 rows: int = BATCH_ROWS) -> Generator[pa.RecordBatch, None, None]:
    """The entries of an index that is not UNIQUE for the table's rows in these ranges, in batches of ENTRY."""
    with opened(path, family_of(table)) as family:
        for first, end in ranges:
            for some in reading.slices(family, rows, "items", first, end):
                yield _entries([k for k, _ in some], [v for _, v in some], table, index)


def _entries(keys: list[bytes], values: list[bytes], table: TableDef, index: Index) -> pa.RecordBatch:
    columns = [table.columns[c] for c in index.columns]
    made: list[bytes] = []
    order: list[bytes] = []
    for rows, parts in unpack_parts(values, [c.type for c in table.columns]):
        count = len(parts[0]) if parts else 0
        mine = keys if isinstance(rows, slice) else [keys[r] for r in rows.tolist()]
        arrays = [column_array(table, c, parts, count) for c in index.columns]
        made += map(add, pack_keys(key_parts_of_arrow(arrays, [c.type for c in columns])), mine)
        order += mine
    return pa.record_batch([pa.array(made, pa.binary()), pa.array(order, pa.large_binary())], schema=ENTRY)


def _batches(values: list[bytes], table: TableDef, wanted: list[int]) -> Iterator[pa.RecordBatch]:
    types = [c.type for c in table.columns]
    for _, parts in unpack_parts(values, types):
        rows = len(parts[0]) if parts else 0
        arrays = [column_array(table, c, parts, rows) for c in wanted]
        for c, array in zip(wanted, arrays, strict=True):
            _refuse_zeros(array, table.columns[c])
        names = [table.columns[c].name for c in wanted]
        yield pa.RecordBatch.from_arrays(arrays, names)


def _refuse_zeros(array: pa.Array, column: Column) -> None:
    """Raise SqlError 1235 for the zero date, which neither Spark nor Parquet has."""
    if column.type.kind not in MOMENTS or not len(array):
        return
    least = pc.min(array.cast(pa.int32() if pa.types.is_date32(array.type) else pa.int64())).as_py()
    if least is not None and least in (ZERO_CODE, ZERO_CODE // DAY_MICROS):
        raise not_supported(f"'0000-00-00' in the column '{column.name}' for Spark and in files",
                            "write NULL or a date there first")


def column_array(table: TableDef, at: int, parts: Sequence[Any], rows: int) -> pa.Array:
    """A column of packed rows, also of rows that were written before the column was added."""
    column = table.columns[at]
    if at < len(parts):
        return _array(parts[at], column)
    if column.generated:
        return _computed_array(table, at, parts, rows)
    if column.source is None:
        return default_array(column, rows)
    symbols = PlainSymbols()
    before = column_array(table, column.source, parts, rows).dictionary_encode()  # each value is converted once
    values = to_arrow(convert(before.dictionary, replace(column, nullable=True), 1, symbols), column.type, symbols)
    return values.take(before.indices)


def _computed_array(table: TableDef, at: int, parts: Sequence[Any], rows: int) -> pa.Array:
    """A generated column of rows that were written before it was added."""
    symbols, computed = PlainSymbols(), next(c for c in computed_of(table) if c.at == at)
    codes = np.zeros((len(table.columns), rows), np.int64)
    for c in computed.reads:
        codes[c] = from_arrow(column_array(table, c, parts, rows), table.columns[c].type, symbols)
    return to_arrow(computed.codes(codes, symbols), table.columns[at].type, symbols)


def _array(part: Any, column: Column) -> pa.Array:
    if isinstance(part, np.ndarray):
        return to_arrow(part, column.type, NO_SYMBOLS)
    return bytes_of(part) if column.type.is_bytes else part


def default_array(column: Column, rows: int) -> pa.Array:
    """The initial value of a column, for rows that lack the column."""
    value = None if column.initial is None else coerce(column.initial, column, 1)
    return pa.repeat(pa.scalar(value, arrow_type(column.type)), rows)


# ------------------------------------------------------------------ ranges
def split(path: str, table: TableDef, ranges: int, least_rows: int = 1) -> list[KeyRange]:
    """At most `ranges` ranges that cover the table, of about equal rows and at least `least_rows` each.

    Each file of the table has its row count and its first and last key; keys are assumed to be evenly distributed.
    """
    files = _files(path, table)
    if ranges <= 1 or not files:
        return [KeyRange()]
    spans = [(_number(first), _number(last), rows) for first, last, rows in files]
    ranges = min(ranges, -(-sum(rows for _, _, rows in spans) // least_rows))
    cuts = [_bytes(c) for c in dict.fromkeys(_cuts(spans, ranges))]
    return [KeyRange(a, b) for a, b in zip([None, *cuts], [*cuts, None], strict=True)]


def sizes_about(path: str) -> dict[str, tuple[int, int]]:
    """(rows, bytes) of every family of a checkpoint, by its name; both are estimates.  Parts are left out."""
    names = [n for n in _families(path) if n != SHARED]
    db = open_read_only(path, names)
    try:
        properties = ("rocksdb.estimate-num-keys", "rocksdb.total-sst-files-size")
        families = {n: db.get_column_family(n) for n in names}
        return {n: (int(f.property_int_value(properties[0]) or 0), int(f.property_int_value(properties[1]) or 0))
                for n, f in families.items()}
    finally:
        db.close()


def rows_about(path: str, table: TableDef) -> int:
    """About how many rows the table has, by its files; deleted rows may be counted.  0: a few, of a part."""
    return sum(rows for _, _, rows in _files(path, table))


def bytes_about(path: str, table: TableDef) -> int:
    """The bytes of the table's files, without its indexes.  0: a few, of a part."""
    if family_of(table) not in _families(path):
        return 0
    db = open_read_only(path, [family_of(table)])
    try:
        return sum(f["size"] for f in db.live_files())
    finally:
        db.close()


def _files(path: str, table: TableDef) -> list[tuple[bytes, bytes, int]]:
    """The first key, last key and entry count of each file of the table; nothing of a part."""
    if family_of(table) not in _families(path):
        return []
    db = open_read_only(path, [family_of(table)])
    try:
        # Only this family is open (RocksDB's default is empty), so all files are its own.
        return [(f["start_key"], f["end_key"], f["num_entries"]) for f in db.live_files()]
    finally:
        db.close()


def _number(key: bytes) -> int:
    return int.from_bytes(key[:_HEAD_BYTES].ljust(_HEAD_BYTES, b"\0"), "big")


def _bytes(number: int) -> bytes:
    return number.to_bytes(_HEAD_BYTES, "big").rstrip(b"\0")


def _cuts(spans: list[tuple[int, int, int]], ranges: int) -> list[int]:
    """The keys before which an estimated multiple of total / ranges rows lie, by bisection."""
    total = sum(rows for _, _, rows in spans)
    low, high = min(s[0] for s in spans), max(s[1] for s in spans)
    cuts = []
    for number in range(1, ranges):
        target, a, b = total * number / ranges, low, high
        while a < b:
            middle = (a + b) // 2
            if _rows_before(spans, middle) < target:
                a = middle + 1
            else:
                b = middle
        if low < a <= high:
            cuts.append(a)
    return sorted(cuts)


def _rows_before(spans: list[tuple[int, int, int]], key: int) -> float:
    before = 0.0
    for first, last, rows in spans:
        if key > first:
            before += rows * min(1.0, (key - first) / (last - first + 1))
    return before
