"""Three worker processes on real stores, connected with each other: they answer like SQLite, also after one of them was
killed and has adopted the graph of another one."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dataflow.three_workers import TABLES, VIEWS, WORKERS
from noria.core.keys import shard_of
from noria.core.statements import Delete, Insert
from noria.core.types import INT
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Hello
from noria.runtime.link.link import WorkerLink
from noria.runtime.transport.wire import private_endpoint
from noria.runtime.worker.worker_main import WorkerConfig
from noria.sql.commands import CreateTable, CreateView
from runtime.fork_server import ForkedProcess
from runtime.processes import run, spawn, within
from sql.catalogs import DictCatalog


class Front:
    """A front end: it routes writes and reads, changes the program at all workers, and restores a lost one."""

    def __init__(self, path: Path):
        self.catalog, self.version, self.views = DictCatalog(), 0, list[packets.AddView]()
        run_dir = path / "run"
        endpoints = [private_endpoint(run_dir, f"front-{w}") for w in range(WORKERS)]
        self.configs = [replace(WorkerConfig(w, WORKERS, endpoints[w], path / "data", run_dir, 1), lease_ms=20_000)
                        for w in range(WORKERS)]
        self.children: list[ForkedProcess] = []
        self.alive: dict[int, ForkedProcess] = {}
        self.links = [WorkerLink(endpoints[w], 1, w, on_lost=self._again(w), on_hello=self._welcome(w))
                      for w in range(WORKERS)]

    def start(self, w: int) -> None:
        self.alive[w] = spawn(self.configs[w])
        self.children.append(self.alive[w])

    def _again(self, w: int) -> Callable[[str], None]:
        return lambda why: self.start(w)

    def _welcome(self, w: int) -> Callable[[Hello], Awaitable[None]]:
        async def back(hello: Hello) -> None:
            if not hello.recipe:
                return
            altered = tuple(map(packets.AlterTable, hello.tables))  # a change that others made meanwhile
            assert (await self.links[w].recover(packets.Migrate(altered, durable=False))).error is None
            other = self.links[(w + 1) % WORKERS]
            plan = (await other.ask(packets.Inspect(0, "graph plan"))).value["plan"]
            restored = packets.Migrate(tuple(self.views), durable=False, version=self.version, adopt=plan)
            assert (await self.links[w].recover(restored)).error is None
        return back

    async def define(self, text: str) -> None:
        (command,) = self.catalog.run(text)
        self.version += 1
        if isinstance(command, CreateTable):
            step: Any = packets.CreateTable(self.catalog.tables[command.table.name.lower()])
        else:
            assert isinstance(command, CreateView)
            step = packets.AddView(command.view)
            self.views.append(step)
        change = packets.Migrate((step,), (text,), version=self.version)
        for reply in await asyncio.gather(*(link.change(change) for link in self.links)):
            assert reply.error is None

    async def undo(self, w: int) -> None:
        """Undo this worker's changes of its tables, but not of its graph."""
        self.version += 1
        back = packets.Migrate(tuple(map(packets.AlterTable, self.catalog.tables.values())), durable=False,
                               version=self.version, back=True)
        for reply in await asyncio.gather(*(link.change(back if n == w else replace(back, steps=(), back=False))
                                            for n, link in enumerate(self.links))):
            assert reply.error is None

    def owner(self, key: int) -> int:
        return int(shard_of([np.array([key])], [INT], WORKERS)[0])

    async def put(self, table: str, row: tuple[Any, ...]) -> None:
        body = packets.Write((Insert(table, (0, 1, 2), (row,), "replace"),))
        assert (await self.links[self.owner(row[0])].change(body)).results[0].error is None

    async def clear(self, table: str) -> None:
        body = packets.Write((Delete(table, None),))
        for reply in await asyncio.gather(*(link.change(body) for link in self.links)):
            assert reply.results[0].error is None

    async def read(self, view: str, key: int) -> list[tuple[Any, ...]]:
        reply = await self.links[self.owner(key)].ask(packets.Read(0, view, [(key,)]), retry=True)
        assert reply.error is None
        return [tuple(r[c] for c in reply.rows.column_names[:-1]) for r in reply.rows.to_pylist()]

    async def settled(self, view: str, key: int, expected: list[tuple[Any, ...]]) -> None:
        """Read until the view has the expected rows, up to the test's time limit."""
        while sorted(await self.read(view, key), key=str) != expected:
            pass


def test_three_processes_while_one_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        front, truth, rng = Front(tmp_path), sqlite3.connect(":memory:"), random.Random(1)
        for link in front.links:
            await link.start()
        try:
            for w in range(WORKERS):
                front.start(w)
            for link in front.links:
                await within(link.up(), 60)
            for text in TABLES:
                truth.execute(text)
                await front.define(text)
            await some_writes(front, truth, rng, 40)
            for name, text in VIEWS.items():
                await front.define(f"CREATE VIEW {name} AS {text.format('?')}")
            await compare(front, truth)
            await some_writes(front, truth, rng, 40)
            front.alive[1].kill()
            await some_writes(front, truth, rng, 40)
            await compare(front, truth)
            await front.undo(1)
            await some_writes(front, truth, rng, 20)
            await compare(front, truth)
            assert len(front.children) == WORKERS + 1
        finally:
            for link in front.links:
                link.on_lost = None
                await link.close()
            for child in front.children:
                if child.poll() is None:
                    child.kill()
                child.communicate()

    run(test, 240)


async def some_writes(front: Front, truth: sqlite3.Connection, rng: random.Random, count: int) -> None:
    for i in range(count):
        row: tuple[Any, ...] = (rng.randrange(30), rng.randrange(6), rng.choice(["a", "B", "é"]))
        table = rng.choice(["stories", "votes"])
        if table == "votes":
            row = (row[0], rng.randrange(30), rng.randrange(6))
        truth.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?)", row)
        await front.put(table, row)
        if i == count // 2:
            truth.execute("DELETE FROM votes WHERE 1")
            await front.clear("votes")
        if rng.random() < 0.3 and front.views:
            await front.read(rng.choice(sorted(VIEWS)), rng.randrange(7))


async def compare(front: Front, truth: sqlite3.Connection) -> None:
    for name, text in VIEWS.items():
        for key in range(7):
            await within(front.settled(name, key, sorted(truth.execute(text.format(key)).fetchall(), key=str)))
