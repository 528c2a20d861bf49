"""Values of an indexed column between two codes, on RocksDB: by primary key, by an index, from both ends."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from noria.core.limits import MAX_INT, MIN_INT
from noria.core.statements import Insert
from noria.core.types import BIGINT, DOUBLE, Column, TableDef
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore

VALUES = [-(2**40), -3, -1, 0, 0, 1, 2, 2, 2, 255, 256, 2**31, 2**62, None]


@pytest.mark.parametrize("column", [0, 1])
def test_between_and_reach(tmp_path: Path, column: int) -> None:
    symbols = SymbolTable(None)
    store = RocksStore(str(tmp_path / "base"), symbols)
    store.create_table(TableDef("t", (Column("id", BIGINT, nullable=False), Column("v", BIGINT), Column("d", DOUBLE)),
                                (0,), table_id=1))
    store.set_recipe((), 1, 1)
    rows = tuple((i * 7 - 20, v, 0.5) for i, v in enumerate(VALUES))
    store.write([Insert("t", (0, 1, 2), rows)], 1, 2)
    store.add_index("t", (column,))
    have = sorted(r[column] for r in rows if r[column] is not None)
    chance = random.Random(7)
    ends = [MIN_INT, MAX_INT, *have, *(v + 1 for v in have), *(v - 1 for v in have)]
    for _ in range(300):
        low, high = sorted(chance.choice(ends) for _ in range(2))
        inside = [v for v in have if low <= v <= high]
        assert store.values_between("t", column, low, high).tolist() == sorted(set(inside))
        n = chance.randrange(1, 6)
        assert store.reach("t", column, low, high, n, False) == (inside[n - 1] if len(inside) >= n else high)
        assert store.reach("t", column, low, high, n, True) == (inside[-n] if len(inside) >= n else low)
    assert store.values_between("t", column, MIN_INT, MAX_INT).dtype == np.int64
    store.close()
