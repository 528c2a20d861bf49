"""What several transactions come to: for each table the rows that are there after them, and the keys that are not.

Applied as "delete these keys, replace these rows", which comes to the same however often it is done, and whatever of it
had been there before: so reading the first rows may go on while the source is written, and what came since then is
simply applied again.

Keeps true: of a key only what was last is kept; a table's deletes come before its rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from noria.following import values
from noria.following.binlog import Change, Key, Row
from noria.following.schema import SourceTable


@dataclass
class Net:
    """By table, and by key: the row that is there, or None.  count: of all changes that came."""

    tables: dict[str, dict[Key, Row | None]] = field(default_factory=dict)
    count: int = 0

    def add(self, changes: Iterable[Change], tables: Mapping[str, SourceTable]) -> None:
        for table, gone, came in changes:
            last = self.tables.setdefault(table, {})
            if gone is not None:
                last[gone] = None
            if came is not None:
                last[tuple(came[k] for k in tables[table].key_places)] = came
            self.count += 1

    def __bool__(self) -> bool:
        return bool(self.tables)

    def batches(self, tables: Mapping[str, SourceTable]) -> Iterator[tuple[str, str, pa.RecordBatch]]:
        """(table, "delete", keys) and (table, "replace", rows)."""
        for name, last in self.tables.items():
            table = tables[name]
            if gone := [key for key, row in last.items() if row is None]:
                yield name, "delete", _batch(table, table.key_places, gone)
            if rows := [row for row in last.values() if row is not None]:
                yield name, "replace", _batch(table, range(len(table.columns)), rows)


def _batch(table: SourceTable, places: Any, rows: Any) -> pa.RecordBatch:
    converts = [values.of_binlog(c) for c in table.columns]
    return pa.RecordBatch.from_arrays(values.arrays(table, list(places), rows, converts),
                                      names=[table.columns[p].name for p in places])
