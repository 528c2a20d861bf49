"""A full disk: every statement is whole or refused with 1021, reads go on, and so do writes once there is space."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from disks import occupy, small_disk
from noria.core.errors import SqlError
from noria.core.expressions.expr import col, const
from noria.core.expressions.functions import call
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert, Update
from noria.core.types import BIGINT, TEXT_BIN, Column, IndexDef, TableDef
from noria.storage.rocks.disk import BALLAST
from noria.storage.rocks.errors import StoreError, disk_full
from noria.storage.rocks.options import RocksMemory
from noria.storage.store import RocksStore

TABLE = TableDef("t", (Column("id", BIGINT, False), Column("body", TEXT_BIN)), (0,), (IndexDef("body", (1,)),))
ROWS = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    with small_disk(mount, 16):
        yield mount


def memory(reserve_bytes: int) -> RocksMemory:
    return RocksMemory(write_buffer_bytes=2**20, family_buffer_bytes=2**20, wal_bytes=2**21,
                       reserve_bytes=reserve_bytes)


def rows_of(seq: int) -> list[tuple[int, str]]:
    return [(seq * ROWS + i, os.urandom(400).hex()) for i in range(ROWS)]


def fill(store: RocksStore) -> tuple[int, SqlError]:
    """Write until it is refused: the seq of the last good write, and the error."""
    seq = store.applied()[1]
    while True:
        results, deltas = store.write([Insert("t", (0, 1), rows_of(seq + 1))], 1, seq + 1)
        if results[0].error is not None:
            assert not deltas
            return seq, results[0].error
        seq += 1


def check(store: RocksStore, seq: int) -> None:
    """All rows of writes 2 to seq and none else, in the table and in its index."""
    batch, after = store.scan("t", None, 10**6)
    assert after is None and batch.columns[0].tolist() == list(range(2 * ROWS, (seq + 1) * ROWS))
    assert store.row_count("t") == len(batch)
    found, _ = store.lookup("t", (1,), batch.columns[1:, ::50])
    assert found.columns[0].tolist() == batch.columns[0, ::50].tolist()


@pytest.mark.parametrize("way", ["stopped before", "hit"])
def test_writes_are_refused_and_go_on_when_there_is_space(disk: Path, way: str) -> None:
    path, others = str(disk / "data"), disk / "others"
    store = RocksStore(path, PlainSymbols(), memory=memory(2**20))
    store.create_table(TABLE)
    store.set_recipe([], 1, 1)
    for seq in range(2, 22):
        store.write([Insert("t", (0, 1), rows_of(seq))], 1, seq)
    occupy(others)
    if way == "hit":
        store.engine._unchecked_bytes = -(2**40)  # others were faster than our look at the free space
    last, error = fill(store)
    assert (error.code, error.state) == (1021, "HY000") and f"Disk full ({path})" in error.message
    assert store.engine.in_doubt == (way == "hit")
    assert fill(store)[0] == last >= 21, "it stays refused"
    for change in (lambda: store.set_recipe(["more"], 1, last + 1), lambda: store.add_index("t", (1, 0)),
                   lambda: store.checkpoint(str(disk / "snapshot"))):
        with pytest.raises(SqlError, match="Disk full"):
            change()
    assert store.recipe() == () and store.applied() == (1, last)
    check(store, last)
    others.unlink()
    results, deltas = store.write([Insert("t", (0, 1), rows_of(last + 1))], 1, last + 1)
    assert results[0].affected == ROWS and len(deltas["t"]) == ROWS
    store.add_index("t", (1, 0))
    store.checkpoint(str(disk / "snapshot"))
    check(store, last + 1)
    store.close()
    store = RocksStore(path, PlainSymbols(), memory=memory(2**20))
    check(store, last + 1)
    store.close()


@pytest.mark.parametrize("space", [True, False])
def test_a_failed_write_that_is_on_disk_after_all(tmp_path: Path, space: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log took the write, syncing it failed.  With space again it counts; when it was refused already,
    memory does not have it, and only a new start helps."""
    store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=memory(0))
    store.create_table(TABLE)
    store.set_recipe([], 1, 1)
    real = store.engine._guarded

    def fails_behind(action: Callable[[], object]) -> None:
        real(action)
        store.engine.in_doubt = True
        raise disk_full(store.path, "the write found no space")

    monkeypatch.setattr(store.engine, "_guarded", fails_behind)
    monkeypatch.setattr(store.engine.space, "suffices", lambda nbytes: space)
    store.engine._unchecked_bytes = -(2**40)
    results, deltas = store.write([Insert("t", (0, 1), rows_of(2))], 1, 2)
    monkeypatch.undo()
    if space:
        assert results[0].affected == ROWS and len(deltas["t"]) == ROWS
        assert store.write([Insert("t", (0, 1), rows_of(3))], 1, 3)[0][0].affected == ROWS
    else:
        assert results[0].error is not None and results[0].error.code == 1021 and not deltas
        with pytest.raises(StoreError, match="start the worker again"):
            store.write([Insert("t", (0, 1), rows_of(3))], 1, 3)
    store.close()
    store = RocksStore(str(tmp_path / "data"), PlainSymbols())
    check(store, 3 if space else 2)
    store.close()


def test_opening_on_a_full_disk_says_so(disk: Path) -> None:
    path = disk / "data"
    store = RocksStore(str(path), PlainSymbols(), memory=memory(0))
    store.create_table(TABLE)
    store.set_recipe([], 1, 1)
    store.write([Insert("t", (0, 1), rows_of(2))], 1, 2)
    store.close()
    occupy(disk / "others")
    with pytest.raises(StoreError, match="no space left"):
        RocksStore(str(path), PlainSymbols(), memory=memory(0))
    (disk / "others").unlink()
    store = RocksStore(str(path), PlainSymbols(), memory=memory(0))
    check(store, 2)
    store.close()


def rest(store: RocksStore) -> None:
    """Until all is in files and nothing more is on its way to one, not even by itself later: a flush or a compaction
    that a full disk stops would be tried again for ever, one that ends would make room."""
    for family in store.engine._families.values():
        family.set_options({"disable_auto_compactions": "true"})
    store.engine.flush()
    busy = ("rocksdb.num-running-flushes", "rocksdb.num-running-compactions")
    ends = time.monotonic() + 60
    while any(f.property_int_value(p) for f in store.engine._families.values() for p in busy):
        assert time.monotonic() < ends, "it never rests"


def test_rows_and_tables_go_from_a_full_disk(disk: Path) -> None:
    """The ballast makes room for what shrinks the data; it is there again when there is space."""
    store = RocksStore(str(disk / "data"), PlainSymbols(), memory=memory(2**20))
    store.create_table(TABLE)
    store.create_table(replace(TABLE, name="other"))
    store.set_recipe([], 1, 1)
    for seq in range(2, 30):
        store.write([Insert("t", (0, 1), rows_of(seq))], 1, seq)
    ballast = disk / "data" / BALLAST
    assert ballast.stat().st_size == 2**19
    rest(store)
    occupy(disk / "others")
    last, error = fill(store)
    assert error.code == 1021 and "DROP TABLE" in error.message
    deleted = 0
    while ballast.exists():  # a log that RocksDB removes now makes room, too
        deleted += 1
        occupy(disk / f"others{deleted}")
        store.engine._unchecked_bytes = 2**62
        first = call("lt", col(0, BIGINT), const((2 + deleted) * ROWS, BIGINT))
        results, deltas = store.write([Delete("t", first)], 1, last + deleted)
        assert (results[0].error, results[0].affected) == (None, ROWS) and len(deltas["t"]) == ROWS
    last += deleted
    store.drop_table("t")
    store.set_recipe(["other"], 1, last + 1)
    results, _ = store.write([Insert("other", (0, 1), rows_of(last + 2))], 1, last + 2)
    for path in disk.glob("others*"):
        path.unlink()
    store.engine._unchecked_bytes = 2**62
    results, _ = store.write([Insert("other", (0, 1), rows_of(last + 3))], 1, last + 3)
    assert results[0].affected == ROWS and ballast.exists()
    store.close()


def test_what_is_decided_is_done_with_the_ballast(disk: Path) -> None:
    """Others have taken all room since it was prepared: whoever waits for it waits no longer for that."""
    store = RocksStore(str(disk / "data"), PlainSymbols(), memory=memory(2**20))
    store.create_table(TABLE)
    store.set_recipe([], 1, 1)
    for seq in range(2, 22):
        store.write([Insert("t", (0, 1), rows_of(seq))], 1, seq)
    assert store.prepare([Insert("t", (0, 1), rows_of(22))], "g", 1, 1, 22)[0].error is None
    rest(store)
    occupy(disk / "others")
    store.engine._unchecked_bytes = 2**62
    results, deltas = store.decide("g", True, 1, 23)
    assert (results[0].error, results[0].affected) == (None, ROWS) and len(deltas["t"]) == ROWS
    assert not (disk / "data" / BALLAST).exists()
    check(store, 22)
    store.close()


def test_what_would_not_fit_is_not_prepared(disk: Path) -> None:
    """Of an UPDATE, which takes little itself, all the rows that it changes count."""
    store = RocksStore(str(disk / "data"), PlainSymbols(), memory=memory(2**20))
    store.create_table(TABLE)
    store.set_recipe([], 1, 1)
    for seq in range(2, 14):
        store.write([Insert("t", (0, 1), rows_of(seq))], 1, seq)
    update = Update("t", ((1, call("concat", col(1, TEXT_BIN), const("!", TEXT_BIN))),), None)
    with open(disk / "others", "wb") as file:
        os.posix_fallocate(file.fileno(), 0, store.engine.space.free_bytes() - 3 * 2**20)
    results = store.prepare([update], "g", 1, 1, 14)
    assert results[0].error is not None and results[0].error.code == 1021
    assert store.groups() == ((), ())
    check(store, 13)
    (disk / "others").unlink()
    assert store.prepare([update], "g", 1, 1, 15)[0].affected == 12 * ROWS
    assert store.decide("g", True, 1, 16)[0][0].affected == 12 * ROWS
    store.close()
