"""Random loads into tables with FOREIGN KEYs: SQLite says which rows may stay, and others remove parents meanwhile."""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

import seeds
from e2e.serving import Served, execute, rows
from noria.client.transport import HttpTransport

pytestmark = [pytest.mark.long, pytest.mark.spark]
TABLES = ("CREATE TABLE p (id INT PRIMARY KEY, code VARCHAR(9) {fold}, UNIQUE (code))",
          "CREATE TABLE q (a INT, b INT, PRIMARY KEY (a, b))",
          "CREATE TABLE t (id INT PRIMARY KEY, up INT, code VARCHAR(9) {fold}, a INT, b INT, "
          "FOREIGN KEY (up) REFERENCES t (id), FOREIGN KEY (code) REFERENCES p (code), "
          "FOREIGN KEY (a, b) REFERENCES q (a, b))")
Row = tuple[Any, ...]


@pytest.fixture(scope="module", params=["1", "3"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    server = Served(tmp_path_factory.mktemp("random") / "data", "--workers", request.param)
    try:
        with server.connect() as connection:
            for text in TABLES:
                execute(connection, text.format(fold=""))
        yield server
    finally:
        server.close()


def maybe(rng: random.Random, value: Any) -> Any:
    return None if rng.random() < 0.3 else value


def load(served: Served, place: Path, table: str, names: str, some: list[Row]) -> dict[str, Any]:
    path = place / "rows.jsonl"
    path.write_text("".join(json.dumps(dict(zip(names.split(","), row, strict=True))) + "\n" for row in some))
    steps = HttpTransport(served.url).load({"table": table, "files": [str(path)], "reject": str(place / "rejected")})
    return list(steps)[-1]


def test_the_rows_that_may_stay(served: Served, tmp_path: Path) -> None:
    rng = random.Random(seeds.seed())
    known = sqlite3.connect(":memory:")
    with served.connect() as db:
        for text in TABLES:
            known.execute(text.format(fold="COLLATE NOCASE"))
        for text in ("INSERT INTO p VALUES (1, 'Ann'), (2, 'bob'), (3, NULL), (4, 'x Y')",
                     "INSERT INTO q VALUES (1, 1), (1, 2), (2, 1)", "INSERT INTO t (id) VALUES (1), (2)"):
            execute(db, text)
            known.execute(text)
        first = 3
        for _ in range(2):
            ids = list(range(first, first + 40))
            near = range(max(first - 20, 1), first + 60)
            new = [(i, maybe(rng, rng.choice(near)), maybe(rng, rng.choice(("Ann", "aNN", "BOB", "x y", "none"))),
                    maybe(rng, rng.choice((1, 1, 2))), maybe(rng, rng.choice((1, 1, 2)))) for i in ids]
            rng.shuffle(new)
            known.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", new)
            while orphans := known.execute("PRAGMA foreign_key_check").fetchall():
                known.executemany("DELETE FROM t WHERE rowid = ?", {(row,) for _, row, *_ in orphans})
            done = load(served, tmp_path, "t", "id,up,code,a,b", new)
            wanted = known.execute("SELECT id, up, code, a, b FROM t ORDER BY id").fetchall()
            assert rows(db, "SELECT id, up, code, a, b FROM t ORDER BY id") == wanted
            assert done["rows"] == sum(first <= row[0] for row in wanted) == 40 - done["rejected"]
            first += 40
        execute(db, "TRUNCATE TABLE t")
        execute(db, "DELETE FROM p")
        execute(db, "DELETE FROM q")


class Removing(threading.Thread):
    """Adds and removes parents until it is told to end."""

    def __init__(self, served: Served, seed: int):
        super().__init__()
        self.rng, self.db, self.over = random.Random(seed), served.connect(), threading.Event()
        self.removed = 0
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self._step()
        except BaseException as e:
            self.error = e

    def _step(self) -> None:
        rng = self.rng
        parent, end = rng.randrange(200), rng.choice(("COMMIT", "COMMIT", "ROLLBACK"))
        texts = [f"DELETE FROM q WHERE a = {parent}", f"UPDATE q SET b = {rng.randrange(3)} WHERE a = {parent}",
                 f"REPLACE INTO q VALUES ({parent}, {rng.randrange(3)})",
                 f"DELETE FROM t WHERE id % 50 = {parent % 50}"]
        try:
            execute(self.db, "BEGIN")
            for text in rng.sample(texts, 2):
                execute(self.db, text)
                self.removed += 1
            execute(self.db, end)
        except pymysql.err.MySQLError as e:
            if e.args[0] not in (1062, 1205, 1213, 1451, 1452):
                raise
            execute(self.db, "ROLLBACK")

    def end(self) -> None:
        self.over.set()
        self.join(60)
        self.db.close()
        if self.error is not None:
            raise self.error


def test_parents_that_go_meanwhile(served: Served, tmp_path: Path) -> None:
    seed = seeds.seed()
    rng = random.Random(seed)
    with served.connect() as db:
        execute(db, f"INSERT INTO q VALUES {', '.join(f'({a}, {b})' for a in range(200) for b in (0, 1))}")
        others = [Removing(served, seed + n) for n in range(2)]
        try:
            loaded = 0
            for n in range(2):
                new = [(n * 1000 + i, rng.randrange(200), rng.randrange(2), maybe(rng, n * 1000 + rng.randrange(300)))
                       for i in range(300)]
                done = load(served, tmp_path, "t", "id,a,b,up", new)
                assert done["rows"] + done["rejected"] == 300
                loaded += done["rows"]
                for text in ("SELECT COUNT(*) FROM t LEFT JOIN q ON q.a = t.a AND q.b = t.b WHERE q.a IS NULL",
                             "SELECT COUNT(*) FROM t LEFT JOIN t AS o ON o.id = t.up WHERE t.up IS NOT NULL AND "
                             "o.id IS NULL"):
                    assert rows(db, text) == [(0,)], text
        finally:
            for other in others:
                other.end()
        assert loaded and sum(other.removed for other in others)
