"""MySQL's order of rows: what ORDER BY, LIMIT and OFFSET do to the rows of one lookup.

NULLs come first ascending and last descending; CI text is ordered by its folded form, other text by its
bytes.  Rows that the order leaves equal stay as they came.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.limits import ERROR_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import Symbols, fold
from noria.core.types import Collation, Field
from noria.core.values import encode

Order = Sequence[tuple[int, bool]]  # (column, descending), the first counts most
Row = Sequence[Any]


def sort_rows(rows: Sequence[Row], order: Order, fields: Sequence[Field]) -> list[Row]:
    """Rows of Python values, sorted."""
    out = list(rows)
    for column, descending in reversed(order):
        out.sort(key=_key(column, fields[column]), reverse=descending)
    return out


def arrange(rows: Sequence[Row], order: Order, limit: int | None, offset: int, fields: Sequence[Field]
            ) -> Sequence[Row]:
    """Rows of Python values, sorted and cut to LIMIT and OFFSET."""
    if order and len(rows) > 1:
        rows = sort_rows(rows, order, fields)
    if limit is None and not offset:
        return rows
    return rows[offset : None if limit is None else offset + limit]


def _key(column: int, field: Field) -> Callable[[Row], Any]:
    """A value's place; the flag before it keeps NULLs first and never compares them."""
    if field.type.folds:
        return lambda row: (False, "") if row[column] is None else (True, fold(row[column]))
    if field.type.is_listed:  # by place or mask
        def listed(row: Row) -> tuple[bool, int]:
            value = row[column]
            return value is not None, 0 if value is None else encode(value, field.type, PlainSymbols())

        return listed
    if field.nullable:
        return lambda row: (False, 0) if row[column] is None else (True, row[column])
    return lambda row: row[column]


def sort_batch(batch: Batch, order: Order, fields: Sequence[Field], symbols: Symbols) -> Batch:
    """A batch of codes, sorted."""
    if not order or len(batch) < 2:
        return batch
    keys = []
    for column, descending in reversed(order):
        ranks = _ranks(batch.columns[column], fields[column], symbols)
        keys.append(~ranks if descending else ranks)  # ~x reverses the order of int64 without overflow
    return batch.take(np.lexsort(keys))


def _ranks(codes: Codes, field: Field, symbols: Symbols) -> Codes:
    """Codes whose order is the values': those of every kind but text are that already."""
    return ranks(codes, field.type.collation, symbols) if field.type.is_text else codes


def ranks(codes: Codes, collation: Collation, symbols: Symbols) -> Codes:
    """The places of texts in their order, from 0; equal ones share one; NULL and errors stay."""
    distinct, place = np.unique(codes, return_inverse=True)
    bad = int(np.searchsorted(distinct, ERROR_CODE, "right"))
    keys = symbols.sort_keys(distinct[bad:], collation).to_pylist()
    rank = {k: i for i, k in enumerate(sorted(set(keys)))}
    return np.concatenate([distinct[:bad], np.array([rank[k] for k in keys], np.int64)])[place]
