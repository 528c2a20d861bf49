"""Kernels of a view's only writer: apply a delta, fill and evict keys, look up, copy to larger memory.

`apply` and `fill` first group the rows by key in scratch memory and compute the room that they need.  If there is room,
they build and publish one key after the other, by the rules of `views/layout.py`.  So they apply all changes or none,
unless they report a violation.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.memory.atomics import fence, prefetch, store_release
from noria.state.rows.bare import bare
from noria.state.rows.hashing import mix_shared
from noria.views.layout import (
    COUNT,
    COUNT_BITS,
    COUNT_MASK,
    EMPTY,
    FIRST,
    FULL,
    HELD,
    INDEX,
    INDEXED,
    INDEXES,
    KEY,
    KEYS,
    LIVE,
    MOST_USED,
    OFFSET,
    PASSED,
    STATE,
    TICK,
    TOMBSTONE,
    TOP,
    USED,
    WIDTH,
    block_words,
    class_of,
    class_words,
    first_slot,
    place,
    place_of,
    seed,
    slots_in_use,
    tag,
)
from noria.views.merge_kernels import group_rows, merge_group, prefetch_groups, short_of_room
from noria.views.slab_kernels import (
    BAD_ROW,
    DONE,
    LISTS,
    PASSED_ALL,
    PRESENT,
    STRAY,
    allocate,
    find,
    row_key,
    same_key,
    shown,
    table_size,
    vacant,
    withdraw,
    write_key,
)

PASS = 16  # slots of a replaced index that each row moves, so that all have moved long before the larger one is full
_AHEAD = 12  # slots between a prefetch and its use


# ------------------------------------------------------------------ called by the writer
@njit
def apply(A, P, S, cols, weights, fold):
    """Add a delta.  Rows of keys that are missing in a partial view are dropped.  Returns a code of `slab_kernels`."""
    A, P, S, cols, weights, fold = bare(A), bare(P), bare(S), bare(cols), bare(weights), bare(fold)
    n = len(weights)
    if A[INDEXED] & 1 and _pass(A, P, PASS * n):
        return PASSED_ALL
    groups = group_rows(A, S, cols, weights, fold)
    full = A[FULL] != 0
    code = short_of_room(A, S, n, groups, full)
    if code != DONE:
        return code
    for g in range(groups):
        prefetch_groups(A, S, g, groups)
        if S[LISTS + g] < 0:
            if not full:
                continue
            row_key(A, cols, S[LISTS + n + g], fold, S)
        code = merge_group(A, P, S, n, g, cols, weights)
        if code != DONE:
            return code
    return DONE


@njit
def _group_fill(A, S, n, keys, cols, weights, fold):
    """Make lists of the rows by key; the groups are `keys`, in order.  Returns DONE, PRESENT (a key is present or
    listed twice) or STRAY (a row has none of the keys)."""
    slots, heads, sizes, hashes, links = LISTS, LISTS + n, LISTS + 2 * n, LISTS + 3 * n, LISTS + 4 * n
    table, size = LISTS + 5 * n, table_size(n)
    S[table:table + size] = -1
    for g in range(keys.shape[1]):
        h = write_key(A, keys, g, fold, S)
        s = place(h, size - 1)
        while S[table + s] >= 0:
            if same_key(A, keys, S[table + s], True, fold, S):
                S[BAD_ROW] = g
                return PRESENT
            s = (s + 1) & (size - 1)
        S[table + s] = g
        S[slots + g], S[heads + g], S[sizes + g], S[hashes + g] = -1, -1, 0, np.int64(h)
        if find(A, h, S) >= 0:
            S[BAD_ROW] = g
            return PRESENT
    for i in range(len(weights)):
        h = row_key(A, cols, i, fold, S)
        s = place(h, size - 1)
        g = S[table + s]
        while g >= 0 and not same_key(A, keys, g, True, fold, S):
            s = (s + 1) & (size - 1)
            g = S[table + s]
        if g < 0:
            S[BAD_ROW] = i
            return STRAY
        S[links + i] = S[heads + g]
        S[heads + g] = i
        S[sizes + g] += 1
    return DONE


@njit
def fill(A, P, S, keys, cols, weights, fold):
    """Make missing keys present with exactly these rows.  Returns a code of `slab_kernels`."""
    A, P, S, keys = bare(A), bare(P), bare(S), bare(keys)
    cols, weights, fold = bare(cols), bare(weights), bare(fold)
    groups = keys.shape[1]
    n = max(groups, len(weights))
    if A[INDEXED] & 1 and _pass(A, P, PASS * n):
        return PASSED_ALL
    code = _group_fill(A, S, n, keys, cols, weights, fold)
    if code == DONE:
        code = short_of_room(A, S, n, groups, True)
    for g in range(groups):
        if code != DONE:
            break
        write_key(A, keys, g, fold, S)
        code = merge_group(A, P, S, n, g, cols, weights)
    return code


@njit
def evict(A, S, keys, fold):
    """Make keys missing.  Returns the number of freed words."""
    A, S, keys, fold = bare(A), bare(S), bare(keys), bare(fold)
    freed = 0
    for i in range(keys.shape[1]):
        slot = find(A, write_key(A, keys, i, fold, S), S)
        if slot >= 0:
            freed += class_words(A[(shown(A, slot) & OFFSET) + COUNT] >> COUNT_BITS) + 2
            withdraw(A, slot)
    return freed


@njit
def missing(A, S, keys, fold):
    A, S, keys, fold = bare(A), bare(S), bare(keys), bare(fold)
    out = np.empty(keys.shape[1], np.bool_)
    for i in range(len(out)):
        out[i] = not A[FULL] and find(A, write_key(A, keys, i, fold, S), S) < 0
    return out


@njit
def rows(A, P, S, keys, fold):
    """The stored rows of keys: (columns, weights, ordinal of each row's key)."""
    A, P, S, keys, fold = bare(A), bare(P), bare(S), bare(keys), bare(fold)
    n, width, key_words = keys.shape[1], A[WIDTH], A[KEYS]
    blocks = np.zeros(n, np.int64)
    total = 0
    for i in range(n):
        slot = find(A, write_key(A, keys, i, fold, S), S)
        if slot >= 0:
            if not A[FULL]:
                P[slot] = (A[TICK] + 1) >> 1
            blocks[i] = shown(A, slot) & OFFSET
            total += A[blocks[i] + COUNT] & COUNT_MASK
    cols, weights = np.empty((width, total), np.int64), np.empty(total, np.int64)
    ordinal = np.empty(total, np.int64)
    out = 0
    for i in range(n):
        if not blocks[i]:
            continue
        at = blocks[i] + KEY + key_words
        for _ in range(A[blocks[i] + COUNT] & COUNT_MASK):
            weights[out], ordinal[out] = A[at], i
            for c in range(width):
                cols[c, out] = A[at + 1 + c]
            out += 1
            at += width + 1
    return cols, weights, ordinal


@njit
def sample(A, P, start, most):
    """Up to `most` present keys, going round the slots once from `start` on: (keys, stamps, bytes, the next slot)."""
    A, P = bare(A), bare(P)
    size = min(most, A[LIVE])
    k = A[KEYS]
    first, end = slots_in_use(A, A[INDEXED])
    keys = np.empty((k, size), np.int64)
    stamps, sizes = np.empty(size, np.int64), np.empty(size, np.int64)
    sampled, slot = 0, start if first <= start < end else first
    for _ in range(end - first):
        if sampled == size:
            break
        word = shown(A, slot)
        if word > TOMBSTONE:
            block = word & OFFSET
            for j in range(k):
                keys[j, sampled] = A[block + KEY + j]
            stamps[sampled] = 0 if A[FULL] else P[slot]
            sizes[sampled] = 8 * (class_words(A[block + COUNT] >> COUNT_BITS) + 2)
            sampled += 1
        slot = slot + 1 if slot + 1 < end else first
    return keys, stamps, sizes, slot


# ------------------------------------------------------------------ header, growth
@njit
def set_tick(A, word):
    """Set TICK.  Odd: publishing is about to begin; even: it is complete."""
    store_release(A, TICK, word)
    fence()


@njit
def set_state(A, word):
    """Set STATE.  A reader that sees it also sees all earlier writes; a reader that sees a later write also sees it."""
    fence()
    store_release(A, STATE, word)
    fence()


@njit
def column(A, c):
    """One column of all rows."""
    out = np.empty(A[HELD], np.int64)
    at, keys, width = 0, A[KEYS], A[WIDTH]
    first, end = slots_in_use(A, A[INDEXED])
    for slot in range(first, end):
        word = shown(A, slot)
        if word > TOMBSTONE:
            row = (word & OFFSET) + KEY + keys
            for _ in range(A[(word & OFFSET) + COUNT] & COUNT_MASK):
                out[at] = A[row + 1 + c]
                at += 1
                row += width + 1
    return out


@njit
def copied_words(A):
    """The slab words that a fresh copy of the live blocks needs."""
    A = bare(A)
    total = 0
    first, end = slots_in_use(A, A[INDEXED])
    for slot in range(first, end):
        word = shown(A, slot)
        if word > TOMBSTONE:
            rows = A[(word & OFFSET) + COUNT] & COUNT_MASK
            total += class_words(class_of(block_words(A[KEYS], A[WIDTH], rows)))
    return total


@njit
def copy(A, P, B, Q):
    """Copy every live key of A, with its version and stamp, to the fresh memory B with stamps Q."""
    A, P, B, Q = bare(A), bare(P), bare(B), bare(Q)
    keys, width = A[KEYS], A[WIDTH]
    first, end = slots_in_use(A, A[INDEXED])
    for slot in range(first, end):
        word = shown(A, slot)
        if word <= TOMBSTONE:
            continue
        block = word & OFFSET
        h = _hash_of(A, block)
        rows = A[block + COUNT] & COUNT_MASK
        words = block_words(keys, width, rows)
        c = class_of(words)
        to = allocate(B, c)
        for j in range(words):
            B[to + j] = A[block + j]
        B[to + COUNT] = rows | (c << COUNT_BITS)
        s = vacant(B, h)
        B[place_of(B, s, B[INDEXED])] = tag(h) | to
        if not A[FULL]:
            Q[s] = P[slot]
    B[LIVE] = B[USED] = A[LIVE]
    B[HELD] = A[HELD]


@njit
def _hash_of(A, block):
    h = seed()
    for j in range(A[KEYS]):
        h = mix_shared(h, A[block + KEY + j])
    return h


# ------------------------------------------------------------------ a larger index in the same memory
@njit
def set_index(A, power):
    """Set up the first index of fresh memory, with 2**power slots."""
    A[FIRST], A[INDEXED], A[INDEXES + power] = 1 << power, 2 * power, INDEX
    A[HELD] = A[PASSED] = 0


@njit
def begin_growth(A):
    """Begin an index of twice the slots at the top of the slab, where the caller has made room.  New keys go there."""
    power = A[INDEXED] >> 1
    slots = np.int64(1) << power
    A[INDEXES + power + 1] = A[TOP]
    A[TOP] += 2 * slots
    A[PASSED] = A[USED] = 0
    A[MOST_USED] = 14 * slots // 10 - A[LIVE]
    store_release(A, INDEXED, 2 * power + 1)
    fence()


@njit
def _pass(A, P, slots):
    """Move the keys of `slots` slots of the smaller index to the larger one.  Returns True when all have moved."""
    power = A[INDEXED] >> 1
    index, first = A[INDEXES + power], first_slot(A, power)
    last = min(np.int64(1) << power, A[PASSED] + slots)
    for s in range(A[PASSED], last):
        ahead = A[index + min(s + _AHEAD, last - 1)]
        if ahead > TOMBSTONE:
            prefetch(A, ahead & OFFSET)
        word = A[index + s]
        if word > TOMBSTONE:
            to = vacant(A, _hash_of(A, word & OFFSET))
            at = place_of(A, to, A[INDEXED])
            if A[at] == EMPTY:
                A[USED] += 1
            if not A[FULL]:
                P[to] = P[first + s]
            store_release(A, at, word)
            store_release(A, index + s, TOMBSTONE)
    A[PASSED] = last
    if last < np.int64(1) << power:
        return False
    A[MOST_USED] = np.int64(1) << power
    store_release(A, INDEXED, 2 * (power + 1))
    fence()
    return True


@njit
def pass_all(A, P):
    A, P = bare(A), bare(P)
    _pass(A, P, np.int64(1) << (A[INDEXED] >> 1))


def warm_growth() -> None:
    """Compile the kernels that a large view calls when its index grows."""
    slots = 4
    words, stamps = np.zeros(INDEX + 3 * slots, np.int64), np.zeros(3 * slots, np.int64)
    set_index(words, slots.bit_length() - 1)
    words[TOP] = INDEX + slots
    begin_growth(words)
    pass_all(words, stamps)
