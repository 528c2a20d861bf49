"""A local hash join of two batches: for upqueries, and for two deltas in one tick."""

from __future__ import annotations

import numpy as np

from noria.core.limits import NULL_CODE
from noria.kernels import njit
from noria.state.rows.bare import bare
from noria.state.rows.hashing import SEED, mix, slot_of


@njit
def _hash(keys, i):
    h = SEED
    for j in range(keys.shape[0]):
        h = mix(h, keys[j, i])
    return h


@njit
def _same(a, i, b, k):
    same = True
    for j in range(a.shape[0]):
        same &= a[j, i] == b[j, k]
    return same


@njit
def pairs(left, right):
    """Return all (i, k) with left[:, i] == right[:, k], as two arrays.  left, right: shape (key columns, rows)."""
    left, right = bare(left), bare(right)
    n, m = left.shape[1], right.shape[1]
    cap = 2
    while cap < 2 * m:
        cap *= 2
    heads = np.full(cap, -1, np.int64)  # slot -> first row of a key
    nxt = np.full(m, -1, np.int64)
    for row in range(m):
        s = slot_of(_hash(right, row), cap)
        while heads[s] >= 0 and not _same(right, heads[s], right, row):
            s = (s + 1) & (cap - 1)
        nxt[row] = heads[s]
        heads[s] = row
    at = np.empty(n, np.int64)
    total = 0
    for i in range(n):
        s = slot_of(_hash(left, i), cap)
        while heads[s] >= 0 and not _same(left, i, right, heads[s]):
            s = (s + 1) & (cap - 1)
        at[i] = heads[s]
        k = heads[s]
        while k >= 0:
            total += 1
            k = nxt[k]
    li, ri = np.empty(total, np.int64), np.empty(total, np.int64)
    t = 0
    for i in range(n):
        k = at[i]
        while k >= 0:
            li[t], ri[t] = i, k
            t += 1
            k = nxt[k]
    return li, ri


@njit
def has_null(keys):
    """Return for each key True if it has a NULL, and True if any key has one."""
    n = keys.shape[1]
    out = np.zeros(n, np.bool_)
    some = False
    for i in range(n):
        for j in range(keys.shape[0]):
            if keys[j, i] == NULL_CODE:
                out[i] = True
                some = True
    return out, some


@njit
def combine(a, ai, aw, b, bi, bw):
    """Return the rows a[:, ai] joined with b[:, bi], and the products of their weights."""
    n, wa, wb = ai.shape[0], a.shape[0], b.shape[0]
    out = np.empty((wa + wb, n), np.int64)
    w = np.empty(n, np.int64)
    for t in range(n):
        i, k = ai[t], bi[t]
        for c in range(wa):
            out[c, t] = a[c, i]
        for c in range(wb):
            out[wa + c, t] = b[c, k]
        w[t] = aw[i] * bw[k]
    return out, w


