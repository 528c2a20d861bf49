"""Directories of several workers: whose they are, and backups of them all."""

from __future__ import annotations

from pathlib import Path

import pytest

from noria.core.errors import internal_error
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.keys import hasher, shard_of_key
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Move, Update
from noria.core.types import BIGINT, INT, TEXT, Column, TableDef
from noria.dataflow.graph.request_limits import RequestLimits
from noria.storage.offline import backup
from noria.storage.rocks.errors import StoreError
from noria.storage.store import RocksStore
from noria.storage.tables.shards import (
    Misrouted,
    Shard,
    bases,
    check_workers,
    shard_path,
    shards_of,
    workers_of,
)
from storage.damage import filled, ids


@pytest.mark.parametrize("workers", [1, 3])
def test_a_directory_is_for_as_many_workers_as_wrote_it(tmp_path: Path, workers: int) -> None:
    check_workers(tmp_path, workers)
    for w in range(workers):
        (tmp_path / f"worker-{w}" / "base").mkdir(parents=True)
    check_workers(tmp_path, workers)
    assert workers_of(tmp_path) == len(bases(tmp_path)) == workers
    with pytest.raises(StoreError, match=f"start with --workers {workers}"):
        check_workers(tmp_path, 2)


def test_a_directory_without_a_store_is_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no data directory"):
        bases(tmp_path)
    (tmp_path / "workers").write_text("many")
    with pytest.raises(StoreError, match="does not say how many"):
        workers_of(tmp_path)


def test_a_row_of_another_worker_is_not_let_in(tmp_path: Path) -> None:
    """Nothing of its statement is; what lies at a wrong worker already is read, changed and deleted."""
    table = TableDef("t", (Column("id", BIGINT, False), Column("name", TEXT, False), Column("n", INT)), (0, 1))
    hashers = [hasher(BIGINT), hasher(TEXT)]
    here, there = [[(i, "é", 0) for i in range(20) if shard_of_key([i, "é"], hashers, 2) == w] for w in (1, 0)]
    store = RocksStore(str(tmp_path / "base"), PlainSymbols())
    store.create_table(table)
    store.set_recipe([], 1, 1)
    store.write([Insert("t", (0, 1, 2), there[:3])], 1, 2)
    packed = store.table("t").rows(store.scan("t", None, 3)[0].columns[:, 2:])
    store.write([Delete("t", call("eq", col(0, BIGINT), const(there[2][0], BIGINT)))], 1, 3)
    store.close()
    store = RocksStore(str(tmp_path / "base"), PlainSymbols(), shard=Shard(1, 2))
    told = "a row of table t came to worker 1 and belongs to worker 0"
    for wrong in (Insert("t", (0, 1, 2), [*here[:3], there[2]]), Move("t", (), tuple(packed)),
                  Insert("t", (0, 1, 2), [there[2]], "replace")):
        with pytest.raises(Misrouted, match=told):
            store.write([wrong], 1, 4)
    noted: list[Exception] = []
    work = RequestLimits(lambda: 0.0, on_defect=lambda bug: noted.append(bug) or internal_error("W1.1.1"))
    results, _ = store.write([Insert("t", (0, 1, 2), [row]) for row in (here[0], there[2], here[1])], 1, 4, work)
    assert [r.error is None for r in results] == [True, False, True] and [type(n) for n in noted] == [Misrouted]
    at = call("eq", col(0, BIGINT), const(there[0][0], BIGINT))
    assert store.write([Update("t", ((2, const(7, INT)),), at)], 1, 5)[0][0].affected == 1
    assert sorted(store.scan("t", None, 9)[0].columns[0].tolist()) == sorted(r[0] for r in (*there[:2], *here[:2]))
    assert store.write([Delete("t", at)], 1, 6)[0][0].affected == 1
    store.close()


def test_a_snapshot_that_lacks_a_worker_is_refused(tmp_path: Path) -> None:
    assert shards_of(str(tmp_path)) == [str(tmp_path)]
    for w in (0, 2):
        Path(shard_path(str(tmp_path), w, 3)).mkdir()
    with pytest.raises(StoreError, match="has no worker-1"):
        shards_of(str(tmp_path))


def test_a_backup_has_all_workers(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    held = []
    for w in range(2):
        store = filled(tmp_path / f"data-{w}", w + 2)
        store.checkpoint(shard_path(str(tmp_path / "checkpoint"), w, 2))
        held.append(ids(store, "good"))
        store.close()
    about = backup.make(tmp_path / "checkpoint", tmp_path / "b", "now", "0", lambda done, total: None)
    assert about.tables["good"] == sum(map(len, held)) and len(held[0]) != len(held[1])
    assert backup.restore(tmp_path / "b", tmp_path / "new", lambda done, total: None) == about
    assert workers_of(tmp_path / "new") == 2
    for base, wanted in zip(bases(tmp_path / "new"), held, strict=True):
        store = RocksStore(str(base), PlainSymbols())
        assert ids(store, "good") == wanted
        store.close()
    (tmp_path / "b" / "base" / "worker-1" / "CURRENT").unlink()
    with pytest.raises(backup.BackupError, match="worker-1/CURRENT is missing"):
        backup.restore(tmp_path / "b", tmp_path / "other", lambda done, total: None)
