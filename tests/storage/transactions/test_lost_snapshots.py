"""A worker that has lost a transaction's snapshot, or the notes of what it has read, says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Staged
from noria.core.types import INT, Column, TableDef
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False),), (0,))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksStore]:
    store = RocksStore(str(tmp_path / "store"), PlainSymbols())
    store.create_table(T)
    yield store
    store.close()


def test_a_read_of_a_lost_snapshot_is_an_error(store: RocksStore) -> None:
    with pytest.raises(SqlError) as e:
        store.transactions.deltas("x", 0, True, ["t"])
    assert e.value.code == 1213
    store.transactions.history.open("x")
    assert store.transactions.deltas("x", 0, True, ["t"]) == {}


def test_a_commit_without_its_notes_is_an_error(store: RocksStore) -> None:
    transactions = store.transactions
    transactions.mark_reads("x", 0)
    (result,), _ = store.write([Staged("x", 0, (), marks=1)], 1, 1)
    assert result.error is None
    with pytest.raises(SqlError) as e:
        transactions.mark_reads("x", 2)
    assert e.value.code == 1213
    transactions.end("x")
    assert not transactions.history
    (result,), _ = store.write([Staged("x", 0, (), marks=1)], 1, 2)
    assert result.error is not None and result.error.code == 1213
    (result,) = store.prepare([Staged("x", 0, (), marks=1)], "group", 0, 1, 3)
    assert result.error is not None and result.error.code == 1213
