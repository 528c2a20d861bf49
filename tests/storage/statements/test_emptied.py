"""What a store does for TRUNCATE: few rows at once, a table beside another that takes its name, files that go later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Clear, Insert, WriteResult
from noria.core.types import BESIDE, INT, Column, IndexDef, TableDef
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False, auto_increment=True), Column("a", INT)), (0,), (IndexDef("a", (1,)),))

OWN = RocksMemory(part_entries=0)  # each table has families of its own


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    made = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=OWN)
    made.create_table(T)
    made.set_recipe(["one"], 1, 1)
    made.write([Insert("t", (1,), [(i,) for i in range(10)])], 1, 2)
    yield made
    made.close()


def again(store: RocksStore) -> RocksStore:
    store.close()
    return RocksStore(store.path, PlainSymbols(), memory=OWN)


def families(store: RocksStore) -> set[str]:
    return {name for name in store.engine._families if name.startswith("t")}


def test_few_rows_at_once(store: RocksStore) -> None:
    """With others in one commit; AUTO_INCREMENT begins anew.  One row too many: nothing is done."""
    (refused,), deltas = store.write([Clear("t", 9)], 1, 3)
    assert refused.error is not None and refused.error.code == 3024
    assert not deltas and store.row_count("t") == 10
    results, deltas = store.write([Clear("t", 10), Insert("t", (1,), [(7,)])], 1, 4)
    assert results == [WriteResult(), WriteResult(1, 1, row_id=1)]
    assert store.row_count("t") == 1 and deltas["t"].weights.sum() == -9
    store = again(store)
    assert store.row_count("t") == 1
    (none,), _ = store.write([Clear("t", 10)], 1, 5)
    assert none == WriteResult()
    store = again(store)
    assert store.write([Insert("t", (1,), [(7,)])], 1, 6)[0] == [WriteResult(1, 1, row_id=1)]
    store.close()


def test_a_table_beside_another_is_in_no_catalog(store: RocksStore) -> None:
    beside, gone = (replace(T, name=f"t{BESIDE}{n}", table_id=n) for n in (2, 1))
    store.create_table(beside)
    store.set_recipe(["two"], 1, 3)
    store = again(store)
    assert list(store.tables()) == ["t"] and store.row_count("t") == 10 and families(store) == {"t1", "t1.i1"}
    store.create_table(beside)
    store.alter_table(gone)
    store.alter_table(replace(T, table_id=2))
    store.drop_table(gone.name)
    store.set_recipe(["three"], 1, 4)
    assert store.row_count("t") == 0
    store = again(store)
    assert [t.table_id for t in store.tables().values()] == [2] and families(store) == {"t2", "t2.i1"}
    assert store.write([Insert("t", (1,), [(7,)])], 1, 5)[0] == [WriteResult(1, 1, row_id=1)]
    store.close()


def test_files_go_one_after_the_other(store: RocksStore) -> None:
    store.add_index("t", (1, 0))
    store.trim_indexes("t", [], 0)
    assert families(store) == {"t1", "t1.i1", "t1.i1-0"} and "t1.i1-0" not in store.engine.families()
    store.add_index("t", (1, 0))  # anew, not what was dropped
    assert not store.tidy() and families(store) == {"t1", "t1.i1", "t1.i1-0"}
    store.drop_table("t")
    store.set_recipe(["two"], 1, 3)
    left = []
    while store.tidy():
        left.append(len(families(store)))
    assert left == [2, 1] and not families(store)
