"""Kernels that read a state's arena (`state/rows/layout.py`): lookups, all rows, present keys.

They change nothing but the time of a key's last use.
"""

from __future__ import annotations

import numpy as np

from noria.kernels import njit
from noria.state.rows.bare import bare, stack
from noria.state.rows.kernels import find_entry, has_key, key_of_args
from noria.state.rows.layout import (
    DESCRIPTOR,
    EHIGH,
    ENTRY,
    EOFF,
    FLAG,
    FULL,
    HEAD,
    HEADER,
    HIGH,
    KEY,
    LIVE,
    LOFF,
    MAX_KEY,
    PRESENT,
    ROWS,
    STAMP,
    WIDTH,
    K,
)
from noria.state.rows.prefetch import (
    AHEAD,
    BLOCK,
    WARM_FROM,
    prefetch,
    warm_keys,
)


@njit
def missing(A, x, keys, fold):
    """Return for each key True if it is missing in index x."""
    A, keys, fold = bare(A), bare(keys), bare(fold)
    kb = stack(MAX_KEY)
    n = keys.shape[1]
    out = np.zeros(n, np.bool_)
    if A[FULL] == 1:
        return out
    d = HEADER + x * DESCRIPTOR
    for i in range(n):
        key_of_args(A, d, keys, i, fold, kb)
        e = find_entry(A, d, kb)
        out[i] = e < 0 or A[A[d + EOFF] + e * (ENTRY + A[d + K]) + FLAG] != 1
    return out


@njit
def lookup(A, x, keys, fold, tick):
    """Return the stored rows under keys of index x, present or missing: (columns, weights, ordinal of the key).

    tick: recorded as the keys' last use.
    """
    A, keys, fold = bare(A), bare(keys), bare(fold)
    kb = stack(MAX_KEY)
    n = keys.shape[1]
    d = HEADER + x * DESCRIPTOR
    k, stride, links = A[d + K], ENTRY + A[d + K], A[d + LOFF]
    heads = np.empty(n, np.int64)
    slots = stack(BLOCK)
    total = 0
    count = 0
    for i in range(n):
        if i % BLOCK == 0 and n > WARM_FROM:
            warm_keys(A, d, keys, True, fold, i, min(n, i + BLOCK), slots)
        again = i > 0
        for j in range(k):
            if i > 0 and keys[j, i] != keys[j, i - 1]:
                again = False
        if again:  # in a delta, -old and +new of a key are mostly neighbours
            heads[i] = heads[i - 1]
            total += count
            continue
        key_of_args(A, d, keys, i, fold, kb)
        e = slots[i % BLOCK] if n > WARM_FROM else -1  # the entry in its first slot
        if e < 0 or not has_key(A, d, e, kb):
            e = find_entry(A, d, kb)
        count = 0
        heads[i] = -1
        if e >= 0:
            off = A[d + EOFF] + e * stride
            A[off + STAMP] = tick
            heads[i] = A[off + HEAD]
            r = heads[i]
            while r >= 0:
                count += 1
                r = A[links + 2 * r]
        total += count
    width, rows = A[WIDTH], A[ROWS]
    cols = np.empty((width, total), np.int64)
    weights = np.empty(total, np.int64)
    ordinal = np.empty(total, np.int64)
    at = 0
    for i in range(n):
        if i + AHEAD < n and n > WARM_FROM and heads[i + AHEAD] >= 0:
            prefetch(A, rows + heads[i + AHEAD] * (width + 1))
            prefetch(A, rows + heads[i + AHEAD] * (width + 1) + width)
            prefetch(A, links + 2 * heads[i + AHEAD])
        r = heads[i]
        while r >= 0:
            off = rows + r * (width + 1)
            weights[at] = A[off]
            ordinal[at] = i
            for c in range(width):
                cols[c, at] = A[off + 1 + c]
            at += 1
            r = A[links + 2 * r]
    return cols, weights, ordinal


@njit
def all_rows(A):
    n, width, rows = A[LIVE], A[WIDTH], A[ROWS]
    cols = np.empty((width, n), np.int64)
    weights = np.empty(n, np.int64)
    at = 0
    for r in range(A[HIGH]):
        off = rows + r * (width + 1)
        if A[off] != 0:
            weights[at] = A[off]
            for c in range(width):
                cols[c, at] = A[off + 1 + c]
            at += 1
    return cols[:, :at].copy(), weights[:at].copy()


@njit
def column(A, c):
    """Return word c of all stored rows."""
    A = bare(A)
    out = np.empty(A[LIVE], np.int64)
    at, width = 0, A[WIDTH]
    for r in range(A[HIGH]):
        off = A[ROWS] + r * (width + 1)
        if A[off] != 0:
            out[at] = A[off + 1 + c]
            at += 1
    return out[:at].copy()


@njit
def present_keys(A, x, start, most):
    """Return up to `most` present keys of index x, from entry number `start` on and around the end.

    The result is (keys, stamps, number of rows under each key, next start).
    """
    A = bare(A)
    d = HEADER + x * DESCRIPTOR
    k, stride, links = A[d + K], ENTRY + A[d + K], A[d + LOFF]
    high = A[d + EHIGH]
    size = min(most, A[d + PRESENT])
    keys = np.empty((k, size), np.int64)
    stamps = np.empty(size, np.int64)
    sizes = np.empty(size, np.int64)
    at = 0
    e = start if start < high else 0
    for _ in range(high):
        if at == size:
            break
        off = A[d + EOFF] + e * stride
        if A[off + FLAG] == 1:
            for j in range(k):
                keys[j, at] = A[off + KEY + j]
            stamps[at] = A[off + STAMP]
            n = 0
            r = A[off + HEAD]
            while r >= 0:
                n += 1
                r = A[links + 2 * r]
            sizes[at] = n
            at += 1
        e = e + 1 if e + 1 < high else 0
    return keys[:, :at].copy(), stamps[:at].copy(), sizes[:at].copy(), e
