"""Kernels of a view's readers: lock-free, for any number of processes, complete versions only (`views/layout.py`).

Words that the writer may change during a read are loaded with acquire.  A copy is valid only if afterwards the block
still has its version, the slot its word and the view its state: then the memory was not reused meanwhile.  Before that
no word of a block is trusted; a row count is checked before it is used as a length.

The single-key kernels use one private array Q: their result, the key, then the rows.
"""

from __future__ import annotations

import numpy as np

from noria.core.limits import ERROR_CODE
from noria.kernels import njit
from noria.state.memory.atomics import fence, load_acquire, prefetch
from noria.state.rows.bare import bare
from noria.state.rows.hashing import mix_shared
from noria.views.layout import (
    COUNT,
    COUNT_MASK,
    EMPTY,
    FIRST,
    FULL,
    INDEXED,
    INDEXES,
    KEY,
    KEYS,
    NO_VERSION,
    OFFSET,
    PUBLISHED,
    READY,
    SERVING,
    STATE,
    STATES,
    TICK,
    TOMBSTONE,
    WIDTH,
    first_slot,
    place,
    place_of,
    seed,
    tag,
)

# Q: the words of the answer, the number of visible columns, the view's state, the key, the rows.
ROWS, ENTRY_VERSION, SLOT, NEEDED_WORDS, VISIBLE, SERVES, ENTRY_TICK = range(7)
# SERVES: STATE while the memory is this view's.  ENTRY_TICK: the tick that published the entry; NO_TICK without one.
LOOKUP_KEY = 8
NO_TICK = 2**62  # later than every tick
ROWS_AT = 24

# The results of `read`.
PLAIN, SPECIAL, MISS, ELSEWHERE, TOO_LARGE = range(5)
_SLOT_AHEAD, _BLOCK_AHEAD = 16, 8  # keys between a prefetch and its use
_TRIES = 10_000  # a try fails only if the writer made progress; after so many failures the worker answers


@njit(inline="always")
def _hash(A, Q):
    h = seed()
    for j in range(A[KEYS]):
        h = mix_shared(h, Q[LOOKUP_KEY + j])
    return h


@njit
def _has_key(A, block, Q):
    for j in range(A[KEYS]):
        if A[block + KEY + j] != Q[LOOKUP_KEY + j]:
            return False
    return True


@njit(inline="always")
def _locate_in(A, Q, power, h):
    """Find the key in Q in the index of 2**power slots.  Returns (word offset, word); the offset is -1 without one."""
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    t = tag(h)
    s = place(h, mask)
    looked = 0
    while looked <= mask:
        word = load_acquire(A, index + s)
        if word == EMPTY:
            break
        if word & ~OFFSET == t and word != TOMBSTONE:
            if _has_key(A, word & OFFSET, Q):
                return index + s, word
            if load_acquire(A, index + s) != word:
                continue  # the key was compared with a block that has been freed
        s = (s + 1) & mask
        looked += 1
    return np.int64(-1), np.int64(0)


@njit
def _locate_anew(A, Q, indexed, h):
    """`_locate` after the smaller index, or the only one, did not have the key."""
    while True:
        power = indexed >> 1
        if indexed & 1:
            power += 1
            at, word = _locate_in(A, Q, power, h)
            if at >= 0:
                return at, word, first_slot(A, power) + at - A[INDEXES + power]
        now = load_acquire(A, INDEXED)
        if now == indexed:
            return np.int64(-1), np.int64(0), np.int64(-1)
        indexed = now
        power = indexed >> 1
        at, word = _locate_in(A, Q, power, h)
        if at >= 0:
            return at, word, first_slot(A, power) + at - A[INDEXES + power]


@njit(inline="always")
def _locate(A, Q):
    """Find the key in Q.  Returns (word offset, word, slot number); the offset is -1 if it is absent."""
    h = _hash(A, Q)
    indexed = load_acquire(A, INDEXED)
    power = indexed >> 1
    at, word = _locate_in(A, Q, power, h)
    if at < 0:
        return _locate_anew(A, Q, indexed, h)
    return at, word, first_slot(A, power) + at - A[INDEXES + power]


@njit
def _stamp(A, P, slot):
    """Write the tick of this read to the stamp.  A full view, and a reader without write access, has no stamps."""
    if len(P) > slot:
        tick = (load_acquire(A, TICK) + 1) >> 1
        if P[slot] != tick:
            P[slot] = tick


@njit(inline="always")
def _copy_version(A, at, word, width, Q):
    """Copy the rows of one version to Q.  Returns their number, -1 to try again, or -2 if Q is too small."""
    block = word & OFFSET
    version = load_acquire(A, block)
    if version == NO_VERSION:
        return np.int64(-1)
    rows, published = A[block + COUNT] & COUNT_MASK, A[block + PUBLISHED]
    start = block + KEY + A[KEYS]
    fence()
    if load_acquire(A, block) != version or load_acquire(A, STATE) != Q[SERVES]:
        return np.int64(-1)
    words = rows * (width + 1)
    if ROWS_AT + words > len(Q):
        Q[NEEDED_WORDS] = ROWS_AT + words
        return np.int64(-2)
    for j in range(words):
        Q[ROWS_AT + j] = A[start + j]
    fence()
    if load_acquire(A, block) != version or load_acquire(A, at) != word:
        return np.int64(-1)
    if load_acquire(A, STATE) != Q[SERVES]:
        return np.int64(-1)
    Q[ENTRY_VERSION], Q[ENTRY_TICK] = version, published
    return rows


@njit
def _is_plain(Q, rows, width):
    """Whether every weight is one, and no visible value is NULL or an error."""
    at = ROWS_AT
    for _ in range(rows):
        if Q[at] != 1:
            return False
        for c in range(Q[VISIBLE]):
            if Q[at + 1 + c] <= ERROR_CODE:
                return False
        at += width + 1
    return True


@njit
def read(A, P, Q):
    """Copy the rows of the key in Q to Q.  Returns PLAIN, SPECIAL (NULLs, errors or weights), MISS, ELSEWHERE (the view
    has moved) or TOO_LARGE (for Q)."""
    A, P, Q = bare(A), bare(P), bare(Q)
    for _ in range(_TRIES):
        if load_acquire(A, STATE) != Q[SERVES]:
            return ELSEWHERE
        if load_acquire(A, READY) == 0:
            return MISS
        width, full = A[WIDTH], A[FULL]
        at, word, slot = _locate(A, Q)
        if at < 0:
            fence()
            if load_acquire(A, STATE) != Q[SERVES]:
                return ELSEWHERE
            Q[ROWS], Q[ENTRY_VERSION], Q[SLOT], Q[ENTRY_TICK] = 0, 0, -1, NO_TICK
            return PLAIN if full else MISS
        rows = _copy_version(A, at, word, width, Q)
        if rows == -2:
            return TOO_LARGE
        if rows >= 0:
            _stamp(A, P, slot)
            Q[ROWS], Q[SLOT] = rows, slot
            return PLAIN if _is_plain(Q, rows, width) else SPECIAL
    return MISS


@njit
def entry_version(A, slot):
    """The current version of a slot's entry; NO_VERSION if it has none or the view has moved.  If another view has the
    region now, its versions differ."""
    state = load_acquire(A, STATE)
    if state & STATES != SERVING:
        return np.int64(NO_VERSION)
    indexed = load_acquire(A, INDEXED)
    if (slot + A[FIRST]) >> (indexed >> 1) == 0:
        return np.int64(NO_VERSION)  # the slot's index is no longer in use
    word = load_acquire(A, place_of(A, slot, indexed))
    if word <= TOMBSTONE:
        return np.int64(NO_VERSION)
    version = load_acquire(A, word & OFFSET)
    fence()
    return version if load_acquire(A, STATE) == state else np.int64(NO_VERSION)


@njit
def serves(A, state):
    """Whether the memory still belongs to the view that had this state."""
    return load_acquire(A, STATE) == state


@njit
def stamp(A, P, slot):
    A, P = bare(A), bare(P)
    _stamp(A, P, slot)


@njit
def stable_tick(A):
    """TICK, or -1 while a tick is being published."""
    tick = load_acquire(A, TICK)
    return np.int64(-1) if tick & 1 else tick


@njit
def _larger(out, ordinal, rows):
    """Copies of the arrays with room for twice as many rows, plus `rows`."""
    n = 2 * len(ordinal) + rows
    more, numbers = np.empty((len(out), n), np.int64), np.empty(n, np.int64)
    more[:, :len(ordinal)] = out
    numbers[:len(ordinal)] = ordinal
    return more, numbers


@njit
def _look_ahead(A, P, keys, i):
    """Prefetch the memory that later keys need: first slots and stamps, then blocks."""
    power = A[INDEXED] >> 1
    index, mask = A[INDEXES + power], (np.int64(1) << power) - 1
    for distance in (_SLOT_AHEAD, _BLOCK_AHEAD):
        if i + distance < keys.shape[1]:
            h = seed()
            for j in range(A[KEYS]):
                h = mix_shared(h, keys[j, i + distance])
            at = index + place(h, mask)
            if distance == _SLOT_AHEAD:
                prefetch(A, at)
                if len(P):
                    prefetch(P, first_slot(A, power) + at - index)
            else:
                prefetch(A, load_acquire(A, at) & OFFSET)


@njit
def read_many(A, P, Q, keys, nothing):
    """Read the visible columns of many keys' rows: (status, number of rows, columns, key ordinals, missing keys).

    The rows of each key are one complete version.  `nothing`: keys with a NULL, which have no rows.  Q[ENTRY_TICK]
    becomes the latest tick that published any of these entries; NO_TICK if a key has none.
    """
    A, P, Q, keys, nothing = bare(A), bare(P), bare(Q), bare(keys), bare(nothing)
    n, width, visible = keys.shape[1], A[WIDTH], Q[VISIBLE]
    out, ordinal = np.empty((visible, n + 16), np.int64), np.empty(n + 16, np.int64)
    missing = np.zeros(n, np.bool_)
    total = 0
    if load_acquire(A, STATE) != Q[SERVES]:
        return ELSEWHERE, total, out, ordinal, missing
    if load_acquire(A, READY) == 0:
        missing[:] = True
        return PLAIN, total, out, ordinal, missing
    absent, latest = A[FULL] == 0, np.int64(0)
    for i in range(n):
        _look_ahead(A, P, keys, i)
        if nothing[i]:
            continue
        for j in range(A[KEYS]):
            Q[LOOKUP_KEY + j] = keys[j, i]
        rows = np.int64(-1)
        for _ in range(_TRIES):
            if load_acquire(A, STATE) != Q[SERVES]:
                return ELSEWHERE, total, out, ordinal, missing
            at, word, slot = _locate(A, Q)
            if at < 0:
                break
            rows = _copy_version(A, at, word, width, Q)
            if rows == -2:
                return TOO_LARGE, total, out, ordinal, missing
            if rows >= 0:
                _stamp(A, P, slot)
                break
        if rows < 0:
            missing[i] = absent or slot >= 0
            latest = np.int64(NO_TICK)
            continue
        latest = max(latest, Q[ENTRY_TICK])
        at = ROWS_AT
        for _ in range(rows):
            if total + Q[at] > len(ordinal):
                out, ordinal = _larger(out, ordinal, Q[at])
            for _ in range(Q[at]):
                for c in range(visible):
                    out[c, total] = Q[at + 1 + c]
                ordinal[total] = i
                total += 1
            at += width + 1
    fence()
    if load_acquire(A, STATE) != Q[SERVES]:
        return ELSEWHERE, total, out, ordinal, missing
    Q[ENTRY_TICK] = latest
    return PLAIN, total, out, ordinal, missing
