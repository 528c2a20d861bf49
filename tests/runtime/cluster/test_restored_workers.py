"""Three worker processes that save their states while they serve: after all were killed, they restore them.  Kills of
any of them at any moment, also while states are saved or restored, lose nothing."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from noria.runtime.cluster.checkpoints import ClusterCheckpoints
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.storage.commits import state_file
from runtime.processes import run
from runtime.several import Several
from seeds import seed

WORKERS, ROWS = 3, 9_000  # more than are built at once
READS = ("SELECT author, COUNT(*) AS n, MIN(title) AS t FROM posts GROUP BY author",
         "SELECT author, n FROM counted ORDER BY n DESC, author LIMIT 50")
VIEWS = tuple(f"CREATE VIEW {name} AS {text}" for name, text in zip(("counted", "top"), READS, strict=True))


async def fill(db: Several) -> None:
    await db.sql("CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40))")
    for start in range(0, ROWS, 3_000):
        await db.sql("INSERT INTO posts VALUES " + ", ".join(
            f"({i}, {i % 700}, 'Title {i % 77}')" for i in range(start, start + 3_000)))
    for view in VIEWS:
        await db.sql(view)


async def answers(db: Several) -> list[Any]:
    return [await db.sql("SELECT * FROM counted"), await db.sql("SELECT * FROM top")]


async def expected(db: Several) -> list[Any]:
    counts: dict[int, list[str]] = {}
    for author, title in await db.sql("SELECT author, title FROM posts WHERE id > -1"):
        counts.setdefault(author, []).append(title)
    top = sorted(counts, key=lambda author: (-len(counts[author]), author))[:50]
    return [sorted(((a, len(some), min(some)) for a, some in counts.items()), key=str),
            sorted(((a, len(counts[a])) for a in top), key=str)]


def test_all_workers_restore_their_states_after_a_kill(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        db = Several(tmp_path, WORKERS)
        await db.start()
        try:
            await fill(db)
            assert await answers(db) == await expected(db)
            while not all((tmp_path / "data" / f"worker-{w}" / state_file.FILE).exists() for w in range(WORKERS)):
                await asyncio.sleep(0.05)  # the first checkpoint is due
            for life in range(3):
                await db.sql(f"UPDATE posts SET author = {life}, title = 'New {life}' WHERE id < {10 * life + 20}")
                await db.sql(f"DELETE FROM posts WHERE id > {ROWS - life * 5}")
                if life == 1:  # one alone takes the others' graph; its log goes on
                    db.alive[1].kill()
                else:
                    for child in db.alive.values():
                        child.kill()
                await db.sql(f"UPDATE posts SET title = 'Late {life}' WHERE id >= 2000 AND id < {2_010 + life}")
                assert await answers(db) == await expected(db)
        finally:
            await db.stop()

    run(test, 180)
    assert capfd.readouterr().out.count("states restored as of the cut") == 2 * WORKERS


@pytest.mark.long
@pytest.mark.parametrize("number", range(2))
def test_kills_of_any_workers_while_states_are_saved(tmp_path: Path, number: int, capfd: pytest.CaptureFixture[str],
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(f"{seed('RESTORED_SEED', 7)} {number}")
    status = ClusterCheckpoints._status

    async def always_due(self: ClusterCheckpoints) -> list[dict[str, Any]]:
        return [{**each, "due": True} for each in await status(self)]

    monkeypatch.setattr(ClusterCheckpoints, "_status", always_due)
    monkeypatch.setattr(ClusterCheckpoints, "start", lambda self: None)  # saved by `saves`

    async def writes(db: Several, client: int, stop: asyncio.Event, mine: random.Random) -> None:
        while not stop.is_set():
            low = mine.randrange(ROWS)
            await db.sql(mine.choice((f"UPDATE posts SET author = {client} WHERE id >= {low} AND id < {low + 9}",
                                      f"DELETE FROM posts WHERE id = {low}",
                                      f"REPLACE INTO posts VALUES ({low}, {low % 9}, 'New {client}')",
                                      f"UPDATE posts SET id = id + 100000 WHERE id = {low}")))

    async def saves(db: Several, stop: asyncio.Event, saved: asyncio.Event) -> None:
        while not stop.is_set():
            with suppress(WorkerUnavailable):
                if await db.link.checkpoints.save_if_due():
                    saved.set()
            await asyncio.sleep(0.2)

    async def kills(db: Several, saved: asyncio.Event) -> None:
        if rng.random() < 0.6:
            await saved.wait()
        for _ in range(rng.randrange(30)):
            await db.sql("SELECT author FROM posts WHERE id = 1")
        for w in rng.sample(range(WORKERS), rng.choice((1, 2, WORKERS, WORKERS))):
            db.alive[w].kill()

    async def test() -> None:
        db = Several(tmp_path, WORKERS)
        await db.start()
        try:
            await fill(db)
            assert await answers(db) == await expected(db)  # the first read makes the states
            for life in range(8):
                stop, saved = asyncio.Event(), asyncio.Event()
                others = [asyncio.ensure_future(saves(db, stop, saved))] + [asyncio.ensure_future(writes(
                    db, client, stop, random.Random(f"{number} {life} {client}"))) for client in range(3)]
                await kills(db, saved)
                stop.set()
                await asyncio.gather(*others)
                await db.sql(f"UPDATE posts SET title = 'Life {life}' WHERE id >= 2000 AND id < 2050")
                assert await answers(db) == await expected(db), life
        finally:
            await db.stop()

    run(test, 600)
    assert capfd.readouterr().out.count("states restored as of the cut") >= WORKERS
