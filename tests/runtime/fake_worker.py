"""A worker without an engine: a dictionary, and a synced log in place of base tables.

The names of tables are orders: an Insert into "die" kills the process before the commit, "die_after" between
commit and answer, "raise" raises.  Reads return what was inserted.  The log has one JSON line per commit, so
that a test can read each durable commit and the worker that made it.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from noria.core.statements import Insert, WriteResult
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.messages.packets import (
    Done,
    Envelope,
    Hello,
    Ingest,
    Inspect,
    Migrate,
    Migrated,
    Packet,
    PeerPacket,
    Read,
    Rows,
    Snapshot,
    Write,
    Wrote,
)
from noria.runtime.worker.worker_main import WorkerConfig
from noria.storage.rocks.errors import StoreDamaged


def build(config: WorkerConfig, incarnation: int, around: WorkerEnvironment) -> FakeWorker:
    return FakeWorker(config, incarnation, around)


def build_broken(config: WorkerConfig, incarnation: int, around: WorkerEnvironment) -> FakeWorker:
    raise OSError(f"cannot open {config.shard_dir}: no space left on device")


def build_unless_spoilt(config: WorkerConfig, incarnation: int, around: WorkerEnvironment) -> FakeWorker:
    """A shard directory with a file "spoilt" cannot be opened."""
    if (config.shard_dir / "spoilt").exists():
        raise StoreDamaged(f"{config.shard_dir} is damaged")
    return FakeWorker(config, incarnation, around)


def commits(shard_dir: Path) -> list[dict[str, Any]]:
    """Every commit in the log, oldest first."""
    log = shard_dir / "log"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def insert(value: int, table: str = "t") -> Write:
    return Write((Insert(table, (0,), ((value,),)),))


class FakeWorker:
    def __init__(self, config: WorkerConfig, incarnation: int, around: WorkerEnvironment):
        self.config, self.incarnation, self.around = config, incarnation, around
        self.log = os.open(config.shard_dir / "log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self.done: dict[tuple[int, int], int] = {}
        self.last = (0, 0)
        self.recipe: tuple[str, ...] = ()
        self.values: list[int] = []
        for line in commits(config.shard_dir):
            self._remember(line)

    def _remember(self, line: dict[str, Any]) -> None:
        self.last = (line["epoch"], line["seq"])
        self.done[self.last] = len(line["values"])
        self.values.extend(line["values"])
        self.recipe = tuple(line.get("recipe", self.recipe))

    def _commit(self, envelope: Envelope, values: list[int], **more: Any) -> None:
        if (envelope.epoch, envelope.seq) in self.done:
            return
        line = {"epoch": envelope.epoch, "seq": envelope.seq, "incarnation": self.incarnation, "values": values, **more}
        os.write(self.log, json.dumps(line).encode() + b"\n")
        os.fdatasync(self.log)
        self._remember(line)

    def hello(self) -> Hello:
        return Hello(self.config.worker, os.getpid(), *self.last, self.recipe, ())

    def handle(self, packets: list[Envelope]) -> list[Envelope]:
        replies = [Envelope(self.config.epoch, self.config.worker, p.seq, self._answer(p))
                   for p in packets
                   if not isinstance(p.body, PeerPacket)]  # from other fake workers: nothing to answer
        self.around.began(0)
        return replies

    def do_turns(self) -> list[Envelope]:
        return []

    def _answer(self, envelope: Envelope) -> Packet:
        body = envelope.body
        self.around.began(envelope.seq or getattr(body, "request", 0))
        if isinstance(body, Write):
            return self._write(envelope, body)
        if isinstance(body, Migrate):
            if body.durable:
                self._commit(envelope, [], recipe=body.recipe)
            return Migrated(envelope.seq)
        if isinstance(body, Ingest):
            self._commit(envelope, [body.rows])
            return Done(envelope.seq)
        if isinstance(body, Read):
            return Rows(body.request, list(self.values))
        if isinstance(body, Inspect) and body.what == "unwanted":
            return Done(body.request, {"unwanted": self.around.cancelled(int(body.argument))})
        if isinstance(body, Inspect) and body.what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        assert isinstance(body, Inspect | Snapshot)
        return Done(body.request, {"incarnation": self.incarnation, "pid": os.getpid()})

    def _write(self, envelope: Envelope, body: Write) -> Wrote:
        orders = [s for s in body.statements if isinstance(s, Insert)]
        fresh = (envelope.epoch, envelope.seq) not in self.done
        for order in orders:
            if order.table == "raise":
                raise RuntimeError("ordered to raise")
            if order.table == "die" and fresh:
                os.kill(os.getpid(), signal.SIGKILL)
        self._commit(envelope, [row[0] for order in orders for row in order.rows])
        if fresh and any(order.table == "die_after" for order in orders):
            os.kill(os.getpid(), signal.SIGKILL)
        return Wrote(envelope.seq, tuple(WriteResult(affected=1, last_insert_id=o.rows[0][0]) for o in orders))

    def checkpoint(self) -> None: ...

    def keep(self) -> None:
        pass

    def outgoing(self) -> list[tuple[int, Envelope]]:
        return []

    def frontier(self) -> tuple[int, ...]:
        return (0,) * self.config.workers

    def idle(self, budget_ms: int) -> tuple[list[Envelope], bool]:
        return [], False

    def close(self) -> None:
        os.close(self.log)
