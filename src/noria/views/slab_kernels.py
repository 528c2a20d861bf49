"""Kernels with which a view's only writer changes the view's memory: keys, slots, blocks, free space, publishing.

They follow the rules of `views/layout.py`.  Scratch is one int64 array that all views of a worker share.  It holds a
key to look up, the rows of one key to merge, and lists of rows by key.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.memory.atomics import fence, store_release
from noria.state.rows.hashing import mix_shared
from noria.views.layout import (
    COUNT,
    COUNT_BITS,
    COUNT_MASK,
    EMPTY,
    FOLDS,
    FREE_LISTS,
    FREE_WORDS,
    FULL,
    HELD,
    INDEXED,
    INDEXES,
    KEY,
    KEY_COLUMNS,
    KEYS,
    LIVE,
    MAX_KEY,
    NO_VERSION,
    OFFSET,
    PUBLISHED,
    TICK,
    TOMBSTONE,
    TOP,
    USED,
    VERSION,
    class_words,
    first_slot,
    place,
    place_of,
    seed,
    tag,
)

# The results of apply and fill; details are in the first scratch words.
DONE, SLOTS_SHORT, WORDS_SHORT, NEGATIVE, PRESENT, STRAY, PASSED_ALL = range(7)

# Scratch: header, one key, merge space, then lists for n rows.
NEED, BAD_ROW = range(2)
LOOKUP_KEY = 8
MERGE = LOOKUP_KEY + MAX_KEY
MERGE_WORDS = 4096
LISTS = MERGE + MERGE_WORDS
PER_ROW = 9  # scratch words for each row: slot, head, count, hash, next, and up to four of a hash table


@njit(inline="always")
def folded(fold, folds, code):
    return fold[code] if folds and code >= 0 else code


@njit(inline="always")
def row_key(A, cols, i, fold, S):
    """Write the folded key of a row to scratch; return its hash."""
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], cols[A[KEY_COLUMNS + j], i])
        S[LOOKUP_KEY + j] = code
        h = mix_shared(h, code)
    return h


@njit(inline="always")
def write_key(A, keys, i, fold, S):
    """Write a folded key to scratch; return its hash."""
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], keys[j, i])
        S[LOOKUP_KEY + j] = code
        h = mix_shared(h, code)
    return h


@njit(inline="always")
def _block_has_key(A, block, S):
    for j in range(A[KEYS]):
        if A[block + KEY + j] != S[LOOKUP_KEY + j]:
            return False
    return True


@njit
def same_key(A, a, i, a_is_keys, fold, S):
    """Whether row (or key, with `a_is_keys`) i of `a` has the key in scratch."""
    for j in range(A[KEYS]):
        at = j if a_is_keys else A[KEY_COLUMNS + j]
        if folded(fold, A[FOLDS + j], a[at, i]) != S[LOOKUP_KEY + j]:
            return False
    return True


@njit
def table_size(n):
    size = 2
    while size < 2 * n:
        size *= 2
    return size


@njit
def _find_in(A, power, h, S):
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    t = tag(h)
    s = place(h, mask)
    while True:
        word = A[index + s]
        if word == EMPTY:
            return np.int64(-1)
        if word & ~OFFSET == t and word != TOMBSTONE and _block_has_key(A, word & OFFSET, S):
            return first_slot(A, power) + s
        s = (s + 1) & mask


@njit
def find(A, h, S):
    """The slot of the key in scratch, or -1."""
    slot = _find_in(A, A[INDEXED] >> 1, h, S)
    if slot < 0 and A[INDEXED] & 1:
        slot = _find_in(A, (A[INDEXED] >> 1) + 1, h, S)
    return slot


@njit
def vacant(A, h):
    """A slot for an absent key, in the newest index."""
    power = (A[INDEXED] >> 1) + (A[INDEXED] & 1)
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    s = place(h, mask)
    while A[index + s] > TOMBSTONE:
        s = (s + 1) & mask
    return first_slot(A, power) + s


@njit(inline="always")
def shown(A, slot):
    """The word of a slot."""
    return A[place_of(A, slot, A[INDEXED])]


# ------------------------------------------------------------------ blocks
@njit
def allocate(A, c):
    """Allocate a block of the class; the caller has checked that there is room."""
    block = A[FREE_LISTS + c]
    if block:
        A[FREE_LISTS + c] = A[block + COUNT]
        A[FREE_WORDS] -= class_words(c)
        return block
    block = A[TOP]
    A[TOP] = block + class_words(c)
    return block


@njit
def free(A, block):
    """Free a block to which no slot refers any more."""
    c = A[block + COUNT] >> COUNT_BITS
    store_release(A, block, NO_VERSION)
    fence()
    A[block + COUNT] = A[FREE_LISTS + c]
    A[FREE_LISTS + c] = block
    A[FREE_WORDS] += class_words(c)


@njit
def publish(A, P, slot, h, block, rows, c):
    """Publish a complete block in the key's slot, or in a new one (slot -1), and free the old block."""
    A[VERSION] += 1
    A[block + COUNT] = rows | (c << COUNT_BITS)
    A[block + PUBLISHED] = (A[TICK] + 1) >> 1
    store_release(A, block, A[VERSION])
    A[HELD] += rows
    if slot < 0:
        slot = vacant(A, h)
        at = place_of(A, slot, A[INDEXED])
        if A[at] == EMPTY:
            A[USED] += 1
        A[LIVE] += 1
        if not A[FULL]:
            P[slot] = (A[TICK] + 1) >> 1
        store_release(A, at, tag(h) | block)
    else:
        at = place_of(A, slot, A[INDEXED])
        old = A[at] & OFFSET
        A[HELD] -= A[old + COUNT] & COUNT_MASK
        store_release(A, at, tag(h) | block)
        free(A, old)


@njit
def withdraw(A, slot):
    """Remove a slot's key from the view."""
    at = place_of(A, slot, A[INDEXED])
    block = A[at] & OFFSET
    store_release(A, at, TOMBSTONE)
    A[LIVE] -= 1
    A[HELD] -= A[block + COUNT] & COUNT_MASK
    free(A, block)
    power = (A[INDEXED] >> 1) + (A[INDEXED] & 1)
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    s = at - index
    if s < 0 or s > mask:  # in the smaller index, which receives no new keys
        return
    if A[index + ((s + 1) & mask)] == EMPTY:  # then no probe continues past this slot
        while A[index + s] == TOMBSTONE:
            store_release(A, index + s, EMPTY)
            A[USED] -= 1
            s = (s - 1) & mask


@njit
def free_unpublished(A, block, c):
    """Free a block that was allocated but never published."""
    A[block + COUNT] = c << COUNT_BITS
    free(A, block)
