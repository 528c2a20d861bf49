"""Kernels that group a delta's rows by key, and merge each group with the stored rows of its key.

Keeps true: the stored rows of a key are distinct and have positive weights.  A negative weight is reported, never
stored.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.memory.atomics import prefetch
from noria.state.rows.hashing import mix_shared
from noria.views.layout import (
    COUNT,
    COUNT_MASK,
    FOLDS,
    FULL,
    INDEXED,
    INDEXES,
    KEY,
    KEY_COLUMNS,
    KEYS,
    LIVE,
    MOST_USED,
    OFFSET,
    ROOM,
    TOP,
    USED,
    WIDTH,
    block_words,
    class_of,
    class_words,
    place,
    place_of,
    seed,
)
from noria.views.slab_kernels import (
    DONE,
    LISTS,
    LOOKUP_KEY,
    MERGE,
    MERGE_WORDS,
    NEED,
    NEGATIVE,
    SLOTS_SHORT,
    WORDS_SHORT,
    allocate,
    find,
    folded,
    free_unpublished,
    publish,
    row_key,
    same_key,
    shown,
    table_size,
    withdraw,
)

_SLOT_AHEAD, _BLOCK_AHEAD = 16, 8  # rows between a prefetch and its use
_MANY = 16  # from this number of delta rows of one key on, a hash table finds equal rows


# ------------------------------------------------------------------ grouping rows by key
@njit
def _look_ahead(A, S, table, size, cols, i, fold):
    """Prefetch the memory that later rows of the delta need: first their slots, then their blocks and their places in
    the table of groups."""
    for distance in (_SLOT_AHEAD, _BLOCK_AHEAD):
        if i + distance < cols.shape[1]:
            h = seed()
            for j in range(A[KEYS]):
                h = mix_shared(h, folded(fold, A[FOLDS + j], cols[A[KEY_COLUMNS + j], i + distance]))
            power = (A[INDEXED] >> 1) + (A[INDEXED] & 1)
            at = A[INDEXES + power] + place(h, (np.int64(1) << power) - 1)
            if distance == _SLOT_AHEAD:
                prefetch(A, at)
            else:
                prefetch(A, A[at] & OFFSET)
                prefetch(S, table + place(h, size - 1))


@njit
def group_rows(A, S, cols, weights, fold):
    """Make lists of the delta's rows by key in scratch, and return the number of groups.

    Each group has its slot (-1 if absent), first row, row count and hash; each row has the next row of its group.
    """
    n = len(weights)
    slots, heads, sizes, hashes, links = LISTS, LISTS + n, LISTS + 2 * n, LISTS + 3 * n, LISTS + 4 * n
    table, size = LISTS + 5 * n, table_size(n)
    if n > 1:
        S[table:table + size] = -1
    groups = 0
    for i in range(n):
        if n > _SLOT_AHEAD:
            _look_ahead(A, S, table, size, cols, i, fold)
        if weights[i] == 0:
            continue
        h = row_key(A, cols, i, fold, S)
        s = place(h, size - 1)
        g = S[table + s] if n > 1 else -1
        while g >= 0 and not (S[hashes + g] == np.int64(h)
                              and same_key(A, cols, S[heads + g], False, fold, S)):
            s = (s + 1) & (size - 1)
            g = S[table + s]
        if g < 0:
            g = groups
            groups += 1
            if n > 1:
                S[table + s] = g
            S[slots + g], S[hashes + g], S[sizes + g] = find(A, h, S), np.int64(h), 0
            S[heads + g] = -1
        S[links + i] = S[heads + g]
        S[heads + g] = i
        S[sizes + g] += 1
    return groups


@njit(inline="always")
def prefetch_groups(A, S, g, groups):
    """Prefetch the memory of later groups: first their slots, then their blocks."""
    if g + _SLOT_AHEAD < groups and S[LISTS + g + _SLOT_AHEAD] >= 0:
        prefetch(A, place_of(A, S[LISTS + g + _SLOT_AHEAD], A[INDEXED]))
    if g + _BLOCK_AHEAD < groups and S[LISTS + g + _BLOCK_AHEAD] >= 0:
        prefetch(A, shown(A, S[LISTS + g + _BLOCK_AHEAD]) & OFFSET)


@njit
def short_of_room(A, S, n, groups, new_absent):
    """Return DONE if all groups certainly fit; else SLOTS_SHORT or WORDS_SHORT, with the needed number in NEED."""
    slots, sizes = LISTS, LISTS + 2 * n
    words, fresh = 0, 0
    keys, width = A[KEYS], A[WIDTH]
    for g in range(groups):
        prefetch_groups(A, S, g, groups)
        rows = S[sizes + g]
        if S[slots + g] >= 0:
            rows += A[(shown(A, S[slots + g]) & OFFSET) + COUNT] & COUNT_MASK
        elif new_absent:
            fresh += 1
        else:
            continue
        words += class_words(class_of(block_words(keys, width, rows)))
    if A[USED] + fresh > A[MOST_USED]:
        S[NEED] = A[LIVE] + fresh
        return SLOTS_SHORT
    if A[TOP] + words > A[ROOM]:
        S[NEED] = A[TOP] + words
        return WORDS_SHORT
    return DONE


# ------------------------------------------------------------------ merging rows
@njit
def _same_row(R, at, cols, i, width):
    for c in range(width):
        if R[at + 1 + c] != cols[c, i]:
            return False
    return True


@njit
def _merge_few(R, base, rows, width, cols, weights, i, S, links):
    """Add the delta rows from `i` on to the rows at R[base:].  Returns the number of rows, including those of weight
    zero."""
    stride = width + 1
    while i >= 0:
        at, end = base, base + rows * stride
        while at < end and not _same_row(R, at, cols, i, width):
            at += stride
        if at == end:
            R[at] = 0
            for c in range(width):
                R[at + 1 + c] = cols[c, i]
            rows += 1
        R[at] += weights[i]
        i = S[links + i]
    return rows


@njit
def _merge_many(R, base, rows, width, cols, weights, i, S, links, most):
    """`_merge_few` with a hash table of the rows: its time is linear in the old rows and delta rows together."""
    stride = width + 1
    size = table_size(most)
    table = np.full(size, -1, np.int64)
    for r in range(rows):
        h = seed()
        for c in range(width):
            h = mix_shared(h, R[base + r * stride + 1 + c])
        s = place(h, size - 1)
        while table[s] >= 0:
            s = (s + 1) & (size - 1)
        table[s] = r
    while i >= 0:
        h = seed()
        for c in range(width):
            h = mix_shared(h, cols[c, i])
        s = place(h, size - 1)
        while table[s] >= 0 and not _same_row(R, base + table[s] * stride, cols, i, width):
            s = (s + 1) & (size - 1)
        if table[s] < 0:
            table[s] = rows
            at = base + rows * stride
            R[at] = 0
            for c in range(width):
                R[at + 1 + c] = cols[c, i]
            rows += 1
        R[base + table[s] * stride] += weights[i]
        i = S[links + i]
    return rows


@njit
def _squeeze(R, base, rows, width):
    """Drop rows of weight zero.  Returns the number of rows left, or -1 - n if row n has a negative weight."""
    stride = width + 1
    left = 0
    for r in range(rows):
        at, to = base + r * stride, base + left * stride
        if R[at] < 0:
            return -1 - r
        if R[at] > 0:
            if at != to:
                for c in range(stride):
                    R[to + c] = R[at + c]
            left += 1
    return left


@njit
def _fitting(A, block, c, rows):
    """Move the merged rows of a block to a smaller one if at least half of it is empty.  Returns the block and its
    class."""
    words = block_words(A[KEYS], A[WIDTH], rows)
    less = class_of(words)
    if 2 * class_words(less) > class_words(c) or A[TOP] + class_words(less) > A[ROOM]:
        return block, c
    smaller = allocate(A, less)
    for j in range(KEY, words):
        A[smaller + j] = A[block + j]
    free_unpublished(A, block, c)
    return smaller, less


@njit
def _merge_in_scratch(A, P, S, n, g, cols, weights):
    """Publish the new version of a key with few rows: merge in scratch, then write a block that fits."""
    slot, head, links = S[LISTS + g], S[LISTS + n + g], LISTS + 4 * n
    keys, width = A[KEYS], A[WIDTH]
    rows = np.int64(0)
    if slot >= 0:
        old = shown(A, slot) & OFFSET
        rows = A[old + COUNT] & COUNT_MASK
        for j in range(keys):
            S[LOOKUP_KEY + j] = A[old + KEY + j]
        for j in range(rows * (width + 1)):
            S[MERGE + j] = A[old + KEY + keys + j]
    if rows + S[LISTS + 2 * n + g] < 4 * _MANY:
        rows = _merge_few(S, MERGE, rows, width, cols, weights, head, S, links)
    else:
        rows = _merge_many(S, MERGE, rows, width, cols, weights, head, S, links, rows + S[LISTS + 2 * n + g])
    left = _squeeze(S, MERGE, rows, width)
    if left < 0:
        return _blame(S, S, MERGE, -1 - left, width)
    if left == 0 and A[FULL]:
        if slot >= 0:
            withdraw(A, slot)
        return DONE
    c = class_of(block_words(keys, width, left))
    block = allocate(A, c)
    for j in range(keys):
        A[block + KEY + j] = S[LOOKUP_KEY + j]
    for j in range(left * (width + 1)):
        A[block + KEY + keys + j] = S[MERGE + j]
    publish(A, P, slot, np.uint64(S[LISTS + 3 * n + g]), block, left, c)
    return DONE


@njit
def _merge_in_block(A, P, S, n, g, cols, weights):
    """Publish the new version of a key with many rows: merge in its new block."""
    slot, head, links = S[LISTS + g], S[LISTS + n + g], LISTS + 4 * n
    keys, width = A[KEYS], A[WIDTH]
    rows, fresh = np.int64(0), S[LISTS + 2 * n + g]
    if slot >= 0:
        rows = A[(shown(A, slot) & OFFSET) + COUNT] & COUNT_MASK
    c = class_of(block_words(keys, width, rows + fresh))
    block = allocate(A, c)
    base = block + KEY + keys
    if slot >= 0:
        old = shown(A, slot) & OFFSET
        for j in range(KEY, block_words(keys, width, rows)):
            A[block + j] = A[old + j]
    else:
        for j in range(keys):
            A[block + KEY + j] = S[LOOKUP_KEY + j]
    if fresh < _MANY:
        rows = _merge_few(A, base, rows, width, cols, weights, head, S, links)
    else:
        rows = _merge_many(A, base, rows, width, cols, weights, head, S, links, rows + fresh)
    left = _squeeze(A, base, rows, width)
    if left < 0:
        return _blame(S, A, base, -1 - left, width)
    if left == 0 and A[FULL]:
        free_unpublished(A, block, c)
        if slot >= 0:
            withdraw(A, slot)
        return DONE
    block, c = _fitting(A, block, c, left)
    publish(A, P, slot, np.uint64(S[LISTS + 3 * n + g]), block, left, c)
    return DONE


@njit
def _blame(S, R, base, row, width):
    """Return NEGATIVE, with the row in scratch."""
    at = base + row * (width + 1)
    for j in range(min(width, MERGE_WORDS)):
        S[MERGE + j] = R[at + 1 + j]
    return NEGATIVE


@njit
def merge_group(A, P, S, n, g, cols, weights):
    """Build and publish the new version of one group's key.  If the key is not in the view, it must be in scratch."""
    most = S[LISTS + 2 * n + g]
    slot = S[LISTS + g]
    if slot >= 0:
        most += A[(shown(A, slot) & OFFSET) + COUNT] & COUNT_MASK
    if most * (A[WIDTH] + 1) <= MERGE_WORDS:
        return _merge_in_scratch(A, P, S, n, g, cols, weights)
    return _merge_in_block(A, P, S, n, g, cols, weights)
