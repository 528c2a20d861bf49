"""NO_AUTO_VALUE_ON_ZERO: a 0 for an AUTO_INCREMENT column is refused in rows of every form."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.statements import Insert
from noria.core.types import INT, Column, TableDef
from noria.server.sessions.modes.auto_increment_zero import refuse_zero

TABLE = TableDef("t", (Column("a", INT), Column("id", INT, False, auto_increment=True)), (1,))


@pytest.mark.parametrize("rows", [
    ((0, 1), (0, 0)), ((5, "0x"),), ((5, Decimal("0.0")),),
    pa.record_batch({"a": [0, 0], "id": [1, 0]}), pa.record_batch({"a": [0], "id": ["0"]})])
def test_a_zero_is_refused(rows: Any) -> None:
    with pytest.raises(SqlError, match="NO_AUTO_VALUE_ON_ZERO"):
        refuse_zero(Insert("t", (0, 1), rows), TABLE)


@pytest.mark.parametrize("rows", [
    ((0, 1), (0, None)), ((0, "1"),), pa.record_batch({"a": [0, 0], "id": [1, None]})])
def test_other_rows_pass(rows: Any) -> None:
    refuse_zero(Insert("t", (0, 1), rows), TABLE)
