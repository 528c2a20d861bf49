"""Aggregates over window frames, in one pass over rows that are sorted by group and by the window's order.

Sums use the arithmetic of `group_kernels.py`: 128 bits for integers, double-doubles for doubles.  No row is ever
subtracted: the frame is a queue of two stacks, each with the sums of its rows.  So a value that has left the frame
leaves no rounding behind, MIN and MAX work alike, and each row is added twice at most.
"""

from __future__ import annotations

import numpy as np

from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.kernels import njit
from noria.state.grouping.bits import bits_of, float_of
from noria.state.grouping.group_kernels import (
    AVG,
    COUNT_COL,
    COUNT_STAR,
    FAVG,
    FSUM,
    MIN,
    SUM,
    add_float,
    add_product,
    average,
    fits,
    float_code,
    to_float,
)

_COUNT, _ERRORS, _BEST, _LOW, _HIGH, _WORDS = range(6)  # _BEST: a row plus one.  _LOW, _HIGH: limbs or a double-double


@njit
def _better(kind, ranks, a, b):
    """Return the row of two that MIN or MAX keeps.  Rows are numbered from one; 0 is none."""
    if a == 0 or b == 0:
        return a + b
    before = ranks[a - 1] < ranks[b - 1] if kind == MIN else ranks[a - 1] > ranks[b - 1]
    return a if before else b


@njit
def _add(to, at, kind, values, ranks, i):
    """Add row i to the sums in column `at` of `to`."""
    v = values[i]
    if v == NULL_CODE:
        return
    to[_COUNT, at] += 1
    if kind >= MIN:
        to[_BEST, at] = _better(kind, ranks, to[_BEST, at], i + 1)
    elif v == ERROR_CODE:
        to[_ERRORS, at] += 1
    elif kind in (SUM, AVG):
        to[_LOW, at], to[_HIGH, at] = add_product(to[_LOW, at], to[_HIGH, at], v, 1)
    elif kind in (FSUM, FAVG):
        high, low = add_float(float_of(to[_HIGH, at]), float_of(to[_LOW, at]), to_float(v))
        to[_HIGH, at], to[_LOW, at] = bits_of(high), bits_of(low)


@njit
def _merge(to, kind, ranks, more, at):
    """Add the sums in column `at` of `more` to those in column 0 of `to`."""
    to[_COUNT, 0] += more[_COUNT, at]
    to[_ERRORS, 0] += more[_ERRORS, at]
    if kind >= MIN:
        to[_BEST, 0] = _better(kind, ranks, to[_BEST, 0], more[_BEST, at])
    elif kind in (SUM, AVG):
        low = np.uint64(to[_LOW, 0]) + np.uint64(more[_LOW, at])
        carry = 1 if low < np.uint64(more[_LOW, at]) else 0
        to[_LOW, 0], to[_HIGH, 0] = np.int64(low), to[_HIGH, 0] + more[_HIGH, at] + carry
    elif kind in (FSUM, FAVG):
        high, low = add_float(float_of(to[_HIGH, 0]), float_of(to[_LOW, 0]), float_of(more[_HIGH, at]))
        high, low = add_float(high, low, float_of(more[_LOW, at]))
        to[_HIGH, 0], to[_LOW, 0] = bits_of(high), bits_of(low)


@njit
def _result(kind, values, sums, rows, factor):
    """Return the aggregate with these sums over so many rows."""
    count = sums[_COUNT, 0]
    if kind == COUNT_STAR:
        return rows
    if kind == COUNT_COL:
        return count
    if count == 0:
        return NULL_CODE
    if kind >= MIN:
        return values[sums[_BEST, 0] - 1]
    if sums[_ERRORS, 0] > 0:
        return ERROR_CODE
    low, high = sums[_LOW, 0], sums[_HIGH, 0]
    if kind == SUM:
        return low if fits(low, high) else ERROR_CODE
    if kind == AVG:
        return average(low, high, count, factor)
    total = float_of(high) + float_of(low)
    return float_code(total / count if kind == FAVG else total)


@njit
def framed(kind, values, ranks, first, last, factor):
    """Compute an aggregate for each row, over the rows from `first` to `last`.

    first, last: for each row a row of its own group, neither ever less than for the row before.  If `last` is less than
    `first`, the frame is empty.

    kind: as in `group_kernels`.  ranks: the numbers that MIN and MAX compare.  factor: AVG's power of ten for the added
    scale.
    """
    n = values.shape[0]
    out = np.empty(n, np.int64)
    front = np.zeros((_WORDS, n), np.int64)
    back, sums = np.zeros((_WORDS, 1), np.int64), np.zeros((_WORDS, 1), np.int64)
    middle, end = 0, 0  # front has the sums of the rows from each one to `middle`, back those from there to `end`
    for i in range(n):
        start = first[i]
        while end <= last[i]:
            if end >= start:  # a row before all later frames is skipped
                _add(back, 0, kind, values, ranks, end)
            end += 1
        if start >= middle:
            for j in range(end - 1, start - 1, -1):
                for word in range(_WORDS):
                    front[word, j] = 0 if j + 1 == end else front[word, j + 1]
                _add(front, j, kind, values, ranks, j)
            middle = end = max(end, start)
            back[:] = 0
        sums[:] = back
        if start < middle and last[i] >= start:
            for word in range(_WORDS):
                sums[word, 0] = front[word, start]
            _merge(sums, kind, ranks, back, 0)
        out[i] = _result(kind, values, sums, max(last[i] - start + 1, 0), factor)
    return out
