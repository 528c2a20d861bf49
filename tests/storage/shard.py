"""One shard's store with a table of one column, and the numbering of its changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert, Statement
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages.packets import Decide, Prepare
from noria.storage.store import RocksStore

T = TableDef("t", (Column("id", INT, False),), (0,))


class Shard:
    """A store and the numbering of its changes."""

    def __init__(self, path: Path):
        self.path, self.seq = str(path), 1
        self.store = RocksStore(self.path, PlainSymbols())
        self.store.create_table(T)
        self.store.set_recipe(("t",), 1, 1)

    def reopen(self) -> None:
        """Only what is on disk counts."""
        self.store.close()
        self.store = RocksStore(self.path, PlainSymbols())

    def send(self, body: Any, seq: int = 0) -> list[Any]:
        self.seq += not seq
        seq = seq or self.seq
        if isinstance(body, Prepare):
            return self.store.prepare(body.statements, body.group, body.coordinator, 1, seq)
        if isinstance(body, Decide):
            return self.store.decide(body.group, body.commit, 1, seq)[0]
        return self.store.write(body.statements, 1, seq, None, body.group, body.forget, body.idempotency_key)[0]

    def rows(self) -> set[int]:
        return set(self.store.scan("t", None, 1000)[0].columns[0].tolist())


def insert(id: int) -> Statement:
    return Insert("t", (0,), [(id,)])
