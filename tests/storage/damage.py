"""Stores of known rows, and ways to damage their files."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import Insert
from noria.core.types import BIGINT, TEXT_BIN, Column, IndexDef, TableDef
from noria.storage.rocks.engine import META
from noria.storage.rocks.options import RocksMemory
from noria.storage.rocks.sync_mark import FILE
from noria.storage.store import RocksStore

COLUMNS = (Column("id", BIGINT, False), Column("part", BIGINT), Column("body", TEXT_BIN))
GOOD, BAD = (TableDef(name, COLUMNS, (0,), (IndexDef("part", (1,)),)) for name in ("good", "bad"))
BAG = TableDef("bag", COLUMNS)
SMALL = RocksMemory(write_buffer_bytes=2**18, family_buffer_bytes=2**17, reserve_bytes=0, part_entries=0)
ROOMY = replace(SMALL, write_buffer_bytes=2**24, family_buffer_bytes=2**23)  # flushes when told to, only
ROWS, GROUPS = 100, 30


def body(id: int) -> str:
    return random.Random(id).randbytes(100).hex()


def row(id: int) -> tuple[int, int, str]:
    return id, id % 7, body(id)


def filled(path: Path, groups: int = GROUPS, memory: RocksMemory = SMALL) -> RocksStore:
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
            store.engine.family(family).flush()
        write(store, seq, ("good",))
    return store


def crashed(store: RocksStore) -> Path:
    """A copy of the directory as a kill of the process leaves it."""
    store.engine._db.cancel_all_background(True)  # files do not go while they are copied
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
    store.engine.flush()
    store.engine.family(family).compact_range(None, None)
    listed = store.engine.family(family).property_value("rocksdb.sstables")
    number = int(re.findall(r"^ *(\d+):", listed, re.MULTILINE)[0])
    return f"{number:06d}.sst"


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
