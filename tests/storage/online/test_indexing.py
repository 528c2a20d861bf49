"""An index of many rows, whose entries go past the log: whole in a copy of the disk as it is once it is in use, gone in
one from before, and begun again when the database is opened anew meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert
from noria.core.types import BIGINT, INT, Column, TableDef
from noria.storage.offline.check import StoreCheck
from noria.storage.online import indexing
from noria.storage.store import RocksStore

ROWS, KINDS, SLICE = 3_000, 7, 700
VOTES = TableDef("votes", (Column("id", INT, False), Column("kind", INT)), (0,))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RocksStore]:
    monkeypatch.setattr(indexing, "_UNLOGGED_ROWS", ROWS)
    made = RocksStore(str(tmp_path / "data"), PlainSymbols())
    made.create_table(VOTES)
    made.set_recipe(["create votes"], 1, 1)
    made.write([Insert("votes", (0, 1), [(i, i % KINDS) for i in range(ROWS)])], 1, 2)
    yield made
    made.close()


def found(store: RocksStore) -> list[int]:
    return [len(store.lookup("votes", (1,), np.array([[kind]]))[0]) for kind in range(KINDS)]


def wanted(store: RocksStore) -> list[int]:
    rows, _ = store.scan("votes", None, 2 * ROWS)
    return np.bincount(rows.columns[1], minlength=KINDS).tolist()


def as_after_a_kill(tmp_path: Path, name: str) -> RocksStore:
    """What another process finds of the files as they are now."""
    shutil.copytree(tmp_path / "data", tmp_path / name, ignore=shutil.ignore_patterns("LOCK"))
    return RocksStore(str(tmp_path / name), PlainSymbols())


def test_a_kill_leaves_a_whole_index_or_none(store: RocksStore, tmp_path: Path) -> None:
    build = store.begin_index("votes", (1,))
    assert build is not None
    assert not build.step(SLICE)
    store.write([Insert("votes", (0, 1), [(-1, 3), (ROWS, 3)]),
                 Delete("votes", call("lt", col(0, INT, False), const(5, BIGINT)))], 1, 3)
    earlier = as_after_a_kill(tmp_path, "earlier")
    assert not earlier.finds("votes", (1,)) and earlier.row_count("votes") == store.row_count("votes")
    earlier.close()
    while not build.step(SLICE):
        pass
    store.write([Delete("votes", call("eq", col(1, INT), const(4, BIGINT)))], 1, 4)
    later = as_after_a_kill(tmp_path, "later")
    assert later.finds("votes", (1,)) and found(later) == wanted(later) == found(store)
    assert found(later)[4] == 0 and sum(found(later)) == later.row_count("votes")
    later.close()
    assert not StoreCheck(str(tmp_path / "later"), lambda *_: None).run().findings


def test_a_database_that_was_opened_anew_has_the_index_begun_again(store: RocksStore) -> None:
    build = store.begin_index("votes", (1,))
    assert build is not None
    for _ in range(ROWS // SLICE):
        assert not build.step(SLICE)
    store.engine.in_doubt = True  # as after a write that failed
    store.write([Insert("votes", (0, 1), [(ROWS, 3)])], 1, 3)
    assert not build.step(SLICE) and build.done == SLICE
    while not build.step(SLICE):
        pass
    assert found(store) == wanted(store)
