"""The family of the delta log, and the store without it."""

from __future__ import annotations

from pathlib import Path

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import INT, Column, TableDef
from noria.storage.store import RocksStore


def test_a_store_opens_after_its_log_was_dropped(tmp_path: Path) -> None:
    """The log had the last sequence number, which the mark says is synced."""
    store = RocksStore(str(tmp_path / "data"), PlainSymbols())
    store.create_table(TableDef("t", (Column("id", INT, False),), (0,)))
    store.set_recipe([], 1, 1)
    store.deltas.begin()
    store.write([Insert("t", (0,), [(1,)])], 1, 2)
    store.deltas.end()
    store.close()
    store = RocksStore(str(tmp_path / "data"), PlainSymbols())
    assert store.row_count("t") == 1
    store.close()
