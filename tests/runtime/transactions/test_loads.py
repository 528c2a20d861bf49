"""A bulk load is at all workers or at none, also if the front end dies with all workers, or one worker dies."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from noria.core.keys import shard_of
from noria.core.types import INT, TableDef
from noria.dataflow.messages.packets import Decide, Ingest, Prepare, Write
from noria.runtime.link.change_queue import Change
from noria.storage.format.catalog import family_of
from noria.storage.tables.sst import entries, write_file
from noria.storage.tables.table import Index
from runtime.processes import run, within
from runtime.several import Several

WORKERS = 3
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, n INT, INDEX (n))"
VIEW = "CREATE VIEW counted AS SELECT n, COUNT(*) AS c FROM t WHERE n = ? GROUP BY n"


def files(path: Path, table: TableDef, first: int, rows: int) -> Ingest:
    """Rows (i, i % 3) as files for each worker."""
    path.mkdir()
    ids = np.arange(first, first + rows)
    whose = shard_of([ids], [INT], WORKERS)
    shards = []
    for w in range(WORKERS):
        mine = ids[whose == w].astype(np.int64)
        batch = pa.record_batch([pa.array(mine, pa.int32()), pa.array(mine % 3, pa.int32())], ["id", "n"])
        made = []
        for index in (None, Index.of(table, (1,))):
            sorted_rows = pa.Table.from_batches([entries(table, index, batch)]).sort_by("key")
            file = write_file(str(path / f"{w}-{index is None}.sst"), sorted_rows.to_batches())
            assert file is not None
            made.append((family_of(table) if index is None else index.family, (file.path,)))
        shards.append((tuple(made), len(mine)))
    everything = tuple(f for some, _ in shards for f in some)
    return Ingest("t", everything, rows, 0, tuple(shards))


async def has(db: Several, rows: int) -> None:
    """Wait until the table and the view have the rows from 0 to `rows`."""
    for n in range(3):
        while await db.sql("SELECT * FROM counted WHERE n = ?", n) != [(n, len(range(n, rows, 3)))]:
            await asyncio.to_thread(os.sched_yield)
    while (rows_there := await db.sql("SELECT COUNT(*) FROM t")) != [(rows,)]:
        print("counted", rows_there)
        await asyncio.to_thread(os.sched_yield)


async def begun(path: Path) -> tuple[Several, Ingest]:
    db = Several(path, WORKERS)
    await db.start()
    await db.sql(TABLE)
    await db.sql(VIEW)
    await db.sql("INSERT INTO t VALUES (0, 0), (1, 1), (2, 2), (3, 0), (4, 1), (5, 2)")
    await within(has(db, 6), 60)
    table = db.program.table("t")
    assert table is not None
    return db, files(path / "files", table, 6, 60)


Stop = Callable[[int, Change], bool]  # whether everything ends before this change reaches its worker
STOPS: dict[str, tuple[Stop, int]] = {  # ... and the number of rows after that
    "one is prepared": (lambda w, body: isinstance(body, Prepare) and w == 2, 6),
    "all are prepared": (lambda w, body: isinstance(body, Write), 6),
    "one of two has done it": (lambda w, body: isinstance(body, Decide) and w == 1, 66),
}


@pytest.mark.parametrize("point", STOPS)
def test_all_processes_die_between_two_steps(tmp_path: Path, point: str) -> None:
    stop, rows = STOPS[point]

    async def test() -> None:
        db, load = await begun(tmp_path)
        try:
            stopped = asyncio.Event()
            for link in db.links:
                _stopped(link, stop, stopped)
            loading = asyncio.ensure_future(db.link.change(load))
            await within(stopped.wait(), 30)
            while db.links[0].book.changes.in_flight or any(not link.is_idle() for link in db.links[1:]):
                await asyncio.to_thread(os.sched_yield)
            await db.die()
            loading.cancel()
            await asyncio.gather(loading, return_exceptions=True)
            assert list((tmp_path / "data").glob("worker-*/base/ingest*"))
            db = Several(tmp_path, WORKERS, 2)
            await db.start()
            await within(has(db, rows), 60)
            assert not list((tmp_path / "data").glob("worker-*/base/ingest*"))
            done = await within(db.link.change(files(tmp_path / "more", db.program.table("t"), rows, 30)), 60)
            assert done.error is None and done.value == 30
            await within(has(db, rows + 30), 60)
        finally:
            await db.stop()

    run(test, 200)


def _stopped(link: Any, stop: Stop, stopped: asyncio.Event) -> None:
    """Never send the change that is to be stopped, nor any decision after it."""
    submit = link.submit

    def lost(body: Change) -> Any:
        if stop(link.worker, body) or (stopped.is_set() and isinstance(body, Decide)):
            stopped.set()
            return asyncio.get_running_loop().create_future()
        return submit(body)

    link.submit = lost


@pytest.mark.parametrize("worker", range(2))
def test_a_worker_dies_under_a_load(tmp_path: Path, worker: int) -> None:
    async def test() -> None:
        db, load = await begun(tmp_path)
        try:
            loading = asyncio.ensure_future(db.link.change(load))
            while not (in_flight := [f for f in db.links[worker].book.changes.in_flight if f.sent]):
                await asyncio.sleep(0)
            assert isinstance(in_flight[0].body, Prepare if worker else Write)
            db.alive[worker].kill()
            done = await within(loading, 60)
            assert done.error is None and done.value == 60
            assert [await db.sql("SELECT * FROM counted WHERE n = ?", n) for n in range(3)] == [
                [(n, 22)] for n in range(3)]  # all of it, at once
            assert await db.sql("SELECT COUNT(*) FROM t") == [(66,)]
        finally:
            await db.stop()

    run(test, 200)


def test_a_load_that_one_worker_rejects_is_at_none(tmp_path: Path) -> None:
    async def test() -> None:
        db, load = await begun(tmp_path)
        try:
            (_, (path,)), _ = load.shards[2][0]
            Path(path + ".json").unlink()
            done = await within(db.link.change(load), 60)
            assert "is not whole" in done.error.message
            await within(has(db, 6), 60)
        finally:
            await db.stop()

    run(test, 200)
