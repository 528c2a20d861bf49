"""Divides stored rows among another number of workers: the owner of each row, and its entries in all families.

Keeps true: a row's bytes stay as they are, and all its entries go to the worker that owns it.  A row without a primary
key gets a new number, because two workers may have used the same one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pyarrow as pa

from noria.core.types import BIGINT, TableDef
from noria.storage.format.catalog import family_of
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys, unpack_parts
from noria.storage.format.entries_hash import MultisetHash
from noria.storage.offline.check import add_rows, entries_of, owners_of
from noria.storage.offline.snapshot import BATCH_ROWS, KeyRange, opened
from noria.storage.rocks import reading
from noria.storage.rocks.errors import StoreError
from noria.storage.tables.sst import ENTRY
from noria.storage.tables.table import Index

NUMBER_BITS = 32  # of a row number: the row within its range; the bits above number the range


def deal(checkpoint: str, table: TableDef, indexes: Sequence[Index], key_range: KeyRange, number: int, workers: int,
         sums: MultisetHash, batch_rows: int = BATCH_ROWS) -> Generator[tuple[int, list[pa.RecordBatch]], None, None]:
    """Yield (worker, batches of ENTRY: the table's entries, then each index's) for the rows in a range of the table.

    number: that of the range; sums: all rows that are read are added to it.
    """
    at = 0
    with opened(checkpoint, family_of(table)) as family:
        for items in reading.slices(family, batch_rows, "items", *key_range):
            keys, values = [k for k, _ in items], [v for _, v in items]
            add_rows(sums, table, keys, values)
            if not table.primary_key:
                if at + len(keys) > 1 << NUMBER_BITS:
                    raise StoreError(f"a piece of table {table.name} has more than {1 << NUMBER_BITS:,} rows")
                first = (number << NUMBER_BITS) + 1 + at
                numbers = pa.array(np.arange(first, first + len(keys), dtype=np.int64))
                keys = pack_keys(key_parts_of_arrow([numbers], [BIGINT]))
            yield from _divided(table, indexes, keys, values, workers, at)
            at += len(keys)


def _divided(table: TableDef, indexes: Sequence[Index], keys: list[bytes], values: list[bytes], workers: int, at: int
             ) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    for chosen, parts in unpack_parts(values, [c.type for c in table.columns]):
        rows = range(len(values)) if isinstance(chosen, slice) else chosen.tolist()
        mine, theirs = [keys[r] for r in rows], [values[r] for r in rows]
        whose = owners_of(table, parts, len(mine), workers)
        if whose is None:  # any worker may store them: divide evenly
            whose = (np.arange(len(mine)) + at) % workers
        made = [_batch(mine, theirs), *(_batch(entries_of(table, i, parts, mine), mine) for i in indexes)]
        for worker in np.unique(whose).tolist():
            theirs_only = pa.array(whose == worker)
            yield worker, [b.filter(theirs_only) for b in made]


def _batch(keys: list[bytes], values: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(values, pa.large_binary())], schema=ENTRY)
