"""Damaged files: a cut or missing log does not open, a damaged block costs its table, and nothing is ever silently
missing or wrong."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert
from noria.storage.rocks.errors import StoreDamaged, StoreError
from noria.storage.rocks.sync_mark import FILE
from noria.storage.rocks.wal import damaged_at
from noria.storage.store import RocksStore
from seeds import cases
from storage.damage import (
    BAD,
    GROUPS,
    LOSSES,
    ROWS,
    SMALL,
    closed_logs,
    copied,
    crashed,
    cut,
    file_of,
    filled,
    flip,
    ids,
    logs,
    row,
    write,
)

SEED = int(os.environ.get("NORIA_DAMAGE_SEED", "20261121"))
CASES = int(os.environ.get("NORIA_DAMAGE_CASES") or cases(60))


# ------------------------------------------------------------------ the write-ahead log
@pytest.mark.parametrize("loss", LOSSES)
def test_a_log_that_lost_acknowledged_rows_does_not_open(tmp_path: Path, loss: str) -> None:
    store = filled(tmp_path / "data", 5)
    path = crashed(store)
    whole = copied(path)
    LOSSES[loss](path)
    before = {f.name: f.read_bytes() for f in path.glob("*.log")}
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"noria check --accept-loss") as told:
            RocksStore(str(path), PlainSymbols(), memory=SMALL)
        print(told.value)
    assert {f.name: f.read_bytes() for f in path.glob("*.log")} == before, "what is there stays as it is"
    for name in ([FILE] if "mark" in loss else [log.name for log in logs(whole)]):
        shutil.copy(whole / name, path / name)
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    assert ids(store, "good") == list(range(5 * ROWS)), "brought back, all is there"
    store.close()


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("loss", ["gone", "cut"])
def test_a_closed_log_that_is_missing_or_cut_does_not_open(tmp_path: Path, which: int, loss: str) -> None:
    """Its rows are below the mark: RocksDB's own notes tell."""
    path = crashed(closed_logs(tmp_path / "data"))
    assert len(logs(path)) == 3
    log = logs(path)[which]
    if loss == "gone":
        log.unlink()
    else:
        cut(log, log.stat().st_size // 2)
    with pytest.raises(StoreDamaged, match=rf"{log.name}.*acknowledged rows are missing"):
        RocksStore(str(path), PlainSymbols(), memory=SMALL)


def test_the_damaged_record_of_a_log_is_named(tmp_path: Path) -> None:
    path = crashed(filled(tmp_path / "data", 5))
    for log in logs(path):
        assert damaged_at(log) is None
        size = log.stat().st_size
        if size:
            flip(log, size - 9)
            at = damaged_at(log)
            assert at is not None and size // 2 < at < size
            cut(log, size - 2)
            assert damaged_at(log) is None, "torn is not damaged"


def test_a_record_that_was_never_acknowledged_may_be_torn(tmp_path: Path) -> None:
    store = filled(tmp_path / "data", 5)
    acknowledged = (tmp_path / "data" / FILE).read_bytes()
    write(store, 7)
    path = crashed(store)
    (path / FILE).write_bytes(acknowledged)
    cut(logs(path)[-1], logs(path)[-1].stat().st_size - 3)
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    assert ids(store, "good") == list(range(5 * ROWS)) and store.applied() == (1, 6)
    store.close()


# ------------------------------------------------------------------ files of tables
@pytest.mark.parametrize("family", ["t2", "t2.i1"])
@pytest.mark.parametrize("damage", ["a block", "the footer", "cut", "gone"])
def test_a_damaged_file_costs_its_table_only(tmp_path: Path, family: str, damage: str) -> None:
    store = filled(tmp_path / "data")
    name = file_of(store, family)
    store.close()
    path = tmp_path / "data"
    size = (path / name).stat().st_size
    if damage == "gone":
        (path / name).unlink()
    elif damage == "cut":
        cut(path / name, size // 2)
    else:
        flip(path / name, size // 2 if damage == "a block" else size - 20)
    for start in range(2):
        store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
        with pytest.raises(SqlError) as told:
            store.lookup("bad", (1,), np.arange(7)[None, :])
            ids(store, "bad")
        assert told.value.code == 1194 and name in told.value.message and "'bad'" in told.value.message
        assert store.damage_of("bad") == told.value and store.damage_of("good") is None
        for statement in (Insert("bad", (0, 1, 2), [row(10**6)]), Delete("bad", None)):
            assert store.write([statement], 1, store.applied()[1] + 1)[0][0].error == told.value
        write(store, store.applied()[1] + 1, ("good", "bag"))
        assert len(ids(store, "good")) == len(ids(store, "bag")) == (GROUPS + 1 + start) * ROWS
        store.engine.flush()
        store.engine.family("t1").compact_range(None, None)
        store.close()
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    store.drop_table("bad")
    store.set_recipe(["two tables"], 1, store.applied()[1] + 1)
    store.create_table(BAD)
    store.set_recipe(["three tables"], 1, store.applied()[1] + 1)
    write(store, store.applied()[1] + 1, ("bad",))
    store.close()
    store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    assert store.damage_of("bad") is None and len(ids(store, "bad")) == ROWS, "dropped and loaded again, it is whole"
    store.close()


def test_a_compaction_that_meets_damage_stops_no_other_table(tmp_path: Path) -> None:
    """RocksDB refuses every write after it: the store opens it again, and the write that met this is whole."""
    store = filled(tmp_path / "data")
    name = file_of(store, "t2")
    store.close()
    flip(tmp_path / "data" / name, (tmp_path / "data" / name).stat().st_size // 2)
    store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=SMALL)
    for seq in range(100, 140):  # until new files of `bad` are compacted with its old one
        rows = [row(i) for i in range(seq * 10**5, seq * 10**5 + ROWS)]
        results, _ = store.write([Insert("bad", (0, 1, 2), rows)], 1, seq)
        if results[0].error is not None:
            break
        with suppress(SqlError):
            store.engine.flush()
    results, _ = store.write([Insert("good", (0, 1, 2), [row(10**7)])], 1, 1000)
    assert results[0].affected == 1, results
    assert len(ids(store, "good")) == GROUPS * ROWS + 1
    store.close()
    store = RocksStore(str(tmp_path / "data"), PlainSymbols(), memory=SMALL)
    assert len(ids(store, "good")) == GROUPS * ROWS + 1
    store.close()


# ------------------------------------------------------------------ anything
@pytest.mark.timeout(600)
def test_damage_anywhere_is_told_or_does_not_matter(tmp_path: Path) -> None:
    """A byte changed, a file cut or removed at random places: an error that names a file, or all the right rows."""
    print("seed", SEED)
    draw = random.Random(SEED)
    store = filled(tmp_path / "data")
    whole = list(range(GROUPS * ROWS))
    base = crashed(store)
    names = [n for n in sorted(os.listdir(base)) if n.endswith((".sst", ".log"))
             or n.startswith(("MANIFEST", "CURRENT", "OPTIONS", "IDENTITY", FILE, "rocksdict-config"))]
    told, unhurt = 0, 0
    for case in range(CASES):
        path = copied(base)
        name = draw.choice(names)
        size = (path / name).stat().st_size
        at = draw.randrange(size) if size else 0
        how = draw.choices(["flip", "cut", "gone"], [6, 2, 1])[0]
        if how == "gone":
            (path / name).unlink()
        elif how == "cut" or not size:
            cut(path / name, at)
        else:
            flip(path / name, at)
        outcome = judge(path, whole)
        print(case, name, how, at, size, outcome)
        told, unhurt = told + bool(outcome), unhurt + (not outcome)
    assert told and unhurt


def judge(path: Path, whole: list[int]) -> str:
    """What the store says of its damage; nothing if it has every row."""
    try:
        store = RocksStore(str(path), PlainSymbols(), memory=SMALL)
    except StoreError as e:
        assert str(path) in str(e)
        return str(e)
    said = ""
    try:
        for table in ("good", "bad", "bag"):
            try:
                assert ids(store, table) == whole
                if table != "bag":
                    found, _ = store.lookup(table, (1,), np.arange(7)[None, :])
                    assert sorted(found.columns[0].tolist()) == whole
                assert store.row_count(table) == len(whole)
            except SqlError as e:
                assert e.code == 1194 and ".sst" in e.message
                said = e.message
        return said
    except StoreError as e:
        return str(e)
    finally:
        store.close()
