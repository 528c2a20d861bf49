"""Keys on expressions: shown as declared, UNIQUE by the expression's value, beside SQLite under random writes."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.client import Database
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Inspect
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from noria.storage.format.catalog import table_from_json, table_to_json
from server.sessions.refusals import refused
from sql.catalogs import DictCatalog

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), j JSON, KEY k ((lower(s))), "
         "UNIQUE KEY u (a, (id % 10)), KEY ((a + 1) DESC), KEY ((j->>'$.b')))")


def text_of(db: Database) -> str:
    return str(db.sql("SHOW CREATE TABLE t").rows[0][1])


def test_they_are_shown_and_survive(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        text = text_of(db)
        assert "KEY `k` ((lower(`s`))),\n  UNIQUE KEY `u` (`a`, ((`id` % 10))),\n  KEY `functional_index`" in text
        assert [r[0] for r in db.sql("SHOW COLUMNS FROM t").rows] == ["id", "a", "s", "j"]
        rows = db.sql("SELECT index_name, column_name, expression FROM information_schema.statistics "
                      "WHERE table_name = 't' AND index_name IN ('k', 'u')").rows
        assert sorted(rows, key=str) == [("k", None, "lower(`s`)"), ("u", "a", None), ("u", None, "(`id` % 10)")]
        assert [r[4] for r in db.sql("SHOW INDEX FROM t").rows if r[2] == "u"] == ["a", None]
        db.sql("INSERT INTO t (id, a, s, j) VALUES (1, 1, 'A', '{\"b\": 2}')")
        assert refused(db, "INSERT INTO t (id, a) VALUES (11, 1)") == 1062
    with noria.open(tmp_path / "data") as db:
        assert text_of(db) == text
        assert refused(db, "INSERT INTO t (id, a) VALUES (11, 1)") == 1062
        assert db.sql("SELECT * FROM t").rows == [(1, 1, "A", '{"b": 2}')]
        db.sql("DROP TABLE t")
        db.sql(text)
        assert text_of(db) == text


def test_alterations(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20))")
        db.sql("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'X '), (3, 3, NULL), (4, 4, NULL)")
        assert refused(db, "ALTER TABLE t ADD UNIQUE KEY n ((upper(trim(s))))") == 1062
        db.sql("UPDATE t SET s = 'y' WHERE id = 2")
        db.sql("CREATE UNIQUE INDEX n ON t ((upper(trim(s))), id)")
        db.sql("CREATE UNIQUE INDEX m ON t ((upper(trim(s))))")
        assert refused(db, "UPDATE t SET s = ' X' WHERE id = 2") == 1062
        assert refused(db, "ALTER TABLE t DROP COLUMN s") == 3837
        assert refused(db, "ALTER TABLE t RENAME COLUMN s TO r") == 3837
        db.sql("ALTER TABLE t MODIFY s VARCHAR(50)")
        assert refused(db, "INSERT INTO t VALUES (5, 5, 'Y')") == 1062
        db.sql("ALTER TABLE t MODIFY s TEXT")
        assert refused(db, "INSERT INTO t VALUES (5, 5, 'Y')") == 1062
        db.sql("INSERT INTO t VALUES (6, 6, 'y') ON DUPLICATE KEY UPDATE a = 99")
        assert db.sql("SELECT id FROM t WHERE a = 99").rows == [(2,)]
        db.sql("ALTER TABLE t DROP INDEX n, DROP INDEX m")
        db.sql("ALTER TABLE t RENAME COLUMN s TO r")
        db.sql("INSERT INTO t VALUES (5, 5, 'Y')")
        assert "upper" not in text_of(db)


@pytest.mark.parametrize(("text", "code"), [
    ("CREATE TABLE t (id INT PRIMARY KEY, KEY ((id)))", 3762),
    ("CREATE TABLE t (id INT PRIMARY KEY, KEY ((id + RAND())))", 3758),
    ("CREATE TABLE t (id INT PRIMARY KEY, KEY ((id + (SELECT 1))))", 3758),
    ("CREATE TABLE t (id INT PRIMARY KEY, j JSON, KEY ((j->'$.a')))", 3753),
    ("CREATE TABLE t (id INT PRIMARY KEY, KEY ((id + 1), (id+1)))", 1060),
    ("CREATE TABLE t (id INT PRIMARY KEY, KEY ((nowhere + 1)))", 1054),
    ("CREATE TABLE t (id INT, a INT, CONSTRAINT p PRIMARY KEY ((id + 1)))", 1064),
])
def test_what_they_cannot_be(tmp_path: Path, text: str, code: int) -> None:
    with noria.open(tmp_path / "data") as db:
        assert refused(db, text) == code


@pytest.mark.parametrize("workers", [1, 3])
def test_random_writes_beside_sqlite(tmp_path: Path, workers: int) -> None:
    chance, other = random.Random(workers), sqlite3.connect(":memory:", isolation_level=None)
    with noria.open(tmp_path / "data", workers=workers) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20) COLLATE utf8mb4_bin, "
               "UNIQUE KEY u ((abs(a))), UNIQUE KEY v ((lower(s)), (a % 3)))")
        other.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, s TEXT)")
        other.execute("CREATE UNIQUE INDEX u ON t (abs(a))")
        other.execute("CREATE UNIQUE INDEX v ON t (lower(s), a % 3)")
        done = 0
        for _ in range(150):
            at, a, s = chance.randrange(12), chance.randrange(-9, 9), chance.choice(["'x'", "'X'", "'y'", "NULL"])
            text = chance.choice([f"INSERT INTO t VALUES ({at}, {a}, {s})", f"DELETE FROM t WHERE id = {at}",
                                  f"UPDATE t SET a = {a}, s = {s} WHERE id = {at}",
                                  f"REPLACE INTO t VALUES ({at}, {a}, {s})"])
            try:
                other.execute(text)
            except sqlite3.IntegrityError:
                assert refused(db, text) == 1062, text
                continue
            db.sql(text)
            done += 1
            assert sorted(db.sql("SELECT * FROM t").rows) == sorted(other.execute("SELECT * FROM t").fetchall()), text
        assert 30 < done < 150
        transport: Any = db.transport
        transport.run(transport.executor.ask(Inspect(0, "validate")))


def made(text: str) -> TableDef:
    (command,) = parse(text, DictCatalog())
    assert isinstance(command, CreateTable)
    return command.table


def test_texts_catalogs_and_programs_keep_them() -> None:
    table = made(TABLE)
    assert made(table_text(table)) == table
    assert table_from_json(json.loads(json.dumps(table_to_json(table)))) == table
    assert alteration(table, table, False) == ((), ())
    parts, wrong = alteration(table, made(TABLE.replace("lower(s)", "upper(s)")), False)
    assert parts == ("DROP INDEX `k`", "ADD KEY `k` ((upper(`s`)))") and not wrong
