"""Nets a delta: equal rows become one row with the sum of their weights."""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch
from noria.kernels import njit
from noria.state.rows.hashing import SEED, mix, slot_of


def netted(batch: Batch) -> Batch:
    """Return each distinct row once, in the order of first appearance, without rows whose weights add up to 0."""
    n = len(batch)
    if n < 2:
        return batch if n == 0 or batch.weights[0] else Batch.empty(batch.width)
    rows, weights = _net(batch.columns, batch.weights)
    return Batch(batch.columns.take(rows, axis=1), weights)


@njit
def _net(columns, weights):
    """Return for each distinct row the index of its first copy and its sum of weights, if that is not 0."""
    width, n = columns.shape
    cap = 2
    while cap < 2 * n:
        cap *= 2
    slots = np.full(cap, -1, np.int64)
    first, total = np.empty(n, np.int64), np.empty(n, np.int64)
    distinct = 0
    for i in range(n):
        h = SEED
        for j in range(width):
            h = mix(h, columns[j, i])
        s = slot_of(h, cap)
        while slots[s] >= 0:
            k = first[slots[s]]
            same = True
            for j in range(width):
                same &= columns[j, i] == columns[j, k]
            if same:
                break
            s = (s + 1) & (cap - 1)
        if slots[s] < 0:
            slots[s] = distinct
            first[distinct], total[distinct] = i, 0
            distinct += 1
        total[slots[s]] += weights[i]
    kept = 0
    for g in range(distinct):
        if total[g] != 0:
            first[kept], total[kept] = first[g], total[g]
            kept += 1
    return first[:kept], total[:kept]
