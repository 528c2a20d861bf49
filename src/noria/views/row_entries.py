"""Stores each row of a large full view without a key as an entry, so that a write copies only the rows that it changes.

A small one is a single block under the one empty key, and a reader copies it like any key.  Beyond MOST_BLOCK_WORDS
every row has an entry of its own under its hash.  The hash is an additional column in memory, and `KEYS` is 1 although
the view has no key.  A reader copies all entries.  They belong to one tick if TICK is even, and the same before and
after.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.memory.atomics import fence, load_acquire
from noria.state.rows.bare import bare
from noria.state.rows.hashing import mix_shared
from noria.views.layout import (
    COUNT,
    COUNT_MASK,
    INDEXED,
    KEY,
    LIVE,
    NO_VERSION,
    OFFSET,
    READY,
    STATE,
    TICK,
    TOMBSTONE,
    WIDTH,
    block_words,
    class_of,
    class_words,
    place_of,
    seed,
    slots_in_use,
)
from noria.views.read_kernels import (
    ELSEWHERE,
    ENTRY_TICK,
    ENTRY_VERSION,
    MISS,
    NEEDED_WORDS,
    PLAIN,
    ROWS,
    ROWS_AT,
    SERVES,
    SLOT,
    SPECIAL,
    TOO_LARGE,
    _is_plain,
)

MOST_BLOCK_WORDS = 2**12  # the most slab words of a view in one block
_TRIES = 8  # attempts to read between two ticks; then the worker answers
_SPINS = 100_000  # checks of a tick that is being published: some tenths of a millisecond


@njit
def with_hashes(cols):
    """The columns, with the hash of each row as the last one."""
    width, n = cols.shape
    out = np.empty((width + 1, n), np.int64)
    for i in range(n):
        h = seed()
        for c in range(width):
            out[c, i] = cols[c, i]
            h = mix_shared(h, cols[c, i])
        out[width, i] = np.int64(h)
    return out


@njit
def words_of(width, rows):
    """The slab words of `rows` rows with an entry each."""
    return rows * class_words(class_of(block_words(1, width + 1, 1)))


@njit
def _copied(A, Q, width):
    """Copy every entry's rows to Q.  Returns their number, -1 to start again, or -2 if Q is too small."""
    rows, at = np.int64(0), np.int64(ROWS_AT)
    indexed = load_acquire(A, INDEXED)
    first, end = slots_in_use(A, indexed)
    for slot in range(first, end):
        word = load_acquire(A, place_of(A, slot, indexed))
        if word <= TOMBSTONE:
            continue
        block = word & OFFSET
        version = load_acquire(A, block)
        n = A[block + COUNT] & COUNT_MASK
        fence()
        if version == NO_VERSION or load_acquire(A, block) != version or load_acquire(A, STATE) != Q[SERVES]:
            return np.int64(-1)
        words = n * (width + 1)
        if at + words > len(Q):
            Q[NEEDED_WORDS] = max(at + words, ROWS_AT + A[LIVE] * (width + 1))
            return np.int64(-2)
        start = block + KEY + 1
        for j in range(words):
            Q[at + j] = A[start + j]
        at += words
        rows += n
    return rows


@njit
def read_all(A, Q):
    """Copy all rows to Q, like `read_kernels.read` for a key.  The answer has no slot: no single entry has them."""
    A, Q = bare(A), bare(Q)
    for _ in range(_TRIES):
        if load_acquire(A, STATE) != Q[SERVES]:
            return ELSEWHERE
        if load_acquire(A, READY) == 0:
            return MISS
        width, tick = A[WIDTH], load_acquire(A, TICK)
        spins = 0
        while tick & 1 and spins < _SPINS:
            tick = load_acquire(A, TICK)
            spins += 1
        if tick & 1:
            return MISS
        rows = _copied(A, Q, width)
        fence()
        if load_acquire(A, STATE) != Q[SERVES]:
            return ELSEWHERE
        if load_acquire(A, TICK) != tick or rows == -1:
            continue
        if rows == -2:
            return TOO_LARGE
        Q[ROWS], Q[ENTRY_VERSION], Q[SLOT], Q[ENTRY_TICK] = rows, 0, -1, tick >> 1
        return PLAIN if _is_plain(Q, rows, width) else SPECIAL
    return MISS
