"""Full states over an orderly end: restored states equal recomputation, and outdated ones are not restored."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.dataflow.inspect.validate import validate
from noria.state.symbols.symbols import SymbolTable
from noria.storage.commits import state_file
from noria.storage.commits.state_file import SavedStateFile, SavedUnusable
from noria.storage.rocks.store_position import StorePosition
from runtime.restarts import ROWS, Db
from seeds import seed


@pytest.fixture
def db(tmp_path: Path) -> Any:
    made = Db(tmp_path / "db")
    made.fill()
    yield made
    made.close()


def test_states_are_restored_and_updated(db: Db) -> None:
    rng = random.Random(seed("SAVED_SEED", 3))
    db.rows()
    for life in range(2):
        before = db.rows()
        assert db.again() >= 6
        assert db.rows() == before
        validate(db.worker.engine)
        for _ in range(20):
            id = rng.randrange(ROWS)
            db.sql(rng.choice((
                f"DELETE FROM likes WHERE post = {id % 1_000} AND user > {rng.randrange(ROWS)}",
                f"UPDATE posts SET title = 'New {life}', x = x / 3 WHERE id = {id}",
                f"REPLACE INTO posts VALUES ({id}, {id % 5}, 'té {id % 900}', NULL)",
                f"INSERT IGNORE INTO likes VALUES ({id % 1_000}, {ROWS + rng.randrange(99)})",
                f"DELETE FROM posts WHERE id = {id}")))
        assert db.restored() == 0, "the writes have made the other saved states outdated"
        validate(db.worker.engine)


def test_saved_states_older_than_a_write_are_not_used(db: Db, tmp_path: Path) -> None:
    db.rows()
    db.close()
    shutil.copy(db.path / "worker-0" / state_file.FILE, tmp_path / "old")
    db.open()
    db.sql("DELETE FROM likes WHERE user < 1000")
    before = db.rows()
    db.close()
    shutil.copy(tmp_path / "old", db.path / "worker-0" / state_file.FILE)
    db.open()
    assert db.restored() == 0 and db.rows() == before
    validate(db.worker.engine)


def test_a_changed_program_restores_unchanged_states(db: Db) -> None:
    db.rows()
    db.sql("DROP VIEW joined")
    db.sql("ALTER TABLE likes ADD c INT DEFAULT 5")
    before = {v: db.sql(f"SELECT * FROM {v}") for v in ("groups", "top", "total", "kinds")}
    db.again()
    assert {v: db.sql(f"SELECT * FROM {v}") for v in before} == before
    validate(db.worker.engine)


@pytest.mark.parametrize("damage", ["cut", "empty", "index", "array", "symbols", "version"])
def test_a_damaged_file_is_not_used(db: Db, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.rows()
    db.close()
    file = db.path / "worker-0" / state_file.FILE
    data = bytearray(file.read_bytes())
    if damage == "version":
        monkeypatch.setattr(state_file, "__version__", "0.0.0")
    else:
        at = {"cut": -1, "empty": 0, "index": len(data) - 60, "array": len(data) // 2, "symbols": 40}[damage]
        data[at] ^= 1
        file.write_bytes(data[:-100] if damage == "cut" else b"" if damage == "empty" else data)
    db.open()
    assert db.rows() == before and not file.exists()
    assert (db.worker.engine.saved is None) == (damage != "array")


def test_a_full_disk_saves_nothing_and_does_no_harm(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.rows()

    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("noria.storage.commits.state_file._put", full)
    assert db.again() == 0 and db.rows() == before
    assert [f.name for f in (db.path / "worker-0").iterdir() if f.name.startswith(state_file.FILE)] == []


def test_a_worker_that_cannot_save_ends_normally(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.rows()

    def no_memory(*args: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("noria.dataflow.worker.saving.names_of", no_memory)
    db.close()
    monkeypatch.undo()
    db.open()
    assert db.worker.engine.saved is None and db.rows() == before


def test_no_states_are_restored_without_room_for_strings(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.rows()

    def no_room(*args: Any) -> Any:
        raise SqlError(1021, "HY000", "Disk full")

    db.close()
    with monkeypatch.context() as once:
        once.setattr(SymbolTable, "restore", no_room)
        db.open()
    assert db.worker.engine.saved is None and db.rows() == before


def test_strings_alone_are_not_saved(tmp_path: Path) -> None:
    db = Db(tmp_path / "db")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(40))")
    db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, 'Name {i}')" for i in range(ROWS)))
    db.sql("CREATE VIEW named AS SELECT name FROM t WHERE id = ?")
    for i in range(50):
        db.sql(f"SELECT * FROM named WHERE id = {i}")
    db.close()
    assert not (db.path / "worker-0" / state_file.FILE).exists()


def test_no_more_is_saved_than_the_limit(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    before = db.rows()
    monkeypatch.setattr("noria.runtime.worker.state_writer.SAVED_BYTES", 200_000)
    assert 0 < db.again() < 6
    assert db.rows() == before


def test_the_file(tmp_path: Path) -> None:
    symbols, other = SymbolTable(None), SymbolTable(None)
    codes = [symbols.intern(t) for t in ("a", "É", "", "x" * 5_000)]
    rows = Batch(np.array([codes, [1, 2, 3, -(2**63)]]), np.array([1, 1, 2, 1]))
    some = [("one", 100, lambda: rows), ("large", 2**40, lambda: rows), ("none", 0, lambda: Batch.empty(3))]
    assert state_file.save(tmp_path, StorePosition("db", 7), symbols.saved(), some, lambda nbytes: nbytes < 2**30) == 2
    read = SavedStateFile(tmp_path)
    assert read.position == StorePosition("db", 7) and not (tmp_path / state_file.FILE).exists()
    other.restore(*read.symbols())
    assert [other.text(c) for c in codes] == ["a", "É", "", "x" * 5_000]
    assert other.intern("É") == codes[1] and other.intern("new") not in codes
    one = read.states()["one"]()
    assert one is not None and (one.columns == rows.columns).all() and (one.weights == rows.weights).all()
    empty = read.states()["none"]()
    assert empty is not None and empty.columns.shape == (3, 0)
    with pytest.raises(ValueError):
        other.restore(*read.symbols())  # it has strings
    (tmp_path / state_file.FILE).write_bytes(b"noria")
    with pytest.raises(SavedUnusable):
        SavedStateFile(tmp_path)
