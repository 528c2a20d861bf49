"""Compares multisets of (index entry, row key) by count and two sums of hashes: equal sums mean equal multisets.

Order does not matter and no entry is kept.  So an index is compared with its table in one pass over each, whatever
their size.  Two different multisets agree by chance once in 2**128; the hashes do not resist an adversary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.kernels import njit

_WORD = 2**64 - 1
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]


@dataclass
class MultisetHash:
    """The sums of a multiset.  count: the number of entries; first and second: modulo 2**64."""

    count: int = 0
    first: int = 0
    second: int = 0

    def add(self, entries: Sequence[bytes], keys: Sequence[bytes]) -> None:
        a, b = _sums(*_packed(entries), *_packed(keys))
        self.count += len(entries)
        self.first = self.first + int(a) & _WORD
        self.second = self.second + int(b) & _WORD

    def plus(self, other: MultisetHash) -> MultisetHash:
        """The sums of both multisets together."""
        return MultisetHash(self.count + other.count, self.first + other.first & _WORD,
                            self.second + other.second & _WORD)


def _packed(values: Sequence[bytes]) -> tuple[Bytes, Offsets]:
    array = pa.array(values, pa.large_binary())
    _, offsets, data = array.buffers()
    ends: Offsets = np.frombuffer(offsets, np.int64)[: len(values) + 1]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), ends


@njit(nogil=True)
def _sums(a: Bytes, a_ends: Offsets, b: Bytes, b_ends: Offsets) -> tuple[np.uint64, np.uint64]:
    first, second = np.uint64(0), np.uint64(0)
    for row in range(len(a_ends) - 1):
        x, y = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
        for at in range(a_ends[row], a_ends[row + 1]):
            x = (x ^ np.uint64(a[at])) * np.uint64(0x100000001B3)
            y = (y + np.uint64(a[at]) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
            y ^= y >> np.uint64(29)
        x = (x ^ np.uint64(a_ends[row + 1] - a_ends[row])) * np.uint64(0x100000001B3)  # where the entry ends
        y = (y ^ np.uint64(a_ends[row + 1] - a_ends[row])) * np.uint64(0x94D049BB133111EB)
        for at in range(b_ends[row], b_ends[row + 1]):
            x = (x ^ np.uint64(b[at])) * np.uint64(0x100000001B3)
            y = (y + np.uint64(b[at]) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
            y ^= y >> np.uint64(29)
        x ^= x >> np.uint64(32)
        first += x * np.uint64(0x94D049BB133111EB)
        second += (y ^ y >> np.uint64(31)) * np.uint64(0xBF58476D1CE4E5B9)
    return first, second
