"""Kernels over a state's arena (`state/rows/layout.py`): rows by identity, rows by key, presence of keys.

Keeps true, for each arena between two calls:
* A row is stored if and only if its key is present in some index, or the arena is full (FULL = 1).
* Each index finds all stored rows, also under keys that are missing in it.
* An entry exists if and only if its key is present or has rows.
Callers reserve room first (`state/rows/table.py`), so a kernel never runs out of it.

`read_kernels.py` has the kernels that read only.
"""

from __future__ import annotations

from noria.kernels import njit
from noria.state.rows.bare import bare, stack
from noria.state.rows.hashing import SEED, home_of, mix, slot_of
from noria.state.rows.layout import (
    COLS,
    DESCRIPTOR,
    EFREE,
    EHIGH,
    EHOFF,
    ELIVE,
    ENTRY,
    EOFF,
    FLAG,
    FOLDS,
    FREE,
    FULL,
    HASH,
    HEAD,
    HEADER,
    HIGH,
    IDW,
    KEY,
    LIVE,
    LOFF,
    MAX_KEY,
    NIDX,
    PRESENT,
    ROWS,
    STAMP,
    WIDTH,
    K,
)
from noria.state.rows.prefetch import (
    BLOCK,
    WARM_FROM,
    warm_keys,
    warm_rows,
)


# ------------------------------------------------------------------ rows by identity
@njit
def row_hash(A, off):
    """Hash the identity words of the stored row at word `off`."""
    h = SEED
    for c in range(A[IDW]):
        h = mix(h, A[off + 1 + c])
    return h


@njit
def find_row(A, cols, i):
    """Return the number of the stored row whose identity words equal column i of `cols`, or -1."""
    h = SEED
    w = A[IDW]
    for c in range(w):
        h = mix(h, cols[c, i])
    rows, width = A[ROWS], A[WIDTH] + 1
    hash_off, cap, s = home_of(A, HASH, h)
    while True:
        r = A[hash_off + s]
        if r < 0:
            return -1
        off = rows + r * width + 1
        same = True
        for c in range(w):
            if A[off + c] != cols[c, i]:
                same = False
                break
        if same:
            return r
        s = (s + 1) & (cap - 1)


@njit
def _hash_add_row(A, r):
    hash_off, cap, s = home_of(A, HASH, row_hash(A, A[ROWS] + r * (A[WIDTH] + 1)))
    while A[hash_off + s] >= 0:
        s = (s + 1) & (cap - 1)
    A[hash_off + s] = r


@njit
def _hash_drop_row(A, r):
    rows, width = A[ROWS], A[WIDTH] + 1
    hash_off, cap, s = home_of(A, HASH, row_hash(A, rows + r * width))
    while A[hash_off + s] != r:
        s = (s + 1) & (cap - 1)
    hole = s
    s = (s + 1) & (cap - 1)
    while A[hash_off + s] >= 0:
        home = slot_of(row_hash(A, rows + A[hash_off + s] * width), cap)
        if ((s - home) & (cap - 1)) >= ((s - hole) & (cap - 1)):
            A[hash_off + hole] = A[hash_off + s]
            hole = s
        s = (s + 1) & (cap - 1)
    A[hash_off + hole] = -1


# ------------------------------------------------------------------ entries by key
@njit(inline="always")
def key_of_input(A, d, cols, i, fold, kb):
    """Write into kb the key of input row i under the index at descriptor d."""
    for j in range(A[d + K]):
        v = cols[A[d + COLS + j], i]
        if A[d + FOLDS + j] == 1 and v >= 0:
            v = fold[v]
        kb[j] = v


@njit(inline="always")
def key_of_row(A, d, off, fold, kb):
    """Write into kb the key of the stored row at word `off`."""
    for j in range(A[d + K]):
        v = A[off + 1 + A[d + COLS + j]]
        if A[d + FOLDS + j] == 1 and v >= 0:
            v = fold[v]
        kb[j] = v


@njit(inline="always")
def key_of_args(A, d, keys, i, fold, kb):
    """Write into kb key i of a key array in the index's column order."""
    for j in range(A[d + K]):
        v = keys[j, i]
        if A[d + FOLDS + j] == 1 and v >= 0:
            v = fold[v]
        kb[j] = v


@njit
def _place_of(A, d, kb):
    """Return the position of the key in kb in the entry hash, or of the free slot for it."""
    k, base = A[d + K], A[d + EOFF]
    h = SEED
    for j in range(k):
        h = mix(h, kb[j])
    hash_off, cap, s = home_of(A, d + EHOFF, h)
    while True:
        e = A[hash_off + s]
        if e < 0:
            return hash_off + s
        off = base + e * (ENTRY + k) + KEY
        same = True
        for j in range(k):
            if A[off + j] != kb[j]:
                same = False
                break
        if same:
            return hash_off + s
        s = (s + 1) & (cap - 1)


@njit(inline="always")
def has_key(A, d, e, kb):
    """True if entry e has the key in kb."""
    off = A[d + EOFF] + e * (ENTRY + A[d + K]) + KEY
    same = True
    for j in range(A[d + K]):
        same &= A[off + j] == kb[j]
    return same


@njit
def find_entry(A, d, kb):
    """Return the number of the entry with the key in kb, or -1."""
    return A[_place_of(A, d, kb)]


@njit
def entry_hash(A, d, e):
    k = A[d + K]
    off = A[d + EOFF] + e * (ENTRY + k) + KEY
    h = SEED
    for j in range(k):
        h = mix(h, A[off + j])
    return h


@njit
def make_entry(A, d, kb):
    """Return the entry of the key in kb.  If there is none, make one that is missing and has no rows."""
    place = _place_of(A, d, kb)
    e = A[place]
    if e >= 0:
        return e
    k, e = A[d + K], A[d + EFREE]
    if e >= 0:
        A[d + EFREE] = A[A[d + EOFF] + e * (ENTRY + k) + HEAD]
    else:
        e = A[d + EHIGH]
        A[d + EHIGH] = e + 1
    off = A[d + EOFF] + e * (ENTRY + k)
    A[off + HEAD], A[off + FLAG], A[off + STAMP] = -1, 0, 0
    for j in range(k):
        A[off + KEY + j] = kb[j]
    A[d + ELIVE] += 1
    A[place] = e
    return e


@njit
def drop_entry(A, d, e):
    k = A[d + K]
    hash_off, cap, s = home_of(A, d + EHOFF, entry_hash(A, d, e))
    while A[hash_off + s] != e:
        s = (s + 1) & (cap - 1)
    hole = s
    s = (s + 1) & (cap - 1)
    while A[hash_off + s] >= 0:
        home = slot_of(entry_hash(A, d, A[hash_off + s]), cap)
        if ((s - home) & (cap - 1)) >= ((s - hole) & (cap - 1)):
            A[hash_off + hole] = A[hash_off + s]
            hole = s
        s = (s + 1) & (cap - 1)
    A[hash_off + hole] = -1
    off = A[d + EOFF] + e * (ENTRY + k)
    A[off + FLAG] = -1
    A[off + HEAD] = A[d + EFREE]
    A[d + EFREE] = e
    A[d + ELIVE] -= 1


# ------------------------------------------------------------------ storing rows
@njit
def covered_input(A, cols, i, fold, kb):
    """True if some index has the key of input row i present, or the state is full: it holds every key."""
    if A[FULL] == 1:
        return True
    for x in range(A[NIDX]):
        d = HEADER + x * DESCRIPTOR
        key_of_input(A, d, cols, i, fold, kb)
        e = find_entry(A, d, kb)
        if e >= 0 and A[A[d + EOFF] + e * (ENTRY + A[d + K]) + FLAG] == 1:
            return True
    return False


@njit
def covered_row(A, off, fold, kb):
    if A[FULL] == 1:
        return True
    for x in range(A[NIDX]):
        d = HEADER + x * DESCRIPTOR
        key_of_row(A, d, off, fold, kb)
        e = find_entry(A, d, kb)
        if e >= 0 and A[A[d + EOFF] + e * (ENTRY + A[d + K]) + FLAG] == 1:
            return True
    return False


@njit
def link_row(A, d, r, fold, kb):
    """Link row r as the first row of its key in the index at d."""
    key_of_row(A, d, A[ROWS] + r * (A[WIDTH] + 1), fold, kb)
    e = make_entry(A, d, kb)
    off = A[d + EOFF] + e * (ENTRY + A[d + K]) + HEAD
    head = A[off]
    links = A[d + LOFF]
    A[links + 2 * r], A[links + 2 * r + 1] = head, -1
    if head >= 0:
        A[links + 2 * head + 1] = r
    A[off] = r


@njit
def _unlink_row(A, d, r, fold, kb):
    links = A[d + LOFF]
    nxt, prv = A[links + 2 * r], A[links + 2 * r + 1]
    if nxt >= 0:
        A[links + 2 * nxt + 1] = prv
    if prv >= 0:
        A[links + 2 * prv] = nxt
        return
    key_of_row(A, d, A[ROWS] + r * (A[WIDTH] + 1), fold, kb)
    e = find_entry(A, d, kb)
    off = A[d + EOFF] + e * (ENTRY + A[d + K])
    A[off + HEAD] = nxt
    if nxt < 0 and A[off + FLAG] == 0:
        drop_entry(A, d, e)


@njit
def new_row(A, cols, i, weight, fold, kb):
    """Store input row i with a weight and link it in all indexes.  Words beyond the input's width are 0."""
    r = A[FREE]
    width = A[WIDTH]
    off = A[ROWS] + r * (width + 1)
    if r >= 0:
        A[FREE] = A[off + 1]
    else:
        r = A[HIGH]
        A[HIGH] = r + 1
        off = A[ROWS] + r * (width + 1)
    A[off] = weight
    words = cols.shape[0]
    for c in range(width):
        A[off + 1 + c] = cols[c, i] if c < words else 0
    A[LIVE] += 1
    _hash_add_row(A, r)
    for x in range(A[NIDX]):
        link_row(A, HEADER + x * DESCRIPTOR, r, fold, kb)
    return r


@njit
def free_row(A, r, fold, kb):
    for x in range(A[NIDX]):
        _unlink_row(A, HEADER + x * DESCRIPTOR, r, fold, kb)
    _hash_drop_row(A, r)
    off = A[ROWS] + r * (A[WIDTH] + 1)
    A[off] = 0
    A[off + 1] = A[FREE]
    A[FREE] = r
    A[LIVE] -= 1


@njit
def apply(A, cols, weights, fold, kept):
    """Add a delta.  kept[i] becomes True if row i was covered and so stored.

    Returns the number of rows that have a negative weight after the delta: a violation unless 0.  The order of
    rows within a delta does not matter.
    """
    A, cols, weights, fold, kept = bare(A), bare(cols), bare(weights), bare(fold), bare(kept)
    kb = stack(MAX_KEY)
    width = A[WIDTH] + 1
    negative = 0
    n = weights.shape[0]
    slots = stack(BLOCK)
    for i in range(n):
        if i % BLOCK == 0 and n > WARM_FROM:
            hi = min(n, i + BLOCK)
            for x in range(A[NIDX]):
                warm_keys(A, HEADER + x * DESCRIPTOR, cols, False, fold, i, hi, slots)
            warm_rows(A, cols, i, hi, slots)
        if weights[i] == 0 or not covered_input(A, cols, i, fold, kb):
            kept[i] = False
            continue
        kept[i] = True
        r = find_row(A, cols, i)
        if r < 0:
            new_row(A, cols, i, weights[i], fold, kb)
            negative += weights[i] < 0
            continue
        off = A[ROWS] + r * width
        old = A[off]
        w = old + weights[i]
        negative += (w < 0) - (old < 0)
        if w == 0:
            free_row(A, r, fold, kb)
        else:
            A[off] = w
    return negative


@njit
def fill(A, x, keys, cols, weights, fold):
    """Store the rows that an upquery returned for missing keys of index x, and mark the keys present.

    A row that another present key covers is stored already, and is not added again.  Returns 0, or -(i + 1) if row i
    is covered but not stored: a violation.
    """
    A, keys, cols, weights, fold = bare(A), bare(keys), bare(cols), bare(weights), bare(fold)
    kb = stack(MAX_KEY)
    width = A[WIDTH] + 1
    for i in range(weights.shape[0]):
        r = find_row(A, cols, i)
        if covered_input(A, cols, i, fold, kb):
            if r < 0:
                return -(i + 1)
        elif r < 0:
            new_row(A, cols, i, weights[i], fold, kb)
        else:
            A[A[ROWS] + r * width] += weights[i]
    d = HEADER + x * DESCRIPTOR
    for i in range(keys.shape[1]):
        key_of_args(A, d, keys, i, fold, kb)
        off = A[d + EOFF] + make_entry(A, d, kb) * (ENTRY + A[d + K])
        if A[off + FLAG] != 1:
            A[off + FLAG] = 1
            A[d + PRESENT] += 1
    return 0


@njit
def evict(A, x, keys, fold):
    """Make keys of index x missing, and remove the rows that no other present key covers.  Returns their number."""
    A, keys, fold = bare(A), bare(keys), bare(fold)
    kb = stack(MAX_KEY)
    d = HEADER + x * DESCRIPTOR
    links, stride = A[d + LOFF], ENTRY + A[d + K]
    removed = 0
    for i in range(keys.shape[1]):
        key_of_args(A, d, keys, i, fold, kb)
        e = find_entry(A, d, kb)
        if e < 0 or A[A[d + EOFF] + e * stride + FLAG] != 1:
            continue
        off = A[d + EOFF] + e * stride
        A[off + FLAG] = 0
        A[d + PRESENT] -= 1
        r = A[off + HEAD]
        if r < 0:
            drop_entry(A, d, e)
        while r >= 0:
            nxt = A[links + 2 * r]
            if not covered_row(A, A[ROWS] + r * (A[WIDTH] + 1), fold, kb):
                free_row(A, r, fold, kb)
                removed += 1
            r = nxt
    return removed


# ------------------------------------------------------------------ growing
@njit
def rebuild(A, B, old_of_new, fold):
    """Copy the rows and present keys of arena A into the empty arena B.

    old_of_new[x]: the index of A whose present keys index x of B copies, or -1 for a new index without present keys.
    """
    A, B, old_of_new, fold = bare(A), bare(B), bare(old_of_new), bare(fold)
    kb = stack(MAX_KEY)
    width = A[WIDTH]
    for x in range(B[NIDX]):
        if old_of_new[x] < 0:
            continue
        d, b = HEADER + old_of_new[x] * DESCRIPTOR, HEADER + x * DESCRIPTOR
        k = A[d + K]
        for e in range(A[d + EHIGH]):
            off = A[d + EOFF] + e * (ENTRY + k)
            if A[off + FLAG] == 1:
                for j in range(k):
                    kb[j] = A[off + KEY + j]
                to = B[b + EOFF] + make_entry(B, b, kb) * (ENTRY + k)
                B[to + FLAG], B[to + STAMP] = 1, A[off + STAMP]
                B[b + PRESENT] += 1
    for r in range(A[HIGH]):
        off = A[ROWS] + r * (width + 1)
        if A[off] == 0:
            continue
        q = B[HIGH]
        B[HIGH] = q + 1
        to = B[ROWS] + q * (width + 1)
        for c in range(width + 1):
            B[to + c] = A[off + c]
        B[LIVE] += 1
        _hash_add_row(B, q)
        for x in range(B[NIDX]):
            link_row(B, HEADER + x * DESCRIPTOR, q, fold, kb)
