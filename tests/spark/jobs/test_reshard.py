"""A data directory for another number of workers: every row is there once, at its worker, with its index entries."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import noria
from noria.client import Database
from noria.control.processes.leases import Claim
from noria.core.keys import shard_of
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import INT
from noria.dataflow.messages.packets import Inspect, Write
from noria.spark.jobs import reshard as job
from noria.storage.offline import resharding
from noria.storage.offline.check import StoreCheck
from noria.storage.rocks.errors import StoreError
from noria.storage.store import RocksStore
from noria.storage.tables.shards import BEFORE, RESHARD, SWITCH, bases, check_workers, workers_of
from seeds import seed
from spark.resharded import to

pytestmark = pytest.mark.spark
TABLES = (
    "CREATE TABLE numbers (id BIGINT PRIMARY KEY AUTO_INCREMENT, n INT, d DECIMAL(18,6), INDEX (n))",
    "CREATE TABLE pairs (a INT, b VARCHAR(20) COLLATE utf8mb4_0900_ai_ci, c DOUBLE, PRIMARY KEY (b, a), UNIQUE (c))",
    "CREATE TABLE exact (t VARCHAR(20) COLLATE utf8mb4_bin PRIMARY KEY, x VARBINARY(9), day DATE, at DATETIME(6))",
    "CREATE TABLE bag (n INT, t TEXT, INDEX (n))",
    "CREATE TABLE empty (id INT PRIMARY KEY)",
)
VIEW = "CREATE VIEW counted AS SELECT n, COUNT(*) AS c, MAX(t) AS most FROM bag WHERE n = ? GROUP BY n"
READS = ("SELECT * FROM numbers", "SELECT * FROM pairs", "SELECT * FROM exact", "SELECT * FROM bag",
         "SELECT n, COUNT(*) AS c FROM numbers GROUP BY n")


def filled(path: Path, workers: int, rng: random.Random, rows: int) -> list[list[Any]]:
    """What is read of it."""
    words = ["", "a", "A", "é", "e", "zz €", "x" * 15]
    with noria.open(path, workers=workers) as db:
        for text in (*TABLES, VIEW):
            db.sql(text)
        for i in range(rows):
            n = rng.choice([None, *range(9)])
            db.sql("INSERT INTO numbers (n, d) VALUES (?, ?)",
                   [n, rng.choice([None, "-0.000001", f"{10**12 - 1 - i}.000001"])])
            db.sql("REPLACE INTO pairs VALUES (?, ?, ?)", [rng.randrange(9), rng.choice(words),
                   rng.choice([None, i / 7])])
            db.sql("REPLACE INTO exact VALUES (?, ?, ?, ?)", [
                f"{rng.choice(words)}{i % 20}", rng.choice([None, b"\0\xff"]), rng.choice([None, "2024-02-29"]),
                "2024-01-01 10:00:00.000001"])
            db.sql("INSERT INTO bag VALUES (?, ?), (?, ?)", [n, rng.choice(words)] * 2)
        db.sql("DELETE FROM numbers WHERE n = 3")
        db.sql("ALTER TABLE exact ADD COLUMN more INT DEFAULT 7")
        db.sql("INSERT INTO exact (t, more) VALUES ('last', 8)")
        return read(db)


def read(db: Database) -> list[list[Any]]:
    found = [sorted(map(tuple, db.sql(q)), key=repr) for q in READS]
    return [*found, *([tuple(r) for r in db.sql("SELECT * FROM counted WHERE n = ?", [n])] for n in range(9))]


def whole(path: Path, workers: int, wanted: list[list[Any]]) -> None:
    for w, base in enumerate(bases(path)):
        assert StoreCheck(str(base), lambda *step: None, worker=w, workers=workers).run().findings == []
    assert workers_of(path) == workers
    with noria.open(path, workers=workers) as db:
        assert read(db) == wanted


@pytest.mark.parametrize("way", [(1, 3, 2), (2, 1)], ids=str)
def test_from_some_workers_to_others(tmp_path: Path, way: tuple[int, ...]) -> None:
    rng = random.Random(str(way))
    wanted = filled(tmp_path / "data", way[0], rng, 30)
    for before, workers in pairwise(way):
        with pytest.raises(StoreError, match="noria reshard"):
            check_workers(tmp_path / "data", workers)
        to(tmp_path / "data", workers)
        whole(tmp_path / "data", workers, wanted)
        whole(tmp_path / "data" / BEFORE, before, wanted)
        with pytest.raises(StoreError, match="earlier reshard"):
            to(tmp_path / "data", workers + 1)
        resharding.forget(tmp_path / "data")
    with noria.open(tmp_path / "data", workers=way[-1]) as db:
        top = max(r[0] for r in wanted[0])
        db.sql("INSERT INTO numbers (n) VALUES (1)")
        assert max(r[0] for r in db.sql("SELECT id FROM numbers")) > top
        db.sql("INSERT INTO bag VALUES (1, 'new')")
        assert len(db.sql("SELECT * FROM bag")) == len(wanted[3]) + 1


def test_again_brings_rows_to_their_workers(tmp_path: Path) -> None:
    """Rows at another worker than their own are read and deleted by what asks all workers, and brought back."""
    data = tmp_path / "data"
    wanted = filled(data, 2, random.Random(5), 30)
    ids = [i for i in range(1001, 1021) if int(shard_of([np.array([i])], [INT], 2)[0])]
    claim = Claim(data)
    store = RocksStore(str(data / "worker-0" / "base"), PlainSymbols())
    store.write([Insert("numbers", (0, 1), [(i, 3) for i in ids])], claim.next_epoch(), 1)
    store.close()
    claim.release()
    with noria.open(data, workers=2) as db:
        db.sql(f"DELETE FROM numbers WHERE id + 0 = {ids[0]}")
        found = read(db)
    assert [r[0] for r in found[0] if r not in wanted[0]] == ids[1:]
    assert "nothing to do" in to(data, 2)
    assert to(data, 2, again=True).startswith("has 2 workers, each row at the worker that it belongs to; 5 tables")
    whole(data, 2, found)


@pytest.mark.long
def test_large_tables_by_spark(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "LITTLE_ROWS", 100)
    monkeypatch.setattr(job, "PART_ROWS", 20)
    wanted = filled(tmp_path / "data", 2, random.Random(2), 70)
    to(tmp_path / "data", 3, lambda: spark)
    whole(tmp_path / "data", 3, wanted)
    assert not (tmp_path / "data" / RESHARD).exists()


KILLED = """
import os, sys
sys.path.insert(0, "tests")
from pathlib import Path
from spark.resharded import to
left = int(sys.argv[3])

def line(frame, event, argument):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), 9)
    return line

sys.settrace(lambda frame, event, argument: line if frame.f_code.co_filename.endswith("resharding.py") else None)
to(Path(sys.argv[1]), int(sys.argv[2]))
"""


def killed(path: Path, workers: int, line: int) -> bool:
    """Was it, at so many lines of what makes the steps?  A process of its own."""
    run = subprocess.run([sys.executable, "-c", KILLED, str(path), str(workers), str(line)], capture_output=True,
                         text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                         cwd=Path(__file__).parents[3])
    assert run.returncode in (0, -9), run.stderr
    return run.returncode != 0


def test_killed_anywhere_it_goes_on(tmp_path: Path) -> None:
    rng, way = random.Random(seed()), (3, 2)
    wanted = filled(tmp_path / "data", way[0], rng, 12)
    lines = []
    for _ in range(4):
        lines.append(rng.randrange(1, 450))
        print("killed at line", lines)  # pytest shows it of a test that fails
        if not killed(tmp_path / "data", way[1], lines[-1]):
            break
        if not (tmp_path / "data" / RESHARD / SWITCH).exists():
            if workers_of(tmp_path / "data") == way[0] and rng.random() < 0.4:
                whole(tmp_path / "data", way[0], wanted)  # a server may run meanwhile
        else:
            with pytest.raises(StoreError, match="run noria reshard again"):
                workers_of(tmp_path / "data")
    to(tmp_path / "data", way[1])
    whole(tmp_path / "data", way[1], wanted)
    whole(tmp_path / "data" / BEFORE, way[0], wanted)


def test_what_is_written_after_a_kill_is_not_lost(tmp_path: Path) -> None:
    filled(tmp_path / "data", 2, random.Random(3), 5)
    assert killed(tmp_path / "data", 1, 280) and (tmp_path / "data" / RESHARD).exists()
    with noria.open(tmp_path / "data", workers=2) as db:
        db.sql("INSERT INTO empty VALUES (5)")
        wanted = read(db)
    to(tmp_path / "data", 1)
    whole(tmp_path / "data", 1, wanted)
    with noria.open(tmp_path / "data", workers=1) as db:
        assert list(map(tuple, db.sql("SELECT * FROM empty"))) == [(5,)]


@pytest.mark.parametrize("decided", [True, False])
def test_what_was_prepared_is_decided_first(tmp_path: Path, decided: bool) -> None:
    with noria.open(tmp_path / "data", workers=2) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    stores = [RocksStore(str(base), PlainSymbols()) for base in bases(tmp_path / "data")]
    rows: list[list[tuple[int]]] = [[], []]
    for i in range(20):
        rows[int(shard_of([np.array([i])], [INT], 2)[0])].append((i,))
    stores[1].prepare([Insert("t", (0,), rows[1])], "9.1", 0, 9, 1)
    if decided:
        stores[0].write([Insert("t", (0,), rows[0])], 9, 1, group="9.1")
    for store in stores:
        store.close()
    (tmp_path / "data" / "epoch").write_text("9")
    to(tmp_path / "data", 3)
    with noria.open(tmp_path / "data", workers=3) as db:
        assert len(db.sql("SELECT * FROM t")) == (20 if decided else 0)


def test_too_little_room_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = filled(tmp_path / "data", 1, random.Random(4), 3)
    monkeypatch.setattr(resharding, "ROOM", 1e12)
    with pytest.raises(StoreError, match="make room; nothing was changed"):
        to(tmp_path / "data", 2)
    assert not (tmp_path / "data" / RESHARD).exists()
    whole(tmp_path / "data", 1, wanted)


def test_a_row_that_is_lost_is_found_before_the_switch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = filled(tmp_path / "data", 2, random.Random(5), 9)
    dealt = job.deal

    def losing(*arguments: Any) -> Any:
        for worker, made in dealt(*arguments):
            yield worker, [b.slice(1) if arguments[1].name == "bag" and worker == 0 else b for b in made]

    monkeypatch.setattr(job, "deal", losing)
    with pytest.raises(StoreError, match=r"table bag had 18 rows and would have 1\d"):
        to(tmp_path / "data", 3)
    whole(tmp_path / "data", 2, wanted)


def test_what_was_done_once_is_remembered(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data", workers=2) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        transport: Any = db.transport
        transport.run(transport.link.change(Write((), idempotency_key="once:nightly/7")))
    to(tmp_path / "data", 3)
    with noria.open(tmp_path / "data", workers=3) as db:
        transport = db.transport
        assert transport.run(transport.executor.ask(Inspect(0, "remembered names", ""))) == ["once:nightly/7"]
