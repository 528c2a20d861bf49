"""Several databases on one server, over the embedded runtime: names, errors, texts of views, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from server.sessions.connection import Connection


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    with noria.open(tmp_path / "data") as opened:
        yield opened


def _filled(db: Any) -> Connection:
    c = Connection(db)
    for text in ("CREATE DATABASE shop", "CREATE TABLE t (id INT PRIMARY KEY, n INT)",
                 "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT)", "INSERT INTO t VALUES (1, 10)",
                 "INSERT INTO shop.t VALUES (1, 100), (2, 200)"):
        c.sql(text)
    return c


def test_the_same_name_in_two_databases(db: Any) -> None:
    c = _filled(db)
    assert c.rows("SELECT n FROM t WHERE id = 1") == [(10,)]
    assert c.rows("SELECT n FROM shop.t WHERE id = 1") == [(100,)]
    c.sql("USE shop")
    assert c.rows("SELECT DATABASE()") == [("shop",)]
    for _ in range(3):  # the text's shape is learnt
        assert c.rows("SELECT n FROM t WHERE id = 1") == [(100,)]
        assert Connection(db).rows("SELECT n FROM t WHERE id = 1") == [(10,)]
    assert c.rows("SELECT n FROM t WHERE id = ?", 2) == [(200,)]
    assert Connection(db).rows("SELECT n FROM t WHERE id = ?", 2) == []
    assert c.rows("SELECT n FROM noria.t WHERE noria.t.id = 1") == [(10,)]
    assert c.rows("SHOW TABLES") == [("t",)] and c.sql("SHOW TABLES").fields[0].name == "Tables_in_shop"
    c.sql("UPDATE t SET n = n + 1 WHERE shop.t.id = 1")
    c.sql("DELETE FROM shop.t WHERE t.id = 2")
    c.sql("INSERT INTO t VALUES (1, 5) ON DUPLICATE KEY UPDATE n = t.n + VALUES(n)")
    assert c.rows("SELECT * FROM t") == [(1, 106)] and c.rows("SELECT * FROM noria.t") == [(1, 10)]


def test_keys_and_checks_are_named_without_the_database(db: Any) -> None:
    c = _filled(db)
    assert c.error("INSERT INTO shop.t VALUES (1, 7)") == "1062 Duplicate entry '1' for key 't.PRIMARY'"
    c.sql("CREATE TABLE shop.u (n INT UNIQUE, m INT, CHECK (n > 0), CHECK (m > n))")
    assert c.error("INSERT INTO shop.u VALUES (0, 1)") == "3819 Check constraint 'u_chk_1' is violated."
    c.sql("INSERT INTO shop.u VALUES (1, 2)")
    assert c.error("INSERT INTO shop.u VALUES (1, 2)") == "1062 Duplicate entry '1' for key 'u.n'"
    c.sql("ALTER TABLE shop.u ADD CHECK (m < 9)")
    c.sql("RENAME TABLE shop.u TO shop.w")
    assert c.rows("SELECT constraint_schema, constraint_name FROM information_schema.check_constraints ORDER BY 2") == [
        ("shop", f"w_chk_{n}") for n in (1, 2, 3)]
    c.sql("USE shop")
    for part in ("ADD CONSTRAINT low CHECK (n < 50)", "DROP CHECK low", "ADD CONSTRAINT low CHECK (n < 50)",
                 "DROP CONSTRAINT low", "ADD CONSTRAINT k UNIQUE (m)", "DROP CONSTRAINT k", "ADD KEY k (m)",
                 "DROP KEY k"):
        c.sql(f"ALTER TABLE w {part}")
    assert c.error("ALTER TABLE w DROP CHECK low") == "3821 Check constraint 'low' is not found in the table."
    assert c.error("ALTER TABLE w DROP CONSTRAINT low") == "3940 Constraint 'low' does not exist."
    assert c.error("ALTER TABLE w DROP FOREIGN KEY low") == Connection(db).error("ALTER TABLE t DROP FOREIGN KEY low")
    c.sql("USE noria")
    c.sql("RENAME TABLE shop.w TO noria.x")
    assert c.error("INSERT INTO x VALUES (5, 9)") == "3819 Check constraint 'x_chk_3' is violated."


def test_joins_and_views_across(db: Any) -> None:
    c = _filled(db)
    join = "SELECT noria.t.n, shop.t.n FROM noria.t JOIN shop.t ON noria.t.id = shop.t.id"
    assert c.rows(join) == [(10, 100)]
    assert c.error(f"{join} AND t.id = 1") == "1052 Column 't.id' in field list is ambiguous"
    c.sql("USE shop")
    c.sql("CREATE VIEW v AS SELECT a.id, a.n AS mine, b.n AS theirs FROM t a JOIN noria.t b ON a.id = b.id")
    c.sql("CREATE VIEW noria.w AS SELECT id, mine + theirs AS both_n FROM v")
    other = Connection(db)
    assert other.rows("SELECT * FROM shop.v") == [(1, 100, 10)] and other.rows("SELECT both_n FROM w") == [(110,)]
    c.sql("UPDATE noria.t SET n = 11 WHERE id = 1")
    assert other.rows("SELECT * FROM shop.v") == [(1, 100, 11)] and other.rows("SELECT both_n FROM w") == [(111,)]
    assert c.rows("SHOW CREATE VIEW v")[0][:2] == (
        "v", "CREATE VIEW `v` AS SELECT a.id, a.n AS mine, b.n AS theirs FROM `t` a JOIN `noria`.`t` b ON a.id = b.id")
    assert other.rows("SHOW CREATE VIEW shop.v")[0][1] == (
        "CREATE VIEW `shop`.`v` AS SELECT a.id, a.n AS mine, b.n AS theirs FROM `shop`.`t` a JOIN `t` b "
        "ON a.id = b.id")
    assert c.rows("SHOW CREATE VIEW noria.w")[0][1] == (
        "CREATE VIEW `noria`.`w` AS SELECT id, mine + theirs AS both_n FROM `v`")


def test_a_query_of_with_hides_a_table(db: Any) -> None:
    c = _filled(db)
    c.sql("USE shop")
    assert c.rows("WITH t AS (SELECT n FROM t WHERE id = 2) SELECT * FROM t") == [(200,)]
    assert c.rows("WITH u AS (SELECT n FROM t), t AS (SELECT n + 1 AS m FROM u) SELECT m FROM t ORDER BY m") == [
        (101,), (201,)]
    assert c.rows("SELECT (SELECT MAX(x.n) FROM (WITH t AS (SELECT 7 AS n FROM t) SELECT n FROM t) x) AS a "
                  "FROM t WHERE id = 1") == [(7,)]
    c.sql("CREATE VIEW v AS WITH t AS (SELECT n FROM t WHERE id = 2) SELECT n FROM t")
    assert Connection(db).rows("SELECT * FROM shop.v") == [(200,)]
    assert "FROM t" in c.rows("SHOW CREATE VIEW v")[0][1]


def test_errors(db: Any) -> None:
    c = _filled(db)
    assert c.error("CREATE DATABASE Shop") == "1007 Can't create database 'Shop'; database exists"
    assert c.error("DROP DATABASE nix") == "1008 Can't drop database 'nix'; database doesn't exist"
    assert c.error("USE nix") == "1049 Unknown database 'nix'"
    for text in ("SELECT * FROM nix.t", "INSERT INTO nix.t VALUES (1)", "CREATE TABLE nix.u (a INT)",
                 "DROP TABLE nix.t", "SHOW TABLES FROM nix", "CREATE VIEW nix.v AS SELECT n FROM t", "TRUNCATE nix.t",
                 "ALTER DATABASE nix CHARACTER SET utf8mb4", "SHOW CREATE DATABASE nix", "RENAME TABLE t TO nix.t",
                 "DESCRIBE nix.t", "EXPLAIN SELECT * FROM nix.t", "CREATE VIEW v AS SELECT nix.t.n FROM nix.t"):
        assert c.code(text) == 1049, text
    assert c.error("SELECT * FROM shop.u") == "1146 Table 'shop.u' doesn't exist"
    assert c.error("SELECT shop.t.n FROM t") == "1054 Unknown column 'shop.t.n' in 'field list'"
    assert c.code("SELECT * FROM `shop.t`") == 1103 and c.code("CREATE TABLE `shop.u` (a INT)") == 1103
    assert c.error("CREATE DATABASE ``") == "1102 Incorrect database name ''"
    assert c.code("CREATE DATABASE `a.b`") == 1235 and c.code("CREATE DATABASE mysql") == 1044
    assert c.error("CREATE DATABASE x COLLATE latin1_bin CHARACTER SET utf8mb4") == (
        "1253 COLLATION 'latin1_bin' is not valid for CHARACTER SET 'utf8mb4'")
    assert c.code("CREATE DATABASE x CHARACTER SET koi9") == 1115
    assert c.code("CREATE DATABASE x COLLATE koi9_ci") == 1273
    with pytest.raises(SqlError) as caught:
        Connection(db, "nix")
    assert caught.value.code == 1049
    done = c.sql("CREATE DATABASE IF NOT EXISTS shop")
    assert done.warnings == (("Note", 1007, "Can't create database 'shop'; database exists"),)
    done = c.sql("DROP DATABASE IF EXISTS nix")
    assert done.warnings == (("Note", 1008, "Can't drop database 'nix'; database doesn't exist"),)


def test_drop(db: Any) -> None:
    c, other = _filled(db), Connection(db, "shop")
    c.sql("CREATE VIEW v AS SELECT id, n FROM shop.t")
    c.sql("CREATE VIEW shop.w AS SELECT id, n FROM shop.t WHERE id = ?")
    assert "views of other databases read it: 'v'" in c.error("DROP DATABASE shop")
    c.sql("DROP VIEW v")
    assert other.rows("SELECT n FROM t WHERE id = 1") == [(100,)]  # an ad-hoc view
    c.sql("USE shop")
    assert c.sql("DROP DATABASE shop").affected == 2
    assert c.rows("SELECT DATABASE()") == [(None,)]
    assert c.error("SELECT * FROM t") == c.error("CREATE TABLE t (a INT)") == "1046 No database selected"
    assert c.error("SHOW TABLES") == c.error("INSERT INTO t VALUES (3, 3)") == "1046 No database selected"
    assert c.rows("SELECT n FROM noria.t") == [(10,)]
    assert other.error("SELECT n FROM t WHERE id = 1") == "1049 Unknown database 'shop'"
    assert other.error("CREATE TABLE t (a INT)") == "1049 Unknown database 'shop'"
    assert c.rows("SHOW DATABASES") == [("noria",)]
    c.sql("CREATE DATABASE shop")
    assert other.rows("SHOW TABLES") == [] and other.code("SELECT n FROM t WHERE id = 1") == 1146


def test_the_first_database_can_be_dropped_and_made_again(db: Any) -> None:
    c = _filled(db)
    c.sql("DROP DATABASE noria")
    assert c.rows("SHOW DATABASES") == [("shop",)]
    fresh = Connection(db)
    assert fresh.error("CREATE TABLE a (x INT)") == "1049 Unknown database 'noria'"
    assert fresh.rows("SELECT n FROM shop.t ORDER BY id") == [(100,), (200,)]
    c.sql("CREATE DATABASE noria")
    fresh.sql("CREATE TABLE t (x INT PRIMARY KEY)")
    assert fresh.rows("SELECT * FROM t") == [] and c.rows("SHOW TABLES FROM noria") == [("t",)]


def test_character_sets(db: Any) -> None:
    c = Connection(db)
    c.sql("CREATE DATABASE exact DEFAULT CHARACTER SET = utf8mb4 COLLATE utf8mb4_bin")
    assert c.rows("SHOW CREATE DATABASE exact") == [
        ("exact", "CREATE DATABASE `exact` /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */")]
    c.sql("CREATE TABLE exact.t (word VARCHAR(9) PRIMARY KEY)")
    c.sql("INSERT INTO exact.t VALUES ('a'), ('A')")
    c.sql("ALTER DATABASE exact CHARACTER SET latin1")
    assert c.rows("SELECT schema_name, default_character_set_name, default_collation_name "
                  "FROM information_schema.schemata ORDER BY schema_name") == [
        ("exact", "latin1", "latin1_swedish_ci"), ("noria", "utf8mb4", "utf8mb4_0900_ai_ci")]
    c.sql("CREATE TABLE exact.u (word VARCHAR(9) PRIMARY KEY)")
    assert c.code("INSERT INTO exact.u VALUES ('a'), ('A')") == 1062
    c.sql("USE exact")
    c.sql("ALTER DATABASE COLLATE utf8mb4_bin")
    assert c.rows("SHOW CREATE SCHEMA exact")[0][1].endswith("COLLATE utf8mb4_bin */")


def test_renames_across(db: Any) -> None:
    c = _filled(db)
    c.sql("CREATE VIEW v AS SELECT id, n FROM shop.t")
    c.sql("RENAME TABLE t TO u, shop.t TO t")
    assert c.rows("SELECT n FROM t ORDER BY id") == [(100,), (200,)]
    assert c.rows("SELECT n FROM v WHERE id = 1") == [(100,)]
    assert c.code("SELECT * FROM shop.t") == 1146
    c.sql("ALTER TABLE u RENAME TO shop.`odd.name`")
    c.sql("USE shop")
    assert c.rows("SELECT n FROM `odd.name`") == c.rows("SELECT `odd.name`.n FROM shop.`odd.name`") == [(10,)]
    assert c.rows("SHOW TABLES") == [("odd.name",)]


def test_views_follow_changes_of_tables_elsewhere(db: Any) -> None:
    c = _filled(db)
    c.sql("CREATE VIEW v AS SELECT shop.t.id, u.n FROM shop.t JOIN t AS u ON u.id = shop.t.id")
    c.sql("ALTER TABLE shop.t RENAME COLUMN id TO number")
    c.sql("RENAME TABLE shop.t TO shop.other")
    assert c.rows("SELECT * FROM v") == [(1, 10)]
    text = c.rows("SHOW CREATE VIEW v")[0][1]
    assert "`shop`.`other`" in text and "number" in text
    c.sql("USE shop")
    assert "FROM `other`" in c.rows("SHOW CREATE VIEW noria.v")[0][1]


def test_a_name_with_a_dot(db: Any) -> None:
    c = Connection(db)
    c.sql("CREATE TABLE `later.t` (id INT PRIMARY KEY)")
    assert c.error("CREATE DATABASE later").startswith("1102 Incorrect database name 'later': ")
    c.sql("DROP TABLE `later.t`")
    c.sql("CREATE DATABASE later")


def test_definitions_are_shown(db: Any) -> None:
    c = _filled(db)
    c.sql("CREATE TABLE shop.`odd``one` (id INT AUTO_INCREMENT PRIMARY KEY, word VARCHAR(9), KEY w (word))")
    c.sql("CREATE VIEW shop.v AS SELECT id FROM shop.t")
    assert c.rows("SHOW CREATE TABLE shop.`odd``one`")[0][1].startswith("CREATE TABLE `odd``one` (\n")
    for text in ("DESCRIBE shop.t", "SHOW COLUMNS FROM t IN shop"):
        assert [r[0] for r in c.rows(text)] == ["id", "n"]
    assert c.rows("SHOW INDEX FROM shop.`odd``one` WHERE Key_name = 'w'")[0][0] == "odd`one"
    assert c.rows("SHOW FULL TABLES FROM shop") == [("odd`one", "BASE TABLE"), ("t", "BASE TABLE"), ("v", "VIEW")]
    assert c.rows("SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2") == [
        ("noria", "t"), ("shop", "odd`one"), ("shop", "t"), ("shop", "v")]
    assert c.rows("SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'shop' "
                  "AND ordinal_position = 1 ORDER BY 1") == [("odd`one", "id"), ("t", "id"), ("v", "id")]
    assert c.rows("SELECT table_schema, table_name FROM information_schema.views") == [("shop", "v")]
    assert c.rows("SELECT DISTINCT table_schema FROM information_schema.statistics WHERE index_schema = 'shop'") == [
        ("shop",)]
    c.sql("USE shop")
    assert c.rows("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()") == [(3,)]


def test_reopened(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        c = _filled(db)
        c.sql("USE shop")
        c.sql("CREATE VIEW v AS SELECT shop.t.id, noria.t.n FROM t JOIN noria.t ON shop.t.id = noria.t.id")
        c.sql("CREATE VIEW v2 AS SELECT n FROM v WHERE id = ?")
        c.sql("CREATE VIEW later AS SELECT 1 AS a")
        c.sql("CREATE DATABASE `Exact one` COLLATE utf8mb4_bin")
        assert c.rows("SELECT n FROM v2 WHERE id = 1") == [(10,)]
    with noria.open(tmp_path / "data") as db:
        c = Connection(db, "SHOP")
        assert c.rows("SELECT DATABASE()") == [("shop",)]
        assert c.rows("SELECT n FROM t ORDER BY id") == [(100,), (200,)]
        assert c.rows("SELECT n FROM v2 WHERE id = 1") == [(10,)] and c.rows("SELECT a FROM later") == [(1,)]
        assert c.rows("SHOW DATABASES") == [("Exact one",), ("noria",), ("shop",)]
        assert "utf8mb4_bin" in c.rows("SHOW CREATE DATABASE `exact ONE`")[0][1]
        c.sql("UPDATE noria.t SET n = 12")
        assert c.rows("SELECT * FROM v") == [(1, 12)]
        c.sql("DROP DATABASE noria") if not c.code("DROP VIEW v2, v") else None
    with noria.open(tmp_path / "data") as db:
        c = Connection(db, "shop")
        assert c.rows("SHOW DATABASES") == [("Exact one",), ("shop",)] and c.rows("SHOW TABLES") == [("later",), ("t",)]
