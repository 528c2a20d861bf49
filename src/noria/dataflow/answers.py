"""Keys as they were sent and rows as they are shown: between a request's values and the codes of this worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.core.values import encode, evaluation_error, from_arrow, to_arrow
from noria.dataflow.packets import Rows


def codes_of(keys: Any, fields: Sequence[Field], symbols: Symbols) -> Codes:
    """Keys as sent (tuples or a RecordBatch) as codes, shape (key columns, keys)."""
    if isinstance(keys, pa.RecordBatch):
        cols = [from_arrow(keys.column(i), f.type, symbols) for i, f in enumerate(fields)]
        return np.stack(cols) if cols else np.empty((0, keys.num_rows), np.int64)
    out = np.empty((len(fields), len(keys)), np.int64)
    for i, f in enumerate(fields):
        out[i] = [encode(k[i], f.type, symbols) for k in keys]
    return out


def shown(request: int, view: Any, symbols: Symbols, rows: Batch, ordinal: Codes) -> Rows:
    """Found rows as Arrow; an error that is one of their values is the answer."""
    visible = rows.columns[: view.visible]
    wrong = (visible == ERROR_CODE).any(axis=1)
    if wrong.any():
        return Rows(request, None, evaluation_error(view.fields[int(wrong.argmax())].type))
    if (rows.weights != 1).any():
        times = np.repeat(np.arange(len(rows)), rows.weights)
        visible, ordinal = visible[:, times], ordinal[times]
    arrays = [to_arrow(np.ascontiguousarray(c), f.type, symbols)
              for c, f in zip(visible, view.fields, strict=True)]
    names = [f"c{i}" for i in range(view.visible)]
    return Rows(request, pa.table([*arrays, pa.array(ordinal)], names=[*names, "__key"]))
