"""Splits the rows of an arena into parts, by the hash of their identity words: for a scan that changes may interrupt.

Keeps true: the part of a row depends on the row alone, not on its position or the arena's size.  So rows may be added
and removed between two parts, and it is still known which of them the scan has passed.

Consecutive parts have hashes that are far apart.  Otherwise a state that copies part after part into a hash table
of the same columns would fill its slots from one end without a gap.
"""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.kernels import njit
from noria.state.rows.hashing import SEED, mix, slot_of
from noria.state.rows.layout import BASE, HASH, IDW, MOVED, ROWS, SLOTS, WIDTH


def part(arena: Codes, parts: int, low: int, high: int) -> Batch:
    """Return the stored rows of parts low to high-1.  parts: the number of parts, a power of two."""
    numbers = _rows_in(arena, parts, low, high)
    return Batch(*_gather(arena, numbers))


@njit
def _apart(number, parts):
    """Reverse the bits of a part's number: the first hash slot of the part.  The function is its own inverse."""
    out = 0
    while parts > 1:
        out = out << 1 | number & 1
        number >>= 1
        parts >>= 1
    return out


@njit
def part_of(cols, parts):
    """Return the part of each row.  cols: the identity words, shape (columns, rows)."""
    n = cols.shape[1]
    out = np.empty(n, np.int64)
    for i in range(n):
        h = SEED
        for c in range(cols.shape[0]):
            h = mix(h, cols[c, i])
        out[i] = _apart(slot_of(h, parts), parts)
    return out


@njit
def _rows_in(A, parts, low, high):
    """Return the numbers of the rows of some parts.

    A row is in its home slot or in the run of occupied slots after it.  The home slots of a part are `parts` slots
    apart.
    """
    rows, width, w = A[ROWS], A[WIDTH] + 1, A[IDW]
    numbers = np.empty(1024, np.int64)
    n = 0
    tables = 2 if A[HASH + MOVED] > 0 else 1  # while the table grows
    for turn in range(tables * (high - low)):
        larger = turn % tables
        p = _apart(low + turn // tables, parts)
        cap = A[HASH + SLOTS] << larger
        hash_off = A[HASH + BASE] + larger * A[HASH + SLOTS]
        home = p & (cap - 1)
        while home < cap:
            s = home
            while A[hash_off + s] >= 0:
                r = A[hash_off + s]
                h = SEED
                for c in range(w):
                    h = mix(h, A[rows + r * width + 1 + c])
                if slot_of(h, cap) == home and slot_of(h, parts) == p:
                    if n == len(numbers):
                        more = np.empty(2 * n, np.int64)
                        more[:n] = numbers
                        numbers = more
                    numbers[n] = r
                    n += 1
                s = (s + 1) & (cap - 1)
            home += parts
    return numbers[:n]


@njit
def _gather(A, numbers):
    rows, width = A[ROWS], A[WIDTH] + 1
    n = len(numbers)
    cols = np.empty((width - 1, n), np.int64)
    weights = np.empty(n, np.int64)
    for i in range(n):
        off = rows + numbers[i] * width
        weights[i] = A[off]
        for c in range(width - 1):
            cols[c, i] = A[off + 1 + c]
    return cols, weights
