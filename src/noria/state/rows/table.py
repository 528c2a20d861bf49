"""`Table`: the rows of one stateful node with several hash indexes over them, full or partial (§4).

In a partial table, each index knows which keys are *present*: their rows are complete, perhaps none.  A row is stored
while some present key covers it (docs/design/invariants.md, rules R6 and R8).  Key arrays have shape (key columns,
keys), in the index's column order.  Callers pass codes that are not folded; the table folds case-insensitive (CI) text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation
from noria.core.symbols import Symbols
from noria.state.memory.mapped import reserve_words
from noria.state.rows import growth, kernels, read_kernels, slices
from noria.state.rows.layout import (
    CAP,
    CLEARED,
    COLS,
    DESCRIPTOR,
    ECAP,
    EFREE,
    EHCAP,
    EHOFF,
    ELIVE,
    ENTRY,
    EOFF,
    FOLDS,
    FREE,
    FULL,
    HASH,
    HCAP,
    HEADER,
    HIGH,
    IDW,
    LIVE,
    LOFF,
    MAX_KEY,
    MOVED,
    NIDX,
    PRESENT,
    ROWS,
    WIDTH,
    K,
)

_NO_FOLD = np.zeros(1, np.int64)
LINE = 8  # words of a cache line
IDLE_ROWS = 2_000  # a full table of more rows keeps unused indexes until its next copy: dropping one copies all rows
SMALLEST = 16  # the least room of an arena, in rows and in entries of each index
LARGE = 2**15  # rows: a larger arena grows in place; a smaller one is copied within a few milliseconds
RESERVE = 2**27  # rows, and keys of each index, for which a large arena reserves addresses: some 30 GB

Columns = tuple[int, ...]


class Cold(NamedTuple):
    """Some present keys, shape (key columns, n), with the tick of the last read and the size in bytes of each."""

    keys: Codes
    stamps: Codes
    nbytes: Codes


def _power(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()


def _lines(words: int) -> int:
    """Round up to a multiple of a cache line."""
    return (words + LINE - 1) // LINE * LINE


def _aligned(words: int) -> Codes:
    """Allocate an array that starts on a cache line, so that small rows and entries do not straddle two lines."""
    raw = np.empty(words + LINE, np.int64)
    skip = -(raw.ctypes.data // 8) % LINE
    return raw[skip:skip + words]


class Table:
    """The rows of one node, with their weights and indexes.

    width: words of a row.  identity: how many leading words identify a row; all, except for groups, which store
    accumulators behind the key.  folds: which columns hold CI text.
    """

    def __init__(self, width: int, folds: Sequence[bool], symbols: Symbols | None, *, full: bool,
                 identity: int | None = None, name: str = ""):
        self.width, self.identity, self.folds, self.name = width, identity or width, tuple(folds), name
        self._symbols = symbols if any(folds) else None
        self.indexes: list[Columns] = []
        self._idle: set[Columns] = set()  # unused indexes
        self.full = full
        self._cursor: dict[Columns, int] = {}
        self.arena = self._arena(SMALLEST, [], [])

    # -------------------------------------------------------------- shape
    def _arena(self, rows: int, indexes: Sequence[Columns], entries: Sequence[int]) -> Codes:
        """Allocate an empty arena for `rows` rows and `entries[x]` keys in index x.  A large one has a reserve."""
        hashes = [_power(n) * 2 for n in (rows, *(max(e, SMALLEST) for e in entries))]
        large = max(hashes) >= 2 * LARGE
        if large:
            most = max(RESERVE, 4 * max(hashes))
            words, sections = self._sections([most] * len(hashes), [4 * most] * len(hashes), indexes)
            if (a := reserve_words(words)) is not None:
                return self._described(a, [most] * len(hashes), hashes, indexes, sections)
        words, sections = self._sections([h // 2 for h in hashes], hashes, indexes)
        return self._described(_aligned(words), [h // 2 for h in hashes], hashes, indexes, sections)

    def _sections(self, rooms: list[int], hashes: list[int], indexes: Sequence[Columns]) -> tuple[int, list[int]]:
        """Compute an arena's size in words, and the first word of each section in the order of `layout.py`.

        rooms: the most rows, then the most keys of each index.  hashes: the words of their hash tables.
        """
        at = _lines(HEADER + DESCRIPTOR * len(indexes))
        starts = []
        sizes = [rooms[0] * (self.width + 1), hashes[0]]
        for cols, room, slots in zip(indexes, rooms[1:], hashes[1:], strict=True):
            sizes += [room * (ENTRY + len(cols)), slots, 2 * rooms[0]]
        for size in sizes:
            starts.append(at)
            at = _lines(at + size)
        return at, starts

    def _described(self, a: Codes, rooms: list[int], hashes: list[int], indexes: Sequence[Columns],
                   sections: list[int]) -> Codes:
        """Write an arena's header and descriptors, and clear its hash tables.  hashes: their slots."""
        a[:HEADER + DESCRIPTOR * len(indexes)] = 0
        reserved = hashes[0] < 2 * rooms[0]  # a table of n slots then begins n slots into its section
        bases = [at + slots * reserved for at, slots in zip([sections[1], *sections[3::3]], hashes, strict=True)]
        a[[CAP, WIDTH, IDW, FREE, HCAP, ROWS, HASH, NIDX, FULL]] = (
            rooms[0], self.width, self.identity, -1, hashes[0], sections[0], bases[0], len(indexes), int(self.full))
        for x, cols in enumerate(indexes):
            d = HEADER + DESCRIPTOR * x
            a[[d + K, d + ECAP, d + EFREE, d + EHCAP, d + EOFF, d + EHOFF, d + LOFF]] = (
                len(cols), rooms[x + 1], -1, hashes[x + 1], sections[3 * x + 2], bases[x + 1], sections[3 * x + 4])
            a[d + COLS:d + COLS + len(cols)] = cols
            a[d + FOLDS:d + FOLDS + len(cols)] = [self.folds[c] for c in cols]
        for base, slots in zip(bases, hashes, strict=True):
            a[base:base + slots] = -1
        return a

    def _reshape(self, rows: int, indexes: list[Columns], room: int = 0) -> None:
        """Copy everything to a new arena with room for `rows` rows and `room` more keys in each index."""
        live = [int(self.arena[HEADER + DESCRIPTOR * self.indexes.index(c) + ELIVE]) if c in self.indexes
                else int(self.arena[LIVE]) for c in indexes]
        fresh = self._arena(max(rows, SMALLEST), indexes, [n + room for n in live])
        old = np.array([self.indexes.index(c) if c in self.indexes else -1 for c in indexes] or [0], np.int64)
        kernels.rebuild(self.arena, fresh, old, self._fold())
        self.arena, self.indexes = fresh, list(indexes)

    def _fold(self) -> Codes:
        return _NO_FOLD if self._symbols is None else self._symbols.fold_table

    def reserve(self, n: int) -> None:
        """Make room for n more rows and n more keys in each index."""
        if not growth.make_room(self.arena, n):
            self._reshape(max(len(self) + n, self._roomy()), self._busy(), n)

    def _busy(self) -> list[Columns]:
        """The indexes that are in use."""
        return [c for c in self.indexes if c not in self._idle]

    def _roomy(self) -> int:
        """The number of rows for which the arena has hash slots."""
        return max(int(self.arena[HCAP]) // 2, len(self))

    def clear(self) -> None:
        """Remove all rows of a table without indexes.  Its arena keeps its size."""
        a = self.arena
        a[[LIVE, HIGH, FREE, HASH + MOVED, HASH + CLEARED]] = 0, 0, -1, 0, 0
        a[int(a[HASH]) : int(a[HASH]) + int(a[HCAP])] = -1

    def add_index(self, cols: Columns) -> None:
        """Add an index over the stored rows.  In a partial table, all its keys are missing at first."""
        if len(cols) > MAX_KEY:
            raise ValueError(f"an index over {len(cols)} columns; at most {MAX_KEY}")
        if cols not in self.indexes:
            self._reshape(self._roomy(), [*self.indexes, cols])

    def drop_index(self, cols: Columns) -> None:
        if cols in self.indexes:
            if not self.full:
                self.evict(cols, self.present(cols))
            self._reshape(self._roomy(), [c for c in self.indexes if c != cols])

    def fits(self, indexes: Sequence[Columns]) -> bool:
        """True if the table has these indexes."""
        return set(indexes) <= set(self.indexes)

    def fit(self, indexes: Sequence[Columns]) -> None:
        """Keep exactly these indexes.  A large full table drops the others when it is next copied to a new arena."""
        for cols in indexes:
            self.add_index(cols)
        self._idle = {c for c in self.indexes if c not in indexes}
        if not self.full or len(self) <= IDLE_ROWS:
            for cols in self._idle:
                self.drop_index(cols)

    # -------------------------------------------------------------- updates
    def apply(self, delta: Batch) -> Batch:
        """Add a delta to the stored rows.  Return the covered rows; the others are dropped.

        Raises InvariantViolation NO-SPURIOUS if the weight of a row falls below 0.
        """
        n = len(delta)
        self.reserve(n)
        kept = np.empty(n, np.bool_)
        if kernels.apply(self.arena, delta.columns, delta.weights, self._fold(), kept):
            raise InvariantViolation("NO-SPURIOUS", f"{self.name}: a row's weight fell below zero in {delta}")
        return delta if kept.all() else delta.where(kept)

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make missing keys present.  rows: all rows of these keys.

        Raises InvariantViolation FILL-AGREES if another present key covers one of the rows and it is not stored.
        """
        self.reserve(max(len(rows), keys.shape[1]))
        code = kernels.fill(self.arena, self.indexes.index(cols), keys, rows.columns, rows.weights, self._fold())
        if code:
            raise InvariantViolation("FILL-AGREES", f"{self.name}: row {rows.rows()[-code - 1]} was pulled for {cols} "
                                     "and should be stored already")

    def evict(self, cols: Columns, keys: Codes) -> int:
        return int(kernels.evict(self.arena, self.indexes.index(cols), keys, self._fold()))

    # -------------------------------------------------------------- reading
    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        out: npt.NDArray[np.bool_] = read_kernels.missing(self.arena, self.indexes.index(cols), keys, self._fold())
        return out

    def lookup(self, cols: Columns, keys: Codes, tick: int = 0) -> tuple[Batch, Codes]:
        """Return the stored rows under each key, present or missing, and for each row the ordinal of its key.

        tick: recorded as the keys' last use.
        """
        c, w, o = read_kernels.lookup(self.arena, self.indexes.index(cols), keys, self._fold(), tick)
        return Batch(c, w), o

    def rows(self) -> Batch:
        return Batch(*read_kernels.all_rows(self.arena))

    def part(self, parts: int, low: int, high: int) -> Batch:
        """Return the rows of parts low to high-1 (`slices.py`).  parts: the number of parts, a power of two."""
        return slices.part(self.arena, parts, low, high)

    def part_of(self, rows: Batch, parts: int) -> Codes:
        """Return the part of each row, stored or not."""
        numbers: Codes = slices.part_of(np.ascontiguousarray(rows.columns[: self.identity]), parts)
        return numbers

    def present(self, cols: Columns) -> Codes:
        """Return all present keys of an index, folded."""
        keys: Codes = read_kernels.present_keys(self.arena, self.indexes.index(cols), 0, 2**62)[0]
        return keys

    def coldest(self, cols: Columns, most: int) -> Cold:
        """Return a sample of up to `most` present keys, from the end of the last sample on."""
        keys, stamps, rows, self._cursor[cols] = read_kernels.present_keys(
            self.arena, self.indexes.index(cols), self._cursor.get(cols, 0), most)
        return Cold(keys, stamps, rows * self.row_bytes() + self.key_bytes(cols))

    def present_count(self, cols: Columns) -> int:
        return int(self.arena[HEADER + DESCRIPTOR * self.indexes.index(cols) + PRESENT])

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        """Yield these columns of all rows and, in a partial table, of all present keys.  texts: columns of text ids."""
        for c in texts:
            yield read_kernels.column(self.arena, c)
        for cols in self.indexes if not self.full else ():
            for j, c in enumerate(cols):
                if c in texts:
                    yield self.present(cols)[j]

    def __len__(self) -> int:
        return int(self.arena[LIVE])

    def memory(self) -> int:
        """Return the bytes that rows and keys use.  The arena is larger, but its unused part is not resident."""
        keys = sum(int(self.arena[HEADER + DESCRIPTOR * x + ELIVE]) * (ENTRY + len(cols) + 2)
                   for x, cols in enumerate(self.indexes))
        return int(self.arena[LIVE]) * self.row_bytes() + 8 * (HEADER + keys)

    def row_bytes(self) -> int:
        """Return the bytes of one row with its hash slots and links."""
        return 8 * (self.width + 3 + 2 * len(self.indexes))

    def key_bytes(self, cols: Columns) -> int:
        """Return the bytes of one key of an index with its hash slots."""
        return 8 * (ENTRY + len(cols) + 2)

    def shrink(self) -> None:
        """Copy to a smaller arena if most of this one is empty."""
        if self._roomy() > 4 * max(len(self), SMALLEST):
            self._reshape(2 * int(self.arena[LIVE]), self._busy())
