"""information_schema, over the embedded runtime: the questions of migration tools, and joins and groups of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from e2e.mariadb import INSTALLED, MariaDb
from noria.client import Database
from noria.core.errors import SqlError
from noria.server.sessions.inspect import over_rows


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with noria.open(tmp_path_factory.mktemp("d") / "data") as db:
        db.sql("CREATE TABLE gone (x INT)")
        db.sql("DROP TABLE gone")
        db.sql("CREATE TABLE thing (old INT, id BIGINT AUTO_INCREMENT PRIMARY KEY, label VARCHAR(60) NOT NULL, "
               "price DECIMAL(8, 2) DEFAULT 1.5, n INT UNSIGNED, made DATETIME(6), j JSON, UNIQUE KEY u (label, n), "
               "KEY m (made))")
        db.sql("CREATE TABLE tag (word VARCHAR(20) PRIMARY KEY)")
        db.sql("CREATE VIEW dear AS SELECT id, label FROM thing WHERE price > 100")
        db.sql("ALTER TABLE thing DROP COLUMN old")
        yield db


def rows(db: Database, text: str, *values: Any) -> list[tuple[Any, ...]]:
    return [tuple(r) for r in db.sql(text, list(values)).rows]


def test_tables(db: Database) -> None:
    assert sorted(rows(db, "SELECT table_name, table_type, table_comment FROM information_schema.tables "
                           "WHERE table_schema = DATABASE()")) == [
        ("dear", "VIEW", "VIEW"), ("tag", "BASE TABLE", ""), ("thing", "BASE TABLE", "")]
    assert rows(db, "SELECT 1 FROM INFORMATION_SCHEMA.TABLES WHERE table_schema = 'other'") == []
    assert rows(db, "SELECT t.TABLE_NAME FROM information_schema.tables t WHERE t.table_name = ?", "TAG") == [("tag",)]
    assert rows(db, "SELECT engine FROM information_schema.tables WHERE table_name LIKE 'ta%'") == [("NORIA",)]


def test_columns(db: Database) -> None:
    text = ("SELECT column_name, data_type, character_maximum_length, numeric_precision, numeric_scale, extra, "
            "column_default, column_key, is_nullable, CASE WHEN column_type LIKE '% unsigned' THEN 1 ELSE 0 END AS u, "
            "CASE WHEN collation_name = ? THEN NULL ELSE collation_name END AS c "
            "FROM information_schema.columns WHERE table_name = ? AND table_schema = DATABASE() "
            "ORDER BY ordinal_position")
    assert rows(db, text, "utf8mb4_0900_ai_ci", "thing") == [
        ("id", "bigint", None, 19, 0, "auto_increment", None, "PRI", "NO", 0, None),
        ("label", "varchar", 60, None, None, "", None, "MUL", "NO", 0, None),
        ("price", "decimal", None, 8, 2, "", "1.50", "", "YES", 0, None),
        ("n", "int", None, 10, 0, "", None, "", "YES", 1, None),
        ("made", "datetime", None, None, None, "", None, "MUL", "YES", 0, None),
        ("j", "json", None, None, None, "", None, "", "YES", 0, None)]


def test_columns_of_one_name(db: Database) -> None:
    """Only the relations with the name are visited; the other conditions hold, too."""
    asked = "SELECT DISTINCT table_name FROM information_schema.columns WHERE "
    assert rows(db, asked + "table_name = 'THING' AND ordinal_position > 1") == [("thing",)]
    assert rows(db, asked + "'dear' = table_name AND NOT column_name = 'id'") == [("dear",)]
    assert rows(db, asked + "table_name = 'tag' AND table_name = 'thing'") == []
    assert sorted(rows(db, asked + "table_name = 'tag' OR column_name = 'id'")) == [("dear",), ("tag",), ("thing",)]
    assert rows(db, "SELECT c.column_name FROM information_schema.tables t JOIN information_schema.columns c ON "
                    "c.table_name = t.table_name WHERE t.table_name = 'tag'") == [("word",)]


EVERY = """
    CREATE TABLE every (
    a TINYINT PRIMARY KEY AUTO_INCREMENT, b TINYINT UNSIGNED, c SMALLINT, d MEDIUMINT, e INT NOT NULL,
    f BIGINT, g BIGINT UNSIGNED, h DECIMAL(9, 3), i FLOAT, j DOUBLE, k CHAR(7), l VARCHAR(300), m TEXT, n TINYTEXT,
    o MEDIUMTEXT, p LONGTEXT, q BLOB, r VARBINARY(9), s BINARY(4), t ENUM('aé', 'bcd'), u SET('x', 'yz'), v DATE,
    w DATETIME(3), x TIMESTAMP NULL, y TIME, z YEAR,
    UNIQUE KEY eg (e, g), KEY f (f, a), KEY le (l), UNIQUE KEY h (h))"""


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_as_mariadb_tells(tmp_path: Path) -> None:
    oracle = MariaDb(tmp_path)
    texts = [
        "SELECT column_name, data_type, character_maximum_length, character_octet_length, numeric_precision, "
        "numeric_scale, datetime_precision, is_nullable, column_key, extra FROM information_schema.columns "
        "WHERE table_name = 'every' AND table_schema = DATABASE() ORDER BY ordinal_position",
        "SELECT index_name, non_unique, seq_in_index, column_name, nullable, index_type FROM "
        "information_schema.statistics WHERE table_name = 'every' ORDER BY index_name, seq_in_index",
        "SELECT k.constraint_name, constraint_type, column_name, ordinal_position FROM "
        "information_schema.key_column_usage k JOIN information_schema.table_constraints c USING (table_schema, "
        "table_name, constraint_name) WHERE table_name = 'every' ORDER BY k.constraint_name, ordinal_position",
        "SELECT table_catalog, table_name, table_type FROM information_schema.tables WHERE table_schema = 'noria'"]
    try:
        with noria.open(tmp_path / "data") as db, oracle.connect("noria").cursor() as cursor:
            cursor.execute(EVERY)
            db.sql(EVERY)
            for text in texts:
                cursor.execute(text)
                told = list(cursor.fetchall())
                assert told and rows(db, text) == told
    finally:
        oracle.close()


def test_show_columns_tells_the_keys_of_the_columns_that_are_left(db: Database) -> None:
    assert [r[3] for r in rows(db, "SHOW COLUMNS FROM thing")] == ["PRI", "MUL", "", "", "MUL", ""]


def test_a_join_of_two_of_them(db: Database) -> None:
    text = """
        SELECT kc.`constraint_name`, kc.`column_name`, kc.`referenced_table_name`, kc.`referenced_column_name`,
            c.`constraint_type`
        FROM information_schema.key_column_usage AS kc, information_schema.table_constraints AS c
        WHERE kc.table_schema = DATABASE() AND
            (kc.referenced_table_schema = DATABASE() OR kc.referenced_table_schema IS NULL) AND
            c.table_schema = kc.table_schema AND c.constraint_name = kc.constraint_name AND
            c.constraint_type != 'CHECK' AND kc.table_name = 'thing' AND c.table_name = kc.table_name
        ORDER BY kc.`ordinal_position`, 1"""
    assert rows(db, text) == [("PRIMARY", "id", None, None, "PRIMARY KEY"), ("u", "label", None, None, "UNIQUE"),
                              ("u", "n", None, None, "UNIQUE")]
    assert rows(db, "SELECT t.table_name, s.index_name FROM information_schema.tables t LEFT JOIN "
                    "information_schema.statistics s ON s.table_name = t.table_name AND s.seq_in_index = 1 AND "
                    "s.index_name <> 'm' ORDER BY 1, 2") == [
        ("dear", None), ("tag", "PRIMARY"), ("thing", "PRIMARY"), ("thing", "u")]


def test_groups_and_queries_within(db: Database) -> None:
    assert rows(db, "SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'none'") == [(0,)]
    assert rows(db, "SELECT table_name, COUNT(*) AS n, MAX(column_name) AS x FROM information_schema.columns "
                    "GROUP BY table_name ORDER BY n DESC, table_name LIMIT 2 OFFSET 1") == [
        ("dear", 2, "label"), ("tag", 1, "word")]
    assert rows(db, "SELECT DISTINCT table_type FROM information_schema.tables t WHERE EXISTS (SELECT 1 FROM "
                    "information_schema.statistics s WHERE s.table_name = t.table_name)") == [("BASE TABLE",)]
    assert rows(db, "WITH a AS (SELECT table_name FROM information_schema.views) SELECT * FROM a UNION ALL "
                    "SELECT schema_name FROM information_schema.schemata ORDER BY 1") == [("dear",), ("noria",)]
    assert rows(db, "SELECT * FROM information_schema.check_constraints") == []


def test_what_there_is_none_of_has_its_columns(db: Database) -> None:
    """mariadb-dump asks, and does not go on where a table is not there."""
    for text in (
            "SELECT TRIGGER_NAME FROM INFORMATION_SCHEMA.TRIGGERS WHERE EVENT_OBJECT_SCHEMA = DATABASE() AND "
            "EVENT_OBJECT_TABLE = 'thing'",
            "SELECT routine_name, routine_definition, definer FROM information_schema.routines",
            "SELECT parameter_name FROM information_schema.parameters ORDER BY ordinal_position",
            "SELECT event_name, interval_value, status FROM information_schema.events"):
        assert rows(db, text) == []


def test_what_phpmyadmin_asks(db: Database) -> None:
    ask = "SELECT {} FROM information_schema.{}"
    assert rows(db, ask.format("character_set_name, description", "character_sets")) == [("utf8mb4", "UTF-8 Unicode")]
    of_utf8 = " WHERE character_set_name = 'utf8mb4' ORDER BY id"
    assert rows(db, ask.format("collation_name, id", "collations") + of_utf8) == [
        ("utf8mb4_bin", 46), ("utf8mb4_0900_ai_ci", 255)]
    assert rows(db, ask.format("COUNT(*)", "collation_character_set_applicability")) == [(2,)]
    mine = rows(db, ask.format("grantee, privilege_type", "user_privileges") + " WHERE is_grantable = 'YES'")
    assert ("'root'@'%'", "CREATE VIEW") in mine and ("'root'@'%'", "CREATE USER") in mine
    of_here = " WHERE table_schema = DATABASE() ORDER BY 1"
    assert rows(db, ask.format("table_name, partition_name", "partitions") + of_here) == [
        ("tag", None), ("thing", None)]
    assert rows(db, ask.format("transactions, savepoints", "engines")) == [("YES", "YES")]
    for name in ("plugins", "schema_privileges", "table_privileges", "column_privileges"):
        assert rows(db, ask.format("COUNT(*)", name)) == [(0,)]


def test_a_view_is_the_users_that_there_is(db: Database) -> None:
    """All that mariadb-dump asks of a view is text: it ends at NULL."""
    assert rows(db, "SELECT CHECK_OPTION, DEFINER, SECURITY_TYPE, CHARACTER_SET_CLIENT, COLLATION_CONNECTION FROM "
                    "information_schema.views WHERE table_name='dear' AND table_schema='noria'") == [
        ("NONE", "root@%", "DEFINER", "utf8mb4", "utf8mb4_0900_ai_ci")]


@pytest.mark.parametrize("text, code, said", [
    ("SELECT * FROM information_schema.nothing", 1109, "there are character_sets, check_constraints, "),
    ("SELECT * FROM information_schema.tables JOIN thing ON label = table_name", 1235, "ask for each by itself"),
    ("SELECT * FROM information_schema.tables JOIN columns USING (table_name)", 1235, "ask for each by itself"),
    ("SELECT SUM(ordinal_position) FROM information_schema.columns", 1235, "work it out of the rows"),
    ("SELECT wrong FROM information_schema.columns", 1054, "wrong"),
    ("SELECT * FROM mysql.tables", 1146, "doesn't exist"),
    ("SELECT * FROM information_schema.user", 1146, "doesn't exist"),
    ("EXPLAIN SELECT * FROM information_schema.tables", 1235, "EXPLAIN"),
    ("CREATE VIEW w AS SELECT table_name FROM information_schema.tables", 1146, "information_schema"),
])
def test_what_is_not_there_is_refused(db: Database, text: str, code: int, said: str) -> None:
    with pytest.raises(SqlError, match=said) as e:
        db.sql(text)
    assert e.value.code == code


def test_a_join_of_everything_with_everything_is_refused(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is worked out where everybody's statements begin."""
    monkeypatch.setattr(over_rows, "INFORMATION_ROWS", 50)
    assert len(rows(db, "SELECT 1 FROM information_schema.tables a, information_schema.tables b")) == 9
    with pytest.raises(SqlError) as e:
        rows(db, "SELECT 1 FROM information_schema.columns a, information_schema.columns b")
    assert e.value.code == 3024
