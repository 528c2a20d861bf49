"""DEFAULT (expression) over the embedded runtime: constants, the clock, other columns; ALTER TABLE, files, MariaDB."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pymysql
import pytest

import noria
from e2e.mariadb import INSTALLED, MariaDb
from noria.core.errors import SqlError
from noria.spark.loading.rows import checking
from noria.spark.loading.rows.files import MISSING, Chunk, MixedColumn
from noria.sql.commands import CreateTable
from noria.sql.parse import parse
from noria.sql.program.alteration import alteration
from noria.sql.program.definition_text import table_text
from server.sessions.refusals import refused
from sql.catalogs import DictCatalog

TABLE = ("CREATE TABLE t (id INT PRIMARY KEY, j JSON DEFAULT (JSON_ARRAY(1, 'x')), n INT NOT NULL DEFAULT (2 + 3), "
         "d DATE DEFAULT (CURDATE()), later DATETIME DEFAULT (NOW() + INTERVAL 1 DAY), "
         "a INT NOT NULL DEFAULT (id * 2), b INT DEFAULT (a + 1), g INT AS (b * 10))")


def test_values(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        today = datetime.now(UTC).date()
        db.sql("INSERT INTO t (id) VALUES (1)")
        db.sql("INSERT INTO t (id, n, a, d) VALUES (2, DEFAULT, DEFAULT, DEFAULT), (3, 7, 30, '2020-01-01')")
        db.sql("INSERT INTO t (id, a, b) VALUES (?, ?, DEFAULT)", [4, 1])
        db.table("t").insert([{"id": 5}])
        db.table("t").insert(pa.table({"id": [6], "a": [1]}))
        found = sorted(db.sql("SELECT id, j, n, a, b, g FROM t").rows)
        assert [(r[0], *r[2:]) for r in found] == [(1, 5, 2, 3, 30), (2, 5, 4, 5, 50), (3, 7, 30, 31, 310),
                                                   (4, 5, 1, 2, 20), (5, 5, 10, 11, 110), (6, 5, 1, 2, 20)]
        assert {r[1] for r in found} == {'[1, "x"]'}
        times = sorted(db.sql("SELECT id, d, later FROM t").rows)
        assert times[2][1] == date(2020, 1, 1) and all(abs(r[1] - today) <= timedelta(1) for r in times if r[0] != 3)
        assert all(timedelta(hours=23) < r[2] - datetime.now(UTC).replace(tzinfo=None) < timedelta(days=1, minutes=5)
                   for r in times)
        assert refused(db, "INSERT INTO t (id, a) VALUES (7, NULL)") == 1048
        assert refused(db, "INSERT INTO t (id) VALUES (2000000000)") == 1264
        db.sql("UPDATE t SET a = 50, b = DEFAULT, n = DEFAULT, d = DEFAULT WHERE id = 3")
        db.sql("INSERT INTO t (id) VALUES (4) ON DUPLICATE KEY UPDATE a = DEFAULT")
        assert sorted(db.sql("SELECT id, n, a, b FROM t WHERE id IN (3, 4)").rows) == [(3, 5, 50, 51), (4, 5, 8, 2)]
        assert db.sql("SELECT COUNT(*) FROM t WHERE id = 3 AND d = '2020-01-01'").rows == [(0,)]
        db.sql("REPLACE INTO t (id, a) VALUES (3, DEFAULT)")
        assert db.sql("SELECT a, b FROM t WHERE id = 3").rows == [(6, 7)]


def test_definitions_and_alter_table(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT (id + 1))")
        db.sql("INSERT INTO t (id) VALUES (1)")
        db.sql("ALTER TABLE t ADD COLUMN c VARCHAR(9) NOT NULL DEFAULT (CONCAT('x', 'y')), "
               "ADD COLUMN d DATE DEFAULT (CURDATE())")
        assert db.sql("SELECT a, c FROM t WHERE d > '2020-01-01'").rows == [(2, "xy")]
        assert refused(db, "ALTER TABLE t ADD COLUMN e INT DEFAULT (a + 1)") == 1235
        db.sql("ALTER TABLE t ADD COLUMN e INT, ALTER COLUMN a SET DEFAULT (id + 2)")
        db.sql("ALTER TABLE t ALTER COLUMN e SET DEFAULT (a + 1)")
        db.sql("INSERT INTO t (id) VALUES (2)")
        assert db.sql("SELECT a, e FROM t WHERE id = 2").rows == [(4, 5)]
        for change, code in (("DROP COLUMN a", 3766), ("RENAME COLUMN a TO z", 3766), ("ALTER e SET DEFAULT (z)", 1054),
                             ("ALTER c SET DEFAULT (REPEAT('x', 10))", 1067)):
            assert refused(db, f"ALTER TABLE t {change}") == code
        assert db.sql("SELECT column_name, column_default, extra FROM information_schema.columns "
                      "WHERE table_name = 't' AND extra <> ''").rows == [
            ("a", "(`id` + 2)", "DEFAULT_GENERATED"), ("c", "concat('x', 'y')", "DEFAULT_GENERATED"),
            ("d", "current_date", "DEFAULT_GENERATED"), ("e", "(`a` + 1)", "DEFAULT_GENERATED")]
        db.sql("ALTER TABLE t ALTER COLUMN e DROP DEFAULT, ALTER COLUMN c SET DEFAULT 'z', DROP COLUMN a")
        db.sql("INSERT INTO t (id) VALUES (3)")
    with noria.open(tmp_path / "data") as db:
        assert db.sql("SELECT c, e FROM t WHERE id = 3").rows == [("z", None)]


@pytest.mark.parametrize("columns, code", [
    ("a INT DEFAULT (b), b INT DEFAULT (1 + 1)", 3767), ("a INT DEFAULT (a)", 3767), ("a INT DEFAULT (@x)", 3772),
    ("n INT AUTO_INCREMENT UNIQUE, a INT DEFAULT (n)", 3768), ("a INT DEFAULT (z)", 1054),
    ("a INT DEFAULT ((SELECT 1))", 3769), ("a INT DEFAULT ((1, 2))", 3771), ("a INT DEFAULT (RAND())", 1235),
    ("a INT DEFAULT ('x' + 1.5 = 'y') UNIQUE, b DATE DEFAULT (DATE('x'))", 0), ("a INT DEFAULT (id) UNIQUE", 1235),
    ("a DATETIME DEFAULT (NOW() + INTERVAL id DAY)", 1235), ("a INT NOT NULL DEFAULT (NULL + 1)", 1067),
    ("a INT AS (id), b INT DEFAULT (a)", 1235), ("a INT DEFAULT 1 + 2", 1235)])
def test_what_is_refused(columns: str, code: int) -> None:
    if not code:
        parse(f"CREATE TABLE t (id INT, {columns})", DictCatalog())
        return
    with pytest.raises(SqlError) as told:
        parse(f"CREATE TABLE t (id INT, {columns})", DictCatalog())
    assert told.value.code == code


def test_a_printed_definition_is_read_alike() -> None:
    (made,) = parse(TABLE, DictCatalog())
    assert isinstance(made, CreateTable)
    (again,) = parse(table_text(made.table), DictCatalog())
    assert isinstance(again, CreateTable) and again.table == made.table
    (other,) = parse(TABLE.replace("id * 2", "id * 3"), DictCatalog())
    assert isinstance(other, CreateTable)
    assert alteration(made.table, other.table, False) == (("ALTER COLUMN `a` SET DEFAULT ((`id` * 3))",), ())


def test_files() -> None:
    (made,) = parse(TABLE, DictCatalog())
    assert isinstance(made, CreateTable)
    table, now = made.table, datetime(2024, 1, 2, 3, 4, 5)
    chunk = Chunk({"id": pa.array([1, 2, 2_000_000_000]), "b": MixedColumn([7, MISSING, None])}, 3, first_row=1)
    batch, rejects = checking.convert(chunk, checking.map_columns(table, ["id", "b"], "f"), table,
                                      checking.defaults(table, now), "f")
    assert [(r["id"], r["n"], r["a"], r["b"], r["g"], r["d"], r["later"]) for r in batch.to_pylist()] == [
        (1, 5, 2, 7, 70, date(2024, 1, 2), now + timedelta(1)), (2, 5, 4, 5, 50, date(2024, 1, 2), now + timedelta(1))]
    assert [(r.row, r.column) for r in rejects] == [(3, "a")]


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_beside_mariadb(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    server = MariaDb(tmp_path_factory.mktemp("m"))
    table = ("CREATE TABLE t (id INT PRIMARY KEY, a INT DEFAULT (id * 2), s VARCHAR(20) DEFAULT (CONCAT('s', id)), "
             "b INT NOT NULL DEFAULT (a + 1), c INT DEFAULT (7 * 6))")
    texts = ["INSERT INTO t (id) VALUES (1), (2)", "INSERT INTO t (id, a) VALUES (3, 9), (4, DEFAULT), (5, NULL)",
             "INSERT INTO t (id, b) VALUES (6, NULL)", "INSERT INTO t (id, s, c) VALUES (7, DEFAULT, DEFAULT)",
             "INSERT INTO t VALUES (8, DEFAULT, 'x', DEFAULT, 1)", "UPDATE t SET a = DEFAULT WHERE id = 3",
             "REPLACE INTO t (id, a) VALUES (1, 5)", "INSERT IGNORE INTO t (id) VALUES (1), (9)"]
    try:
        maria = server.connect()
        with noria.open(tmp_path / "data") as db, maria.cursor() as cursor:
            for text in [table, *texts]:
                try:
                    there = cursor.execute(text)
                except pymysql.err.MySQLError as e:
                    there = e.args[0]
                try:
                    here = db.sql(text).affected
                except SqlError as e:
                    here = e.code
                assert here == there, text
            cursor.execute("SELECT * FROM t ORDER BY id")
            assert sorted(db.sql("SELECT * FROM t").rows) == list(cursor.fetchall())
    finally:
        server.close()
