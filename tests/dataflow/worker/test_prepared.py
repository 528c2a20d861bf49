"""A prepared group is in no view before it is decided, and the worker rejects other changes meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noria.core.statements import Insert
from noria.core.types import INT, Column, TableDef
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory


def started(path: Path) -> Worker:
    symbols = SymbolTable(None)
    return Worker(RocksStore(str(path), symbols), symbols, ViewDirectory(None, symbols), Lowering)


def send(worker: Worker, seq: int, body: Any) -> Any:
    return worker.step([Envelope(1, -1, seq, body)])[0].body


def test_a_worker_applies_at_the_decision_and_refuses_meanwhile(tmp_path: Path) -> None:
    worker = started(tmp_path)
    table = TableDef("t", (Column("id", INT, False),), (0,))
    assert send(worker, 1, packets.Migrate((packets.CreateTable(table),), ("t",))).error is None
    row = (Insert("t", (0,), [(1,)]),)
    prepared = send(worker, 2, packets.Prepare(row, "g", 0))
    assert [r.affected for r in prepared.results] == [1] and worker.stats()["tables"] == {"t": 0}
    tick = worker.engine.tick_number
    for body in (packets.Write(row), packets.Prepare(row, "h", 0)):
        assert "group g is prepared" in send(worker, 3, body).results[0].error.message
    assert "group g is prepared" in send(worker, 3, packets.Migrate((packets.DropTable("t"),), ())).error.message
    assert "group g is prepared" in send(worker, 3, packets.Ingest("t", (), 0)).error.message
    assert worker.engine.tick_number == tick
    worker.close()
    worker = started(tmp_path)
    assert worker.hello().prepared == (("g", 0),)
    assert send(worker, 3, packets.Decide("g", True)).results == prepared.results
    assert worker.hello().prepared == () and worker.stats()["tables"] == {"t": 1}
    worker.close()
