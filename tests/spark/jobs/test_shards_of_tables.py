"""Tables in the stores of several workers: what is loaded into them, snapshots of them all, and who has which row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import INT, TEXT, Column, IndexDef, TableDef
from noria.dataflow.messages.packets import Ingest
from noria.spark.jobs import snapshot
from noria.spark.jobs.verify import verify
from noria.spark.loading.load import LoadSpec, load
from noria.storage.store import RocksStore
from noria.storage.tables.shards import owners, shard_path, spread_families

pytestmark = pytest.mark.spark
WORKERS = 3
USERS = TableDef("users", (Column("id", INT, False), Column("name", TEXT, False), Column("age", INT)), (1, 0),
                 (IndexDef("unique_name", (1,), True), IndexDef("by_age", (2,), False)))
ONE = TableDef("one", (Column("id", INT, False), Column("email", TEXT, False)), (0,),
               (IndexDef("unique_email", (1,), True),))
LOG = TableDef("log", (Column("at", INT), Column("text", TEXT)), (), (IndexDef("by_at", (0,), False),))


def stores(path: Path) -> list[RocksStore]:
    made = []
    for w in range(WORKERS):
        store = RocksStore(str(path / f"data-{w}"), PlainSymbols())
        for t in (USERS, ONE, LOG):
            store.create_table(t)
        store.set_recipe((), 1, 1)
        made.append(store)
    return made


def loaded(spark: SparkSession, path: Path, to: list[RocksStore], name: str, rows: list[tuple[Any, ...]],
           seq: int) -> Ingest:
    """What each worker is to take of these rows."""
    table = to[0].tables()[name]
    columns = [[*c] for c in zip(*rows, strict=True)]
    file = str(path / f"{name}-{seq}.parquet")
    pq.write_table(pa.table(columns, names=[c.name for c in table.columns]), file, row_group_size=200)
    indexes = tuple((i.columns, i.unique) for i in to[0].table(name).indexes)
    report = load(spark, spec=LoadSpec(table, (file,), str(path / f"sst-{seq}"), str(path / "rejects"),
                                       indexes=indexes, workers=len(to)))
    assert report.rows == len(rows) == sum(n for _, n in report.shards)
    return Ingest(name, report.files, report.rows, report.auto_increment, report.shards)


def take(to: list[RocksStore], ingest: Ingest, seq: int) -> None:
    for w, store in enumerate(to):
        mine = ingest.of(w)
        store.ingest(mine.table, {f: list(p) for f, p in mine.files}, mine.rows, mine.auto_increment, 1, seq)


def refusal(to: list[RocksStore], ingest: Ingest) -> set[int]:
    """The errors of the workers that would refuse it."""
    found = set()
    for w, store in enumerate(to):
        check = ingest.check_of(w, spread_families(store.tables()[ingest.table]))
        try:
            store.check_ingest(check.table, {f: list(p) for f, p in check.files}, check.rows,
                               {f: list(p) for f, p in check.others})
        except SqlError as e:
            found.add(e.code)
    return found


def test_rows_are_loaded_where_they_belong_and_read_from_all(spark: SparkSession, tmp_path: Path) -> None:
    to = stores(tmp_path)
    users = [(i, f"Name {i}" if i % 2 else f"NAME É {i}", i % 7) for i in range(600)]
    ones = [(i, f"{i}@x") for i in range(50)]
    log = [(i % 5, f"line {i % 40}") for i in range(600)]
    for seq, (name, rows) in enumerate([("users", users), ("one", ones), ("log", log)], 2):
        ingest = loaded(spark, tmp_path, to, name, rows, seq)
        assert refusal(to, ingest) == set()
        take(to, ingest, seq)
    assert min(s.row_count("users") for s in to) > 100 and min(s.row_count("log") for s in to) > 100
    assert min(s.row_count("one") for s in to) > 5

    again = loaded(spark, tmp_path, to, "users", [(7_000, "name 1", 1), (7_001, "other", 1)], 9)
    assert refusal(to, again) == {1062}
    assert sum(s.row_count("users") for s in to) == 600
    first, *_, last = sorted(range(90, 99), key=lambda i: owners(ONE, {0: pa.array([i])}, 1, WORKERS).tolist())
    for seq, some in enumerate(([(first, "NEW@x"), (last, "new@X")], [(80 + i, f"{i + 7}@X") for i in range(9)]), 10):
        assert refusal(to, loaded(spark, tmp_path, to, "one", some, seq)) == {1062}
    assert sum(s.row_count("one") for s in to) == 50

    path = str(tmp_path / "snapshot")
    Path(path).mkdir()
    for w, store in enumerate(to):
        store.checkpoint(shard_path(path, w, WORKERS))
    tables = list(to[0].tables().values())
    frames = snapshot.tables(snapshot.session(spark), path, tables)
    for name, rows in (("users", users), ("one", ones), ("log", log)):
        assert Counter(tuple(r) for r in frames[name].collect()) == Counter(rows)
    assert verify(spark, checkpoint=path, tables=tables, views=()).ok

    wrong, = owners(USERS, {1: pa.array(["astray"])}, 1, WORKERS).tolist()
    at = (wrong + 1) % WORKERS
    result = to[at].write([Insert("users", (0, 1, 2), [(9_000, "astray", 1)])], 1, 20)[0][0]
    assert result.error is None
    for w in range(2):  # past all that keeps them apart
        mine = next(i for i in range(100, 200) if owners(ONE, {0: pa.array([i])}, 1, WORKERS).tolist() == [w])
        assert to[w].write([Insert("one", (0, 1), [(mine, "twice" if w else "TWICE")])], 1, 21)[0][0].error is None
    path = str(tmp_path / "later")
    Path(path).mkdir()
    for w, store in enumerate(to):
        store.checkpoint(shard_path(path, w, WORKERS))
        store.close()
    spark.sparkContext.setJobGroup("placed", "")
    assert {m.table for m in snapshot.misplaced(spark, path, tables)} == {"users"}
    assert snapshot.misplaced(spark, path, [ONE, LOG]) == []
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup("placed")) == 1, "whatever the tables"
    report = verify(spark, checkpoint=path, tables=tables, views=())
    found, repeated = report.misplaced
    assert str(repeated) == "1 values of the UNIQUE index unique_email are of several rows"
    assert not report.ok and (found.table, found.worker, found.owner, found.rows) == ("users", at, wrong, 1)
    assert "astray" in str(found)
