"""Rejects an INSERT of 0 into an AUTO_INCREMENT column under NO_AUTO_VALUE_ON_ZERO.

In that mode MySQL stores the 0; Noria would generate a value instead.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from noria.core.errors import not_supported
from noria.core.expressions.casts import number_prefix
from noria.core.statements import Insert
from noria.core.types import TableDef


def refuse_zero(statement: Insert, table: TableDef | None) -> None:
    """Raise SqlError if the statement writes 0 into the table's AUTO_INCREMENT column."""
    at = None if table is None else table.auto_increment
    if at is not None and at in statement.columns:
        place = statement.columns.index(at)
        rows = statement.rows
        values = rows.column(place).to_pylist() if isinstance(rows, pa.RecordBatch) else (row[place] for row in rows)
        if any(map(_is_zero, values)):
            raise not_supported("0 in an AUTO_INCREMENT column (NO_AUTO_VALUE_ON_ZERO)", "give it another value")


def _is_zero(value: Any) -> bool:
    if isinstance(value, str):
        return number_prefix(value) == 0
    return isinstance(value, (int, float, Decimal)) and value == 0
