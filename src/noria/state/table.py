"""`Table`: the rows of one stateful node with several hash indexes over them, full or partial.

A partial table knows for each index which keys are *present* (their rows are complete, perhaps none); a row
lives while any present key needs it (DESIGN section 4, rules R6 and R8 of the protocol).  Key arrays have
shape (key columns, keys), in the index's column order, raw codes: CI text is folded here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation
from noria.core.symbols import Symbols
from noria.state import kernels, slices
from noria.state.layout import (
    CAP,
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
    NIDX,
    PRESENT,
    ROWS,
    WIDTH,
    K,
)

_NO_FOLD = np.zeros(1, np.int64)
LINE = 8  # words of a cache line
SMALLEST = 16  # rows and entries a fresh arena has room for

Columns = tuple[int, ...]


class Cold(NamedTuple):
    """Some present keys, shape (key columns, n): the tick that each was last read in, and the bytes that it takes."""

    keys: Codes
    stamps: Codes
    nbytes: Codes


def _power(n: int) -> int:
    return 1 << max(n - 1, 1).bit_length()


def _lines(words: int) -> int:
    """Rounded up to a cache line."""
    return (words + LINE - 1) // LINE * LINE


def _aligned(words: int) -> Codes:
    """An array that starts on a cache line, so that small rows and entries never straddle two."""
    raw = np.empty(words + LINE, np.int64)
    skip = -(raw.ctypes.data // 8) % LINE
    return raw[skip:skip + words]


class Table:
    """width: words of a row; identity: how many leading words identify it (all, unless groups keep
    accumulators behind their key).  folds: which columns hold CI text."""

    def __init__(self, width: int, folds: Sequence[bool], symbols: Symbols | None, *, full: bool,
                 identity: int | None = None, name: str = ""):
        self.width, self.identity, self.folds, self.name = width, identity or width, tuple(folds), name
        self._symbols = symbols if any(folds) else None
        self.indexes: list[Columns] = []
        self.full = full
        self._cursor: dict[Columns, int] = {}
        self.arena = self._arena(SMALLEST, [], [])

    # -------------------------------------------------------------- shape
    def _arena(self, rows: int, indexes: Sequence[Columns], entries: Sequence[int]) -> Codes:
        rows = _power(rows)
        sizes = [_power(max(e, SMALLEST)) for e in entries]
        at = _lines(HEADER + DESCRIPTOR * len(indexes))
        rows_off, at = at, _lines(at + rows * (self.width + 1))
        hash_off, at = at, at + 2 * rows
        offsets = []
        for cols, e in zip(indexes, sizes, strict=True):
            eoff, ehoff = at, _lines(at + e * (ENTRY + len(cols)))
            loff = ehoff + 2 * e
            at = loff + 2 * rows
            offsets.append((eoff, ehoff, loff))
        a = _aligned(at)
        a[:HEADER + DESCRIPTOR * len(indexes)] = 0
        a[[CAP, WIDTH, IDW, FREE, HCAP, ROWS, HASH, NIDX, FULL]] = (
            rows, self.width, self.identity, -1, 2 * rows, rows_off, hash_off, len(indexes), int(self.full))
        a[hash_off:hash_off + 2 * rows] = -1
        for x, (cols, e, (eoff, ehoff, loff)) in enumerate(zip(indexes, sizes, offsets, strict=True)):
            d = HEADER + DESCRIPTOR * x
            a[[d + K, d + ECAP, d + EFREE, d + EHCAP, d + EOFF, d + EHOFF, d + LOFF]] = (
                len(cols), e, -1, 2 * e, eoff, ehoff, loff)
            a[d + COLS:d + COLS + len(cols)] = cols
            a[d + FOLDS:d + FOLDS + len(cols)] = [self.folds[c] for c in cols]
            a[ehoff:ehoff + 2 * e] = -1
        return a

    def _reshape(self, rows: int, indexes: list[Columns], room: int = 0) -> None:
        """A fresh arena with room for `rows` rows and `room` more keys per index; contents copied."""
        live = [int(self.arena[HEADER + DESCRIPTOR * self.indexes.index(c) + ELIVE]) if c in self.indexes
                else int(self.arena[LIVE]) for c in indexes]
        fresh = self._arena(max(rows, SMALLEST), indexes, [n + room for n in live])
        old = np.array([self.indexes.index(c) if c in self.indexes else -1 for c in indexes] or [0], np.int64)
        kernels.rebuild(self.arena, fresh, old, self._fold())
        self.arena, self.indexes = fresh, list(indexes)

    def _fold(self) -> Codes:
        return _NO_FOLD if self._symbols is None else self._symbols.fold_table

    def reserve(self, n: int) -> None:
        """Room for n more rows and n more keys in every index."""
        a = self.arena
        short = int(a[LIVE]) + n > int(a[CAP])
        for x in range(len(self.indexes)):
            d = HEADER + DESCRIPTOR * x
            short = short or int(a[d + ELIVE]) + n > int(a[d + ECAP])
        if short:
            self._reshape(max(int(a[LIVE]) + n, int(a[CAP])), self.indexes, n)

    def clear(self) -> None:
        """Forget all rows of a table that has no index; its room stays."""
        a = self.arena
        a[[LIVE, HIGH, FREE]] = 0, 0, -1
        a[int(a[HASH]) : int(a[HASH]) + int(a[HCAP])] = -1

    def add_index(self, cols: Columns) -> None:
        """A new index over the stored rows; in a partial table all its keys are missing."""
        if len(cols) > MAX_KEY:
            raise ValueError(f"an index over {len(cols)} columns; at most {MAX_KEY}")
        if cols not in self.indexes:
            self._reshape(int(self.arena[CAP]), [*self.indexes, cols])

    def drop_index(self, cols: Columns) -> None:
        if cols in self.indexes:
            if not self.full:
                self.evict(cols, self.present(cols))
            self._reshape(int(self.arena[CAP]), [c for c in self.indexes if c != cols])

    def fit(self, indexes: Sequence[Columns]) -> None:
        """These indexes and no others."""
        for cols in indexes:
            self.add_index(cols)
        for cols in [c for c in self.indexes if c not in indexes]:
            self.drop_index(cols)

    # -------------------------------------------------------------- updates
    def apply(self, delta: Batch) -> Batch:
        """Add the delta to what is stored; returns the rows that were covered, the others are dropped."""
        n = len(delta)
        self.reserve(n)
        kept = np.empty(n, np.bool_)
        if kernels.apply(self.arena, delta.columns, delta.weights, self._fold(), kept):
            raise InvariantViolation("NO-SPURIOUS", f"{self.name}: a row's weight fell below zero in {delta}")
        return delta if kept.all() else delta.where(kept)

    def fill(self, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Make missing keys present with exactly these rows (FILL-AGREES with what other keys cover)."""
        self.reserve(max(len(rows), keys.shape[1]))
        code = kernels.fill(self.arena, self.indexes.index(cols), keys, rows.columns, rows.weights, self._fold())
        if code:
            raise InvariantViolation("FILL-AGREES", f"{self.name}: row {rows.rows()[-code - 1]} was pulled for {cols} "
                                     "and should be stored already")

    def evict(self, cols: Columns, keys: Codes) -> int:
        return int(kernels.evict(self.arena, self.indexes.index(cols), keys, self._fold()))

    # -------------------------------------------------------------- reading
    def missing(self, cols: Columns, keys: Codes) -> npt.NDArray[np.bool_]:
        out: npt.NDArray[np.bool_] = kernels.missing(self.arena, self.indexes.index(cols), keys, self._fold())
        return out

    def lookup(self, cols: Columns, keys: Codes, tick: int = 0) -> tuple[Batch, Codes]:
        """Stored rows under each key and the ordinal of the key, whether the key is present or not."""
        c, w, o = kernels.lookup(self.arena, self.indexes.index(cols), keys, self._fold(), tick)
        return Batch(c, w), o

    def rows(self) -> Batch:
        return Batch(*kernels.all_rows(self.arena))

    def part(self, parts: int, low: int, high: int) -> Batch:
        """The rows of parts low..high-1 of so many (a power of two)."""
        return slices.part(self.arena, parts, low, high)

    def part_of(self, rows: Batch, parts: int) -> Codes:
        """The part that each row is in, stored or not."""
        numbers: Codes = slices.part_of(np.ascontiguousarray(rows.columns[: self.identity]), parts)
        return numbers

    def present(self, cols: Columns) -> Codes:
        """All present keys of an index, folded."""
        keys: Codes = kernels.present_keys(self.arena, self.indexes.index(cols), 0, 2**62)[0]
        return keys

    def coldest(self, cols: Columns, most: int) -> Cold:
        """Up to `most` present keys from where the last sample ended."""
        keys, stamps, rows, self._cursor[cols] = kernels.present_keys(
            self.arena, self.indexes.index(cols), self._cursor.get(cols, 0), most)
        return Cold(keys, stamps, rows * self.row_bytes() + self.key_bytes(cols))

    def present_count(self, cols: Columns) -> int:
        return int(self.arena[HEADER + DESCRIPTOR * self.indexes.index(cols) + PRESENT])

    def held(self, texts: Sequence[int]) -> Iterator[Codes]:
        """These words of every row, and of every present key that has them."""
        for c in texts:
            yield kernels.column(self.arena, c)
        for cols in self.indexes if not self.full else ():
            for j, c in enumerate(cols):
                if c in texts:
                    yield self.present(cols)[j]

    def __len__(self) -> int:
        return int(self.arena[LIVE])

    def memory(self) -> int:
        """Bytes in use by rows and keys.  The arena is up to twice as large; what it never used is not resident."""
        keys = sum(int(self.arena[HEADER + DESCRIPTOR * x + ELIVE]) * (ENTRY + len(cols) + 2)
                   for x, cols in enumerate(self.indexes))
        return int(self.arena[LIVE]) * self.row_bytes() + 8 * (HEADER + keys)

    def row_bytes(self) -> int:
        """Bytes of one row, its hash slots and links."""
        return 8 * (self.width + 3 + 2 * len(self.indexes))

    def key_bytes(self, cols: Columns) -> int:
        """Bytes of one key of an index, its hash slots included."""
        return 8 * (ENTRY + len(cols) + 2)

    def shrink(self) -> None:
        """Give slack back when most of the arena is empty."""
        if int(self.arena[CAP]) > 4 * max(int(self.arena[LIVE]), SMALLEST):
            self._reshape(2 * int(self.arena[LIVE]), self.indexes)
