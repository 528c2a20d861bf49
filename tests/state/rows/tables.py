"""What several tests of tables need: rows as a bag, and a row's key."""

from __future__ import annotations

from collections import Counter

import numpy as np

from noria.core.batch import Batch


def bag(rows: Batch) -> Counter:
    """The weight of each distinct row."""
    out: Counter = Counter()
    for r, w in zip(rows.rows(), rows.weights.tolist(), strict=True):
        out[r] += w
    return out


def key(columns: tuple[int, ...], row: tuple[int, ...]) -> np.ndarray:
    """The row's key in these columns, of shape (columns, 1)."""
    return np.array([[row[c]] for c in columns], np.int64).reshape(len(columns), 1)
