"""The files of an index that Spark's tasks make are what the worker's slices write, entry by entry."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from noria.core.statements import Insert
from noria.core.types import BIGINT, INT, TEXT, TEXT_BIN, Column, TableDef
from noria.spark.jobs import index as indexing
from noria.spark.jobs import snapshot
from noria.spark.jobs.index import index
from noria.state.symbols.symbols import SymbolTable
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore

pytestmark = pytest.mark.spark
COLUMNS = (Column("id", INT, False), Column("name", TEXT), Column("exact", TEXT_BIN), Column("n", BIGINT))
ROWS = 4_000


@pytest.mark.parametrize("key", [(0,), (0, 1), ()], ids=["number", "number and text", "none"])
@pytest.mark.parametrize("columns", [(3,), (1, 3), (2, 1)])
def test_like_those_of_the_worker(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                  key: tuple[int, ...], columns: tuple[int, ...]) -> None:
    monkeypatch.setattr(snapshot, "LEAST_ROWS", 500)
    monkeypatch.setattr(indexing, "FILE_ROWS", 1_000)
    rng = random.Random(f"{key} {columns}")
    store = RocksStore(str(tmp_path / "data"), SymbolTable(), memory=RocksMemory(part_entries=0))
    definition = tuple(Column(c.name, c.type, i not in key and c.nullable) for i, c in enumerate(COLUMNS))
    store.create_table(TableDef("t", definition, key))
    store.set_recipe((), 1, 1)
    rows = [_row(rng, i, bool(key)) for i in range(ROWS)]
    for seq in range(2, 6):
        store.write([Insert("t", (0, 1, 2, 3), rows[seq - 2::4])], 1, seq)
    store.checkpoint(str(tmp_path / "checkpoint"))
    told: list[tuple[int, int, str]] = []
    made = index(spark, lambda *step: told.append(step), checkpoint=str(tmp_path / "checkpoint"),
                 table=store.tables()["t"], columns=columns, out=str(tmp_path / "out"))
    assert made.rows == ROWS and len(made.files) == 4 and told[-1][2] == "making an index of t"
    build = store.begin_index("t", columns, awaited=True)
    assert build is not None
    build.deliver(made.files)
    assert build.step(100) and store.finds("t", columns)
    delivered = store.engine.items(build.index.family, 2 * ROWS)
    store.engine.drop_family(build.index.family)
    store.table("t").indexes.clear()
    slices = store.begin_index("t", columns)
    assert slices is not None
    while not slices.step(1_000):
        pass
    assert delivered == store.engine.items(slices.index.family, 2 * ROWS) and len(delivered) == ROWS
    store.close()


def _row(rng: random.Random, number: int, keyed: bool) -> tuple[Any, ...]:
    words = ["", "a", "A", "\u00e9", "e", "zz \u20ac", "x" * 40, None]
    name = rng.choice(words[:-1] if keyed else words)
    return number, name, rng.choice(words), rng.choice([None, -(2**40), 0, rng.randrange(50)])


def test_another_table_of_that_name(spark: SparkSession, tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path / "data"), SymbolTable(), memory=RocksMemory(part_entries=0))
    store.create_table(TableDef("t", COLUMNS, (0,)))
    store.set_recipe((), 1, 1)
    store.checkpoint(str(tmp_path / "checkpoint"))
    with pytest.raises(ValueError, match="table t is another one"):
        index(spark, checkpoint=str(tmp_path / "checkpoint"), table=TableDef("t", COLUMNS, (0,), table_id=7),
              columns=(1,), out=str(tmp_path / "out"))
    store.close()
