"""Three workers on real stores in one process: a seeded order of their messages, and SQLite as the oracle of their
views."""

from __future__ import annotations

import random
import sqlite3
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from noria.core.keys import shard_of
from noria.core.types import INT
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.messages.peer_messages import WorkerRestarted
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.sql.commands import CreateTable, CreateView
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views.writer import ViewDirectory
from sql.catalogs import DictCatalog

TABLES = ("CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(20))",
          "CREATE TABLE votes (id INT PRIMARY KEY, story INT, user INT)")
VIEWS = {
    "counts": "SELECT story, COUNT(*) AS n FROM votes WHERE story = {} GROUP BY story",
    "karma": "SELECT s.author, COUNT(*) AS n FROM stories s JOIN votes v ON v.story = s.id "
             "WHERE s.author = {} GROUP BY s.author",
    "best": "SELECT author, MAX(id) AS m FROM stories WHERE author = {} GROUP BY author",
    "voters": "SELECT v.user, s.title FROM votes v LEFT JOIN stories s ON s.id = v.story WHERE v.user = {}",
}
WORKERS = 3


def opened(path: Path, worker: int, workers: int, views: str | None) -> Worker:
    """A worker on a real store."""
    symbols = SymbolTable(views)
    return Worker(RocksStore(str(path), symbols), symbols, ViewDirectory(views, symbols), Lowering, worker=worker,
                  workers=workers)


class Three:
    """The workers, the channels between them, and their replies by request."""

    def __init__(self, path: Path, rng: random.Random):
        self.rng, self.catalog, self.version = rng, DictCatalog(), 0
        self.channels: dict[tuple[int, int], deque[Envelope]] = {}
        self.seqs, self.request, self.replies = [0] * WORKERS, 2**40, dict[int, Any]()
        self.workers = [opened(path / str(w), w, WORKERS, self.views_of(path, w)) for w in range(WORKERS)]

    def views_of(self, path: Path, w: int) -> str | None:
        """The directory in which a worker publishes its views; None: in memory of its own."""
        return None

    def step(self, w: int, envelopes: list[Envelope]) -> list[Any]:
        out = self.workers[w].step(envelopes)
        for to, e in self.workers[w].outgoing():
            self.channels.setdefault((w, to), deque()).append(e)
        for e in out:
            if isinstance(e.body, packets.Rows | packets.Done):
                self.replies[e.body.request] = e.body
        return [e.body for e in out]

    def deliver(self) -> bool:
        ready = [c for c, messages in self.channels.items() if messages]
        if not ready:
            return False
        c = self.rng.choice(ready)
        some = [self.channels[c].popleft() for _ in range(self.rng.randint(1, len(self.channels[c])))]
        self.step(c[1], some)
        return True

    def rest(self) -> None:
        going = True
        while going:
            while self.deliver():
                pass
            for w in range(WORKERS):
                self.step(w, [])
            going = any(self.channels.values()) or any(w.engine.lookups for w in self.workers)

    def change(self, w: int, body: Any) -> Any:
        self.seqs[w] += 1
        (reply,) = [b for b in self.step(w, [Envelope(1, -1, self.seqs[w], body)]) if not isinstance(b, packets.Rows)]
        return reply

    def define(self, text: str) -> None:
        (command,) = self.catalog.run(text)
        self.version += 1
        if isinstance(command, CreateTable):
            step: Any = packets.CreateTable(self.catalog.tables[command.table.name.lower()])
        else:
            assert isinstance(command, CreateView)
            step = packets.AddView(command.view)
        for w in self.rng.sample(range(WORKERS), WORKERS):
            assert self.change(w, packets.Migrate((step,), (text,), version=self.version)).error is None
            for _ in range(self.rng.randrange(3)):
                self.deliver()

    def owner(self, key: int) -> int:
        return int(shard_of([np.array([key])], [INT], WORKERS)[0])

    def read(self, view: str, key: int, w: int | None = None) -> int:
        self.request += 1
        body = packets.Read(self.request, view, [(key,)])
        self.step(self.owner(key) if w is None else w, [Envelope(1, -1, 0, body)])
        return self.request

    def inspect(self, w: int, what: str, argument: str) -> int:
        self.request += 1
        self.step(w, [Envelope(1, -1, 0, packets.Inspect(self.request, what, argument))])
        return self.request

    def breaks(self, a: int, b: int) -> None:
        """Break the channel from a to b: its last messages are lost, and both workers receive the report."""
        channel = self.channels.setdefault((a, b), deque())
        for _ in range(self.rng.randint(0, len(channel))):
            channel.pop()
        channel.append(Envelope(1, a, 0, packets.PeerPacket(WorkerRestarted(1), 0)))
        self.step(a, [Envelope(1, b, 0, packets.PeerPacket(WorkerRestarted(1), 0))])

    def equal_at(self, w: int, truth: sqlite3.Connection) -> None:
        """The present keys of this worker's views have the rows that SQLite has."""
        engine = self.workers[w].engine
        if w == 0 and engine.ready("every"):
            have = engine.read("every", np.empty((0, 1), np.int64))[0].columns.T.tolist()
            assert sorted(have) == sorted(map(list, truth.execute("SELECT * FROM votes").fetchall()))
        for name, reader in [(n, r) for n, r in engine.readers.items() if n != "every"]:
            present = reader.stored.present(engine.reads[reader])
            rows, ordinal = engine.read(name, present)
            for i, key in enumerate(present[0].tolist()):
                have = sorted(rows.where(ordinal == i).columns[:2].T.tolist())
                assert have == sorted(map(list, truth.execute(VIEWS[name].format(key)).fetchall())), (w, name, key)
