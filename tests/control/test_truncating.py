"""TRUNCATE on a database of this process: small tables, large ones, and what happens meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.control.whole import WholeProgram
from noria.core import limits
from noria.core.limits import BUILD_AT_ONCE_ROWS
from noria.dataflow.packets import Ask

MANY = 3 * BUILD_AT_ONCE_ROWS


class Emptied:
    """A database whose tables are all large to TRUNCATE, unless told otherwise."""

    def __init__(self, path: Path):
        self.path = path
        self.open()

    def open(self) -> None:
        self.db: Database = noria.open(self.path)
        self.transport: Any = self.db._transport
        self.program: WholeProgram = self.transport._program

    def again(self) -> None:
        self.db.close()
        self.open()

    def ask(self, what: str) -> Any:
        return self.transport._run(self.transport._executor.ask(Ask(0, what)))

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return sorted(self.db.sql(text, list(values)).rows)

    def traces(self) -> list[str]:
        """What is left of something beside another."""
        names = [v for d in self.ask("graph") for v in d["views"]]
        store = self.transport._link._worker._store
        return [n for n in (*names, *store.tables(), *self.program._beside) if "\0" in n]


@pytest.fixture
def emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emptied]:
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", -1)
    made = Emptied(tmp_path / "data")
    yield made
    made.db.close()


def test_one(emptied: Emptied) -> None:
    db = emptied.db
    db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, KEY (a))")
    db.sql("CREATE TABLE u (id INT PRIMARY KEY, k INT)")
    db.sql("CREATE VIEW by_a AS SELECT id, a FROM t WHERE a = ?")
    db.sql("CREATE MATERIALIZED VIEW j AS SELECT u.id, COUNT(t.id) AS n FROM u LEFT JOIN t ON t.a = u.id GROUP BY u.id")
    db.sql("CREATE VIEW unread AS SELECT COUNT(*) AS n FROM t")
    db.table("u").insert([(i, i) for i in range(MANY)])
    db.table("t").insert([(i % 7,) for i in range(100)], ["a"])
    assert len(emptied.rows("SELECT * FROM by_a WHERE a = 3")) == 14
    db.sql("TRUNCATE TABLE t")
    assert emptied.rows("SELECT * FROM by_a WHERE a = 3") == []
    assert emptied.rows("SELECT id FROM j WHERE n > 0") == []
    assert emptied.rows("SELECT n FROM unread") == [(0,)]
    assert emptied.rows("SELECT COUNT(*) FROM t") == [(0,)]
    db.sql("INSERT INTO t (a) VALUES (3)")
    assert emptied.rows("SELECT * FROM by_a WHERE a = 3") == [(1, 3)]
    assert emptied.rows("SELECT id FROM j WHERE n > 0") == [(3,)]
    emptied.ask("validate")
    assert emptied.traces() == []
    emptied.again()
    assert emptied.rows("SELECT * FROM by_a WHERE a = 3") == [(1, 3)]
    assert emptied.traces() == []
