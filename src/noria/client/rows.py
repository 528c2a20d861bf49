"""Converts a caller's rows to an Arrow table, with one column for each name.

Keeps true: a value is in the column that the caller named, or in the column at its position.  An invalid row raises an
error before anything is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import pyarrow as pa

Rows = pa.Table | pa.RecordBatch | Mapping[str, Sequence[Any]] | Iterable[Sequence[Any] | Mapping[str, Any]]


def as_table(rows: Any, columns: Sequence[str] | None, all_columns: Sequence[str]) -> pa.Table:
    """Convert rows: an Arrow table, a mapping of columns by name, or an iterable of rows.

    A row is a sequence of values in the order of `columns` (by default `all_columns`), or a mapping from names to
    values.  All mappings must have the same names: `columns`, or those of the first row.
    Raises ValueError or TypeError for an invalid row, with its number from 0."""
    if isinstance(rows, (pa.Table, pa.RecordBatch, Mapping)):
        if columns is not None:
            raise ValueError("these rows name their columns: leave `columns` out")
        if isinstance(rows, Mapping):
            return pa.table({name: _column(name, values) for name, values in rows.items()})
        return rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    if isinstance(rows, (str, bytes, bytearray)) or not isinstance(rows, Iterable):
        raise TypeError(f"{_shown(rows)} is no list of rows")
    listed = list(rows)
    if listed and isinstance(listed[0], Mapping):
        names = list(columns or listed[0])
        values = [[row[name] for row in listed] for name in names] if _all_named(listed, names) else []
    else:
        names = list(columns or all_columns)
        _refuse_other(listed, names)
        values = [[row[at] for row in listed] for at in range(len(names))]
    return pa.Table.from_arrays([array(v) for v in values], names=names)


def array(values: Sequence[Any]) -> pa.Array:
    """Make an array of the type that Arrow infers.  With an integer beyond 64 bits, all values become texts: then the
    server refuses them with the name of their column."""
    try:
        return pa.array(values)
    except OverflowError:
        return pa.array([v if v is None else str(v) for v in values])


def _column(name: str, values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, (str, bytes, bytearray, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"column {name} is {_shown(values)}, not a list of values; one row is a list of one dictionary")
    return values if isinstance(values, (pa.Array, pa.ChunkedArray)) else array(list(values))


def _all_named(rows: Sequence[Any], names: Sequence[str]) -> bool:
    wanted = set(names)
    for at, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {at} is {_shown(row)}, and row 0 is a dictionary")
        if missing := [name for name in names if name not in row]:
            raise ValueError(f"row {at} has no value for: {', '.join(missing)}")
        if unknown := [str(name) for name in row if name not in wanted]:
            raise ValueError(f"row {at} has a value for {', '.join(unknown)}; the columns are: {', '.join(names)}")
    return True


def _refuse_other(rows: Sequence[Any], names: Sequence[str]) -> None:
    for at, row in enumerate(rows):
        if isinstance(row, (str, bytes, bytearray, Mapping, Set)) or not hasattr(row, "__getitem__"):
            raise TypeError(f"row {at} is {_shown(row)}, not a sequence of values")
        if len(row) != len(names):
            raise ValueError(f"row {at} has {len(row)} values for {len(names)} columns: {', '.join(names)}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
