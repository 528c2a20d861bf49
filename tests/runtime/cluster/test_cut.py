"""A snapshot of several workers is of one moment: it has no statement in part, and follows the order of statements."""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from noria.client.embedded import EmbeddedTransport
from noria.dataflow.messages.packets import Snapshot
from noria.runtime.cluster.consistent_cut import ConsistentCut
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.link.link import LinkState
from noria.server.bulk.snapshots import taken
from noria.storage.offline.snapshot import read_checkpoint, read_tables
from noria.storage.tables.shards import shards_of

SEEDS = int(os.environ.get("NORIA_CUT_SEEDS", "2"))
ROWS = 6  # of a statement, over all workers


@pytest.fixture
def db(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    db = EmbeddedTransport(tmp_path / "data", workers=3)
    db.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, client INT NOT NULL, number INT NOT NULL)", [])
    db.sql("CREATE TABLE u (id BIGINT PRIMARY KEY, other BIGINT NOT NULL UNIQUE, client INT NOT NULL, "
           "number INT NOT NULL)", [])
    db.sql("CREATE VIEW counted AS SELECT client, COUNT(*) AS c FROM t WHERE client = ? GROUP BY client", [])
    yield db
    db.close()


class Client:
    """One statement after the other; each leaves ROWS rows with its number, at several workers, or none."""

    def __init__(self, db: EmbeddedTransport, number: int, seed: int):
        self.db, self.client, self.rng = db, number, random.Random(f"{seed} {number}")
        self.last = {"t": 0, "u": 0}  # by table: the last statement that was acknowledged
        self._next = number * 1_000_000

    async def statement(self) -> None:
        table = self.rng.choice("ttu")
        number = self.last[table] + 1
        if number == 1 or self.rng.random() < 0.3:
            self._next += ROWS
            fresh = range(self._next, self._next + ROWS)
            rows = [f"({i}, {f'{-i}, ' if table == 'u' else ''}{self.client}, {number})" for i in fresh]
            delete = f"DELETE FROM {table} WHERE client = {self.client}"
            await self.db.sessions.run(delete, ())
            await self.db.sessions.run(f"INSERT INTO {table} VALUES {', '.join(rows)}", ())
        else:  # some move to other workers
            moves = f", id = id + {ROWS}" if self.rng.random() < 0.3 else ""
            self._next += ROWS if moves else 0
            await self.db.sessions.run(
                f"UPDATE {table} SET number = {number}{moves} WHERE client = {self.client}", ())
        self.last[table] = number


def rows_of(snapshot: Path) -> dict[str, Counter[tuple[int, int]]]:
    """By table: how many rows each client has under each number."""
    counts: dict[str, Counter[tuple[int, int]]] = {"t": Counter(), "u": Counter()}
    for shard in shards_of(str(snapshot)):
        for name, table in read_tables(shard).items():
            for rows in read_checkpoint(shard, table):
                counts[name].update(zip(rows["client"].to_pylist(), rows["number"].to_pylist(), strict=True))
    return counts


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_statement_is_partly_in_a_snapshot(db: EmbeddedTransport, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)

    async def write(client: Client, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await client.statement()

    async def snapshot(n: int, clients: list[Client]) -> None:
        for _ in range(rng.randrange(40)):
            await asyncio.sleep(0)
        before = [dict(c.last) for c in clients]
        path = tmp_path / f"snapshot-{n}"
        await taken(db.link, Snapshot(0, str(path), views=rng.random() < 0.3))
        after = [dict(c.last) for c in clients]
        for table, counts in (await asyncio.to_thread(rows_of, path)).items():
            for (client, number), rows in counts.items():
                assert rows == ROWS, (seed, n, table, client, number, rows)
                assert before[client][table] <= number <= after[client][table] + 1, (seed, n, table, client)
            assert len({client for client, _ in counts}) == len(counts), (seed, n, table, counts)

    async def test() -> None:
        clients, stop = [Client(db, n, seed) for n in range(4)], asyncio.Event()
        writing = [asyncio.ensure_future(write(c, stop)) for c in clients]
        try:
            for n in range(4):
                await snapshot(n, clients)
        finally:
            stop.set()
            await asyncio.gather(*writing)

    db.run(test())


class Line:
    """A link whose places are reached at once."""

    def __init__(self, worker: int):
        self.worker, self.state, self.why, self.places = worker, LinkState.UP, "it has ended", set[str]()

    def reserve_place(self, group: str) -> asyncio.Future[Any]:
        self.places.add(group)
        place: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        place.set_result(None)
        return place

    def release_place(self, group: str) -> None:
        self.places.discard(group)


def test_a_cut_releases_its_places_if_a_worker_is_lost() -> None:
    """The work before the requests waits for the lost worker's next life.  Meanwhile the places must not block the
    queues."""
    async def test() -> None:
        lines, lost, over = [Line(0), Line(1)], asyncio.Event(), list[str]()

        async def rest() -> None:
            assert all(line.places for line in lines)
            lines[1].state = LinkState.DOWN
            try:
                await lost.wait()
            finally:
                over.append("cancelled")

        async def ask(_: Any) -> None:
            raise AssertionError("not all are at rest")

        links: Any = lines
        with pytest.raises(WorkerUnavailable, match="worker 1: it has ended"):
            await asyncio.wait_for(ConsistentCut(links, "g").each(ask, rest), 20)
        assert not any(line.places for line in lines)
        await asyncio.sleep(0)
        assert over

    asyncio.run(test())


def test_no_place_is_released_before_all_workers_have_answered() -> None:
    """A later statement at one worker would send updates to another, whose answer would contain them."""
    async def test() -> None:
        lines, last = [Line(0), Line(1)], asyncio.Event()

        async def rest() -> None: ...

        async def ask(line: Any) -> int:
            if line is lines[1]:
                await last.wait()
            return int(line.worker)

        links: Any = lines
        answers = asyncio.ensure_future(ConsistentCut(links, "g").each(ask, rest))
        for _ in range(10):
            await asyncio.sleep(0)
        assert all(line.places for line in lines)
        last.set()
        assert await answers == [0, 1]
        assert not any(line.places for line in lines)

    asyncio.run(test())
