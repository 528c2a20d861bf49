"""Look-ups of many keys that lie close together read their range in one pass. They are compared with look-ups of one
key at a time: by the primary key's first column, by an index, by texts, among other keys, up to a limit of rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from noria.core.batch import Codes
from noria.core.statements import Insert
from noria.core.types import BIGINT, TEXT, Column, TableDef
from noria.dataflow.graph.protocols import TooManyRows
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.storage.tables import lookups

STORIES = 300
Row = tuple[int, int, str | None]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Votes: many of a few stories, some of most, none of the others."""
    chance, made = random.Random(3), dict[tuple[int, int], Row]()
    for story in range(-20, STORIES):
        count = chance.choice((0, 1, 1, 3, 9)) if story % 50 else 700
        for user in range(count):
            made[story, user] = (story, user, chance.choice((None, f"Text {story % 97}", f"tëxt {story % 97}")))
    return list(made.values())


@pytest.fixture
def store(tmp_path: Path, rows: list[Row]) -> Iterator[tuple[RocksStore, SymbolTable]]:
    symbols = SymbolTable(None)
    opened = RocksStore(str(tmp_path / "base"), symbols)
    opened.create_table(TableDef("t", (Column("story", BIGINT, nullable=False), Column("user", BIGINT, nullable=False),
                                       Column("text", TEXT)), (0, 1), table_id=1))
    opened.set_recipe((), 1, 1)
    opened.write([Insert("t", (0, 1, 2), tuple(rows))], 1, 2)
    for columns in ((1,), (2,), (2, 0)):
        opened.add_index("t", columns)
    yield opened, symbols
    opened.close()


def found(store: RocksStore, columns: tuple[int, ...], keys: Codes, most: int = 0) -> list[list[tuple[int, ...]]]:
    """The rows of each key, in their order."""
    batch, ordinals = store.lookup("t", columns, keys, None, most)
    out: list[list[tuple[int, ...]]] = [[] for _ in range(keys.shape[1])]
    for row, at in zip(batch.columns.T.tolist(), ordinals.tolist(), strict=True):
        out[at].append(tuple(row))
    assert ordinals.tolist() == sorted(ordinals.tolist()) and (batch.weights == 1).all()
    return out


def one_at_a_time(store: RocksStore, columns: tuple[int, ...], keys: Codes) -> list[list[tuple[int, ...]]]:
    return [found(store, columns, np.ascontiguousarray(keys[:, i:i + 1]))[0] for i in range(keys.shape[1])]


@pytest.mark.parametrize("slice_rows", [1, 7, 256])
@pytest.mark.parametrize("columns", [(0,), (1,), (2,), (2, 0)])
def test_many_keys_find_what_each_finds(store: tuple[RocksStore, SymbolTable], rows: list[Row],
                                        columns: tuple[int, ...], slice_rows: int,
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    opened, symbols = store
    monkeypatch.setattr(lookups, "SWEEP_ROWS", slice_rows)
    chance, passes = random.Random(slice_rows), Counter[str]()
    swept = lookups.swept

    def watched(engine: lookups.RocksEngine, family: str, starts: list[bytes], left: int
                ) -> tuple[list[list[bytes]], int]:
        result = swept(engine, family, starts, left)
        passes["whole" if len(result[0]) == len(starts) else "part"] += 1
        return result

    monkeypatch.setattr(lookups, "swept", watched)
    for _ in range(12):
        low = chance.randrange(-30, STORIES)
        stories = chance.sample(range(low, low + chance.choice((60, 100, 2_000))), 50)
        texts = [symbols.intern(t) for t in ("text 1", "Text 2", "nothing", *(f"TEXT {i}" for i in range(97)))]
        chosen = {0: stories, 1: chance.sample(range(-5, 800), 50), 2: chance.choices(texts, k=50)}
        keys = np.array([chosen[c] for c in columns], np.int64)
        if chance.random() < 0.3:
            keys[:, 7] = keys[:, 8]
        assert found(opened, columns, keys) == one_at_a_time(opened, columns, keys)
    assert passes["whole"] + passes["part"] == 12


def test_a_limit_of_rows_is_that_of_each_key_alone(store: tuple[RocksStore, SymbolTable], rows: list[Row]) -> None:
    opened, _ = store
    keys = np.arange(100, 200, dtype=np.int64)[None, :]
    total = sum(100 <= row[0] < 200 for row in rows)
    assert sum(map(len, found(opened, (0,), keys, total))) == total > 1_400
    for most in (1, 50, total - 1):
        with pytest.raises(TooManyRows):
            opened.lookup("t", (0,), keys, None, most)
