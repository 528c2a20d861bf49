"""Runs the kernels' evaluator in an Arrow UDF, for functions that Spark cannot compute exactly.

It runs in Spark's Python workers: coded Arrow arrays in, coded Arrow arrays out (`coding.py`).  Keeps true:
`evaluate.py` evaluates each value exactly as in a noria worker.  A symbol table lives for one batch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from noria.core import values
from noria.core.batch import Batch, Codes
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, columns_of
from noria.core.keys import folded_texts
from noria.core.limits import ERROR_CODE, NULL_CODE
from noria.core.symbols import Symbols
from noria.core.types import Kind, SqlType
from noria.spark.lowering.coding import ERROR_TEXT
from noria.state.symbols.symbols import SymbolTable


def evaluator(e: Expr, types: tuple[SqlType, ...]) -> Callable[..., pa.Array]:
    """Return a function of coded arrays, one for each type.  Column i of the expression is array i."""
    used = columns_of(e)

    def run(*columns: pa.Array) -> pa.Array:
        symbols = SymbolTable()
        rows = len(columns[0])
        codes = np.zeros((len(types), rows), np.int64)
        for i in used:
            codes[i] = to_codes(columns[i], types[i], symbols)
        return from_codes(evaluate.compile(e)(Batch.of(codes), symbols), e.type, symbols)

    return run


def fold_texts(texts: pa.Array) -> pa.Array:
    """Apply `core/symbols.fold` to each text."""
    return folded_texts(texts).cast(pa.string())


def to_codes(array: pa.Array, t: SqlType, symbols: Symbols) -> Codes:
    """Convert a coded Arrow array to the kernels' codes; texts are interned in `symbols`."""
    if t.is_text:
        codes = symbols.intern_many(array)
        error = symbols.find(ERROR_TEXT)
        return codes if error is None else np.where(codes == error, np.int64(ERROR_CODE), codes)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    if t.kind is Kind.DOUBLE:
        doubles = pc.fill_null(array, 0.0).to_numpy(zero_copy_only=False)
        codes = np.where(np.isnan(doubles), np.int64(ERROR_CODE), values.encode_doubles(doubles))
    else:
        codes = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
    return np.where(nulls, np.int64(NULL_CODE), codes)


def from_codes(codes: Codes, t: SqlType, symbols: Symbols) -> pa.Array:
    """Convert the kernels' codes to a coded Arrow array."""
    nulls, errors = codes == NULL_CODE, codes == ERROR_CODE
    if t.is_text:
        texts = symbols.texts(np.where(errors, np.int64(NULL_CODE), codes)).cast(pa.string())
        return pc.if_else(pa.array(errors), ERROR_TEXT, texts) if errors.any() else texts
    if t.kind is Kind.DOUBLE:
        doubles = values.decode_doubles(np.where(nulls | errors, np.int64(0), codes))
        return pa.array(np.where(errors, np.nan, doubles), pa.float64(), mask=nulls, from_pandas=False)
    return pa.array(codes, pa.int64(), mask=nulls)
