"""A checkpoint of a serving worker, and a crash after it: the states are restored with the rows written since, and
equal recomputation.  If a write is not recorded, no state is restored."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.serving import until
from noria.dataflow.engine.engine import Engine
from noria.dataflow.inspect.validate import validate
from noria.dataflow.worker.refill import Refill
from noria.runtime.worker import checkpoints
from noria.storage.commits import state_file
from noria.storage.offline.snapshot import open_read_only
from noria.storage.rocks.engine import DELTAS
from runtime.restarts import ROWS, VIEWS, Db
from seeds import seed

SOME = seed("CHECKPOINT_SEED", 34)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is due whenever there is something to save."""
    monkeypatch.setattr(checkpoints, "CHECKPOINT_LOOK_S", 0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_S", 0)
    monkeypatch.setattr(checkpoints, "CHECKPOINT_REST", 0)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    made = Db(tmp_path / "db")
    made.fill()
    made.rows()
    yield made
    made.close()


def save(db: Db) -> None:
    """Make a checkpoint, as a worker does between its turns."""
    with pytest.MonkeyPatch.context() as now:
        now.setattr(checkpoints, "CHECKPOINT_BYTES", -1)
        now.setattr(checkpoints, "CHECKPOINT_SHARE", -1)
        db.worker.checkpoint()
    os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    db.worker.checkpoint()
    assert (db.path / "worker-0" / state_file.FILE).exists()


def crash(db: Db, at: Path) -> Db:
    """Open a copy of the files as a kill at this moment would leave them."""
    shutil.copytree(db.path, at)
    after = Db.__new__(Db)
    after.path, after.notes = at, []
    after.open()
    return after


def write(db: Db, rng: random.Random) -> None:
    id, other = rng.randrange(ROWS), rng.randrange(ROWS)
    db.sql(rng.choice((
        f"INSERT INTO posts VALUES ({ROWS + rng.randrange(10**6)}, {id % 9}, 'Süß {id % 40}', {id / 3})",
        f"REPLACE INTO posts VALUES ({id}, {id % 5}, 'té {id % 900}', NULL)",
        f"UPDATE posts SET title = 'New {other % 11}', author = id % 8, x = x / 3 WHERE id > {id} AND id < {id + 9}",
        f"UPDATE likes SET user = user + {10**6 + id} WHERE post = {id % 1_000}",
        f"DELETE FROM likes WHERE post = {id % 1_000}",
        f"INSERT IGNORE INTO likes VALUES ({id % 1_000}, {other}), ({id % 1_000}, {other + 1})",
        f"INSERT INTO posts VALUES ({id}, 1, 'dup', 1) ON DUPLICATE KEY UPDATE x = {other}, title = NULL",
        f"DELETE FROM posts WHERE id = {id}")))


@pytest.mark.parametrize("number", range(3))
def test_states_are_restored_with_the_rows_written_since(db: Db, tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SOME} {number}")
    for _ in range(rng.randrange(3)):
        write(db, rng)
    save(db)
    for _ in range(rng.choice((0, 1, 30))):
        write(db, rng)
    after = crash(db, tmp_path / "after")
    try:
        assert restored_states(after) >= 6
        assert after.rows() == db.rows()
        validate(after.worker.engine)
        for _ in range(10):
            write(after, rng)
        validate(after.worker.engine)
    finally:
        after.close()


def test_one_crash_after_another(db: Db, tmp_path: Path) -> None:
    rng, path, lives = random.Random(SOME), tmp_path, [db]
    save(db)
    try:
        for life in range(4):
            for _ in range(5):
                write(lives[-1], rng)
            lives.append(crash(lives[-1], path / f"life {life}"))
            lives[-1].worker.checkpoint()  # its first turn
            assert restored_states(lives[-1]) >= 6, f"life {life} has built its states from the tables"
            assert lives[-1].rows() == lives[-2].rows()
            validate(lives[-1].worker.engine)
            if life == 2:
                save(lives[-1])
    finally:
        for some in lives[1:]:
            some.close()


def restored_states(db: Db) -> int:
    """The number of states that the worker has restored at its start."""
    restored: int = db.worker.engine.restored
    return restored


@pytest.mark.parametrize("change", [
    "CREATE VIEW more AS SELECT author, MAX(x) AS m FROM posts GROUP BY author",
    "DROP VIEW top",
    "ALTER TABLE posts ADD more INT DEFAULT 7",
    "ALTER TABLE likes RENAME COLUMN user TO who",
    "RENAME TABLE likes TO liked",
    "CREATE INDEX by_author ON posts (author)",
    "CREATE TABLE other (id INT PRIMARY KEY); INSERT INTO other VALUES (1), (2); DROP TABLE other",
    "TRUNCATE likes",
    "ALTER TABLE posts DROP PRIMARY KEY, ADD PRIMARY KEY (id, author)",
])
def test_changes_of_the_program_meanwhile(db: Db, tmp_path: Path, change: str) -> None:
    rng = random.Random(f"{SOME} {change}")
    save(db)
    db.sql(f"UPDATE posts SET x = 5 WHERE id < {rng.randrange(ROWS)}")
    for text in change.split("; "):
        db.sql(text)
    db.sql("UPDATE posts SET author = 3 WHERE id = 7")
    after = crash(db, tmp_path / "after")
    try:
        for view in (v for v in VIEWS if f"VIEW {v}" not in change):
            text = f"SELECT * FROM {view}" + (" WHERE n >= 3" if view == "keyed" else "")
            assert after.sql(text) == db.sql(text), view
        validate(after.worker.engine)
    finally:
        after.close()


def test_a_commit_without_a_record_leaves_a_gap(db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(db)
    monkeypatch.setattr("noria.storage.commits.delta_log.DELTA_COMMIT_ROWS", 10)
    db.sql("UPDATE posts SET x = 1 WHERE id < 100")
    db.sql("UPDATE posts SET x = 2 WHERE id = 1")
    after = crash(db, tmp_path / "after")
    try:
        assert restored_states(after) == 0 and after.rows() == db.rows()
    finally:
        after.close()
    save(db)
    db.sql("UPDATE posts SET x = 3 WHERE id = 1")
    again = crash(db, tmp_path / "again")
    try:
        assert restored_states(again) >= 6 and again.rows() == db.rows()
    finally:
        again.close()


def test_saved_states_that_end_a_start_are_absent_at_the_next(db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                           ) -> None:
    save(db)
    db.sql("UPDATE posts SET x = 1 WHERE id < 100")
    with monkeypatch.context() as once:
        once.setattr("noria.dataflow.worker.saving.catch_up", lambda *_: 1 / 0)
        with pytest.raises(Exception):  # noqa: B017  # whatever ends a worker
            crash(db, tmp_path / "after")
    after = Db.__new__(Db)
    after.path = tmp_path / "again"
    shutil.copytree(tmp_path / "after", after.path)  # the first one, which broke, may hold its lock
    after.open()
    try:
        assert restored_states(after) == 0 and after.rows() == db.rows()
    finally:
        after.close()


def test_nothing_is_recorded_if_no_state_is_saved(tmp_path: Path) -> None:
    db = Db(tmp_path / "db")
    try:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.sql("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a")
        db.sql("INSERT INTO t VALUES (1, 1)")
        db.sql("SELECT * FROM v")
        db.worker.checkpoint()
        assert not (db.path / "worker-0" / state_file.FILE).exists()
        assert not db.worker.store.deltas.recording
    finally:
        db.close()


def hot(db: Db, tmp_path: Path, before_it_opens: Callable[[], object] = lambda: None) -> Db:
    """Crash and reopen a server whose partial view has 500 present keys."""
    db.sql("CREATE VIEW by_author AS SELECT user, COUNT(*) AS n FROM likes WHERE user = ? GROUP BY user")
    for start in range(0, 500, 50):
        db.sql("SELECT * FROM by_author WHERE user IN (" + ", ".join(map(str, range(start, start + 50))) + ")")
    save(db)
    before_it_opens()
    return crash(db, tmp_path / "after")


def present(db: Db) -> int:
    engine = db.worker.engine
    return sum(r.stored.present_count(engine.reads[r]) for r in engine.readers.values()
               if not r.full and r.state is not None and engine.reads[r])


def test_the_keys_of_partial_views_are_filled_again(db: Db, tmp_path: Path) -> None:
    after = hot(db, tmp_path)
    try:
        assert after.worker.engine.refill is not None
        until("all keys are filled", lambda: present(after) == present(db) >= 500)
        validate(after.worker.engine)
        misses = after.worker.stats()["misses"]
        assert after.sql("SELECT * FROM by_author WHERE user = 77") == db.sql("SELECT * FROM by_author WHERE user = 77")
        assert after.worker.stats()["misses"] == misses
    finally:
        after.close()


def test_no_keys_are_filled_again_if_memory_is_short(db: Db, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                        ) -> None:
    made: list[Refill] = []

    def noted(engine: Engine, keys: Any) -> Refill:
        made.append(Refill(engine, keys))
        return made[-1]

    def short() -> None:
        monkeypatch.setattr("noria.dataflow.worker.saving.Refill", noted)
        monkeypatch.setattr("noria.dataflow.engine.memory_limit.memory", lambda engine: 2**60)

    after = hot(db, tmp_path, short)
    try:
        until("the worker looks at its memory", lambda: bool(made) and after.worker.engine.refill is None)
    finally:
        after.close()


def test_a_defect_in_the_refill_does_not_stop_the_worker(db: Db, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    met, read = list[str](), Engine.read

    def breaks(engine: Engine, view: str, keys: Any, nulls: bool = False) -> Any:
        if view == "by_author" and len(keys[0]) > 1:
            met.append(view)
            raise TypeError("a defect")
        return read(engine, view, keys, nulls)

    after = hot(db, tmp_path, lambda: monkeypatch.setattr(Engine, "read", breaks))
    try:
        until("the filling meets the defect", lambda: met)
        assert after.sql("SELECT * FROM by_author WHERE user = 77") == db.sql("SELECT * FROM by_author WHERE user = 77")
        validate(after.worker.engine)
    finally:
        after.close()


@pytest.mark.parametrize("saved", [True, False])
def test_a_damaged_delta_log_costs_the_checkpoint_only(db: Db, tmp_path: Path, saved: bool) -> None:
    save(db)
    db.sql("UPDATE posts SET x = 1 WHERE id < 100")
    db.worker.store.engine.flush()
    shutil.copytree(db.path, tmp_path / "after")
    base = tmp_path / "after" / "worker-0" / "base"
    with closing(open_read_only(str(base), [DELTAS])) as opened:
        listed = opened.get_column_family(DELTAS).property_value("rocksdb.sstables") or ""
    numbers = re.findall(r"^ *(\d+):", listed, re.MULTILINE)
    assert numbers
    for number in numbers:
        file = base / f"{int(number):06}.sst"
        file.write_bytes(bytes(file.stat().st_size))
    if not saved:
        (base.parent / state_file.FILE).unlink()
    after = Db.__new__(Db)
    after.path = tmp_path / "after"
    after.open()
    try:
        assert restored_states(after) == 0 and after.rows() == db.rows()
        after.sql("UPDATE posts SET x = 2 WHERE id < 100")
        validate(after.worker.engine)
        assert DELTAS not in after.worker.store.engine.families()
    finally:
        after.close()


def test_a_worker_that_cannot_fork_serves(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory() -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("os.fork", no_memory)
    before = db.rows()
    db.worker.checkpoint()
    db.sql("UPDATE posts SET x = 1 WHERE id < 100")
    assert db.rows() != before and not (db.path / "worker-0" / state_file.FILE).exists()


def test_a_checkpoint_that_cannot_be_written_keeps_the_previous_one(db: Db, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    save(db)
    db.sql("UPDATE posts SET x = 1 WHERE id < 100")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as now:
        now.setattr(state_file, "_put", full)
        save(db)
    after = crash(db, tmp_path / "after")
    try:
        assert restored_states(after) >= 6 and after.rows() == db.rows()
    finally:
        after.close()
