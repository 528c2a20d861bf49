"""Three worker processes that save their states while they serve: after all were killed, they restore them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from noria.storage.commits import state_file
from runtime.processes import run
from runtime.several import Several

WORKERS, ROWS = 3, 9_000  # more than are built at once
READS = ("SELECT author, COUNT(*) AS n, MIN(title) AS t FROM posts GROUP BY author",
         "SELECT author, n FROM counted ORDER BY n DESC, author LIMIT 50")
VIEWS = tuple(f"CREATE VIEW {name} AS {text}" for name, text in zip(("counted", "top"), READS, strict=True))


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
            await db.sql("CREATE TABLE posts (id INT PRIMARY KEY, author INT NOT NULL, title VARCHAR(40))")
            for start in range(0, ROWS, 3_000):
                await db.sql("INSERT INTO posts VALUES " + ", ".join(
                    f"({i}, {i % 700}, 'Title {i % 77}')" for i in range(start, start + 3_000)))
            for view in VIEWS:
                await db.sql(view)
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
