"""Aggregates over window frames, in one pass over rows that are sorted by group and by the window's order.

Sums use the arithmetic of `group_kernels.py`: 128 bits for integers, double-doubles for doubles.  They restart in
each group, so that a group's results depend only on its own rows.

No row is ever subtracted: a frame that moves is a queue of two stacks, each with the sums of its rows.  So a value that
has left the frame leaves no rounding behind, MIN and MAX work alike, and each row is added twice at most.
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
def running(kind, values, ranks, new_group, frame_end, factor):
    """Compute an aggregate for each row, over the rows of its group up to the next row that ends a frame.

    This is `framed` for frames that begin with the group, in a tenth of the time.

    kind: as in `group_kernels`.  ranks: the numbers that MIN and MAX compare.  new_group, frame_end: one flag for each
    row.  factor: AVG's power of ten for the added scale.
    """
    n = values.shape[0]
    out = np.empty(n, np.int64)
    rows, count, errors, best, first = 0, 0, 0, -1, 0
    lo, hi, high, low = 0, 0, 0.0, 0.0
    for i in range(n):
        if new_group[i]:
            rows, count, errors, best = 0, 0, 0, -1
            lo, hi, high, low = 0, 0, 0.0, 0.0
        rows += 1
        v = values[i]
        if v != NULL_CODE:
            count += 1
            if kind >= MIN:
                better = best < 0 or (ranks[i] < ranks[best] if kind == MIN else ranks[i] > ranks[best])
                best = i if better else best
            elif v == ERROR_CODE:
                errors += 1
            elif kind in (SUM, AVG):
                lo, hi = add_product(lo, hi, v, 1)
            elif kind in (FSUM, FAVG):
                high, low = add_float(high, low, to_float(v))
        if frame_end[i]:
            shown = NULL_CODE
            if kind == COUNT_STAR:
                shown = rows
            elif kind == COUNT_COL:
                shown = count
            elif count > 0 and kind >= MIN:
                shown = values[best]
            elif errors > 0:
                shown = ERROR_CODE
            elif count > 0 and kind == SUM:
                shown = lo if fits(lo, hi) else ERROR_CODE
            elif count > 0 and kind == AVG:
                shown = average(lo, hi, count, factor)
            elif count > 0:
                shown = float_code((high + low) / count if kind == FAVG else high + low)
            out[first:i + 1] = shown
            first = i + 1
    return out


@njit
def _better(kind, ranks, a, b):
    """Return the row of two that MIN or MAX keeps.  Rows are numbered from one; 0 is none."""
    if a == 0 or b == 0:
        return a + b
    before = ranks[a - 1] < ranks[b - 1] if kind == MIN else ranks[a - 1] > ranks[b - 1]
    return a if before else b


@njit
def _add(to, at, kind, values, ranks, i):
    """Add row i to the sums in row `at` of `to`."""
    v = values[i]
    if v == NULL_CODE:
        return
    to[at, _COUNT] += 1
    if kind >= MIN:
        to[at, _BEST] = _better(kind, ranks, to[at, _BEST], i + 1)
    elif v == ERROR_CODE:
        to[at, _ERRORS] += 1
    elif kind in (SUM, AVG):
        to[at, _LOW], to[at, _HIGH] = add_product(to[at, _LOW], to[at, _HIGH], v, 1)
    elif kind in (FSUM, FAVG):
        high, low = add_float(float_of(to[at, _HIGH]), float_of(to[at, _LOW]), to_float(v))
        to[at, _HIGH], to[at, _LOW] = bits_of(high), bits_of(low)


@njit
def _merge(to, kind, ranks, more, at):
    """Add the sums in row `at` of `more` to those of `to`."""
    to[0, _COUNT] += more[at, _COUNT]
    to[0, _ERRORS] += more[at, _ERRORS]
    if kind >= MIN:
        to[0, _BEST] = _better(kind, ranks, to[0, _BEST], more[at, _BEST])
    elif kind in (SUM, AVG):
        low = np.uint64(to[0, _LOW]) + np.uint64(more[at, _LOW])
        carry = 1 if low < np.uint64(more[at, _LOW]) else 0
        to[0, _LOW], to[0, _HIGH] = np.int64(low), to[0, _HIGH] + more[at, _HIGH] + carry
    elif kind in (FSUM, FAVG):
        high, low = add_float(float_of(to[0, _HIGH]), float_of(to[0, _LOW]), float_of(more[at, _HIGH]))
        high, low = add_float(high, low, float_of(more[at, _LOW]))
        to[0, _HIGH], to[0, _LOW] = bits_of(high), bits_of(low)


@njit
def _result(kind, values, sums, rows, factor):
    """Return the aggregate with these sums over so many rows."""
    count = sums[0, _COUNT]
    if kind == COUNT_STAR:
        return rows
    if kind == COUNT_COL:
        return count
    if count == 0:
        return NULL_CODE
    if kind >= MIN:
        return values[sums[0, _BEST] - 1]
    if sums[0, _ERRORS] > 0:
        return ERROR_CODE
    low, high = sums[0, _LOW], sums[0, _HIGH]
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
    front = np.empty((n, _WORDS), np.int64)  # of each row: the sums from there to the row before `middle`
    back, sums = np.zeros((1, _WORDS), np.int64), np.zeros((1, _WORDS), np.int64)  # back: from `middle` to before `end`
    middle, end = 0, 0
    for i in range(n):
        start = first[i]
        while end <= last[i]:
            if end >= start:  # a row before all later frames is skipped
                _add(back, 0, kind, values, ranks, end)
            end += 1
        if start >= middle:
            for j in range(end - 1, start - 1, -1):
                for word in range(_WORDS):
                    front[j, word] = 0 if j + 1 == end else front[j + 1, word]
                _add(front, j, kind, values, ranks, j)
            middle = end = max(end, start)
            for word in range(_WORDS):
                back[0, word] = 0
        for word in range(_WORDS):
            sums[0, word] = back[0, word]
        if start < middle and last[i] >= start:
            _merge(sums, kind, ranks, front, start)
        out[i] = _result(kind, values, sums, max(last[i] - start + 1, 0), factor)
    return out
