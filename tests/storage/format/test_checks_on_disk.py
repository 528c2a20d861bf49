"""CHECK and FULLTEXT on disk: in the catalog, after a restart, in a directory that an older version wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rocksdict import WriteBatch

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import INT, TEXT, Check, Column, IndexDef, TableDef
from noria.storage.format.catalog import table_from_json, table_to_json
from noria.storage.store import RocksStore
from noria.storage.tables import meta

T = TableDef("t", (Column("id", INT, False), Column("a", INT)), (0,), (), 1)
CHECKED = TableDef("t", T.columns, (0,), (), 1, checks=(Check("c", "(`a` > 0)"), Check("d", "(`a` < 9)", False)))


SEARCHED = TableDef("t", (Column("id", INT, False), Column("s", TEXT)), (0,), (), 1,
                    fulltext=(IndexDef("words", (1,)),))


@pytest.mark.parametrize("table", [T, CHECKED, SEARCHED])
def test_the_catalog(table: TableDef) -> None:
    assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table
    assert ("checks" in table_to_json(table)) == bool(table.checks)


def test_a_check_survives_a_restart(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path), PlainSymbols())
    store.create_table(CHECKED)
    store.set_recipe((), 1, 1)
    store.close()
    store = RocksStore(str(tmp_path), PlainSymbols())
    (result,), _ = store.write([Insert("t", (0, 1), [(1, 0)])], 1, 2)
    assert result.error is not None and result.error.code == 3819
    (result,), _ = store.write([Insert("t", (0, 1), [(1, 10)])], 1, 3)
    assert result.error is None
    store.close()


def test_a_fulltext_key_survives_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        store = RocksStore(str(tmp_path), PlainSymbols())
        if not store.tables():
            store.create_table(SEARCHED)
            store.set_recipe((), 1, 1)
        assert store.tables()["t"].fulltext == SEARCHED.fulltext
        store.close()


def test_a_directory_of_format_4_opens(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path), PlainSymbols())
    store.create_table(T)
    store.set_recipe((), 1, 1)
    store.write([Insert("t", (0, 1), [(1, 0)])], 1, 2)
    batch = WriteBatch(raw_mode=True)
    meta.put(store.engine, batch, b"format", b"4")
    store.engine.commit(batch)
    store.close()
    store = RocksStore(str(tmp_path), PlainSymbols())
    assert store.row_count("t") == 1 and store.tables()["t"].checks == ()
    store.close()
