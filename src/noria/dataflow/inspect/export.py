"""Converts bulk rows to and from Arrow: the contents of views for `verify`, and first states computed by Spark.

The Arrow form has columns c0, c1, … in order and `weight`. A column with an evaluation error somewhere has a boolean
column e<i>, and c<i> is NULL in the rows with the error. Present keys are columns k0, k1, … in the order of the
view's key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.core.values import from_arrow, to_arrow
from noria.dataflow.engine.engine import Engine


def view_tables(engine: Engine, view: str, symbols: Symbols) -> tuple[pa.Table, pa.Table | None]:
    """All stored rows of a view and, for a partial one, its present keys."""
    node = engine.readers[view]
    key = engine.reads[node]
    present = node.stored.present(key)
    rows, _ = node.stored.lookup(key, present, engine.tick_number)
    names = [f"k{i}" for i in range(len(key))]
    keys = None if node.full else pa.table(
        [to_arrow(np.ascontiguousarray(k), node.fields[c].type, symbols) for k, c in zip(present, key, strict=True)]
        or [pa.nulls(present.shape[1])], names=names or ["none"])
    return table_of(rows, node.fields, symbols), keys


def table_of(rows: Batch, fields: Sequence[Field], symbols: Symbols) -> pa.Table:
    """Convert a batch to columns c<i>, e<i> and weight."""
    columns: dict[str, pa.Array] = {}
    for i, f in enumerate(fields):
        codes = rows.columns[i]
        bad = codes == ERROR_CODE
        columns[f"c{i}"] = to_arrow(np.where(bad, NULL_CODE, codes), f.type, symbols)
        if bad.any():
            columns[f"e{i}"] = pa.array(bad)
    return pa.table({**columns, "weight": pa.array(rows.weights)})


def batches_of(parts: Iterable[pa.RecordBatch], fields: Sequence[Field], symbols: Symbols) -> Iterator[Batch]:
    """Convert record batches of this form to batches of codes."""
    for part in parts:
        if not part.num_rows:
            continue
        cols: list[Codes] = []
        for i, f in enumerate(fields):
            codes = from_arrow(part.column(f"c{i}"), f.type, symbols)
            if f"e{i}" in part.schema.names:
                bad = part.column(f"e{i}").to_numpy(zero_copy_only=False).astype(bool)
                codes = np.where(bad, ERROR_CODE, codes)
            cols.append(codes)
        yield Batch(np.ascontiguousarray(np.stack(cols)), part.column("weight").to_numpy().astype(np.int64))
