"""CHECK in bulk: rows of files that break one are rejects, and an UPDATE by Spark is refused.  Needs no Spark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert, Update
from noria.core.types import INT, TEXT, Check, Column, TableDef
from noria.spark.jobs.rewrite import _after
from noria.spark.loading.rows import checking
from noria.spark.loading.rows.files import Chunk
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False), Column("a", INT), Column("b", TEXT)), (0,), (), 1, checks=(
    Check("c", "(`a` > 0)"), Check("d", "(`b` <> 'x')"), Check("e", "(`a` < 0)", False)))


def test_rows_that_break_a_check_are_rejects() -> None:
    chunk = Chunk({"id": pa.array([1, 2, 3, 4, 5]), "a": pa.array(["1", "0", None, "-1", "z"]),
                   "b": pa.array(["x", "y", "y", None, "x"])}, 5, first_row=10)
    mapping = checking.map_columns(T, ["id", "a", "b"], "f")
    batch, rejects = checking.convert(chunk, mapping, T, checking.defaults(T, datetime(2024, 1, 1)), "f")
    assert batch.to_pylist() == [{"id": 3, "a": None, "b": "y"}]
    assert [(r.row, r.reason, r.column) for r in rejects] == [
        (10, "Check constraint 'd' is violated.", None), (11, "Check constraint 'c' is violated.", None),
        (13, "Check constraint 'c' is violated.", None), (14, "Incorrect integer value: 'z' for column 'a'", "a")]


def test_a_rewrite_that_breaks_a_check_is_refused(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path / "data"), PlainSymbols())
    store.create_table(T)
    store.set_recipe((), 1, 1)
    store.write([Insert("t", (0, 1, 2), [(1, 5, "a"), (2, 1, "b"), (3, None, "c")])], 1, 2)
    store.checkpoint(str(tmp_path / "c"))
    store.close()

    def after(less: int) -> list[list[int]]:
        lower = Update("t", ((1, call("sub", col(1, INT), const(less, INT))),), None)
        return [[int(c) for c in some.rows[1]] for some in _after(lower, T, (str(tmp_path / "c"), (None, None)))]

    assert after(0)[0][:2] == [5, 1]
    with pytest.raises(SqlError, match="Check constraint 'c' is violated") as told:
        after(1)
    assert told.value.code == 3819
