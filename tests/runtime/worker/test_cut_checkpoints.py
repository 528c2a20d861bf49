"""Checkpoints of three workers as of one cut: after an orderly end or a crash of all, the states are restored with the
rows that each worker has written since, and equal recomputation.  Otherwise no worker restores a state."""

from __future__ import annotations

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from noria.client.embedded import EmbeddedTransport
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages.packets import Inspect
from noria.runtime.worker import cut_checkpoints
from noria.storage.commits import state_file
from runtime.restarts import VIEWS
from seeds import seed

SOME = seed("CUT_CHECKPOINT_SEED", 5)
SEEDS = [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))]
WORKERS = 3
ROWS = 900
FEW = 20  # states over more rows are saved here
MORE = {
    "by_user": "SELECT user, COUNT(*) AS n, SUM(posts.author) AS s FROM likes JOIN posts ON posts.id = likes.post "
               "GROUP BY user",
    "pairs": "SELECT g.title, g.n, p.id FROM groups AS g JOIN posts AS p ON p.title = g.title WHERE p.id < 400",
}


class Db:
    """The tables of `runtime/restarts.py` on three workers in this process."""

    def __init__(self, path: Path):
        self.path = path
        self.transport = EmbeddedTransport(path, workers=WORKERS)
        for link in self.link.links:
            link.hosted.engine.builds.at_once_rows = FEW

    def sql(self, text: str) -> Counter[Any]:
        rows = self.transport.sql(text, []).rows
        return Counter() if rows is None else Counter(map(str, rows.to_pylist()))

    def fill(self) -> None:
        self.sql("CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40), x DOUBLE)")
        self.sql("CREATE TABLE likes (post INT, user INT, PRIMARY KEY (post, user))")
        posts = (f"({i}, {i % 7}, {'NULL' if i % 50 == 3 else repr(f'Té {i % 90}')}, {i / 7})" for i in range(ROWS))
        self.sql("INSERT INTO posts VALUES " + ", ".join(posts))
        self.sql("INSERT INTO likes VALUES " + ", ".join(f"({i % 500}, {i % 211})" for i in range(ROWS)))
        for name, text in (VIEWS | MORE).items():
            self.sql(f"CREATE VIEW {name} AS {text}")

    def rows(self) -> dict[str, Counter[Any]]:
        return {v: self.sql(f"SELECT * FROM {v}" + (" WHERE n >= 3" if v == "keyed" else "")) for v in VIEWS | MORE}

    @property
    def link(self) -> Any:
        return self.transport.link

    def restored(self) -> list[int]:
        """How many states each worker has restored at its start."""
        return [link.hosted.engine.restored for link in self.link.links]

    def save(self) -> None:
        """Make a checkpoint of all workers."""
        with pytest.MonkeyPatch.context() as now:
            now.setattr(cut_checkpoints, "CHECKPOINT_BYTES", -1)
            now.setattr(cut_checkpoints, "CHECKPOINT_SHARE", -1)
            assert self.transport.run(self.link.checkpoints.save_if_due(at_end=True))
        assert all(self.file(w).exists() for w in range(WORKERS))

    def file(self, worker: int) -> Path:
        return self.path / f"worker-{worker}" / state_file.FILE

    def validate(self) -> None:
        """Each state equals its recomputation, when no message is under way."""
        self.transport.run(self.link.catch_up(dict.fromkeys(range(WORKERS), (0, None))))
        for link in self.link.links:
            self.transport.run(link.ask(Inspect(0, "validate")))
            validate(link.hosted.engine)

    def crash(self, at: Path) -> Db:
        """Open a copy of the files as a kill at this moment would leave them."""
        shutil.copytree(self.path, at)
        return Db(at)

    def close(self) -> None:
        self.transport.close()


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    made = Db(tmp_path / "db")
    made.fill()
    made.rows()
    yield made
    made.close()


def write(db: Db, rng: random.Random) -> None:
    db.sql(statement(rng))


def statement(rng: random.Random) -> str:
    id, other = rng.randrange(ROWS), rng.randrange(ROWS)
    return rng.choice((
        f"INSERT INTO posts VALUES ({ROWS + rng.randrange(10**6)}, {id % 9}, 'Süß {id % 40}', {id / 3})",
        f"REPLACE INTO posts VALUES ({id}, {id % 5}, 'té {id % 90}', NULL)",
        f"UPDATE posts SET title = 'New {other % 11}', author = id % 8, x = x / 3 WHERE id > {id} AND id < {id + 9}",
        f"UPDATE posts SET id = id + {10**6 + id} WHERE id = {other}",
        f"UPDATE likes SET user = user + {10**6 + id} WHERE post = {id % 500}",
        f"DELETE FROM likes WHERE post = {id % 500}",
        f"INSERT IGNORE INTO likes VALUES ({id % 500}, {other % 211}), ({other % 500}, {id % 211})",
        f"DELETE FROM posts WHERE id = {id}"))


def test_an_orderly_end_saves_what_the_next_start_restores(db: Db) -> None:
    before = db.rows()
    db.close()
    db.transport = EmbeddedTransport(db.path, workers=WORKERS)
    assert all(n >= 6 for n in db.restored())
    assert db.rows() == before
    db.validate()


@pytest.mark.parametrize("number", SEEDS)
def test_states_are_restored_with_the_rows_written_since(db: Db, tmp_path: Path, number: int) -> None:
    rng = random.Random(f"{SOME} {number}")
    for _ in range(rng.randrange(3)):
        write(db, rng)
    db.save()
    lives = [db]
    try:
        for life in range(3):
            for _ in range(rng.choice((0, 1, 20))):
                write(lives[-1], rng)
            lives.append(lives[-1].crash(tmp_path / f"life {life}"))
            assert all(n >= 6 for n in lives[-1].restored()), f"life {life} has built its states from the tables"
            assert lives[-1].rows() == lives[-2].rows()
            lives[-1].validate()
            if rng.random() < 0.3:
                write(lives[-1], rng)
                lives[-1].save()
        for _ in range(10):
            write(lives[-1], rng)
        lives[-1].validate()
    finally:
        for some in lives[1:]:
            some.close()


@pytest.mark.parametrize("number", SEEDS)
def test_clients_write_while_states_are_saved(db: Db, tmp_path: Path, number: int) -> None:
    """The statements before the cut are in the states of all workers, and the later ones in the logs of all."""
    rng = random.Random(f"{SOME} {number}")
    stop = asyncio.Event()

    async def client(mine: random.Random) -> int:
        done = 0
        while not stop.is_set():
            await db.transport.sessions.run(statement(mine), ())
            done += 1
        return done

    async def save() -> None:
        for _ in range(rng.randrange(60)):
            await asyncio.sleep(0)
        assert await db.link.checkpoints.save_if_due(at_end=True)

    async def test() -> None:
        clients = [asyncio.ensure_future(client(random.Random(f"{number} {n}"))) for n in range(6)]
        try:
            for _ in range(4):
                await save()
        finally:
            stop.set()
        assert sum(await asyncio.gather(*clients)) > 6

    with pytest.MonkeyPatch.context() as now:
        now.setattr(cut_checkpoints, "CHECKPOINT_BYTES", -1)
        now.setattr(cut_checkpoints, "CHECKPOINT_SHARE", -1)
        db.transport.run(test())
    after = db.crash(tmp_path / "after")
    try:
        assert all(n >= 6 for n in after.restored())
        assert after.rows() == db.rows()
        after.validate()
    finally:
        after.close()


@pytest.mark.parametrize("change", [
    "CREATE VIEW more AS SELECT title, n FROM groups ORDER BY n, title LIMIT 3",
    "ALTER TABLE posts ADD more INT DEFAULT 7",
    *(pytest.param(text, marks=pytest.mark.long) for text in (
        "CREATE VIEW more AS SELECT author, MAX(x) AS m FROM posts GROUP BY author",
        "DROP VIEW top",
        "RENAME TABLE likes TO liked",
        "CREATE INDEX by_author ON posts (author)",
        "TRUNCATE likes")),
])
def test_changes_of_the_program_meanwhile(db: Db, tmp_path: Path, change: str) -> None:
    rng = random.Random(f"{SOME} {change}")
    db.save()
    db.sql(f"UPDATE posts SET x = 5 WHERE id < {rng.randrange(ROWS)}")
    db.sql(change)
    if "more AS" in change:
        db.sql("SELECT * FROM more")
    db.sql("UPDATE posts SET author = 3 WHERE id < 70")
    after = db.crash(tmp_path / "after")
    try:
        for view in (v for v in VIEWS | MORE if f"VIEW {v}" not in change):
            text = f"SELECT * FROM {view}" + (" WHERE n >= 3" if view == "keyed" else "")
            assert after.sql(text) == db.sql(text), view
        if "more AS" in change:
            assert after.sql("SELECT * FROM more") == db.sql("SELECT * FROM more")
        after.validate()
    finally:
        after.close()


def gone(db: Db) -> None:
    db.file(1).unlink()


def damaged(db: Db) -> None:
    data = bytearray(db.file(1).read_bytes())
    data[len(data) // 2] ^= 1
    db.file(1).write_bytes(data)


def older(db: Db) -> None:
    """As if the worker had been killed before it kept its part of a later checkpoint."""
    shutil.copy(db.file(1), db.path / "older")
    db.sql("UPDATE posts SET author = 1 WHERE id = 1")
    db.link.links[0].hosted.store.deltas.end()
    db.save()
    shutil.move(db.path / "older", db.file(1))


def gap(db: Db) -> None:
    db.link.links[1].hosted.store.deltas.end()


@pytest.mark.parametrize("harm", [gone, damaged, older, gap])
def test_no_worker_restores_if_one_cannot(db: Db, tmp_path: Path, harm: Callable[[Db], None]) -> None:
    db.save()
    harm(db)
    db.sql("UPDATE posts SET author = author + 1 WHERE id > 5")
    after = db.crash(tmp_path / "after")
    try:
        assert after.restored() == [0] * WORKERS
        assert after.rows() == db.rows()
        after.validate()
    finally:
        after.close()


def test_states_that_one_worker_cannot_write_are_kept_by_none(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    written, cut_write = list[str](), cut_checkpoints.StateWriter.write

    def full(self: Any, *args: Any) -> None:
        written.append("")
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        cut_write(self, *args)

    with monkeypatch.context() as once:
        once.setattr(cut_checkpoints.StateWriter, "write", full)
        db.transport.run(db.link.checkpoints.save_if_due(at_end=True))
    assert len(written) == WORKERS
    names = [f.name for w in range(WORKERS) for f in db.file(w).parent.iterdir()]
    assert not [name for name in names if name.startswith(state_file.FILE)]
    db.save()


def test_nothing_is_begun_if_the_states_are_too_large(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.dataflow.worker.saving.SAVED_BYTES", 1_000)
    assert not db.transport.run(db.link.checkpoints.save_if_due(at_end=True))
    assert not any(db.file(w).exists() for w in range(WORKERS))


def test_nothing_is_kept_when_no_view_is_left(db: Db) -> None:
    db.save()
    for view in reversed(list(VIEWS | MORE)):
        if view not in ("groups",):
            db.sql(f"DROP VIEW {view}")
    db.sql("DROP VIEW groups")
    assert db.transport.run(db.link.checkpoints.save_if_due(at_end=True))
    assert not any(db.file(w).exists() for w in range(WORKERS))
    assert not db.transport.run(db.link.checkpoints.save_if_due(at_end=True))
