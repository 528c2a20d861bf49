"""A limit holds for everything a worker keeps, under reads that sweep over ten times as much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import noria
from noria.dataflow.messages.packets import Inspect, SetLimit

LIMIT = 8 * 2**20
ROWS, BATCH = 120_000, 4_000
OVER = 0.25  # of the limit, between two looks at it: a batch of reads at each worker, and strings until the next sweep


def ask(db: Any, what: Any) -> Any:
    transport: Any = db.transport
    return transport.run(transport.executor.ask(what))


def test_a_limit_set_while_serving(tmp_path: Path) -> None:
    """Caches and write buffers, made for a larger one, shrink too."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE points (id INT PRIMARY KEY, x INT, y INT)")
        db.sql("CREATE VIEW ById AS SELECT id, x, y FROM points WHERE id = ?")
        ids = list(range(300_000))
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            db.table("points").insert(pa.table({"id": part, "x": part, "y": part}))
        view = db.view("ById")
        assert view.lookup_many(ids).num_rows == len(ids)
        assert ask(db, Inspect(0, "stats"))["memory"] > 2 * LIMIT
        ask(db, SetLimit(LIMIT // db.transport.link.workers))
        stats = ask(db, Inspect(0, "stats"))
        assert stats["memory"] <= LIMIT and stats["storage"] <= LIMIT // 4
        assert view.lookup_many(ids[:BATCH]).num_rows == BATCH


def test_reads_over_ten_times_the_limit(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data", memory_limit=LIMIT) as db:
        transport: Any = db.transport

        def stats() -> dict[str, Any]:
            found: dict[str, Any] = transport.run(transport.executor.ask(Inspect(0, "stats")))
            return found

        db.sql("CREATE TABLE people (id INT PRIMARY KEY, name VARCHAR(200), town VARCHAR(200))")
        db.sql("CREATE VIEW ById AS SELECT id, name, town FROM people WHERE id = ?")
        for start in range(0, ROWS, BATCH):
            ids = list(range(start, start + BATCH))
            db.table("people").insert(pa.table({
                "id": ids, "name": [f"somebody whose name is long {i} " + "x" * 100 for i in ids],
                "town": [f"a town far away {i // 2} " + "y" * 100 for i in ids]}))
        view, most = db.view("ById"), 0
        for _ in range(2):
            for start in range(0, ROWS, BATCH):
                found = view.lookup_many(list(range(start, start + BATCH)))
                assert found.num_rows == BATCH
                assert found.column(1)[7].as_py().startswith(f"somebody whose name is long {start + 7} x")
                most = max(most, stats()["memory"])
        last = stats()
        assert most < (1 + OVER * transport.link.workers) * LIMIT, f"{most} bytes of {LIMIT}"
        assert last["evictions"] > ROWS and last["sweeps"] > 5 and last["essential"] == 0
        assert view.lookup(7)[0][0] == 7
