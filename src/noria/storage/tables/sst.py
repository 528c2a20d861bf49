"""Builds SST files outside the store, in Spark's tasks: rows to entries, sorted entries to a file.

A load does the following for a table's rows and for each of its indexes.  Every task runs `entries`, which returns key
and value as binary columns.  Spark sorts by key into ranges; its order of binary columns is RocksDB's.  Every task then
runs `write_file`.  `LoadCommits.ingest` ingests the files.  Beside each file, `<file>.json` has its rows and its first
and last key.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import add, eq

import numpy as np
import pyarrow as pa
from rocksdict import SstFileWriter

from noria.core.batch import Codes
from noria.core.errors import SqlError
from noria.core.errors.codes import DUP_ENTRY
from noria.core.types import BIGINT, TableDef
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys, pack_rows, parts_of_arrow
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.options import table_options
from noria.storage.tables.table import Index

ROW_NUMBER = "__row"  # the column that numbers the rows of a table without a primary key
ENTRY = pa.schema([("key", pa.binary()), ("value", pa.large_binary())])
_LOADED, _LOAD_BITS, _PARTITION_BITS, _ROW_BITS = 1 << 62, 22, 14, 26


@dataclass(frozen=True)
class SstFile:
    path: str
    rows: int
    first: bytes
    last: bytes
    nbytes: int


def bag_rows(load: int, partition: int, first: int, rows: int) -> Codes:
    """Row numbers for a table without a primary key, distinct from those of INSERT.

    load: a number drawn for this load.  If two loads draw the same, the second is rejected: draw again.
    """
    if partition >= 1 << _PARTITION_BITS or first + rows > 1 << _ROW_BITS:
        raise StoreError(f"partition {partition} of the load is too large: use at most {1 << _PARTITION_BITS} "
                         f"partitions of at most {1 << _ROW_BITS} rows")
    start = _LOADED | (load % (1 << _LOAD_BITS)) << (_PARTITION_BITS + _ROW_BITS) | partition << _ROW_BITS
    return np.arange(start + first, start + first + rows, dtype=np.int64)


def entries(table: TableDef, index: Index | None, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The entries of a family for these rows: the table's own (index None) or an index's.

    The batch has columns of `values.arrow_type` by the table's names (for an index at least its own and the
    key's); for a table without a primary key also ROW_NUMBER.
    """
    keys = _row_keys(table, batch)
    if index is None:
        types = [c.type for c in table.columns]
        values = pack_rows(parts_of_arrow([batch.column(c.name) for c in table.columns], types))
        return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.large_binary())], schema=ENTRY)
    columns = [batch.column(table.columns[c].name) for c in index.columns]
    prefixes = pack_keys(key_parts_of_arrow(columns, [table.columns[c].type for c in index.columns]))
    if not index.unique:
        prefixes = list(map(add, prefixes, keys))
    else:
        nulls = np.zeros(len(keys), np.bool_)
        for column in columns:
            nulls |= column.is_null().to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(nulls).tolist():
            prefixes[row] += keys[row]
    return pa.record_batch([pa.array(prefixes, pa.binary()), pa.array(keys, pa.large_binary())], schema=ENTRY)


def _row_keys(table: TableDef, batch: pa.RecordBatch) -> list[bytes]:
    if not table.primary_key:
        return pack_keys(key_parts_of_arrow([batch.column(ROW_NUMBER)], [BIGINT]))
    columns = [table.columns[c] for c in table.primary_key]
    return pack_keys(key_parts_of_arrow([batch.column(c.name) for c in columns], [c.type for c in columns]))


def write_file(
    path: str, batches: Iterable[pa.RecordBatch], on_duplicate: Callable[[bytes, bytes], object] | None = None
) -> SstFile | None:
    """Write entries, sorted by key, to one file; None if there are none.

    on_duplicate: called with key and value of an entry that repeats a key and is left out; without it such an entry
    raises SqlError 1062.
    """
    writer = SstFileWriter(table_options())
    rows, first, last = 0, b"", b""
    for batch in batches:
        keys, values = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        if keys and ((rows and keys[0] == last) or any(map(eq, keys, keys[1:]))):
            keys, values = _distinct(keys, values, last if rows else None, on_duplicate)
        if not keys:
            continue
        if not rows:
            writer.open(path)
            first = keys[0]
        deque(map(writer.__setitem__, keys, values), maxlen=0)
        rows, last = rows + len(keys), keys[-1]
    if not rows:
        return None
    writer.finish()
    with open(path + ".json", "w") as out:
        json.dump({"rows": rows, "first": first.hex(), "last": last.hex()}, out)
    return describe(path)


def _distinct(
    keys: list[bytes], values: list[bytes], last: bytes | None, on_duplicate: Callable[[bytes, bytes], object] | None
) -> tuple[list[bytes], list[bytes]]:
    kept: list[tuple[bytes, bytes]] = []
    for key, value in zip(keys, values, strict=True):
        if key != last:
            kept.append((key, value))
        elif on_duplicate is None:
            raise SqlError(*DUP_ENTRY, "Duplicate entry in the rows to load: two rows have the same key "
                           f"({key.hex()} as stored)")
        else:
            on_duplicate(key, value)
        last = key
    return [k for k, _ in kept], [v for _, v in kept]


def describe(path: str) -> SstFile:
    """The file's rows and range, as `write_file` recorded them."""
    try:
        with open(path + ".json") as file:
            noted = json.load(file)
        return SstFile(path, noted["rows"], bytes.fromhex(noted["first"]), bytes.fromhex(noted["last"]),
                       os.path.getsize(path))
    except (OSError, ValueError, KeyError) as e:
        raise StoreError(f"the file {path} to be loaded is not whole: {e}; load again") from e
