"""Indexes whose entries Spark makes, between the packets of a worker on a real store.  This test makes the files by the
same functions as Spark's tasks; `tests/spark/jobs/test_index_files.py` tests the job.  In the end `StoreCheck` compares
the index with the rows."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow.building import ROWS, WAITING, Building
from dataflow.declared_indexes import BY_A, alter, await_indexes, check_store, families
from noria.core.errors import SqlError
from noria.core.statements import Insert
from noria.core.types import INT, Column
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.storage.offline.check import StoreCheck
from noria.storage.offline.snapshot import read_entries
from noria.storage.online import indexing
from noria.storage.tables.sst import write_file
from noria.storage.tables.table import Index

MAKER = 2**41 + 100  # the number of the request for an index that awaits files


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Building]:
    made = Building.filled(tmp_path / "base")
    made.worker.engine.builds.awaited_rows = 1_000
    yield made
    made.worker.close()


def awaited_index(bench: Building) -> packets.IndexRequest:
    bench.replies.clear()
    bench.replies += [r.body for r in bench.worker.step([Envelope(1, -1, 0, packets.Inspect(MAKER, "awaited index"))])]
    until = time.monotonic() + 60  # memtables are flushed first
    while time.monotonic() < until:
        request = next((r.value for r in bench.replies if r.request == MAKER), None)
        if request is not None:
            assert isinstance(request, packets.IndexRequest)
            return request
        bench.replies += [r.body for r in bench.worker.idle(5)[0]]
    raise AssertionError("no index awaits files")


def files(bench: Building, order: packets.IndexRequest, place: Path) -> tuple[str, ...]:
    """Make the files of a snapshot of this moment, in two parts."""
    assert bench.send(packets.Snapshot(MAKER + 1, str(place / "checkpoint"))).error is None
    index = Index.of(order.table, order.columns)
    rows = pa.Table.from_batches(read_entries(str(place / "checkpoint"), order.table, index, rows=700))
    rows = rows.sort_by("key").combine_chunks()
    half = rows.num_rows // 2
    parts = [p for p in (rows.slice(0, half), rows.slice(half)) if p.num_rows]
    made = [write_file(str(place / f"{i}.sst"), p.to_batches(500)) for i, p in enumerate(parts)]
    return tuple(f.path for f in made if f is not None)


def deliver(bench: Building, order: packets.IndexRequest, made: tuple[str, ...] | None) -> packets.Done:
    reply = bench.send(packets.IndexFiles(order.ticket, made, MAKER + 2))
    assert isinstance(reply, packets.Done)
    return reply


def churn(bench: Building, rng: random.Random, writes: int) -> None:
    for _ in range(writes):
        id = rng.randrange(ROWS * 2)
        if rng.random() < 0.1:
            bench.delete_below(min(bench.rows) + rng.randrange(40))
        elif id in bench.rows:
            bench.change(packets.Write((Insert("t", (0, 1), ((id, id % 5),), on_duplicate="replace"),)))
            bench.rows[id] = id % 5
        else:
            bench.put((id, id % 7))


@pytest.mark.parametrize("seed", range(3))
def test_written_before_between_and_after(bench: Building, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    assert alter(bench, BY_A).error is None
    churn(bench, rng, 30)
    order = awaited_index(bench)
    assert order.columns == (1,) and not families(bench)
    churn(bench, rng, 30)
    made = files(bench, order, tmp_path)
    churn(bench, rng, 60)
    [shown] = bench.building()
    assert (shown["state"], shown["why"]) == ("waits", "made by Spark")
    assert deliver(bench, order, made).error is None
    while bench.building():
        churn(bench, rng, 1)
    assert [i.name for i in bench.store.table("t").indexes] == ["by_a"]
    assert bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?").filling == ()
    for a in range(7):
        assert bench.all_of("w", (a,)) == Counter((i,) for i, of in bench.rows.items() if of == a)
    check_store(bench, tmp_path)


def test_a_view_waits_for_its_index(bench: Building, tmp_path: Path) -> None:
    bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?")
    order = awaited_index(bench)
    bench.replies += [r.body for r in bench.worker.step(
        [Envelope(1, -1, 0, packets.Inspect(WAITING, "index no longer awaited", order.ticket))])]
    bench.idle()
    assert WAITING not in [r.request for r in bench.replies]
    assert bench.building()[0]["views"] == ["w"]
    assert deliver(bench, order, files(bench, order, tmp_path)).error is None
    bench.idle()
    assert packets.Done(WAITING) in bench.replies
    assert bench.all_of("w", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    check_store(bench, tmp_path)


def test_a_table_without_a_primary_key(bench: Building, tmp_path: Path) -> None:
    """Its keys are row numbers, which only the files have."""
    bench.define("CREATE TABLE bag (a INT, b INT)")
    for start in range(0, 3_000, 500):
        bench.change(packets.Write((Insert("bag", (0, 1), tuple((i % 3, i % 4) for i in range(start, start + 500))),)))
    bench.define("CREATE VIEW w AS SELECT b FROM bag WHERE a = ?")
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    bench.change(packets.Write((Insert("bag", (0, 1), ((1, 9), (1, 9))),)))
    assert deliver(bench, order, made).error is None
    bench.idle()
    expected = Counter((i % 4,) for i in range(3_000) if i % 3 == 1) + Counter({(9,): 2})
    assert bench.all_of("w", (1,)) == expected


def test_spark_cannot_make_the_files(bench: Building, tmp_path: Path) -> None:
    alter(bench, BY_A)
    order = awaited_index(bench)
    bench.put((ROWS, 3))
    assert deliver(bench, order, None).error is None
    await_indexes(bench)
    bench.idle()
    assert packets.Done(WAITING) in bench.replies
    check_store(bench, tmp_path)


@pytest.mark.parametrize("what", ["missing", "overlapping"])
def test_files_that_are_wrong(bench: Building, tmp_path: Path, what: str) -> None:
    """The worker rejects them and makes the index."""
    alter(bench, BY_A)
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    error = deliver(bench, order, ("/nosuch.sst",) if what == "missing" else (made[0], made[0])).error
    assert error is not None and error.code == 1105
    bench.idle()
    assert bench.building() == [] and len(bench.store.table("t").indexes) == 1
    check_store(bench, tmp_path)


def test_too_much_is_written_meanwhile(bench: Building, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "INDEX_NOTED", 50)
    alter(bench, BY_A)
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    bench.put(*((ROWS + i, i % 7) for i in range(60)))
    error = deliver(bench, order, made).error
    assert error is not None and "nobody waits" in error.message
    bench.idle()
    assert bench.building() == []
    check_store(bench, tmp_path)


def test_dropped_and_declared_again(bench: Building, tmp_path: Path) -> None:
    """The first index's files would have rows that were deleted since."""
    alter(bench, BY_A)
    first = awaited_index(bench)
    made = files(bench, first, tmp_path)
    alter(bench)
    assert bench.building() == [] and not families(bench)
    bench.delete_below(100)
    alter(bench, BY_A)
    assert deliver(bench, first, made).error is not None
    again = awaited_index(bench)
    assert again.ticket != first.ticket
    (tmp_path / "again").mkdir()
    assert deliver(bench, again, files(bench, again, tmp_path / "again")).error is None
    bench.idle()
    check_store(bench, tmp_path)


def test_the_table_is_dropped(bench: Building, tmp_path: Path) -> None:
    alter(bench, BY_A)
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    bench.change(packets.Migrate((packets.DropTable("t"),), ()))
    assert deliver(bench, order, made).error is not None
    bench.idle()
    assert bench.building() == [] and not families(bench)


def test_more_columns_and_another_name_meanwhile(bench: Building, tmp_path: Path) -> None:
    alter(bench, BY_A)
    order = awaited_index(bench)
    table = bench.store.tables()["t"]
    wider = replace(table, name="later", columns=(*table.columns, Column("c", INT, has_default=True, default=5,
                                                                         initial=5)))
    assert bench.change(packets.Migrate((packets.AlterTable(wider),), ())).error is None
    bench.change(packets.Write((Insert("later", (0, 1, 3), ((ROWS, 3, 8),)),)))
    assert deliver(bench, order, files(bench, order, tmp_path)).error is None
    bench.idle()
    assert [i.name for i in bench.store.table("later").indexes] == ["by_a"]
    validate(bench.worker.engine)
    bench.worker.close()
    report = StoreCheck(str(tmp_path / "base"), lambda what, done, total: None).run()
    assert report.findings == [] and report.tables == {"later": ROWS + 1}


def test_rows_that_a_bulk_load_adds(bench: Building, tmp_path: Path) -> None:
    alter(bench, BY_A)
    first = awaited_index(bench)
    made = files(bench, first, tmp_path)
    bench.worker.engine.builds.restart("t")
    assert deliver(bench, first, made).error is not None
    assert awaited_index(bench).ticket != first.ticket


def test_a_disk_that_is_full_at_the_ingest(bench: Building, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alter(bench, BY_A)
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    with monkeypatch.context() as patched:
        def full(*_: Any) -> None:
            raise SqlError(1021, "HY000", "Disk full")

        patched.setattr(bench.store.engine, "ingest", full)
        error = deliver(bench, order, made).error
        assert error is not None and error.code == 1021
    bench.put((ROWS, 3))
    bench.idle()
    assert bench.building() == []
    check_store(bench, tmp_path)


def test_the_table_is_emptied(bench: Building, tmp_path: Path) -> None:
    """An empty table replaces it, with an empty index."""
    alter(bench, BY_A)
    order = awaited_index(bench)
    made = files(bench, order, tmp_path)
    table = bench.store.tables()["t"]
    beside = replace(table, name="t\0beside", table_id=0)
    assert bench.change(packets.Migrate((packets.CreateTable(beside),), ())).error is None
    emptied = replace(bench.store.tables()["t\0beside"], name="t")
    old = "t\0gone"
    steps = packets.AlterTable(replace(table, name=old)), packets.AlterTable(emptied), packets.DropTable(old)
    assert bench.change(packets.Migrate(steps, ())).error is None
    assert deliver(bench, order, made).error is not None
    bench.idle()
    bench.put((1, 3))
    assert bench.building() == []
