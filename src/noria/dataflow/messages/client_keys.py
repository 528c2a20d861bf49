"""Encodes the keys of a client's request as codes of this worker: call `codes_of`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.core.values import encode, from_arrow


def codes_of(keys: Any, fields: Sequence[Field], symbols: Symbols) -> Codes:
    """Encode received keys (tuples or a RecordBatch) as codes of shape (key columns, keys)."""
    if isinstance(keys, pa.RecordBatch):
        cols = [from_arrow(keys.column(i), f.type, symbols) for i, f in enumerate(fields)]
        return np.stack(cols) if cols else np.empty((0, keys.num_rows), np.int64)
    out = np.empty((len(fields), len(keys)), np.int64)
    for i, f in enumerate(fields):
        out[i] = [encode(k[i], f.type, symbols) for k in keys]
    return out

