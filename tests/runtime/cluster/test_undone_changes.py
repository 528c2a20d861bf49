"""A change of the program that one of several workers cannot store is undone, and all have the same graph."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noria.client.embedded import EmbeddedTransport
from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL
from seeds import seed

KEYS, SHOWN = range(6), ("id, b", "id, b + 1", "b, COUNT(*)", "COUNT(*), SUM(b)", "MAX(id), MIN(b)", "DISTINCT b")
GROUPED = {"b, COUNT(*)": "a, b", "COUNT(*), SUM(b)": "a", "MAX(id), MIN(b)": "a"}


def select(shown: str) -> str:
    return f"SELECT {shown} FROM t WHERE a = ?" + (f" GROUP BY {GROUPED[shown]}" if shown in GROUPED else "")


def expected(shown: str, table: dict[int, tuple[int, int]], a: int) -> Counter[Any]:
    rows = [(id, b) for id, (of, b) in table.items() if of == a]
    if shown == "b, COUNT(*)":
        return Counter(Counter(b for _, b in rows).items())
    if shown == "DISTINCT b":
        return Counter((b,) for b in {b for _, b in rows})
    if not rows or shown == "id, b":
        return Counter(rows)
    if shown == "id, b + 1":
        return Counter((id, b + 1) for id, b in rows)
    ids, bs = zip(*rows, strict=True)
    return Counter([(len(rows), sum(bs)) if shown == "COUNT(*), SUM(b)" else (max(ids), min(bs))])


class Db:
    """Two or three workers in this process, and the expected rows of table t."""

    def __init__(self, path: Path, workers: int):
        self.transport = EmbeddedTransport(path, workers=workers)
        self.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT NOT NULL, b INT NOT NULL)")
        self.table: dict[int, tuple[int, int]] = {}

    def sql(self, text: str, *values: Any) -> Counter[Any]:
        rows = self.transport.sql(text, list(values)).rows
        return Counter() if rows is None else Counter(tuple(r.values()) for r in rows.to_pylist())

    def put(self, id: int, a: int, b: int) -> None:
        self.sql("REPLACE INTO t (id, a, b) VALUES (?, ?, ?)", id, a, b)
        self.table[id] = a, b

    def remove(self, id: int) -> None:
        self.sql("DELETE FROM t WHERE id = ?", id)
        self.table.pop(id, None)

    def workers(self) -> list[Any]:
        return [link.hosted for link in self.transport.link.links]

    @contextmanager
    def full(self, worker: int, times: int = 1) -> Iterator[None]:
        """The disk of a worker has no room for this number of changes of the program."""
        changes, left = self.workers()[worker].changes, [times]
        commit = changes._commit

        def refuse(steps: Any, store: Any) -> None:
            left[0] -= bool(steps)
            if left[0] < 0 or not steps:
                return commit(steps, store)
            raise SqlError(*DISK_FULL, "Disk full")

        changes._commit = refuse
        yield
        del changes._commit

    def check(self, views: dict[str, str]) -> None:
        """All workers have the same graph, and every view at every key has its rows."""
        plans = [{(p.id, p.what, p.parents, p.full) for p in w.changes.graph_plan().nodes} for w in self.workers()]
        assert all(p == plans[0] for p in plans)
        for name, shown in views.items():
            for a in KEYS:
                assert self.sql(f"SELECT * FROM {name} WHERE a = ?", a) == expected(shown, self.table, a), (name, a)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Db]:
    db = Db(tmp_path / "db", 2)
    for id in range(30):
        db.put(id, id % len(KEYS), id % 4)
    yield db
    db.transport.close()


@pytest.mark.parametrize("worker", [0, 1])
def test_a_change_that_cannot_be_stored_is_undone(db: Db, worker: int) -> None:
    db.sql(f"CREATE VIEW v AS {select('COUNT(*), SUM(b)')}")
    db.sql(f"CREATE VIEW w AS {select('id, b')}")
    views = {"v": "COUNT(*), SUM(b)", "w": "id, b"}
    db.check(views)
    for text in (f"CREATE OR REPLACE VIEW v AS {select('DISTINCT b')}", "DROP VIEW w", "DROP VIEW v",
                 "ALTER TABLE t ADD c INT", "CREATE INDEX i ON t (b)", "RENAME TABLE t TO other"):
        with db.full(worker), pytest.raises(SqlError, match="Disk full"):
            db.sql(text)
        db.put(100, 1, 3)
        db.remove(1)
        db.check(views)
        db.put(1, 1, 1)
        db.check(views)


@pytest.mark.parametrize("worker", [0, 1])
def test_ad_hoc_views_dropped_for_one_that_cannot_be_stored_are_restored(db: Db, worker: int) -> None:
    """On a full disk the least used views are dropped first.  If that does not help, they are restored."""
    def ask() -> None:
        for shown in ("id, b", "COUNT(*), SUM(b)"):
            for a in KEYS:
                assert db.sql(select(shown), a) == expected(shown, db.table, a)

    for _ in range(3):
        ask()
    with db.full(worker, 100):
        for _ in range(3):
            for a in KEYS:
                assert db.sql(select("DISTINCT b"), a) == expected("DISTINCT b", db.table, a)
    db.put(100, 1, 3)
    ask()
    db.check({})


@pytest.mark.parametrize("number", range(6))
def test_random_changes_of_which_some_cannot_be_stored(tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{seed('NORIA_UNDO_SEED', 1)} {number}")
    db = Db(tmp_path / "db", chance.choice((2, 3)))
    views: dict[str, str] = {}
    failed = 0
    try:
        for _ in range(40):
            for _ in range(chance.randrange(4)):
                db.put(chance.randrange(40), chance.choice(KEYS), chance.randrange(4))
                db.remove(chance.randrange(40))
            name, shown = chance.choice("uvwxyz"), chance.choice(SHOWN)
            text = chance.choice((f"DROP VIEW {name}", f"CREATE OR REPLACE VIEW {name} AS {select(shown)}",
                                  f"CREATE OR REPLACE VIEW {name} AS {select(shown)}",
                                  f"ALTER TABLE t ADD c{len(views)} INT, DROP c{len(views)}"))
            with db.full(chance.randrange(len(db.workers())), chance.choice((0, 1))):
                try:
                    db.sql(text)
                except SqlError as e:
                    failed += e.code == DISK_FULL.number
                    continue
                finally:
                    db.put(chance.randrange(40), chance.choice(KEYS), chance.randrange(4))
            if text.startswith("DROP"):
                views.pop(name, None)
            elif text.startswith("CREATE"):
                views[name] = shown
            db.check(views)
        assert failed
    finally:
        db.transport.close()
