"""Looks up keys of a table in the checkpoints of all workers, without reading its rows.

Input: keys as `packed` returns them.  Output: those that no row has.  Only the primary key or a UNIQUE key can be
looked up, since each has a column family whose keys are its values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from noria.core.types import SqlType, TableDef
from noria.storage.format.catalog import family_of, index_family_of
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys
from noria.storage.offline.snapshot import opened, read_tables
from noria.storage.rocks.errors import StoreError
from noria.storage.rocks.reading import Family
from noria.storage.tables.shards import shards_of

_AT_ONCE = 10_000  # keys whose values are in memory at once


def packed(columns: Sequence[pa.Array], types: Sequence[SqlType]) -> list[bytes]:
    """The key of each row.  No value is NULL."""
    return pack_keys(key_parts_of_arrow(columns, types)) if len(columns[0]) else []


class StoredKeys:
    """The values of the columns of a table in a checkpoint.  A table that the checkpoint lacks has none.

    Raises StoreError if these columns are no key of the table.
    """

    def __init__(self, checkpoint: str, table: TableDef, columns: Sequence[int]):
        shards = shards_of(checkpoint)
        found = next((t for t in read_tables(shards[0]).values() if t.table_id == table.table_id), None)
        family = None if found is None else _family(found, tuple(columns))
        self._open = ExitStack()
        self._families = [] if family is None else [self._open.enter_context(opened(s, family)) for s in shards]

    def absent(self, keys: Sequence[bytes]) -> set[bytes]:
        """Those of the keys that no row has."""
        left = sorted(set(keys))
        for family in self._families:
            left = [key for at in range(0, len(left), _AT_ONCE) for key in _absent(family, left[at : at + _AT_ONCE])]
        return set(left)

    def close(self) -> None:
        self._families = []
        self._open.close()


def _absent(family: Family, keys: list[bytes]) -> Iterator[bytes]:
    values: list[Any] = family.get(keys)
    return (key for key, value in zip(keys, values, strict=True) if value is None)


def _family(table: TableDef, columns: tuple[int, ...]) -> str:
    if table.primary_key == columns:
        return family_of(table)
    if any(i.unique and i.columns == columns and not any(i.prefix) for i in table.indexes):
        return index_family_of(table, columns, True)
    names = ", ".join(table.columns[c].name for c in columns)
    raise StoreError(f"({names}) is no key of table {table.name} in the snapshot: load again")
