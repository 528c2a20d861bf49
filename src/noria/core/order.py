"""MySQL's order of values: sorts the rows of one lookup by ORDER BY, and ranks texts.

NULL is first in ascending and last in descending order.  Case-insensitive (CI) text is ordered by its folded form,
other text by its bytes.  Rows that are equal in the order keep their sequence.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noria.core.batch import Codes
from noria.core.limits import ERROR_CODE, OFF_LOOP_ROWS
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import Symbols, fold
from noria.core.types import Collation, Field
from noria.core.values import encode

Order = Sequence[tuple[int, bool]]  # (column, descending), the most significant one first
Row = Sequence[Any]


def sort_rows(rows: list[Any], order: Order, fields: Sequence[Field]) -> list[Any]:
    """Sort rows of Python values."""
    for column, descending in reversed(order):
        rows = _sorted(rows, _key(column, fields[column]), descending)
    return rows


def _sorted(rows: list[Any], key: Callable[[Row], Any], descending: bool) -> list[Any]:
    """Sort rows; many are sorted in parts and merged, because no other thread can run while Python sorts a list."""
    if len(rows) <= OFF_LOOP_ROWS:
        return sorted(rows, key=key, reverse=descending)
    runs = (sorted(rows[i:i + OFF_LOOP_ROWS], key=key, reverse=descending)
              for i in range(0, len(rows), OFF_LOOP_ROWS))
    return list(heapq.merge(*runs, key=key, reverse=descending))


def _key(column: int, field: Field) -> Callable[[Row], Any]:
    """Return the function that gives a row's sort key.  A flag before the value puts NULLs first."""
    if field.type.folds:
        return lambda row: (False, "") if row[column] is None else (True, fold(row[column]))
    if field.type.is_listed:  # by place or mask
        def listed(row: Row) -> tuple[bool, int]:
            value = row[column]
            return value is not None, 0 if value is None else encode(value, field.type, PlainSymbols())

        return listed
    return lambda row: (False, None) if row[column] is None else (True, row[column])


def ranks(codes: Codes, collation: Collation, symbols: Symbols) -> Codes:
    """Return the ranks of texts in their order, from 0.  Equal texts have the same rank.  NULL and errors stay."""
    distinct, place = np.unique(codes, return_inverse=True)
    bad = int(np.searchsorted(distinct, ERROR_CODE, "right"))
    keys = symbols.sort_keys(distinct[bad:], collation).to_pylist()
    rank = {k: i for i, k in enumerate(sorted(set(keys)))}
    return np.concatenate([distinct[:bad], np.array([rank[k] for k in keys], np.int64)])[place]
