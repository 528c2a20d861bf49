"""Aggregates over window frames, in one pass over rows that are sorted by group and by the window's order.

Sums use the arithmetic of `group_kernels.py`: 128 bits for integers, double-doubles for doubles.  They restart in
each group, so that a group's results depend only on its own rows.
"""

from __future__ import annotations

import numpy as np

from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.kernels import njit
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


@njit
def running(kind, values, ranks, new_group, frame_end, factor):
    """Compute an aggregate for each row, over the rows of its group up to the next row that ends a frame.

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
