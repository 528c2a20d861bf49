"""Computes the net change of several transactions: for each table, the new rows and the deleted keys.

It is applied as "delete these keys, replace these rows".  This is idempotent, and does not depend on what was stored
before.  So the first rows can be read while the source is written: all changes since then are applied again.

Keeps true: only the last change of a key is kept.  A table's deletes are applied before its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from noria.following import values
from noria.following.binlog import Key, Row, RowChange
from noria.following.schema import SourceTable


@dataclass
class NetChange:
    """The net change: by table and key, the row, or None if deleted.  count: the number of changes that were added."""

    tables: dict[str, dict[Key, Row | None]] = field(default_factory=dict)
    count: int = 0

    def add(self, changes: Iterable[RowChange], tables: Mapping[str, SourceTable]) -> None:
        for table, old_key, new_row in changes:
            last = self.tables.setdefault(table, {})
            if old_key is not None:
                last[old_key] = None
            if new_row is not None:
                last[tuple(new_row[k] for k in tables[table].key_places)] = new_row
            self.count += 1

    def __bool__(self) -> bool:
        return bool(self.tables)

    def batches(self, tables: Mapping[str, SourceTable]) -> Iterator[tuple[str, str, pa.RecordBatch]]:
        """Yield (table, "delete", keys) and (table, "replace", rows)."""
        for name, last in self.tables.items():
            table = tables[name]
            if deleted := [key for key, row in last.items() if row is None]:
                yield name, "delete", _batch(table, table.key_places, deleted)
            if rows := [row for row in last.values() if row is not None]:
                yield name, "replace", _batch(table, range(len(table.columns)), rows)


def _batch(table: SourceTable, places: Any, rows: Any) -> pa.RecordBatch:
    converts = [values.of_binlog(c) for c in table.columns]
    return pa.RecordBatch.from_arrays(values.arrays(table, list(places), rows, converts),
                                      names=[table.columns[p].name for p in places])
