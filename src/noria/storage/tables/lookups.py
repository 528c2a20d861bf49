"""Looks up rows by keys, all at once or in slices.

Keeps true: keys are answered in their order.  The rows of a key are in the order of the primary key or of the index
entries, which end with it.  So a row's place depends on the row alone.  A row written between two slices lies either
before the current place or behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from operator import eq

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.dataflow.graph.protocols import TooManyRows
from noria.storage.format.encoding import successor
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.table import Index, StoredTable

SWEEP_PREFIXES = 32  # so many prefixes are read in one pass, if few other rows lie between them
SWEEP_ROWS = 256  # of a slice of such a pass
SWEEP_SHARE = 4  # it goes on while a quarter of the rows belong to the prefixes


def access(source: StoredTable, columns: tuple[int, ...]) -> tuple[Index | None, tuple[int, ...]]:
    """The index and columns of `StoredTable.way`.  Raises KeyError if there are none."""
    found = source.way(columns)
    if found is None:
        raise KeyError(f"no index of {source.name} on columns {columns}: add_index first")
    return found


def prefixes(source: StoredTable, columns: tuple[int, ...], order: tuple[int, ...], keys: Codes) -> list[bytes]:
    """The keys as bytes, with their columns in this order."""
    return source.columns_key([keys[columns.index(c)] for c in order], order)


def under(engine: RocksEngine, source: StoredTable, index: Index | None, starts: list[bytes], most: int = 0
          ) -> tuple[list[bytes], Codes]:
    """Packed rows under each prefix, and the ordinal of each row's prefix.  TooManyRows: more than `most` (0: any)."""
    family = source.family if index is None else index.family
    found, left = list[list[bytes]](), most if most and source.key else 2**62
    order = sorted(range(len(starts)), key=starts.__getitem__) if len(starts) >= SWEEP_PREFIXES else []
    sorted_starts = [starts[at] for at in order] if order else starts
    if order:
        found, left = swept(engine, family, sorted_starts, left)
    for prefix in islice(sorted_starts, len(found), None):
        found.append(engine.values_with_prefix(family, prefix, left + 1)[0])
        left -= len(found[-1])
        if left < 0:
            raise TooManyRows
    if order:
        places = dict(zip(order, found, strict=True))
        found = [places[at] for at in range(len(starts))]
    ordinals = np.repeat(np.arange(len(starts)), [len(f) for f in found])
    values = [v for some in found for v in some]
    if index is None or not values:
        return values, ordinals
    return present(engine.get(source.family, values), ordinals)


def swept(engine: RocksEngine, family: str, starts: list[bytes], left: int) -> tuple[list[list[bytes]], int]:
    """The packed rows under sorted prefixes that are close together, read in one pass over their range.

    Returns the rows of the first prefixes only, if prefixes are equal or if other rows lie between them; and how many
    rows may still be read.  TooManyRows: more than `left`.
    """
    found: list[list[bytes]] = []
    if any(map(eq, starts, islice(starts, 1, None))):
        return found, left
    part: list[bytes] = []  # of the prefix whose rows may go on in the next slice
    for some in engine.slices(family, SWEEP_ROWS, "items", starts[0], successor(starts[-1])):
        keys, at, taken = [key for key, _ in some], 0, 0
        while len(found) < len(starts):
            low = bisect_left(keys, prefix := starts[len(found)], at)
            at = bisect_left(keys, successor(prefix), low)
            part += [value for _, value in some[low:at]]
            taken += at - low
            if at == len(keys):
                break
            found.append(part)
            part = []
        left -= taken
        if left < 0:
            raise TooManyRows
        if len(some) > SWEEP_SHARE * taken and len(some) == SWEEP_ROWS:
            return found, left + len(part)
    found.append(part)
    found += [[] for _ in range(len(starts) - len(found))]
    return found, left


def present(values: list[bytes | None], ordinals: Codes) -> tuple[list[bytes], Codes]:
    """The values that are not None, and their ordinals."""
    found = [v for v in values if v is not None]
    if len(found) == len(values):
        return found, ordinals
    return found, ordinals[[r for r, v in enumerate(values) if v is not None]]


def agreeing(source: StoredTable, columns: tuple[int, ...], order: tuple[int, ...], keys: Codes, rows: Codes,
             ordinals: Codes
             ) -> tuple[Codes, Codes]:
    """Of rows found by some of the columns, those that match the keys in the other columns, too."""
    rest = tuple(c for c in columns if c not in order)
    if not rest or not len(ordinals):
        return rows, ordinals
    wanted = prefixes(source, columns, rest, keys)
    have = source.columns_key([rows[c] for c in rest], rest)
    at = [i for i, (h, o) in enumerate(zip(have, ordinals.tolist(), strict=True)) if h == wanted[o]]
    return (rows, ordinals) if len(at) == len(have) else (np.ascontiguousarray(rows[:, at]), ordinals[at])


class RocksKeyedScan:
    """Implements dataflow.graph.protocols.KeyedScan."""

    def __init__(self, engine: RocksEngine, source: StoredTable, columns: tuple[int, ...], keys: Codes):
        self._engine, self._source, self._columns = engine, source, columns
        self._table = source.definition
        self._index, self._order = access(source, columns)
        self._keys, self._starts = keys, prefixes(source, columns, self._order, keys)
        self._at = 0  # the ordinal of the current key
        self._after: bytes | None = None  # the last of its entries that was read

    @property
    def over(self) -> bool:
        return self._at == len(self._starts)

    def next(self, rows: int) -> tuple[Batch, Codes]:
        engine, source, index = self._engine, self._source, self._index
        family = source.family if index is None else index.family
        values, counts, first = list[bytes](), list[int](), self._at
        while len(values) < rows and not self.over:
            some, self._after = engine.values_with_prefix(family, self._starts[self._at], rows - len(values),
                                                          self._after)
            values += some
            counts.append(len(some))
            self._at += self._after is None
        ordinals = np.repeat(np.arange(first, first + len(counts)), counts)
        if index is not None and values:
            values, ordinals = present(engine.get(source.family, values), ordinals)
        codes = source.codes(values)
        codes, ordinals = agreeing(source, self._columns, self._order, self._keys, codes, ordinals)
        return Batch.of(codes), ordinals

    def passed(self, rows: Batch, ordinals: Codes) -> npt.NDArray[np.bool_]:
        before: npt.NDArray[np.bool_] = ordinals < self._at
        here = np.flatnonzero(ordinals == self._at)
        if self._after is None or not len(here):
            return before
        columns = rows.columns[:, here]
        entries = self._source.keys(columns)
        if self._index is not None:
            entries = self._source.index_keys(self._index, columns, entries)
        before[here] = [entry <= self._after for entry in entries]
        return before

    def same(self) -> bool:
        found, was, now = self._source.way(self._columns), self._table, self._source.definition
        return (found is not None and found[0] == self._index
                and (now.table_id, now.keyed, now.columns) == (was.table_id, was.keyed, was.columns))
