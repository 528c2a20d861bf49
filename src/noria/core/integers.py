"""Python integers as int64 codes.

Keeps true: a result is exact and has the dtype int64; otherwise OverflowError is raised.  NumPy alone returns float64,
uint64 or objects if an integer is 2**63 or greater, and changes values without an error.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from noria.core.batch import Codes
from noria.core.limits import MAX_INT


def codes_of(values: Iterable[int]) -> Codes:
    """Return the integers as an array, in order."""
    return np.array(list(values), np.int64)


def span(first: int, count: int) -> Codes:
    """Return `count` integers from `first` on.  `np.arange(first, first + count)` is float64 if it ends at 2**63."""
    if count and first + count - 1 > MAX_INT:
        raise OverflowError(f"{count} integers from {first} on leave int64")
    return np.arange(count, dtype=np.int64) + first
