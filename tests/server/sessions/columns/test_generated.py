"""Generated columns over the embedded runtime: examples, ALTER TABLE, files, and random writes beside MariaDB."""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import noria
import seeds
from e2e.mariadb import INSTALLED, MariaDb
from noria.client import Database
from noria.core.errors import SqlError
from noria.dataflow.messages.packets import Inspect
from noria.spark.loading.rows import checking
from noria.spark.loading.rows.files import BadFile, Chunk
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.sql.program.definition_text import table_text
from server.sessions.refusals import refused
from sql.catalogs import DictCatalog

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT AS (a + 1) STORED UNIQUE, "
         "c VARCHAR(20) GENERATED ALWAYS AS (CONCAT(b, '-', name)) VIRTUAL, name VARCHAR(9), KEY (c))")


def all_of(db: Database) -> list[Any]:
    return sorted(db.sql("SELECT * FROM t").rows)


def test_values(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        db.sql("CREATE VIEW v AS SELECT id, c FROM t WHERE b = ?")
        db.sql("INSERT INTO t VALUES (1, 1, DEFAULT, DEFAULT, 'x'), (2, 2, DEFAULT, DEFAULT, NULL)")
        assert db.view("v").lookup(2) == [(1, "2-x")]
        assert refused(db, "INSERT INTO t (id, a) VALUES (3, 2)") == 1062
        for text in ("INSERT INTO t VALUES (5, 5, 6, DEFAULT, 'x')", "UPDATE t SET b = 3",
                     "INSERT INTO t (id, b) VALUES (1, DEFAULT), (2, NULL)",
                     "INSERT INTO t (id) VALUES (1) ON DUPLICATE KEY UPDATE c = 'x'"):
            assert refused(db, text) == 3105
        assert refused(db, "INSERT INTO t (id, b) VALUES (?, ?)", 1, 2) == 3105
        db.sql("UPDATE t SET a = a + 10, b = DEFAULT")
        db.sql("INSERT INTO t (id, a, name) VALUES (1, 1, 'x') ON DUPLICATE KEY UPDATE a = 100, name = b")
        db.table("t").insert([(3, 7, "y")])
        db.table("t").insert(pa.table({"id": [4], "a": [8]}))
        with pytest.raises(SqlError) as told:
            db.table("t").insert(pa.table({"id": [5], "a": [9], "b": [10]}))
        assert told.value.code == 3105
        assert all_of(db) == [(1, 100, 101, "101-12", "12"), (2, 12, 13, None, None), (3, 7, 8, "8-y", "y"),
                              (4, 8, 9, None, None)]
        assert db.sql("SELECT id FROM t WHERE c = '8-Y'").rows == [(3,)]
        assert db.view("v").lookup(2) == [] and db.view("v").lookup(101) == [(1, "101-12")]


def test_alter_table(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.sql("INSERT INTO t VALUES (1, 100), (2, 12)")
        db.sql("ALTER TABLE t ADD COLUMN d INT AS (a * 2) VIRTUAL, ADD UNIQUE KEY (d)")
        assert all_of(db) == [(1, 100, 200), (2, 12, 24)] and db.sql("SELECT id FROM t WHERE d = 24").rows == [(2,)]
        assert refused(db, "ALTER TABLE t ADD COLUMN e TINYINT AS (a * 2) STORED") == 1264
        assert refused(db, "ALTER TABLE t ADD COLUMN e INT AS (a DIV 50) STORED, ADD UNIQUE KEY (e), "
                           "ADD COLUMN f INT AS (a - a) STORED UNIQUE") == 1062
        assert refused(db, "ALTER TABLE t ADD COLUMN e INT AS (a) CHECK (e > 12)") == 3819
        db.sql("ALTER TABLE t MODIFY d BIGINT AS (a * 3) VIRTUAL, ADD CHECK (d > 30)")
        assert all_of(db) == [(1, 100, 300), (2, 12, 36)]
        db.sql("ALTER TABLE t MODIFY a DECIMAL(6, 1)")
        db.sql("UPDATE t SET a = 20.5 WHERE id = 2")
        assert [tuple(map(str, r)) for r in all_of(db)] == [("1", "100.0", "300"), ("2", "20.5", "62")]
        assert refused(db, "UPDATE t SET a = 1") == 3819
        for change, code in (("DROP COLUMN a", 3108), ("RENAME COLUMN a TO z", 3108), ("MODIFY d BIGINT", 3106),
                             ("MODIFY d BIGINT AS (a) STORED", 3106), ("MODIFY a INT AS (1) VIRTUAL", 3106),
                             ("DROP COLUMN d, DROP COLUMN a, DROP COLUMN id", 1090), ("ADD x INT AS (y)", 1054)):
            assert refused(db, f"ALTER TABLE t {change}") == code, change
        db.sql("ALTER TABLE t ADD COLUMN p INT, ADD COLUMN s INT AS (p) STORED")
        assert refused(db, "ALTER TABLE t MODIFY s INT") == 1235
        db.sql("ALTER TABLE t DROP COLUMN s, MODIFY p VARCHAR(9) AS (CONCAT(id, 'x')) STORED")
        assert [r[-1] for r in all_of(db)] == ["1x", "2x"]
        before = all_of(db)
        assert db.sql("SELECT column_name, extra, generation_expression FROM information_schema.columns "
                      "WHERE extra <> ''").rows == [("d", "VIRTUAL GENERATED", "(`a` * 3)"),
                                                    ("p", "STORED GENERATED", "concat(`id`, 'x')")]
    with noria.open(tmp_path / "data") as db:
        assert all_of(db) == before
        db.sql("INSERT INTO t (id, a) VALUES (3, 30)")
        assert all_of(db)[-1][2:] == (90, "3x")
        transport: Any = db.transport
        transport.run(transport.executor.ask(Inspect(0, "validate")))


@pytest.mark.parametrize("columns, code", [
    ("a INT AS (b + 1), b INT AS (id)", 3107), ("a INT AS (a)", 3107), ("a INT AS (NOW())", 3763),
    ("n INT AUTO_INCREMENT UNIQUE, a INT AS (n)", 3109), ("a INT AS (z)", 1054), ("a INT AS (id) DEFAULT 3", 1221),
    ("a INT AS ((SELECT 1))", 3102), ("a INT AS (@x)", 3765), ("a INT AS ((1, 2))", 3764)])
def test_what_is_refused(columns: str, code: int) -> None:
    with pytest.raises(SqlError) as told:
        parse(f"CREATE TABLE t (id INT, {columns})", DictCatalog())
    assert told.value.code == code


def test_a_printed_definition_is_read_alike() -> None:
    (made,) = parse(TABLE.replace("STORED", "STORED NOT NULL"), DictCatalog())
    assert isinstance(made, CreateTable) and not made.table.columns[2].nullable
    (again,) = parse(table_text(made.table), DictCatalog())
    assert isinstance(again, CreateTable) and again.table == made.table


@pytest.mark.parametrize("rest", ["", " NOT NULL", " UNIQUE", " COMMENT 'c'"])
def test_virtual_is_the_default(rest: str) -> None:
    """SQLAlchemy's `Computed` is written this way."""
    (made,), (said,) = (parse(f"CREATE TABLE t (id INT PRIMARY KEY, a INT GENERATED ALWAYS AS (id * 2){kind}{rest})",
                              DictCatalog()) for kind in ("", " VIRTUAL"))
    assert isinstance(made, CreateTable) and isinstance(said, CreateTable) and made.table == said.table
    assert made.table.columns[1].computed == "virtual"
    with pytest.raises(SqlError, match="write AUTO_INCREMENT"):
        parse("CREATE TABLE t (id INT GENERATED ALWAYS AS IDENTITY PRIMARY KEY)", DictCatalog())


def test_files(tmp_path: Path) -> None:
    (made,) = parse(TABLE.replace("AS (a + 1)", "AS (100 / a)") + " CHARSET=utf8mb4", DictCatalog())
    assert isinstance(made, CreateTable)
    table = made.table
    chunk = Chunk({"id": pa.array([1, 2, 3, 4]), "a": pa.array(["7", "0", None, "z"]),
                   "name": pa.array(["x", "y", "y", None])}, 4, first_row=1)
    batch, rejects = checking.convert(chunk, checking.map_columns(table, ["id", "a", "name"], "f"), table,
                                      checking.defaults(table, datetime(2024, 1, 1)), "f")
    assert batch.to_pylist() == [{"id": 1, "a": 7, "b": 14, "c": "14-x", "name": "x"},
                                 {"id": 3, "a": None, "b": None, "c": None, "name": "y"}]
    assert [(r.row, r.reason, r.column) for r in rejects] == [
        (2, "Division by 0", "b"), (4, "Incorrect integer value: 'z' for column 'a'", "a")]
    with pytest.raises(BadFile, match="generated column b"):
        checking.map_columns(table, ["id", "a", "b"], "f")


# ------------------------------------------------------------------ beside MariaDB
EXPRESSIONS = ("a + b", "a * 2 - b", "COALESCE(a, b, 7)", "IF(a > b, a, b)", "CHAR_LENGTH(s)", "a IS NULL",
               "CASE WHEN a > 3 THEN b END", "CONCAT(s, '-', a)", "UPPER(s)", "LEFT(s, 1)", "a % 3", "ABS(a - b)")


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("workers", [1, 2])
def test_random_writes_beside_mariadb(tmp_path: Path, oracle: MariaDb, workers: int) -> None:
    chance, maria = random.Random(seeds.seed()), oracle.connect(database=f"generated{workers}")
    columns = ["g0"]

    def theirs(text: str) -> Any:
        try:
            with maria.cursor() as cursor:
                return cursor.execute(text), list(cursor.fetchall()) if cursor.description else []
        except pymysql.err.MySQLError as e:
            return f"error {e.args[0]}", []

    def mine(text: str) -> Any:
        try:
            found = db.sql(text)
            return found.affected, found.rows
        except SqlError as e:
            return f"error {e.code}", []

    def both(text: str) -> bool:
        here, there = mine(text), theirs(text)
        failed = [str(found[0]).startswith("error") for found in (here, there)]
        assert here[0] == there[0] or (text.startswith("ALTER") and not any(failed)), (text, here, there)
        return not failed[0]

    def number() -> str:
        return chance.choice(["NULL", *map(str, range(-4, 9))])

    def text() -> str:
        return chance.choice(["NULL", "'x'", "'Y'", "'xx'", "'abc'"])

    def row() -> str:
        return f"({chance.randrange(12)}, {number()}, {number()}, {text()})"

    with noria.open(tmp_path / "data", workers=workers) as db:
        unique = chance.choice(["", "UNIQUE"])
        both(f"CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(9), g0 VARCHAR(40) AS "
             f"({chance.choice(EXPRESSIONS)}) {chance.choice(['STORED', 'VIRTUAL'])} {unique})")
        for n in range(200):
            act, set = chance.random(), chance.choice(
                [f"a = {number()}", "a = b", "b = a + 1", f"s = {text()}", "a = b + 1, b = a - 1"])
            where = chance.choice(["TRUE", "a > 2", f"id = {chance.randrange(12)}", "g0 = '3'", "g0 IS NULL"])
            if unique:  # MariaDB checks it after each row of an UPDATE
                where = f"id = {chance.randrange(12)}"
            if act < 0.4:
                both(f"INSERT INTO t (id, a, b, s) VALUES {row()}" + chance.choice(["", f", {row()}"]))
            elif act < 0.5:
                both(f"REPLACE INTO t (id, a, b, s) VALUES {row()}")
            elif act < 0.6:
                both(f"INSERT INTO t (id, a, b, s) VALUES {row()} ON DUPLICATE KEY UPDATE {set}")
            elif act < 0.85:
                both(f"UPDATE t SET {set} WHERE {where}")
            elif act < 0.9:
                both(f"DELETE FROM t WHERE {where}")
            elif act < 0.94 and len(columns) > 1:
                both(f"ALTER TABLE t DROP COLUMN {columns.pop()}")
            elif len(columns) < 4:
                name = f"g{n + 1}"
                if both(f"ALTER TABLE t ADD COLUMN {name} VARCHAR(40) AS ({chance.choice(EXPRESSIONS)}) "
                        + chance.choice(["STORED", "VIRTUAL"])):
                    columns.append(name)
            if n % 10 == 0:
                assert sorted(mine("SELECT * FROM t")[1]) == theirs("SELECT * FROM t ORDER BY id")[1]
    maria.close()
