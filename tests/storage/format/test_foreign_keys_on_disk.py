"""FOREIGN KEY on disk and in messages."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from noria.core.plain_symbols import PlainSymbols
from noria.core.types import INT, Action, Column, ForeignKey, TableDef
from noria.storage.format.catalog import table_from_json, table_to_json
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False), Column("a", INT)), (0,), (), 1)
KEYED = replace(T, foreign_keys=(ForeignKey("f", (1, 0), "shop.p", ("x", "y"), Action.CASCADE, Action.SET_NULL),
                                 ForeignKey("g", (1,), "t", ("id",))))


@pytest.mark.parametrize("table", [T, KEYED])
def test_the_catalog(table: TableDef) -> None:
    assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table
    assert ("foreign_keys" in table_to_json(table)) == bool(table.foreign_keys)


def test_a_message() -> None:
    assert pickle.loads(pickle.dumps(KEYED)) == KEYED


def test_a_key_survives_a_restart(tmp_path: Path) -> None:
    store = RocksStore(str(tmp_path), PlainSymbols())
    store.create_table(KEYED)
    store.set_recipe((), 1, 1)
    store.close()
    store = RocksStore(str(tmp_path), PlainSymbols())
    assert store.tables()["t"].foreign_keys == KEYED.foreign_keys
    store.close()


def test_columns_that_the_table_lacks() -> None:
    with pytest.raises(ValueError, match="ill-formed key"):
        replace(T, foreign_keys=(ForeignKey("f", (2,), "p", ("id",)),))


def test_names_of_the_parent() -> None:
    key = KEYED.foreign_keys[1]
    assert key.refers_to("T") and key.positions_in(T) == (0,)
    with pytest.raises(KeyError):
        replace(key, parent_columns=("z",)).positions_in(T)
