"""Incremental growth of the hash tables of a large arena: no change waits until all of a table has moved.

When a table of n slots is half full, its successor is the 2n slots behind it.  Changes first clear these slots, 64 for
each row that they may add.  Then they move the keys, 16 slots for each row.  So all keys have moved before the load of
the smaller table exceeds 0.6.  A batch with too many rows for that moves the rest at once.

Keeps true: a key is in the larger table if its first slot in the smaller one has been passed; otherwise it is in the
smaller one (`hashing.home_of`).  Passing begins and stops only at free slots, so it never splits a run of occupied
slots that a lookup probes.
"""

from __future__ import annotations

from noria.kernels import njit
from noria.state.rows.bare import bare
from noria.state.rows.hashing import slot_of
from noria.state.rows.kernels import entry_hash, row_hash
from noria.state.rows.layout import (
    BASE,
    CAP,
    CLEARED,
    DESCRIPTOR,
    ECAP,
    EHOFF,
    ELIVE,
    ENTRY,
    EOFF,
    HASH,
    HEADER,
    LIVE,
    MOVED,
    NIDX,
    ROWS,
    SLOTS,
    START,
    WIDTH,
    K,
)
from noria.state.rows.prefetch import AHEAD, prefetch

CLEAR = 64  # slots cleared for each row
MOVE = 16  # slots passed for each row


@njit
def make_room(A, n):
    """Make room for n more rows and n more keys in each index.  Return False if the arena is too small."""
    A = bare(A)
    if A[LIVE] + n > A[CAP]:
        return False
    for x in range(A[NIDX]):
        d = HEADER + x * DESCRIPTOR
        if A[d + ELIVE] + n > A[d + ECAP]:
            return False
    _widen(A, HASH, -1, A[LIVE] + n, n)
    for x in range(A[NIDX]):
        d = HEADER + x * DESCRIPTOR
        _widen(A, d + EHOFF, d, A[d + ELIVE] + n, n)
    return True


@njit
def _widen(A, g, d, held, n):
    """Advance the growth of the hash table described at g, if it is half full with `held` keys.

    d: the descriptor of its index, or -1 for the identity hash of rows.  n: the rows that pay for the work.
    """
    if A[g + CLEARED] == 0 and 2 * held <= A[g + SLOTS]:
        return
    _grow(A, g, d, n)
    while 4 * held > 3 * A[g + SLOTS]:
        _grow(A, g, d, A[g + SLOTS])


@njit
def _grow(A, g, d, n):
    """Clear slots of the larger table, or move keys to it, in the amount that n rows pay for."""
    fresh, cleared = A[g + BASE] + A[g + SLOTS], A[g + CLEARED]
    if cleared < 2 * A[g + SLOTS]:
        upto = min(2 * A[g + SLOTS], cleared + CLEAR * n)
        for s in range(fresh + cleared, fresh + upto):
            A[s] = -1
        A[g + CLEARED] = upto
        return
    _pass(A, g, d, MOVE * n)
    if A[g + MOVED] >= A[g + SLOTS]:
        A[g + BASE], A[g + SLOTS] = fresh, 2 * A[g + SLOTS]
        A[g + MOVED] = A[g + CLEARED] = 0


@njit
def _pass(A, g, d, slots):
    """Move the keys of about `slots` slots, and go on to the end of the last run of occupied slots."""
    base, cap = A[g + BASE], A[g + SLOTS]
    things, size = (A[ROWS], A[WIDTH] + 1) if d < 0 else (A[d + EOFF], ENTRY + A[d + K])
    if A[g + MOVED] == 0:
        s = 0
        while A[base + s] >= 0:
            s += 1
        A[g + START], A[g + MOVED] = s, 1
    last = min(cap, A[g + MOVED] + slots)
    while A[g + MOVED] < last:
        s = (A[g + START] + A[g + MOVED]) & (cap - 1)
        while A[base + s] >= 0:
            ahead = A[base + ((s + AHEAD) & (cap - 1))]
            if ahead >= 0:
                prefetch(A, things + ahead * size)
            number = A[base + s]
            A[base + s] = -1
            h = row_hash(A, things + number * size) if d < 0 else entry_hash(A, d, number)
            to = slot_of(h, 2 * cap)
            while A[base + cap + to] >= 0:
                to = (to + 1) & (2 * cap - 1)
            A[base + cap + to] = number
            s = (s + 1) & (cap - 1)
            A[g + MOVED] += 1
        A[g + MOVED] += 1
