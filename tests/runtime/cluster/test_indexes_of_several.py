"""An index over several workers, whose entries another process makes from each worker's rows while clients write.  Here
the test makes the files from each worker's checkpoint; `tests/spark/jobs/test_index_files.py` tests Spark's job."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from noria.client.embedded import EmbeddedTransport
from noria.dataflow.messages.packets import IndexRequest, Inspect, Snapshot
from noria.server.bulk.indexes import Indexes
from noria.server.bulk.snapshots import taken
from noria.storage.offline.check import StoreCheck
from noria.storage.offline.snapshot import read_entries
from noria.storage.tables.sst import write_file
from noria.storage.tables.table import Index

ROWS, KINDS, CLIENTS = 9_000, 50, 3


@pytest.fixture
def db(tmp_path: Path) -> Iterator[EmbeddedTransport]:
    db = EmbeddedTransport(tmp_path / "data", workers=2)
    for link in db.link.links:
        link.hosted.engine.builds.awaited_rows = 1_000
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, kind INT NOT NULL)", [])
    ids = np.arange(ROWS)
    db.insert("t", pa.table({"id": ids, "kind": ids % KINDS}), "error")
    yield db
    db.close()


class Maker:
    """Makes the files of an index, as `BulkJobs` does with Spark."""

    def __init__(self, place: Path):
        self.place, self.made = place, Counter[str]()
        self.go = asyncio.Event()

    @asynccontextmanager
    async def index(self, worker: Any, request: IndexRequest) -> AsyncIterator[Any]:
        place = self.place / request.ticket
        place.mkdir()
        await taken(worker, Snapshot(0, str(place / "checkpoint")))
        await self.go.wait()
        index = Index.of(request.table, request.columns)
        rows = pa.Table.from_batches(read_entries(str(place / "checkpoint"), request.table, index)).sort_by("key")
        file = write_file(str(place / "0.sst"), rows.combine_chunks().to_batches())
        assert file is not None
        self.made[request.ticket] = file.rows
        yield type("Made", (), {"files": (file.path,)})


@pytest.mark.parametrize("view", [False, True])
def test_each_worker_receives_its_entries_during_writes(db: EmbeddedTransport, tmp_path: Path, view: bool) -> None:
    """For a declared index, and for one that a view needs."""
    truth = {i: i % KINDS for i in range(ROWS)}

    async def sql(text: str) -> Any:
        return (await db.sessions.run(text, ()))[-1]

    async def write(client: int, over: asyncio.Event) -> None:
        rng = random.Random(client)
        for n in range(10_000):
            if over.is_set():
                return
            ids = [i * CLIENTS + client for i in rng.sample(range(ROWS // 2), 3)]  # its own; some are new
            if n % 3:
                kind = rng.randrange(KINDS)
                await sql(f"REPLACE INTO t VALUES {', '.join(f'({i}, {kind})' for i in ids)}")
                truth.update(dict.fromkeys(ids, kind))
            else:
                await sql(f"DELETE FROM t WHERE id IN ({', '.join(map(str, ids))})")
                for i in ids:
                    truth.pop(i, None)

    async def test() -> None:
        maker, over = Maker(tmp_path), asyncio.Event()
        making = [asyncio.ensure_future(Indexes(maker, link).run()) for link in db.link.links]
        writing = [asyncio.ensure_future(write(c, over)) for c in range(CLIENTS)]
        if view:
            await sql("CREATE VIEW by_kind AS SELECT id, kind FROM t WHERE kind = ?")
        changed = asyncio.ensure_future(sql(
            "SELECT id FROM by_kind WHERE kind = 1" if view else "CREATE INDEX by_kind ON t (kind)"))
        while len(list(tmp_path.glob("*/checkpoint"))) < 2:
            await asyncio.sleep(0)
        for _ in range(20):
            await sql("REPLACE INTO t VALUES (5, 7), (6, 7), (7, 7), (8, 7)")
            truth.update(dict.fromkeys(range(5, 9), 7))
            await asyncio.sleep(0)
        assert not changed.done() and not maker.made
        maker.go.set()
        await changed
        over.set()
        await asyncio.gather(*writing)
        assert len(maker.made) == 2 and all(rows > ROWS // 4 for rows in maker.made.values())
        for task in making:
            task.cancel()
        for kind in range(KINDS):
            selected = await sql(f"SELECT id FROM t WHERE kind = {kind}")
            assert sorted(i for i, in selected.rows) == sorted(i for i, of in truth.items() if of == kind), kind
        assert (await db.link.ask(Inspect(0, "validate"))).error is None

    db.run(asyncio.wait_for(test(), 120))
    db.close()
    reports = [StoreCheck(str(tmp_path / "data" / f"worker-{w}" / "base"), lambda what, done, total: None).run()
               for w in range(2)]
    assert [r.findings for r in reports] == [[], []] and sum(r.tables["t"] for r in reports) == len(truth)
