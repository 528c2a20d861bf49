"""ALTER TABLE, CREATE INDEX and DROP INDEX over the embedded runtime: random changes beside SQLite, and examples."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.core.errors import SqlError
from noria.dataflow.packets import Ask, Evict

TYPES = (("INT", "5"), ("INT", None), ("VARCHAR(20)", "'new'"), ("VARCHAR(20)", None), ("INT NOT NULL", "0"))


def ask(db: Database, packet: Any) -> Any:
    transport: Any = db._transport
    return transport._run(transport._executor.ask(packet))


class Beside:
    """A database and SQLite; views know the columns that they were made with."""

    def __init__(self, path: Path, seed: int):
        self.path, self.chance = path, random.Random(seed)
        self.lite = sqlite3.connect(":memory:")
        self.db = noria.open(path)
        self.columns, self.indexes, self.views = ["id", "a"], list[str](), dict[str, str]()
        self.numbers = ["id", "a"]
        self.both("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        self.both("CREATE TABLE u (id INT PRIMARY KEY, k INT)")
        for i in range(5):
            self.both(f"INSERT INTO u VALUES ({i}, {i % 3})")

    def both(self, text: str, *values: Any) -> None:
        self.db.sql(text, list(values))
        self.lite.execute(text, values)

    def step(self) -> None:
        chance = self.chance
        act = chance.choice([self.insert] * 4 + [self.update] * 2 + [self.delete, self.add, self.index, self.drop_index,
                                                                     self.view, self.view, self.again, self.evict])
        act()

    def value(self) -> Any:
        return self.chance.choice([None, 0, 1, 2, 3])

    def insert(self) -> None:
        id, a = self.chance.randrange(40), self.value()
        if self.lite.execute("SELECT 1 FROM t WHERE id = ?", (id,)).fetchone() is None:
            self.both("INSERT INTO t (id, a) VALUES (?, ?)", id, a)

    def update(self) -> None:
        column = self.chance.choice(self.columns[1:])
        self.both(f"UPDATE t SET {column} = {column} WHERE a = ?", self.value())
        self.both("UPDATE t SET a = ? WHERE id < ?", self.value(), self.chance.randrange(40))

    def delete(self) -> None:
        self.both("DELETE FROM t WHERE id = ?", self.chance.randrange(40))

    def add(self) -> None:
        if len(self.columns) < 8:
            name, (type, default) = f"c{len(self.columns)}", self.chance.choice(TYPES)
            self.both(f"ALTER TABLE t ADD COLUMN {name} {type}" + (f" DEFAULT {default}" if default else ""))
            self.columns.append(name)
            self.numbers += [name] if type.startswith("INT") else []

    def index(self) -> None:
        name = f"i{len(self.indexes)}_{self.chance.randrange(10**6)}"
        columns = self.chance.sample(self.columns, min(2, len(self.columns)))
        self.db.sql(f"CREATE INDEX {name} ON t ({', '.join(columns)})")
        self.indexes.append(name)

    def drop_index(self) -> None:
        if self.indexes:
            self.db.sql(f"ALTER TABLE t DROP INDEX {self.indexes.pop()}")

    def view(self) -> None:
        """By what the tables are now; `*` stays what it is."""
        name, by = f"v{self.chance.randrange(6)}", self.chance.choice(self.numbers)
        shown = ", ".join(f"t.{c}" for c in self.columns)
        kinds = ((f"SELECT * FROM t WHERE {by} = ?", f"SELECT {shown} FROM t WHERE {by} = ?"),
                 (f"SELECT {by}, COUNT(*) AS n, MAX(id) AS m FROM t GROUP BY {by}",) * 2,
                 (f"SELECT t.*, k FROM t JOIN u ON t.a = u.id WHERE t.{by} = ?",
                  f"SELECT {shown}, k FROM t JOIN u ON t.a = u.id WHERE t.{by} = ?"),
                 (f"SELECT k, COUNT(t.{by}) AS n FROM t JOIN u ON t.a = u.id GROUP BY k",) * 2)
        text, explicit = self.chance.choice(kinds)
        self.db.sql(f"CREATE OR REPLACE VIEW {name} AS {text}")
        self.views[name] = explicit

    def again(self) -> None:
        self.db.close()
        self.db = noria.open(self.path)

    def evict(self) -> None:
        ask(self.db, Evict(0, None))

    def compare(self) -> None:
        assert Counter(self.db.sql("SELECT * FROM t").rows) == Counter(self.lite.execute("SELECT * FROM t").fetchall())
        for name, text in self.views.items():
            for key in [(v,) for v in (0, 1, 2, 3, 5)] if "?" in text else [()]:
                want = Counter(self.lite.execute(text, key).fetchall())
                assert Counter(self.db.view(name).lookup(*key)) == want, (name, text, key)
        ask(self.db, Ask(0, "validate"))


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_beside_sqlite(tmp_path: Path, seed: int) -> None:
    beside = Beside(tmp_path / "data", seed)
    try:
        for step in range(60):
            beside.step()
            if step % 6 == 5:
                beside.compare()
        beside.again()
        beside.compare()
    finally:
        beside.db.close()


@pytest.mark.parametrize("text, code", [
    ("ALTER TABLE t ADD COLUMN a INT", 1060), ("ALTER TABLE nosuch ADD COLUMN x INT", 1146),
    ("ALTER TABLE t ADD COLUMN x DATETIME NOT NULL", 1364), ("ALTER TABLE t ADD COLUMN x INT DEFAULT 'z'", 1067),
    ("ALTER TABLE t ADD INDEX (x)", 1072), ("ALTER TABLE t ADD INDEX by_a (a)", 1061), ("DROP INDEX x ON t", 1091),
    ("ALTER TABLE t ADD COLUMN x INT, DROP INDEX nosuch", 1091), ("ALTER TABLE t ALTER x SET DEFAULT 1", 1054),
    ("ALTER TABLE t RENAME INDEX by_a TO PRIMARY", 1061), ("ALTER TABLE t DROP COLUMN a", 1235),
    ("ALTER TABLE t MODIFY a BIGINT", 1235), ("ALTER TABLE t ADD COLUMN x INT FIRST", 1235),
    ("ALTER TABLE t ADD COLUMN x INT UNIQUE", 1235), ("ALTER TABLE t ADD UNIQUE (a)", 1235),
    ("ALTER TABLE v ADD COLUMN x INT", 1146), ("ALTER TABLE t ALTER id SET DEFAULT NULL", 1067),
    ("ALTER TABLE t ADD INDEX i (a) INVISIBLE", 1235), ("DROP INDEX by_n ON t", 1075),
    ("CREATE INDEX i ON t (a, a)", 1060),
    ("ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES t (id)", 1235)])
def test_what_cannot_be_done_changes_nothing(tmp_path: Path, text: str, code: int) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, n INT AUTO_INCREMENT, KEY by_a (a), KEY by_n (n))")
        db.sql("CREATE VIEW v AS SELECT * FROM t WHERE a = ?")
        before = db.sql("SHOW CREATE TABLE t").rows
        with pytest.raises(SqlError) as e:
            db.sql(text)
        assert e.value.code == code, e.value
        assert db.sql("SHOW CREATE TABLE t").rows == before


def test_statements_of_before_go_on(tmp_path: Path) -> None:
    """Prepared ones too: they are planned anew."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT)")
        for _ in range(3):
            db.sql("INSERT INTO t (a) VALUES (?)", [1])
            assert db.sql("SELECT * FROM t WHERE a = ?", [1]).rows
        db.sql("ALTER TABLE t ADD COLUMN b VARCHAR(10) DEFAULT 'b', AUTO_INCREMENT = 50, ALTER a SET DEFAULT 1")
        assert db.sql("INSERT INTO t (b) VALUES (?)", ["c"]).last_insert_id == 50
        assert sorted(db.sql("SELECT * FROM t WHERE a = ?", [1]).rows) == [
            (1, 1, "b"), (2, 1, "b"), (3, 1, "b"), (50, 1, "c")]
        db.table("t").insert([(60, 1, "d")])
        db.sql("ALTER TABLE t ALTER b SET DEFAULT 'z'")
        assert ("b",) in db.sql("SELECT b FROM t WHERE id = 1").rows, "rows of before keep what they had"
        assert db.sql("SELECT COUNT(*) FROM t WHERE b = 'd'").rows == [(1,)]
