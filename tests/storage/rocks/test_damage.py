"""Damaged files: a cut or missing log does not open, a damaged block costs its table, and nothing is ever silently
missing or wrong."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.errors import SqlError
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Delete, Insert
from noria.core.types import BIGINT, TEXT_BIN, Column, IndexDef, TableDef
from noria.storage.rocks.engine import META, Memory
from noria.storage.rocks.errors import StoreDamaged, StoreError
from noria.storage.rocks.mark import FILE
from noria.storage.rocks.wal import damaged_at
from noria.storage.store import RocksStore

SEED = int(os.environ.get("NORIA_DAMAGE_SEED", "20261121"))
CASES = int(os.environ.get("NORIA_DAMAGE_CASES", "60"))
COLUMNS = (Column("id", BIGINT, False), Column("part", BIGINT), Column("body", TEXT_BIN))
GOOD, BAD = (TableDef(name, COLUMNS, (0,), (IndexDef("part", (1,)),)) for name in ("good", "bad"))
BAG = TableDef("bag", COLUMNS)
SMALL = Memory(write_buffer_bytes=2**18, family_buffer_bytes=2**17, reserve_bytes=0)
ROOMY = Memory(write_buffer_bytes=2**24, family_buffer_bytes=2**23, reserve_bytes=0)  # flushes when told to, only
ROWS, GROUPS = 100, 30


def body(id: int) -> str:
    return random.Random(id).randbytes(100).hex()


def row(id: int) -> tuple[int, int, str]:
    return id, id % 7, body(id)


def filled(path: Path, groups: int = GROUPS, memory: Memory = SMALL) -> RocksStore:
    """Three tables of groups * ROWS rows; with little memory the last groups are in the log only."""
    store = RocksStore(str(path), PlainSymbols(), memory=memory)
    for table in (GOOD, BAD, BAG):
        store.create_table(table)
    store.set_recipe(["three tables"], 1, 1)
    for seq in range(2, groups + 2):
        write(store, seq)
    return store


def write(store: RocksStore, seq: int, tables: tuple[str, ...] = ("good", "bad", "bag")) -> None:
    rows = [row(i) for i in range((seq - 2) * ROWS, (seq - 1) * ROWS)]
    results, _ = store.write([Insert(t, (0, 1, 2), rows) for t in tables], 1, seq)
    for result in results:
        if result.error is not None:
            raise result.error


def closed_logs(path: Path) -> RocksStore:
    """Two closed logs, which RocksDB keeps for `bad` and `bag`, and an open one with rows of `good` only."""
    store = filled(path, 2, ROOMY)
    for seq in (4, 5):
        for family in ("t1", META):
            store._engine.family(family).flush()
        write(store, seq, ("good",))
    return store


def crashed(store: RocksStore) -> Path:
    """A copy of the directory as a kill of the process leaves it."""
    store._engine._db.cancel_all_background(True)  # files do not go while they are copied
    copy = copied(Path(store.path))
    store.close()
    return copy


def copied(path: Path) -> Path:
    copy = path.with_name(path.name + "-copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    return copy


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def flip(path: Path, at: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 0x10]))


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def ids(store: RocksStore, table: str) -> list[int]:
    """Every row by a scan, checked."""
    batch, after = store.scan(table, None, 10**6)
    assert after is None
    texts = store._symbols.texts(batch.columns[2]).to_pylist()
    assert all(text == body(i) and part == i % 7 for i, part, text in
               zip(batch.columns[0].tolist(), batch.columns[1].tolist(), texts, strict=True))
    return sorted(batch.columns[0].tolist())


def file_of(store: RocksStore, family: str) -> str:
    """An SST file of a family."""
    store._engine.flush()
    store._engine.family(family).compact_range(None, None)
    listed = store._engine.family(family).property_value("rocksdb.sstables")
    number = int(re.findall(r"^ *(\d+):", listed, re.MULTILINE)[0])
    return f"{number:06d}.sst"


# ------------------------------------------------------------------ the write-ahead log
LOSSES: dict[str, Callable[[Path], Any]] = {
    "the last log gone": lambda p: logs(p)[-1].unlink(),
    "all logs gone": lambda p: [log.unlink() for log in logs(p)],
    "the last log cut in half": lambda p: cut(logs(p)[-1], logs(p)[-1].stat().st_size // 2),
    "the last log cut by a byte": lambda p: cut(logs(p)[-1], logs(p)[-1].stat().st_size - 1),
    "the last log empty": lambda p: cut(logs(p)[-1], 0),
    "a record damaged": lambda p: flip(logs(p)[-1], logs(p)[-1].stat().st_size // 2),
    "the last record damaged": lambda p: flip(logs(p)[-1], logs(p)[-1].stat().st_size - 9),
    "the mark gone": lambda p: (p / FILE).unlink(),
    "the mark damaged": lambda p: flip(p / FILE, 9),
}


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
        store._engine.flush()
        store._engine.family("t1").compact_range(None, None)
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
            store._engine.flush()
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
