from __future__ import annotations

from typing import Any

import pyarrow as pa

from noria.dataflow.packets import Read, Rows
from noria.runtime.routes import Routes


def split(body: Any, routes: Routes, view: Any) -> dict[int, Any]:
    if body.between is not None:
        return dict.fromkeys(range(routes.workers), body)
    keys = body.keys
    if isinstance(keys, pa.RecordBatch):
        keys = list(zip(*(c.to_pylist() for c in keys.columns), strict=True)) if keys.num_columns else [()] * keys.num_rows
    whose: dict[int, list[int]] = {}
    for i, k in enumerate(keys):
        whose.setdefault(routes.owner(view, k), []).append(i)
    return {w: _Part(**{**body.__dict__, "keys": [keys[i] for i in some]}) for w, some in whose.items()} or {0: body}


_Part = Read


def merged(body: Read, replies: dict[int, Rows]) -> Rows:
    raise NotImplementedError
