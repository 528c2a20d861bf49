"""Checkpoints of stores, for jobs that read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noria.core.statements import Insert
from noria.core.types import TableDef
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore


def checkpoint(path: Path, tables: list[TableDef], rows: dict[str, list[tuple[Any, ...]]]) -> str:
    """A store's checkpoint with these rows."""
    store = RocksStore(str(path / "data"), SymbolTable())
    for t in tables:
        store.create_table(t)
    store.set_recipe((), 1, 1)
    for i, t in enumerate(tables):
        if rows[t.name]:
            ((result,), _) = store.write([Insert(t.name, tuple(range(len(t.columns))), rows[t.name])], 1, i + 2)
            assert result.error is None, result
    store.checkpoint(str(path / "checkpoint"))
    store.close()
    return str(path / "checkpoint")
