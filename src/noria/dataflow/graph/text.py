"""Formats rows and keys for traces and stories."""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.batch import Batch, Codes
from noria.core.limits import ERROR_CODE
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.core.values import decode


def of_delta(symbols: Symbols, fields: Sequence[Field], batch: Batch) -> str:
    """Format a delta as sorted signed rows."""
    rows = [f"{w:+d}({', '.join(of_value(symbols, f, c) for f, c in zip(fields, r, strict=True))})"
            for r, w in zip(batch.rows(), batch.weights.tolist(), strict=True)]
    return " ".join(sorted(rows))


def of_keys(symbols: Symbols, fields: Sequence[Field], cols: Sequence[int], keys: Codes) -> str:
    """Format keys of an index by these columns."""
    shown = [fields[c] for c in cols]
    return " ".join(sorted("(" + ", ".join(of_value(symbols, f, c) for f, c in zip(shown, k, strict=True)) + ")"
                           for k in keys.T.tolist()))


def of_value(symbols: Symbols, field: Field, code: int) -> str:
    if code == ERROR_CODE:
        return "ERROR"
    value = decode(code, field.type, symbols)
    return "NULL" if value is None else repr(value) if isinstance(value, str) else str(value)
