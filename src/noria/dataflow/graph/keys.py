"""Functions of key arrays, which have shape (key columns, keys): fold keys, list distinct keys, and repeat rows for
keys without columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.symbols import Symbols
from noria.dataflow.graph.request_limits import RequestLimits


def folded_keys(symbols: Symbols, folds: Sequence[bool], keys: Codes) -> Codes:
    """Key arrays with CI text folded."""
    if not any(folds):
        return keys
    return np.stack([symbols.folded(k) if f else k for k, f in zip(keys, folds, strict=True)])


def distinct(keys: Codes) -> Codes:
    """The distinct columns of a key array."""
    if keys.shape[1] < 2:
        return keys
    if keys.shape[0] == 1:
        return np.unique(keys[0])[None, :]
    return np.ascontiguousarray(np.unique(keys, axis=1))


def repeated_per_key(rows: Batch, keys: int, limits: RequestLimits | None) -> tuple[Batch, Codes]:
    """Repeat all rows for each of `keys` empty keys. Returns them with the ordinal of the key."""
    n = len(rows)
    if limits is not None:
        limits.product(n * keys, rows.width)
    return rows.take(np.tile(np.arange(n), keys)), np.repeat(np.arange(keys), n)
