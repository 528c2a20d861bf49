"""Kernels of a view's one writer over the view's memory: keys, slots, blocks, free space, publishing.

`views/layout.py` has the rules that they keep.  Scratch is one int64 array that all views of a worker share.  It
holds a key to look up, the rows of one key to merge, and lists of rows by key.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.atomics import fence, store_release
from noria.views.layout import (
    COUNT,
    COUNT_BITS,
    COUNT_MASK,
    EMPTY,
    FOLDS,
    FREE_LISTS,
    FREE_WORDS,
    FULL,
    GONE,
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
    TICK,
    TOP,
    USED,
    VERSION,
    class_words,
    first_slot,
    mix,
    place,
    place_of,
    seed,
    tag,
)

# What apply and fill return; details are in the first scratch words.
DONE, SLOTS_SHORT, WORDS_SHORT, NEGATIVE, PRESENT, STRAY, PASSED_ALL = range(7)

# Scratch: the header, one key, merge space, then lists for n rows.
NEED, BAD_ROW = range(2)
ASKED = 8
MERGE = ASKED + MAX_KEY
MERGE_WORDS = 4096
LISTS = MERGE + MERGE_WORDS
PER_ROW = 9  # scratch words for each row: slot, head, count, hash, next, up to four of a table


@njit(inline="always")
def folded(fold, folds, code):
    return fold[code] if folds and code >= 0 else code


@njit(inline="always")
def row_key(A, cols, i, fold, S):
    """The folded key of a row into scratch; its hash."""
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], cols[A[KEY_COLUMNS + j], i])
        S[ASKED + j] = code
        h = mix(h, code)
    return h


@njit(inline="always")
def asked_key(A, keys, i, fold, S):
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], keys[j, i])
        S[ASKED + j] = code
        h = mix(h, code)
    return h


@njit(inline="always")
def _block_has_key(A, block, S):
    for j in range(A[KEYS]):  # noqa: SIM110 (a loop is what numba compiles best)
        if A[block + KEY + j] != S[ASKED + j]:
            return False
    return True


@njit
def same_key(A, a, i, a_is_keys, fold, S):
    """Is the key of group head i the key in scratch?"""
    for j in range(A[KEYS]):
        at = j if a_is_keys else A[KEY_COLUMNS + j]
        if folded(fold, A[FOLDS + j], a[at, i]) != S[ASKED + j]:
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
        if word & ~OFFSET == t and word != GONE and _block_has_key(A, word & OFFSET, S):
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
    """The slot where an absent key goes: in the newest index."""
    power = (A[INDEXED] >> 1) + (A[INDEXED] & 1)
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    s = place(h, mask)
    while A[index + s] > GONE:
        s = (s + 1) & mask
    return first_slot(A, power) + s


@njit(inline="always")
def shown(A, slot):
    """A slot's word."""
    return A[place_of(A, slot, A[INDEXED])]


# ------------------------------------------------------------------ blocks
@njit
def take(A, c):
    """A free block of the class; the caller knows that there is room."""
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
    """Give a block back that no slot shows any more."""
    c = A[block + COUNT] >> COUNT_BITS
    store_release(A, block, NO_VERSION)
    fence()
    A[block + COUNT] = A[FREE_LISTS + c]
    A[FREE_LISTS + c] = block
    A[FREE_WORDS] += class_words(c)


@njit
def publish(A, P, slot, h, block, rows, c):
    """Show a whole block: in the key's slot, or in a new one (slot -1)."""
    A[VERSION] += 1
    A[block + COUNT] = rows | (c << COUNT_BITS)
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
    """The key is in the view no more."""
    at = place_of(A, slot, A[INDEXED])
    block = A[at] & OFFSET
    store_release(A, at, GONE)
    A[LIVE] -= 1
    A[HELD] -= A[block + COUNT] & COUNT_MASK
    free(A, block)
    power = (A[INDEXED] >> 1) + (A[INDEXED] & 1)
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    s = at - index
    if s < 0 or s > mask:  # of the smaller index, into which nothing goes any more
        return
    if A[index + ((s + 1) & mask)] == EMPTY:  # then no key is probed for beyond this slot
        while A[index + s] == GONE:
            store_release(A, index + s, EMPTY)
            A[USED] -= 1
            s = (s - 1) & mask


@njit
def give_back(A, block, c):
    """Free a block that was taken and never shown."""
    A[block + COUNT] = c << COUNT_BITS
    free(A, block)
