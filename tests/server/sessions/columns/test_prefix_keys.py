"""Keys on prefixes of columns over the embedded runtime: shown as declared, UNIQUE by the prefix; beside MariaDB."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pymysql
import pytest

import noria
import seeds
from e2e.mariadb import INSTALLED, MariaDb
from noria.client import Database
from noria.core.codec import packed, unpacked
from noria.core.errors import SqlError
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Inspect
from noria.sql.commands import AlterTable, CreateTable
from noria.sql.parse import parse
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from noria.sql.program.outline import read
from noria.storage.format.catalog import table_from_json, table_to_json
from server.sessions.refusals import refused
from sql.catalogs import DictCatalog

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(20), b BLOB, x TEXT, UNIQUE KEY u (s(3)), KEY k (x(10), id))"


def text_of(db: Database) -> str:
    return str(db.sql("SHOW CREATE TABLE t").rows[0][1])


def test_a_unique_prefix(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        assert "UNIQUE KEY `u` (`s`(3)),\n  KEY `k` (`x`(10), `id`)" in text_of(db)
        db.sql("INSERT INTO t VALUES (1, 'abcdef', X'0102', 'x'), (2, 'ab', X'0103', 'y'), (3, NULL, NULL, NULL), "
               "(4, NULL, NULL, NULL)")
        with pytest.raises(SqlError, match=r"Duplicate entry 'ABC' for key 't\.u'"):
            db.sql("INSERT INTO t VALUES (5, 'ABCx', NULL, NULL)")
        assert refused(db, "UPDATE t SET s = 'abcd' WHERE id = 2") == 1062
        db.sql("INSERT INTO t (id, s) VALUES (9, 'abcz') ON DUPLICATE KEY UPDATE x = 'hit'")
        assert refused(db, "ALTER TABLE t ADD UNIQUE KEY v (b(1))") == 1062
        db.sql("CREATE UNIQUE INDEX v ON t (b(2), s(2))")
        assert refused(db, "INSERT INTO t VALUES (6, 'abz', X'010399', NULL)") == 1062
        db.sql("INSERT INTO t VALUES (6, 'az', X'010399', NULL)")
        assert sorted(db.sql("SELECT * FROM t").rows)[0] == (1, "abcdef", b"\1\2", "hit")
        assert [(r[2], r[4], r[7]) for r in db.sql("SHOW INDEX FROM t").rows] == [
            ("PRIMARY", "id", None), ("u", "s", "3"), ("k", "x", "10"), ("k", "id", None), ("v", "b", "2"),
            ("v", "s", "2")]
        assert db.sql("SELECT column_name, sub_part FROM information_schema.statistics WHERE sub_part > 2").rows == [
            ("s", 3), ("x", 10)]
        assert [r[0] for r in db.sql("SHOW COLUMNS FROM t").rows] == ["id", "s", "b", "x"]
        db.table("t").insert([(7, "new", None, None)])


def test_alter_table(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        db.sql("INSERT INTO t (id, s) VALUES (1, 'abcdef'), (2, 'ab')")
        db.sql("ALTER TABLE t RENAME COLUMN s TO z, ADD COLUMN n INT FIRST")
        assert refused(db, "INSERT INTO t (id, z) VALUES (7, 'abc')") == 1062
        db.sql("ALTER TABLE t MODIFY z VARCHAR(30) COLLATE utf8mb4_bin")
        db.sql("INSERT INTO t (id, z) VALUES (7, 'ABC')")
        assert refused(db, "INSERT INTO t (id, z) VALUES (8, 'ABCC')") == 1062
        assert refused(db, "ALTER TABLE t MODIFY z VARCHAR(30)") == 1062
        assert refused(db, "ALTER TABLE t ADD UNIQUE (z(1), n(2))") == 1089
        db.sql("ALTER TABLE t ADD UNIQUE w (z(2), id)")
        db.sql("ALTER TABLE t DROP INDEX u")
        db.sql("INSERT INTO t (id, z) VALUES (8, 'ABCC')")
        assert "UNIQUE KEY `w` (`z`(2), `id`)" in text_of(db)
        db.sql("ALTER TABLE t DROP COLUMN z")
        assert "UNIQUE KEY `w` (`id`)" in text_of(db)
        before = sorted(db.sql("SELECT id, x FROM t").rows)
    with noria.open(tmp_path / "data") as db:
        assert sorted(db.sql("SELECT id, x FROM t").rows) == before
        transport: Any = db.transport
        transport.run(transport.executor.ask(Inspect(0, "validate")))


@pytest.mark.parametrize("columns, code", [
    ("n INT, KEY (n(3))", 1089), ("s VARCHAR(3), KEY (s(4))", 1089), ("s TEXT, KEY (s(0))", 1089),
    ("s JSON, KEY (s(3))", 1089),
    ("s TEXT, UNIQUE (z(3))", 1072)])
def test_what_is_refused(columns: str, code: int) -> None:
    with pytest.raises(SqlError) as told:
        parse(f"CREATE TABLE n ({columns})", DictCatalog())
    assert told.value.code == code


def test_definitions() -> None:
    (made,) = parse(TABLE, DictCatalog())
    assert isinstance(made, CreateTable)
    (again,) = parse(table_text(made.table), DictCatalog())
    assert isinstance(again, CreateTable) and again.table == made.table
    assert table_from_json(json.loads(json.dumps(table_to_json(made.table)))) == made.table
    (whole,) = parse("CREATE TABLE t (s VARCHAR(3), UNIQUE (s(3)))", DictCatalog())
    assert isinstance(whole, CreateTable) and not whole.table.indexes[0].prefix and len(whole.table.columns) == 1
    (other,) = parse(TABLE.replace("s(3)", "s(4)"), DictCatalog())
    assert isinstance(other, CreateTable)
    assert alteration(made.table, other.table, False) == (("DROP INDEX `u`", "ADD UNIQUE KEY `u` (`s`(4))"), ())
    program = read(TABLE + "; CREATE UNIQUE INDEX y ON t (x(7)); ALTER TABLE t ADD COLUMN z INT").tables["t"]
    assert [c for c, _ in program.parts(program.indexes[-1])] == [3] and program.shape[-1][1] == "z"


def test_a_definition_is_sent_to_workers() -> None:
    """Also one whose keys have no names, so that columns name them."""
    for text in ("CREATE TABLE t (id INT PRIMARY KEY, b VARCHAR(20), n INT AS (id + 1) STORED CHECK (n > 0), "
                 "d DATE DEFAULT (CURDATE()), e INT DEFAULT (id * 2), UNIQUE KEY (b(3)), KEY (b, id), UNIQUE (n))",
                 "CREATE TABLE t (a INT, b INT, PRIMARY KEY (a), KEY (b))"):
        (made,) = parse(text, DictCatalog())
        assert isinstance(made, CreateTable)
        assert unpacked(TableDef, packed(made.table)) == made.table
        for more in ("ADD KEY (b)", "ADD UNIQUE (b)", "ADD COLUMN g INT AS (b + 1) UNIQUE", "DROP PRIMARY KEY"):
            (altered,) = parse(f"ALTER TABLE t {more}", DictCatalog(text))
            assert isinstance(altered, AlterTable)
            assert unpacked(TableDef, packed(altered.table)) == altered.table


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
@pytest.mark.parametrize("workers", [1, 2])
def test_random_writes_beside_mariadb(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, workers: int) -> None:
    server, chance = MariaDb(tmp_path_factory.mktemp("m")), random.Random(seeds.seed())

    def row() -> str:
        text = "".join(chance.choice("aAbé") for _ in range(chance.randrange(5)))
        return f"({chance.randrange(9)}, {chance.choice([repr(text), repr(text), 'NULL'])}, {chance.randrange(3)})"

    def text() -> str:
        act, where = chance.random(), f"id = {chance.randrange(9)}"
        if act < 0.5:
            return f"INSERT INTO t VALUES {row()}" + chance.choice(["", f", {row()}"])
        if act < 0.6:
            return f"INSERT IGNORE INTO t VALUES {row()}, {row()}"
        if act < 0.7:
            return f"REPLACE INTO t VALUES {row()}"
        if act < 0.9:
            return f"UPDATE t SET s = {row().split(', ')[1]} WHERE {where}"
        return f"DELETE FROM t WHERE {where}"

    try:
        maria = server.connect()
        with noria.open(tmp_path / "data", workers=workers) as db, maria.cursor() as cursor:
            for n, said in enumerate(["CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(9), n INT, UNIQUE u (s(2), n))",
                                      *(text() for _ in range(200))]):
                try:
                    there = cursor.execute(said)
                except pymysql.err.MySQLError as e:
                    there = -e.args[0]
                try:
                    here = db.sql(said).affected
                except SqlError as e:
                    here = -e.code
                if not said.startswith("REPLACE") or min(here, there) < 0:  # an equal row counts 1 here, 2 there
                    assert here == there, said
                if n % 20 == 0:
                    cursor.execute("SELECT * FROM t ORDER BY id")
                    assert sorted(db.sql("SELECT * FROM t").rows) == list(cursor.fetchall())
    finally:
        server.close()


def test_a_primary_key_on_prefixes(tmp_path: Path) -> None:
    """It is one of the whole columns, with a UNIQUE key on the prefixes, and shown as declared."""
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (u VARCHAR(250), h VARCHAR(19), n INT, PRIMARY KEY (u(5), h(19)), KEY (n))")
        assert "PRIMARY KEY (`u`(5), `h`),\n  KEY `n` (`n`)\n)" in text_of(db)
        db.sql("INSERT INTO t VALUES ('hello1', 'x', 1), ('hallo', 'x', 2), ('hello', 'y', 3)")
        with pytest.raises(SqlError, match=r"Duplicate entry 'HELLO-x' for key 't\.PRIMARY'"):
            db.sql("INSERT INTO t VALUES ('HELLO2', 'x', 3)")
        assert refused(db, "UPDATE t SET h = 'x' WHERE n = 3") == 1062
        db.sql("INSERT INTO t VALUES ('hello3', 'x', 3) ON DUPLICATE KEY UPDATE n = n + 10")
        db.sql("REPLACE INTO t VALUES ('hallo4', 'x', 4)")
        assert sorted(db.sql("SELECT * FROM t").rows) == [("hallo4", "x", 4), ("hello", "y", 3), ("hello1", "x", 11)]
        assert [(r[2], r[4], r[7]) for r in db.sql("SHOW INDEX FROM t").rows] == [
            ("PRIMARY", "u", "5"), ("PRIMARY", "h", None), ("n", "n", None)]
        assert [r[3] for r in db.sql("SHOW COLUMNS FROM t").rows] == ["PRI", "PRI", "MUL"]
        db.sql("CREATE TABLE copy LIKE t")
        assert "PRIMARY KEY (`u`(5), `h`)" in db.sql("SHOW CREATE TABLE copy").rows[0][1]
        db.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u(6))")
        assert refused(db, "INSERT INTO t VALUES ('hello1 and more', 'z', 9)") == 1062
        assert refused(db, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u(2))") == 1062
    with noria.open(tmp_path / "data") as db:
        assert "PRIMARY KEY (`u`(6))," in text_of(db)
        db.sql("ALTER TABLE t DROP PRIMARY KEY")
        assert "PRIMARY" not in text_of(db) and db.sql("INSERT INTO t SELECT * FROM t").affected == 3


def test_programs_with_a_primary_key_on_a_prefix() -> None:
    a, b = (parse(f"CREATE TABLE t (s VARCHAR(9), PRIMARY KEY (s({n})))", DictCatalog())[0].table for n in (3, 4))
    assert alteration(a, a, False) == ((), ())
    assert alteration(a, b, False) == (("DROP PRIMARY KEY", "ADD PRIMARY KEY (`s`(4))"), ())


def test_a_column_whose_name_is_a_keyword(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (namespace TEXT NOT NULL, id INT PRIMARY KEY)")
        db.sql("CREATE UNIQUE INDEX i USING BTREE ON t (namespace(75))")
        assert "UNIQUE KEY `i` (`namespace`(75))" in text_of(db)
