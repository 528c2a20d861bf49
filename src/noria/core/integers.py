"""Python integers as int64 codes.

Keeps true: a result has the dtype int64 and is exact, or OverflowError is raised.  NumPy alone gives float64, uint64 or
objects as soon as one integer is 2**63 or greater, and the values change without an error.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from noria.core.batch import Codes
from noria.core.limits import MAX_INT


def codes_of(values: Iterable[int]) -> Codes:
    """The integers in their order."""
    return np.array(list(values), np.int64)


def span(first: int, count: int) -> Codes:
    """`first`, `first` + 1, …: `count` integers.  `np.arange(first, first + count)` is float64 if it ends at 2**63."""
    if count and first + count - 1 > MAX_INT:
        raise OverflowError(f"{count} integers from {first} on leave int64")
    return np.arange(count, dtype=np.int64) + first
