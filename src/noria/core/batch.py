"""A batch: columns of int64 codes, and a signed multiplicity for each row (§3.3).

Keeps true: `columns` is a C-contiguous int64 array of shape (width, rows), and `weights` is int64 of shape (rows,).
Nobody changes a batch after passing it on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
Texts = Collection[int] | None  # the columns whose texts are needed; None: all


class Batch:
    """Rows with weights.  Weight 3 means three copies of the row, -1 the removal of one copy."""

    __slots__ = ("columns", "weights")

    def __init__(self, columns: Codes, weights: Codes):
        self.columns, self.weights = columns, weights

    @property
    def width(self) -> int:
        return int(self.columns.shape[0])

    def __len__(self) -> int:
        return len(self.weights)

    @staticmethod
    def empty(width: int) -> Batch:
        return Batch(np.empty((width, 0), np.int64), np.empty(0, np.int64))

    @staticmethod
    def of(columns: Codes, weight: int = 1) -> Batch:
        """Make a batch in which all rows have the same weight."""
        return Batch(np.ascontiguousarray(columns, np.int64), np.full(columns.shape[1], weight, np.int64))

    @staticmethod
    def from_rows(rows: Sequence[Sequence[int]], width: int, weights: Sequence[int] | None = None) -> Batch:
        """Make a batch from tuples of codes.  Slow: for tests and small inputs."""
        cols = np.ascontiguousarray(np.array(rows, np.int64).reshape(len(rows), width).T)
        w = np.ones(len(rows), np.int64) if weights is None else np.array(weights, np.int64)
        return Batch(cols, w)

    def take(self, rows: npt.NDArray[np.intp] | Codes) -> Batch:
        return Batch(self.columns.take(rows, axis=1), self.weights.take(rows))

    def where(self, mask: npt.NDArray[np.bool_]) -> Batch:
        return Batch(self.columns.compress(mask, axis=1), self.weights.compress(mask))

    def negated(self) -> Batch:
        return Batch(self.columns, -self.weights)

    def rows(self) -> list[tuple[int, ...]]:
        """Return the rows as tuples of codes, without weights.  Slow: for tests and messages."""
        return [tuple(r) for r in self.columns.T.tolist()]

    def __repr__(self) -> str:
        shown = ", ".join(f"{w:+d}×{r}" for r, w in list(zip(self.rows(), self.weights.tolist(), strict=True))[:8])
        return f"Batch({len(self)} rows: {shown}{', …' if len(self) > 8 else ''})"


def concat(batches: Sequence[Batch], width: int) -> Batch:
    """Concatenate batches of the same width."""
    some = [b for b in batches if len(b)]
    if not some:
        return Batch.empty(width)
    if len(some) == 1:
        return some[0]
    return Batch(
        np.ascontiguousarray(np.concatenate([b.columns for b in some], axis=1)),
        np.concatenate([b.weights for b in some]),
    )
