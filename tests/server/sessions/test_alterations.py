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
from noria.core import limits
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Evict, Inspect

TYPES = (("INT", "5"), ("INT", None), ("VARCHAR(20)", "'new'"), ("VARCHAR(20)", None), ("INT NOT NULL", "0"))


def ask(db: Database, packet: Any) -> Any:
    transport: Any = db.transport
    return transport.run(transport.executor.ask(packet))


class Beside:
    """A database and SQLite.  Columns are known by what they were first called; views know those that they were made
    with, and texts for SQLite have `{c}` for the name of column c, and `{t}` for the table's."""

    def __init__(self, path: Path, seed: int):
        self.path, self.chance = path, random.Random(seed)
        self.lite = sqlite3.connect(":memory:")
        self.db = noria.open(path)
        self.columns = ["id", "a"]  # as they are shown
        self.called, self.types = {"t": "t", "id": "id", "a": "a"}, {"id": "INT", "a": "INT"}
        self.indexes, self.views, self.made = list[str](), dict[str, str](), 2
        self.key: tuple[str, ...] = ("id",)
        self.mine("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        self.lite.execute("CREATE TABLE t (id INT, a INT)")  # whose key cannot change
        self.both("CREATE TABLE u (id INT PRIMARY KEY, k INT)")
        for i in range(5):
            self.both(f"INSERT INTO u VALUES ({i}, {i % 3})")

    def both(self, text: str, *values: Any) -> None:
        text = text.format(**self.called)
        self.db.sql(text, list(values))
        self.lite.execute(text, values)

    def mine(self, text: str) -> None:
        self.db.sql(text.format(**self.called))

    def step(self) -> None:
        act = self.chance.choice([self.insert] * 6 + [self.update] * 3 + [self.view] * 3 + [
            self.delete, self.add, self.drop, self.rename, self.move, self.modify, self.rename_table, self.index,
            self.drop_index, self.truncate, self.again, self.evict, self.rekey, self.swap])
        act()

    @property
    def numbers(self) -> list[str]:
        return [c for c in self.columns if "INT" in self.types[c]]

    def value(self) -> Any:
        return self.chance.choice([None, 0, 1, 2, 3])

    def insert(self) -> None:
        id, a = self.chance.randrange(40), self.value()
        if self.lite.execute("SELECT 1 FROM {t} WHERE {id} = ?".format(**self.called), (id,)).fetchone() is None:
            shown = ", ".join(f"{{{c}}}" for c in self.columns)
            values = [id if c == "id" else a if c == "a" else self.fitting(c) for c in self.columns]
            if self.chance.random() < 0.5:
                self.both("INSERT INTO {t} ({id}, {a}) VALUES (?, ?)", id, a)
            else:
                self.both(f"INSERT INTO {{t}} ({shown}) VALUES ({', '.join('?' * len(values))})", *values)

    def fitting(self, column: str) -> Any:
        value = 1 if "NOT NULL" in self.types[column] else self.value()
        return value if value is None or "INT" in self.types[column] else str(value)

    def update(self) -> None:
        column = self.chance.choice([c for c in self.columns if c != "id"])
        self.both(f"UPDATE {{t}} SET {{{column}}} = ? WHERE {{a}} = ?", self.fitting(column), self.value())
        self.both("UPDATE {t} SET {a} = ? WHERE {id} < ?", self.value(), self.chance.randrange(40))

    def delete(self) -> None:
        self.both("DELETE FROM {t} WHERE {id} = ?", self.chance.randrange(40))

    def truncate(self) -> None:
        """Of few rows at once, of more by an empty table that takes its place."""
        table = self.chance.choice(["{t}", "{t}", "u"])
        self.mine(f"TRUNCATE TABLE {table}")
        self.lite.execute(f"DELETE FROM {table}".format(**self.called))
        if table == "u":
            for i in range(self.chance.choice((2, 5))):
                self.both(f"INSERT INTO u VALUES ({i}, {i % 3})")

    def place(self, after: list[str]) -> tuple[str, int]:
        """FIRST or AFTER, and where that is."""
        at = self.chance.randrange(len(after) + 1)
        return ("FIRST" if at == 0 else f"AFTER {self.called[after[at - 1]]}"), at

    def add(self) -> None:
        if len(self.columns) < 8:
            name, (type, default) = f"c{self.made}", self.chance.choice(TYPES)
            type += f" DEFAULT {default}" if default else ""
            text = f"ALTER TABLE {{t}} ADD COLUMN {name} {type}"
            where, at = self.place(self.columns) if self.chance.random() < 0.5 else ("", len(self.columns))
            self.lite.execute(text.format(**self.called))
            self.mine(f"{text} {where}")
            self.columns.insert(at, name)
            self.made, self.called[name], self.types[name] = self.made + 1, name, type

    def needed(self, column: str) -> list[str]:
        return [v for v, text in self.views.items() if f"{{{column}}}" in text]

    def refused(self, text: str, code: int = 3730) -> None:
        with pytest.raises(SqlError) as e:
            self.mine(text)
        assert e.value.code == code

    def drop(self) -> None:
        column = self.chance.choice(self.columns)
        if column in ("id", "a"):
            return
        text = f"ALTER TABLE {{t}} DROP COLUMN {{{column}}}"
        if self.needed(column):
            self.refused(text)
        else:
            self.both(text)
            self.columns.remove(column)
            self.key = tuple(c for c in self.key if c != column)

    def rekey(self) -> None:
        """Another primary key, or none."""
        others = [c for c in self.columns if "NOT NULL" in self.types[c]]
        beside = self.chance.sample(others, min(len(others), self.chance.randrange(3)))
        key = self.chance.choice([(), ("id",), ("id", *beside), (*beside, "id"), ("a", "id"), tuple(beside)])
        called = [self.called[c] for c in key]
        parts = ["DROP PRIMARY KEY"] * bool(self.key) + [f"ADD PRIMARY KEY ({', '.join(called)})"] * bool(key)
        text = f"ALTER TABLE {{t}} {', '.join(self.chance.sample(parts, len(parts)))}"
        rows = self.lite.execute(f"SELECT {', '.join(called) or 1} FROM {{t}}".format(**self.called)).fetchall()
        if "a" in key and (None, 0) not in [(r[0], 0) for r in rows]:
            return  # which is to be NULL later on
        if "a" in key:
            self.refused(text, 1138)
        elif "id" not in key and key and len(set(rows)) < len(rows):
            self.refused(text, 1062)
        elif ("id" in key or not key) and parts:
            self.mine(text)
            self.key = key

    def swap(self) -> None:
        """Two columns, or three, with the names of each other."""
        some = self.chance.sample(self.columns[:], min(len(self.columns), self.chance.choice([2, 3])))
        names = [self.called[c] for c in some]
        turned = [*names[1:], names[0]]
        self.mine("ALTER TABLE {t} " + ", ".join(f"RENAME COLUMN {a} TO {b}"
                                                 for a, b in zip(names, turned, strict=True)))
        for before, after in [(a, f"{a}_between") for a in names] + [(f"{a}_between", b)
                                                                     for a, b in zip(names, turned, strict=True)]:
            self.lite.execute(f"ALTER TABLE {self.called['t']} RENAME COLUMN {before} TO {after}")
        self.called.update(zip(some, turned, strict=True))

    def rename(self) -> None:
        column = self.chance.choice([c for c in self.columns if c != "id"])
        self.made += 1
        self.both(f"ALTER TABLE {{t}} RENAME COLUMN {{{column}}} TO r{self.made}")
        self.called[column] = f"r{self.made}"

    def move(self) -> None:
        column = self.chance.choice([c for c in self.columns if c != "id"])
        others = [c for c in self.columns if c != column]
        where, at = self.place(others)
        self.mine(f"ALTER TABLE {{t}} MODIFY {{{column}}} {self.types[column]} {where}")
        self.columns = [*others[:at], column, *others[at:]]

    def modify(self) -> None:
        """Numbers become texts and texts numbers, if they are some."""
        column = self.chance.choice(self.columns)
        if column in ("id", "a") or "NOT NULL" in self.types[column]:
            return
        type = "VARCHAR(20)" if "INT" in self.types[column] else "BIGINT"
        text = f"ALTER TABLE {{t}} CHANGE {{{column}}} m{self.made} {type}"
        rows = self.lite.execute("SELECT {%s} FROM {t}".replace("%s", column).format(**self.called)).fetchall()
        if self.needed(column):
            self.refused(text)
            return
        if type == "BIGINT" and ("new",) in rows:
            self.refused(text, 1366)
            return
        self.mine(text)
        other, self.made = f"m{self.made}", self.made + 1
        self.lite.execute("ALTER TABLE {t} ADD COLUMN ".format(**self.called) + f"{other} {type}")
        cast = "TEXT" if type == "VARCHAR(20)" else "INTEGER"
        self.lite.execute(f"UPDATE {{t}} SET {other} = CAST({{{column}}} AS {cast})".format(**self.called))
        self.lite.execute(f"ALTER TABLE {{t}} DROP COLUMN {{{column}}}".format(**self.called))
        self.columns[self.columns.index(column)] = other
        self.called[other], self.types[other] = other, type

    def rename_table(self) -> None:
        """The name of before is another table's from then on, now and then."""
        name, before, self.made = f"t{self.made}", self.called["t"], self.made + 1
        self.db.sql(self.chance.choice([f"RENAME TABLE {before} TO {name}", f"ALTER TABLE {before} RENAME {name}"]))
        self.lite.execute(f"ALTER TABLE {before} RENAME TO {name}")
        self.called["t"] = name
        if self.chance.random() < 0.3:
            self.both(f"CREATE TABLE {before} (id INT PRIMARY KEY, z INT)")
            if self.chance.random() < 0.5:
                self.db.sql(f"RENAME TABLE {name} TO other, {before} TO {name}, other TO {before}")
                for text in (f"{name} RENAME TO other", f"{before} RENAME TO {name}", f"other RENAME TO {before}"):
                    self.lite.execute(f"ALTER TABLE {text}")
                self.called["t"] = before

    def index(self) -> None:
        name = f"i{len(self.indexes)}_{self.chance.randrange(10**6)}"
        columns = self.chance.sample(self.columns, min(2, len(self.columns)))
        self.mine(f"CREATE INDEX {name} ON {{t}} ({', '.join(self.called[c] for c in columns)})")
        self.indexes.append(name)

    def drop_index(self) -> None:
        """Those whose columns went are gone."""
        shown = {r[2] for r in self.db.sql("SHOW INDEX FROM {t}".format(**self.called)).rows}
        self.indexes = [i for i in self.indexes if i in shown]
        if self.indexes:
            self.mine(f"ALTER TABLE {{t}} DROP INDEX {self.indexes.pop()}")

    def view(self) -> None:
        """By what the tables are now; `*` stays what it is."""
        name, by = f"v{self.chance.randrange(6)}", f"{{{self.chance.choice(self.numbers)}}}"
        shown = ", ".join(f"{{t}}.{{{c}}}" for c in self.columns)
        one = f"{{t}}.{{{self.chance.choice(self.columns)}}}"
        kinds = ((f"SELECT * FROM {{t}} WHERE {by} = ?", f"SELECT {shown} FROM {{t}} WHERE {by} = ?"),
                 (f"SELECT {one}, {{t}}.{{id}} AS i FROM {{t}}",) * 2,
                 (f"SELECT {by}, COUNT(*) AS n, MAX({{id}}) AS m FROM {{t}} GROUP BY {by}",) * 2,
                 (f"SELECT {{t}}.*, k FROM {{t}} JOIN u ON {{t}}.{{a}} = u.id WHERE {{t}}.{by} = ?",
                  f"SELECT {shown}, k FROM {{t}} JOIN u ON {{t}}.{{a}} = u.id WHERE {{t}}.{by} = ?"),
                 (f"SELECT k, COUNT({{t}}.{by}) AS n FROM {{t}} JOIN u ON {{t}}.{{a}} = u.id GROUP BY k",) * 2)
        text, explicit = self.chance.choice(kinds)
        self.mine(f"CREATE OR REPLACE VIEW {name} AS {text}")
        self.views[name] = explicit

    def again(self) -> None:
        self.db.close()
        self.db = noria.open(self.path)

    def evict(self) -> None:
        ask(self.db, Evict(0, None))

    def elsewhere(self, path: Path) -> None:
        """The program as it is said, over the same rows, is the same: whatever names views were written with."""
        before, self.db = self.db, noria.open(path)
        try:
            for (text,) in before.sql("SHOW NORIA PROGRAM").rows:
                self.db.sql(text)
                assert "ALTER" not in text
            for name, kind in before.sql("SHOW FULL TABLES").rows:
                if kind == "BASE TABLE" and (rows := before.sql(f"SELECT * FROM {name}").rows):
                    self.db.table(name).insert(rows)
            self.compare()
        finally:
            self.db.close()
            self.db = before

    def compare(self) -> None:
        shown = ", ".join(f"{{{c}}}" for c in self.columns)
        want = self.lite.execute(f"SELECT {shown} FROM {{t}}".format(**self.called)).fetchall()
        assert Counter(self.db.sql("SELECT * FROM {t}".format(**self.called)).rows) == Counter(want)
        for name, text in self.views.items():
            for key in [(v,) for v in (0, 1, 2, 3, 5)] if "?" in text else [()]:
                want = self.lite.execute(text.format(**self.called), key).fetchall()
                assert Counter(self.db.view(name).lookup(*key)) == Counter(want), (name, text, key)
        ask(self.db, Inspect(0, "validate"))


@pytest.mark.parametrize("seed", range(12))
def test_random_changes_beside_sqlite(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRUNCATE_AT_ONCE_ROWS", 3)
    beside = Beside(tmp_path / "data", seed)
    try:
        for step in range(80):
            beside.step()
            if step % 6 == 5:
                beside.compare()
        beside.again()
        beside.compare()
        beside.elsewhere(tmp_path / "elsewhere")
    finally:
        beside.db.close()


@pytest.mark.parametrize("text, code", [
    ("ALTER TABLE t ADD COLUMN a INT", 1060), ("ALTER TABLE nosuch ADD COLUMN x INT", 1146),
    ("ALTER TABLE t ADD COLUMN x DATETIME NOT NULL", 1364), ("ALTER TABLE t ADD COLUMN x INT DEFAULT 'z'", 1067),
    ("ALTER TABLE t ADD INDEX (x)", 1072), ("ALTER TABLE t ADD INDEX by_a (a)", 1061), ("DROP INDEX x ON t", 1091),
    ("ALTER TABLE t ADD COLUMN x INT, DROP INDEX nosuch", 1091), ("ALTER TABLE t ALTER x SET DEFAULT 1", 1054),
    ("ALTER TABLE t RENAME INDEX by_a TO PRIMARY", 1061), ("ALTER TABLE t DROP COLUMN a", 3730),
    ("ALTER TABLE t MODIFY a BIGINT", 3730), ("ALTER TABLE t ADD COLUMN x INT AFTER y", 1054),
    ("ALTER TABLE t ADD COLUMN x INT NOT NULL UNIQUE", 1062), ("ALTER TABLE t ADD UNIQUE (s)", 1062),
    ("CREATE UNIQUE INDEX by_a ON t (a)", 1061), ("ALTER TABLE one ADD UNIQUE (c)", 1062),
    ("ALTER TABLE t ADD UNIQUE (x), ADD x INT DEFAULT 1", 1062), ("ALTER TABLE t DROP CONSTRAINT nosuch", 3940),
    ("CREATE UNIQUE INDEX i ON t (a(3))", 1089),
    ("ALTER TABLE v ADD COLUMN x INT", 1146), ("ALTER TABLE t ALTER id SET DEFAULT NULL", 1067),
    ("ALTER TABLE t ADD INDEX i (a) INVISIBLE", 1235), ("DROP INDEX by_n ON t", 1075),
    ("CREATE INDEX i ON t (a, a)", 1060), ("ALTER TABLE t DROP COLUMN n", 3730), ("ALTER TABLE t DROP nosuch", 1091),
    ("ALTER TABLE t DROP id", 3730), ("ALTER TABLE t RENAME COLUMN x TO y", 1054),
    ("ALTER TABLE t RENAME COLUMN c TO A", 1060), ("ALTER TABLE t CHANGE c a INT", 1060),
    ("ALTER TABLE t MODIFY x INT", 1054), ("ALTER TABLE t MODIFY c INT NOT NULL", 1138),
    ("ALTER TABLE t MODIFY d VARCHAR(2)", 1406), ("ALTER TABLE t MODIFY d INT", 1366),
    ("ALTER TABLE t MODIFY id VARCHAR(9)", 3730), ("ALTER TABLE t MODIFY c INT AUTO_INCREMENT", 1075),
    ("ALTER TABLE t MODIFY c INT AFTER c", 1054),
    ("ALTER TABLE t MODIFY c TINYINT", 1264), ("ALTER TABLE t DROP c, DROP c", 1091),
    ("ALTER TABLE t RENAME TO v", 1050), ("RENAME TABLE t TO T", 1050), ("RENAME TABLE t TO u, u TO v", 1050),
    ("RENAME TABLE nosuch TO u", 1146), ("RENAME TABLE t TO u, t TO w", 1146), ("RENAME TABLE v TO w", 1146),
    ("RENAME USER a TO b", 1396), ("RENAME TABLE t u", 1064), ("ALTER TABLE t ADD x INT, LOCK = EXCLUSIVE", 1235),
    ("ALTER TABLE one DROP c", 1090), ("ALTER TABLE one DROP PRIMARY KEY", 1091),
    ("ALTER TABLE t ADD PRIMARY KEY (a)", 1068), ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (c)", 1138),
    ("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (s)", 1062), ("ALTER TABLE one ADD PRIMARY KEY (x)", 1072),
    ("ALTER TABLE one ADD PRIMARY KEY (c)", 1062), ("ALTER TABLE one ADD x INT PRIMARY KEY", 1062),
    ("ALTER TABLE t ADD x INT AUTO_INCREMENT UNIQUE", 1075), ("ALTER TABLE one ADD x INT AUTO_INCREMENT", 1075),
    ("ALTER TABLE t DROP PRIMARY KEY, DROP d, DROP d", 1091),
    ("ALTER TABLE one ADD x TIMESTAMP DEFAULT CURRENT_TIMESTAMP UNIQUE", 1235), ("ALTER TABLE t DROP k", 1062),
    ("ALTER TABLE g DROP PRIMARY KEY", 3730), ("ALTER TABLE t CONVERT TO CHARACTER SET nosuch", 1115),
    ("ALTER TABLE t COLLATE utf8mb4_bin", 1235), ("ALTER TABLE t RENAME COLUMN c TO d, RENAME COLUMN a TO d", 1060),
    ("ALTER TABLE t ADD (x INT, a INT)", 1060), ("ALTER TABLE t CONVERT TO x", 1064),
    ("ALTER TABLE t ADD (x INT", 1064),
    ("ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES t (id) MATCH FULL", 1235)])
def test_what_cannot_be_done_changes_nothing(tmp_path: Path, text: str, code: int) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, n INT AUTO_INCREMENT, c INT, d TEXT, at TIMESTAMP, "
               "s INT DEFAULT 1, k INT, UNIQUE (k, s), KEY by_a (a), KEY by_n (n))")
        db.sql("CREATE TABLE one (c INT)")
        db.sql("INSERT INTO one VALUES (1), (1)")
        db.sql("CREATE TABLE g (id INT PRIMARY KEY, d INT)")
        db.sql("CREATE VIEW each AS SELECT id, d, COUNT(*) AS n FROM g GROUP BY id")  # one d for each id
        db.sql("INSERT INTO t (id, a, c, d) VALUES (1, 1, 1000, 'long'), (2, 2, NULL, '3')")
        db.sql("CREATE VIEW v AS SELECT id, a, n FROM t WHERE a = ?")
        before = db.sql("SHOW CREATE TABLE t").rows
        with pytest.raises(SqlError) as e:
            db.sql(text)
        assert e.value.code == code, e.value
        assert db.sql("SHOW CREATE TABLE t").rows == before


def test_unique_from_now_on(tmp_path: Path) -> None:
    """Also for what is written while the rows are looked at, and after a restart; until it is dropped."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT, b VARCHAR(20))")
        db.sql("INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'X'), (NULL, 'z'), (NULL, NULL)")
        for text in ("ALTER TABLE t ADD UNIQUE (b)", "ALTER TABLE t ADD CONSTRAINT c UNIQUE (b)",
                     "CREATE UNIQUE INDEX u ON t (b)"):
            with pytest.raises(SqlError) as e:
                db.sql(text)
            assert e.value.code == 1062 and "'X'" in e.value.message
        db.sql("CREATE UNIQUE INDEX ua ON t (a)")
        db.sql("UPDATE t SET b = 'y' WHERE id = 2")
        db.sql("ALTER TABLE t ADD CONSTRAINT ub UNIQUE (b), ADD INDEX i (b, a)")
    with noria.open(tmp_path / "data") as db:
        for values in ("(2, NULL)", "(NULL, 'Y')"):
            with pytest.raises(SqlError) as e:
                db.sql(f"INSERT INTO t (a, b) VALUES {values}")
            assert e.value.code == 1062
        assert db.sql("SELECT id FROM t WHERE b = 'Y'").rows == [(2,)]
        db.sql("CREATE VIEW v AS SELECT id FROM t WHERE a = ?")
        assert db.view("v").lookup(2) == [(2,)]
        db.sql("ALTER TABLE t DROP CONSTRAINT ua, DROP INDEX ub")  # the view looks rows up by one
        ask(db, Evict(0, None))
        db.sql("INSERT INTO t (a, b) VALUES (2, 'Y')")
        assert len(db.view("v").lookup(2)) == 2
        assert len(db.sql("SELECT id FROM t WHERE b = 'y'").rows) == 2
        db.sql("ALTER TABLE t DROP COLUMN b")
        assert [r[4] for r in db.sql("SHOW INDEX FROM t").rows] == ["id", "a"]


def test_keys_shrink_with_their_columns(tmp_path: Path) -> None:
    """As MySQL's do, also the primary one; a key of which no column is left goes."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (a INT, b INT, c INT, d INT, PRIMARY KEY (a, b), UNIQUE u (c, d), KEY k (d, c))")
        db.sql("INSERT INTO t VALUES (1, 1, 1, 1), (1, 2, 2, 1), (2, 3, 3, 2)")
        for text, key in (("ALTER TABLE t DROP b", "'1'"), ("ALTER TABLE t DROP c", "'1'")):
            with pytest.raises(SqlError) as e:
                db.sql(text)
            assert e.value.code == 1062 and key in e.value.message
        db.sql("ALTER TABLE t DROP COLUMN a, DROP COLUMN d")
    with noria.open(tmp_path / "data") as db:
        keys = [(r[2], r[4]) for r in db.sql("SHOW INDEX FROM t").rows]
        assert keys == [("PRIMARY", "b"), ("u", "c"), ("k", "c")]
        assert sorted(db.sql("SELECT * FROM t").rows) == [(1, 1), (2, 2), (3, 3)]
        for values in ("(1, 9)", "(9, 1)"):
            with pytest.raises(SqlError) as e:
                db.sql(f"INSERT INTO t VALUES {values}")
            assert e.value.code == 1062
        assert db.sql("SELECT c FROM t WHERE b = 2").rows == db.sql("SELECT b FROM t WHERE c = 2").rows == [(2,)]
        db.sql("ALTER TABLE t DROP COLUMN c, DROP INDEX u, DROP INDEX k")
        db.sql("ALTER TABLE t ADD COLUMN e INT NOT NULL DEFAULT 1, ADD PRIMARY KEY (e, b), DROP PRIMARY KEY")
        db.sql("ALTER TABLE t DROP COLUMN e")
        assert [(r[2], r[4]) for r in db.sql("SHOW INDEX FROM t").rows] == [("PRIMARY", "b")]
        ask(db, Inspect(0, "validate"))


def test_members_are_written_as_they_are_read(tmp_path: Path) -> None:
    """What SHOW CREATE TABLE says makes the same table, as MariaDB's does."""
    with noria.open(tmp_path / "data") as db:
        listed = r"'a\\b','c''d','\\','q\\n'"
        for kind in ("enum", "set"):
            db.sql(f"CREATE TABLE t (x {kind}({listed}))")
            text = db.sql("SHOW CREATE TABLE t").rows[0][1]
            assert f"{kind}({listed})" in text
            db.sql("INSERT INTO t VALUES ('a\\\\b')")
            db.sql("DROP TABLE t")
            db.sql(text)
            assert db.sql("SHOW CREATE TABLE t").rows[0][1] == text
            db.sql("DROP TABLE t")


def test_what_a_dump_is_told_of_a_table(tmp_path: Path) -> None:
    """Its counter, as SHOW CREATE TABLE has it, and that a view has no keys."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, a INT)")
        assert db.sql("SHOW CREATE TABLE t").rows[0][1].endswith("\n)")
        db.sql("INSERT INTO t VALUES (7, 1)")
        db.sql("DELETE FROM t")
        assert db.sql("SHOW CREATE TABLE t").rows[0][1].endswith("\n) AUTO_INCREMENT=8")
        db.sql("CREATE VIEW v AS SELECT a FROM t WHERE id = ?")
        assert not db.sql("SHOW KEYS FROM v").rows
        assert db.sql("SHOW CREATE DATABASE noria").rows[0][1] == "CREATE DATABASE `noria`"
        text = db.sql("SHOW CREATE DATABASE IF NOT EXISTS noria").rows[0][1]
        assert text == "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `noria`"
        db.sql(text)


def numbered_by_hand(db: Database, table: str) -> None:
    """As it is done where a column is there already."""
    db.sql(f"ALTER TABLE {table} ADD COLUMN id INT FIRST")
    for n, name in enumerate("ab", 1):
        db.sql(f"UPDATE {table} SET id = {n} WHERE name = '{name}'")
    db.sql(f"ALTER TABLE {table} ADD PRIMARY KEY (id), MODIFY id INT AUTO_INCREMENT")


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("rows", ["", "INSERT INTO t VALUES ('a'), ('b')"], ids=["none", "some"])
@pytest.mark.parametrize("how", [numbered_by_hand, lambda db, t: db.sql(
    f"ALTER TABLE {t} ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST")], ids=["by_hand", "by_itself"])
def test_rows_get_numbers(tmp_path: Path, workers: int, rows: str, how: Any) -> None:
    """And keep them; views of before know nothing of it, and follow."""
    with noria.open(tmp_path / "data", workers=workers) as db:
        db.sql("CREATE TABLE t (name VARCHAR(9)); CREATE VIEW v AS SELECT * FROM t WHERE name = ?; "
               "CREATE VIEW n AS SELECT name, COUNT(*) AS n FROM t GROUP BY name")
        db.sql(rows or "SELECT 1")
        number = len(db.sql("SELECT * FROM t").rows)
        assert db.view("v").lookup("a") == [("a",)] * bool(number)
        how(db, "t")
        assert sorted(db.sql("SELECT id FROM t").rows) == [(i + 1,) for i in range(number)]
        assert db.sql("INSERT INTO t (name) VALUES ('a')").last_insert_id == number + 1
        assert sorted(db.view("n").lookup()) == [("a", 1 + bool(number)), *[("b", 1)] * bool(number)]
        before = sorted(db.sql("SELECT id, name FROM t").rows)
    with noria.open(tmp_path / "data", workers=workers) as db:
        assert sorted(db.sql("SELECT id, name FROM t").rows) == before
        assert db.view("v").lookup("a") == [("a",)] * (1 + bool(number))
        assert db.sql("INSERT INTO t (name) VALUES ('c')").last_insert_id == number + 2
        ask(db, Inspect(0, "validate"))


@pytest.mark.parametrize("text, code, said", [
    ("ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (id)", 1824, "Failed to open the referenced table 'u'"),
    ("DROP FOREIGN KEY f", 1091, "Can't DROP 'f'"), ("DROP CHECK c", 3821, "constraint 'c' is not"),
    ("DROP CONSTRAINT c", 3940, "Constraint 'c' does not exist")])
def test_what_is_not_enforced_is_refused_with_what_to_do(tmp_path: Path, text: str, code: int, said: str) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (a INT)")
        with pytest.raises(SqlError, match=said) as e:
            db.sql(f"ALTER TABLE t {text}")
        assert e.value.code == code


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


@pytest.mark.parametrize("change", ["ADD COLUMN b INT DEFAULT 7", "DROP COLUMN z", "MODIFY z BIGINT",
                                    "MODIFY z VARCHAR(9)", "ADD COLUMN b INT FIRST", "RENAME COLUMN z TO y"])
@pytest.mark.parametrize("view, select", [
    ("SELECT id, a FROM t WHERE a = ?", "SELECT id, a FROM t WHERE a = 1"),
    ("SELECT a, COUNT(*) AS n FROM t GROUP BY a", "SELECT a, COUNT(*) AS n FROM t GROUP BY a"),
    ("SELECT t.id, k FROM t JOIN u ON u.id = a WHERE k = ?", "SELECT t.id, k FROM t JOIN u ON u.id = a WHERE k = 1"),
    ("SELECT id FROM t WHERE a < 9 ORDER BY id LIMIT 2", "SELECT id FROM t WHERE a < 9 ORDER BY id LIMIT 2")])
def test_a_select_finds_a_view_that_is_older_than_a_change_of_what_it_does_not_look_at(
        tmp_path: Path, view: str, select: str, change: str) -> None:
    for stored in (False, True):
        with noria.open(tmp_path / "data") as db:
            if not stored:
                db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, z INT)")
                db.sql("CREATE TABLE u (id INT PRIMARY KEY, k INT)")
                db.sql("INSERT INTO t VALUES (1, 1, 5), (2, 1, 6), (3, 2, 5)")
                db.sql("INSERT INTO u VALUES (1, 1), (2, 2)")
                db.sql(f"CREATE MATERIALIZED VIEW v AS {view}")
                db.sql(f"ALTER TABLE t {change}")
                db.sql("INSERT INTO t (id, a) VALUES (4, 1)")
            assert db.sql(f"EXPLAIN {select}").rows[0][0].startswith("answered by the view v, looked up by (")
            found = {"id, a": [(1, 1), (2, 1), (4, 1)], "a, CO": [(1, 3), (2, 1)], "t.id,": [(1, 1), (2, 1), (4, 1)],
                     "id FR": [(1,), (2,)]}
            assert sorted(db.sql(select).rows) == found[select[7:12]]
            assert ask(db, Inspect(0, "stats"))["views"] == 1


def test_a_select_of_other_columns_does_not_find_an_older_view(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.sql("INSERT INTO t VALUES (1, 1), (2, 1)")
        db.sql("CREATE MATERIALIZED VIEW v AS SELECT id, a FROM t WHERE a = ?")
        db.sql("CREATE MATERIALIZED VIEW w AS SELECT DISTINCT * FROM t")
        db.sql("ALTER TABLE t ADD COLUMN b INT DEFAULT 7")
        for text, rows in (("SELECT id, b FROM t WHERE b = 7", [(1, 7), (2, 7)]), ("SELECT id, b FROM t WHERE a = 1", [
                (1, 7), (2, 7)]), ("SELECT DISTINCT * FROM t", [(1, 1, 7), (2, 1, 7)])):
            assert not db.sql(f"EXPLAIN {text}").rows[0][0].startswith("answered by the view"), text
            assert sorted(db.sql(text).rows) == rows
        assert sorted(db.sql("SELECT DISTINCT id, a FROM t").rows) == [(1, 1), (2, 1)]
def test_another_primary_key(tmp_path: Path) -> None:
    """Views, indexes and the counter go on, also after restarts; what is a key is checked from then on."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (a INT, b VARCHAR(9), KEY (a))")
        db.sql("CREATE VIEW v AS SELECT a, b FROM t WHERE b = ?")
        db.sql("INSERT INTO t VALUES (7, 'x'), (7, 'x'), (8, 'y')")
        assert db.view("v").lookup("x") == [(7, "x")] * 2
        with pytest.raises(SqlError) as e:
            db.sql("ALTER TABLE t ADD PRIMARY KEY (a)")
        assert e.value.code == 1062 and "'7' for key 't.PRIMARY'" in e.value.message
        db.sql("DELETE FROM t WHERE a = 7")
        db.sql("INSERT INTO t VALUES (7, 'X')")
        db.sql("ALTER TABLE t MODIFY a INT AUTO_INCREMENT, ADD PRIMARY KEY (a)")
        assert db.sql("INSERT INTO t (b) VALUES ('new')").last_insert_id == 9
    with noria.open(tmp_path / "data") as db:
        with pytest.raises(SqlError):
            db.sql("INSERT INTO t VALUES (7, 'again')")
        assert db.view("v").lookup("x") == [(7, "X")]
        assert db.sql("SELECT b FROM t WHERE a = 9").rows == [("new",)]
        db.sql("ALTER TABLE t MODIFY a INT NOT NULL, DROP PRIMARY KEY, ADD PRIMARY KEY (b)")
        ask(db, Evict(0, None))
        assert db.sql("INSERT INTO t VALUES (1, 'X') ON DUPLICATE KEY UPDATE a = 70").affected == 2
        assert db.view("v").lookup("x") == [(70, "X")]
    with noria.open(tmp_path / "data") as db:
        assert [r[4] for r in db.sql("SHOW INDEX FROM t").rows] == ["b", "a"]
        db.sql("ALTER TABLE t DROP PRIMARY KEY")
        db.sql("INSERT INTO t VALUES (1, 'X')")
        assert sorted(db.view("v").lookup("x")) == [(1, "X"), (70, "X")]
        db.sql("DELETE FROM t WHERE b = 'x'")
        assert db.view("v").lookup("x") == [] and len(db.sql("SELECT * FROM t").rows) == 2


def test_keys_in_one_statement_with_what_they_are_of(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (a INT PRIMARY KEY, b VARCHAR(9), c TEXT)")
        db.sql("INSERT INTO t VALUES (1, '11', 'é'), (2, '22', 'e')")
        db.sql("ALTER TABLE t ADD UNIQUE (e), ADD COLUMN (d INT UNIQUE, e INT, KEY k (d, e)), "
               "MODIFY b INT UNIQUE FIRST")
        db.sql("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ENGINE = InnoDB, "
               "ROW_FORMAT = DYNAMIC")
        db.sql("ALTER TABLE t MODIFY a VARCHAR(10)")
        db.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (a), ADD UNIQUE (a)")
        db.sql("INSERT INTO t (b, a, c, d) VALUES (33, 'three', 'E', 3)")
        for values in ("(11, 'x', 'x', 4)", "(44, '1', 'x', 4)", "(44, 'x', 'x', 3)"):
            with pytest.raises(SqlError) as e:
                db.sql(f"INSERT INTO t (b, a, c, d) VALUES {values}")
            assert e.value.code == 1062
        assert db.sql("SELECT a FROM t WHERE c = 'e'").rows == [("2",)]
        db.sql("ALTER TABLE t CHANGE b a INT, CHANGE a b VARCHAR(10)")
        assert db.sql("SELECT a FROM t WHERE b = 'THREE'").rows == [(33,)]
        db.sql("ALTER TABLE t CHANGE b d2 VARCHAR(10) NOT NULL DEFAULT 'x' COLLATE utf8mb4_bin")  # as knex renames
        assert db.sql("SELECT a FROM t WHERE d2 = 'THREE'").rows == []


def test_tables_that_are_called_otherwise(tmp_path: Path) -> None:
    """What is known of a plan is not taken for an equal one over a table that has, or had, another name."""
    for name in ("a", "b"):
        for again in (False, True):
            with noria.open(tmp_path / name) as db:
                if not again:
                    db.sql(f"CREATE TABLE {name} (x INT, y INT)")
                    db.sql(f"CREATE MATERIALIZED VIEW coarse AS SELECT x, COUNT(*) AS n FROM {name} GROUP BY x")
                    db.sql(f"CREATE MATERIALIZED VIEW fine AS SELECT x, y, COUNT(*) AS n FROM {name} GROUP BY x, y")
                    db.sql(f"CREATE MATERIALIZED VIEW total AS SELECT COUNT(*) AS n FROM {name}")
                    db.sql(f"INSERT INTO {name} VALUES (1, 1), (1, 2), (2, 1)")
                assert sorted(db.view("coarse").lookup()) == [(1, 2), (2, 1)] and db.view("total").lookup() == [(3,)]


def test_members_and_floats_become_what_they_are(tmp_path: Path) -> None:
    """A member as a number is its place; a FLOAT as text has the digits of one."""
    with noria.open(tmp_path) as db:
        db.sql("CREATE TABLE f (id INT PRIMARY KEY, e ENUM('a', 'b'), s SET('a', 'b'), x FLOAT)")
        db.sql("INSERT INTO f VALUES (1, 'b', 'a,b', 0.1), (2, NULL, NULL, NULL), (3, 'a', '', 1.23456789)")
        db.sql("ALTER TABLE f MODIFY e INT, MODIFY s BIGINT, MODIFY x VARCHAR(9)")
        assert sorted(db.sql("SELECT * FROM f").rows) == [(1, 2, 3, "0.1"), (2, None, None, None), (3, 1, 0, "1.23457")]
