"""The hash functions of kernels, and where the lookup of a hash begins in an arena.

    mix, slot_of, SEED   rows and keys of an arena
    mix_shared           keys of views, and strings of the symbol table

Keeps true: none of them changes.  Saved states contain hash tables.  Other processes search views and the symbol table
in shared memory.  So the two mixers stay different, although either would do for both.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.rows.layout import BASE, MOVED, SLOTS, START

SEED = np.uint64(0x2545F4914F6CDD1D)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_S29, _S32 = np.uint64(29), np.uint64(32)


@njit(inline="always")
def mix(h, v):
    h = (h ^ np.uint64(v)) * _MULTIPLIER
    return h ^ (h >> _S29)


@njit(inline="always")
def slot_of(h, cap):
    return np.int64((h ^ (h >> _S32)) & np.uint64(cap - 1))


@njit(inline="always")
def mix_shared(h, v):
    h = (h ^ np.uint64(v)) * _MULTIPLIER
    return h ^ (h >> _S32)


@njit(inline="always")
def home_of(A, g, h):
    """Return where a lookup of hash h begins in the hash table described at g: (table's first word, slots, slot).

    While the table grows, that is the smaller or the larger one.
    """
    cap = A[g + SLOTS]
    # written without a branch: this is part of each lookup, and the compiler does not inline longer code
    larger = np.int64(((slot_of(h, cap) - A[g + START]) & (cap - 1)) < A[g + MOVED])
    return A[g + BASE] + (cap & -larger), cap << larger, slot_of(h, cap << larger)
