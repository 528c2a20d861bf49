"""A worker on a real store, driven by packets, with a clock and a log of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noria.core.statements import Insert
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.sql.commands import CreateTable, CreateView
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory
from sql.catalogs import DictCatalog


class Bench:
    """A worker on a real store, with a log and a clock that the test controls."""

    def __init__(self, path: Path):
        self.notes: list[str] = []
        self.began: list[int] = []
        self.cancelled: set[int] = set()
        self.now = 0
        symbols = SymbolTable(None)
        self.store = RocksStore(str(path), symbols)
        environment = WorkerEnvironment(self.clock, self.began.append, self.cancelled.__contains__, self.notes.append)
        self.worker = Worker(self.store, symbols, ViewDirectory(None, symbols), Lowering, environment=environment)
        self.catalog = DictCatalog()
        self.seq = self.request = 0

    def clock(self) -> int:
        self.now += 1_000_000  # each reading of the clock takes a millisecond
        return self.now

    def send(self, body: Any, seq: int = 0) -> Any:
        (reply,) = self.worker.step([Envelope(1, -1, seq, body)])
        return reply.body

    def change(self, body: Any) -> Any:
        self.seq += 1
        return self.send(body, self.seq)

    def define(self, text: str) -> packets.Migrated:
        (command,) = self.catalog.run(text)
        step: packets.MigrationStep
        if isinstance(command, CreateTable):
            step = packets.CreateTable(self.catalog.tables[command.table.name.lower()])
        else:
            assert isinstance(command, CreateView)
            step = packets.AddView(command.view)
        return self.change(packets.Migrate((step,), (text,)))

    def insert(self, *rows: tuple[Any, ...]) -> packets.Wrote:
        return self.change(packets.Write((Insert("t", (0, 1), rows),)))

    def read(self, key: int, **more: Any) -> packets.Rows:
        self.request += 1
        return self.send(packets.Read(2**40 + self.request, "v", [(key,)], **more))


def rows(reply: packets.Rows) -> list[tuple[Any, ...]]:
    assert reply.error is None, reply.error
    columns = [c.to_pylist() for c in reply.rows.columns[:-1]]
    return list(zip(*columns, strict=True))
