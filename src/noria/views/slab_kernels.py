"""Kernels over a view's memory as its one writer sees it: keys, slots, blocks, free space, publishing.

`views/layout.py` has the rules that these keep.  Scratch is one int64 array shared by all views of a worker: a
key that is looked for, space in which the rows of one key are merged, lists of rows by key.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import numpy as np
from numba import njit

from noria.state.atomics import fence, store_release
from noria.views.layout import (
    COUNT,
    COUNT_BITS,
    EMPTY,
    FOLDS,
    FREE_LISTS,
    FREE_WORDS,
    FULL,
    GONE,
    INDEX,
    KEY,
    KEY_COLUMNS,
    KEYS,
    LIVE,
    MASK,
    MAX_KEY,
    NO_VERSION,
    OFFSET,
    TICK,
    TOP,
    USED,
    VERSION,
    class_words,
    mix,
    place,
    seed,
    tag,
)

# What apply and fill return; details are in the first scratch words.
DONE, SLOTS_SHORT, WORDS_SHORT, NEGATIVE, PRESENT, STRAY = range(6)

# Scratch: the header, one key, merge space, then lists for n rows.
NEED, BAD_ROW = range(2)
ASKED = 8
MERGE = ASKED + MAX_KEY
MERGE_WORDS = 4096
LISTS = MERGE + MERGE_WORDS
PER_ROW = 9  # scratch words for each row: slot, head, count, hash, next, up to four of a table


@njit(cache=True, inline="always")
def folded(fold, folds, code):
    return fold[code] if folds and code >= 0 else code


@njit(cache=True, inline="always")
def row_key(A, cols, i, fold, S):
    """The folded key of a row into scratch; its hash."""
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], cols[A[KEY_COLUMNS + j], i])
        S[ASKED + j] = code
        h = mix(h, code)
    return h


@njit(cache=True, inline="always")
def asked_key(A, keys, i, fold, S):
    h = seed()
    for j in range(A[KEYS]):
        code = folded(fold, A[FOLDS + j], keys[j, i])
        S[ASKED + j] = code
        h = mix(h, code)
    return h


@njit(cache=True, inline="always")
def _block_has_key(A, block, S):
    for j in range(A[KEYS]):  # noqa: SIM110 (a loop is what numba compiles best)
        if A[block + KEY + j] != S[ASKED + j]:
            return False
    return True


@njit(cache=True)
def same_key(A, a, i, a_is_keys, fold, S):
    """Is the key of group head i the key in scratch?"""
    for j in range(A[KEYS]):
        at = j if a_is_keys else A[KEY_COLUMNS + j]
        if folded(fold, A[FOLDS + j], a[at, i]) != S[ASKED + j]:
            return False
    return True


@njit(cache=True)
def table_size(n):
    size = 2
    while size < 2 * n:
        size *= 2
    return size


@njit(cache=True)
def find(A, h, S):
    """The slot of the key in scratch, or -1."""
    mask = A[MASK]
    t = tag(h)
    s = place(h, mask)
    while True:
        word = A[INDEX + s]
        if word == EMPTY:
            return np.int64(-1)
        if word & ~OFFSET == t and word != GONE and _block_has_key(A, word & OFFSET, S):
            return s
        s = (s + 1) & mask


@njit(cache=True)
def vacant(A, h):
    """The slot where an absent key goes."""
    mask = A[MASK]
    s = place(h, mask)
    while A[INDEX + s] > GONE:
        s = (s + 1) & mask
    return s


# ------------------------------------------------------------------ blocks
@njit(cache=True)
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


@njit(cache=True)
def free(A, block):
    """Give a block back that no slot shows any more."""
    c = A[block + COUNT] >> COUNT_BITS
    store_release(A, block, NO_VERSION)
    fence()
    A[block + COUNT] = A[FREE_LISTS + c]
    A[FREE_LISTS + c] = block
    A[FREE_WORDS] += class_words(c)


@njit(cache=True)
def publish(A, P, slot, h, block, rows, c):
    """Show a whole block: in the key's slot, or in a new one (slot -1)."""
    A[VERSION] += 1
    A[block + COUNT] = rows | (c << COUNT_BITS)
    store_release(A, block, A[VERSION])
    if slot < 0:
        slot = vacant(A, h)
        if A[INDEX + slot] == EMPTY:
            A[USED] += 1
        A[LIVE] += 1
        if not A[FULL]:
            P[slot] = (A[TICK] + 1) >> 1
        store_release(A, INDEX + slot, tag(h) | block)
    else:
        old = A[INDEX + slot] & OFFSET
        store_release(A, INDEX + slot, tag(h) | block)
        free(A, old)


@njit(cache=True)
def withdraw(A, slot):
    """The key is in the view no more."""
    block, mask = A[INDEX + slot] & OFFSET, A[MASK]
    store_release(A, INDEX + slot, GONE)
    A[LIVE] -= 1
    free(A, block)
    if A[INDEX + ((slot + 1) & mask)] == EMPTY:  # then no key is probed for beyond this slot
        while A[INDEX + slot] == GONE:
            store_release(A, INDEX + slot, EMPTY)
            A[USED] -= 1
            slot = (slot - 1) & mask


@njit(cache=True)
def give_back(A, block, c):
    """Free a block that was taken and never shown."""
    A[block + COUNT] = c << COUNT_BITS
    free(A, block)
