"""FOREIGN KEYs of definitions: what is refused, what follows a rename, and what is shown; 1 and 3 workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import run

PARENT = "CREATE TABLE p (id INT PRIMARY KEY, a INT, b INT, name VARCHAR(20), UNIQUE KEY ab (a, b))"
CHILD = "CREATE TABLE c (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)"


@pytest.fixture(params=[1, 3])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), PARENT)
    yield server
    server.close()


def refused(connection: Any, statement: str) -> tuple[int, str]:
    with pytest.raises(pymysql.MySQLError) as e:
        run(connection, statement)
    return e.value.args[0], e.value.args[1]


def shown(connection: Any, table: str = "c") -> list[str]:
    """The keys of a table as SHOW CREATE TABLE prints them."""
    ((_, text),) = run(connection, f"SHOW CREATE TABLE {table}")
    return [line.strip(" ,") for line in text.splitlines() if "FOREIGN KEY" in line]


# ------------------------------------------------------------------ CREATE TABLE
def test_a_key_is_shown_as_mysql_shows_it(server: LocalServer) -> None:
    a = server.connect()
    run(a, CHILD, "CREATE TABLE d (x INT, y INT, CONSTRAINT two FOREIGN KEY (x, y) REFERENCES P (A, B) ON DELETE SET "
                  "NULL ON UPDATE CASCADE, FOREIGN KEY (x) REFERENCES p (id) ON UPDATE RESTRICT)")
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE CASCADE"]
    assert shown(a, "d") == [
        "CONSTRAINT `d_ibfk_1` FOREIGN KEY (`x`) REFERENCES `p` (`id`) ON UPDATE RESTRICT",
        "CONSTRAINT `two` FOREIGN KEY (`x`, `y`) REFERENCES `p` (`a`, `b`) ON DELETE SET NULL ON UPDATE CASCADE"]
    assert "KEY `two` (`x`, `y`)" in run(a, "SHOW CREATE TABLE d")[0][1]


@pytest.mark.parametrize("parts, code, text", [
    ("a INT, FOREIGN KEY (a) REFERENCES q (id)", 1824, "Failed to open the referenced table 'q'"),
    ("a INT, FOREIGN KEY (a) REFERENCES p (z)", 3734, "Failed to add the foreign key constraint. Missing column 'z' "
     "for constraint 't_ibfk_1' in the referenced table 'p'"),
    ("a INT, FOREIGN KEY (a) REFERENCES p (b)", 6125, "Failed to add the foreign key constraint. Missing unique key "
     "for constraint 't_ibfk_1' in the referenced table 'p'"),
    ("a INT, FOREIGN KEY (a) REFERENCES p (a)", 6125, "Missing unique key"),
    ("a INT, b INT, FOREIGN KEY (b, a) REFERENCES p (b, a)", 6125, "Missing unique key"),
    ("a BIGINT, FOREIGN KEY (a) REFERENCES p (id)", 3780, "Referencing column 'a' and referenced column 'id' in "
     "foreign key constraint 't_ibfk_1' are incompatible."),
    ("a INT UNSIGNED, FOREIGN KEY (a) REFERENCES p (id)", 3780, "incompatible"),
    ("a VARCHAR(20), FOREIGN KEY (a) REFERENCES p (id)", 3780, "incompatible"),
    ("a INT, CONSTRAINT c_ibfk_1 FOREIGN KEY (a) REFERENCES p (id)", 1826,
     "Duplicate foreign key constraint name 'c_ibfk_1'")])
def test_a_key_that_does_not_fit_is_refused(server: LocalServer, parts: str, code: int, text: str) -> None:
    a = server.connect()
    run(a, CHILD)
    found = refused(a, f"CREATE TABLE t ({parts})")
    assert found[0] == code and text in found[1]
    assert not run(a, "SHOW TABLES LIKE 't'")


def test_a_table_may_refer_to_itself(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE t (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES t (id))",
        "ALTER TABLE t RENAME COLUMN id TO number, RENAME COLUMN up TO above", "RENAME TABLE t TO tree")
    assert shown(a, "tree") == ["CONSTRAINT `tree_ibfk_1` FOREIGN KEY (`above`) REFERENCES `tree` (`number`)"]
    run(a, "TRUNCATE tree", "DROP TABLE tree")


def test_without_checks_a_child_is_created_before_its_parent(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "SET foreign_key_checks = 0", "CREATE TABLE c (q INT, FOREIGN KEY (q) REFERENCES q (id))")
    assert refused(b, "CREATE TABLE d (q INT, FOREIGN KEY (q) REFERENCES q (id))")[0] == 1824
    assert refused(a, "CREATE TABLE q (id BIGINT PRIMARY KEY)")[0] == 3780
    assert refused(a, "CREATE TABLE q (other INT PRIMARY KEY)")[0] == 3734
    assert refused(a, "CREATE TABLE q (id INT)")[0] == 6125
    assert refused(b, "CREATE TABLE q (id INT)")[0] == 6125
    run(b, "CREATE TABLE w (id INT)")
    assert refused(b, "RENAME TABLE w TO q")[0] == 6125
    assert refused(b, "ALTER TABLE w RENAME TO q")[0] == 6125
    run(b, "ALTER TABLE w RENAME TO q, ADD PRIMARY KEY (id)")
    assert refused(b, "DROP TABLE q")[0] == 3730
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`q`) REFERENCES `q` (`id`)"]


# ------------------------------------------------------------------ what a key needs
def test_a_parent_is_dropped_only_with_its_children(server: LocalServer) -> None:
    a = server.connect()
    run(a, CHILD)
    assert refused(a, "DROP TABLE p") == (
        3730, "Cannot drop table 'p' referenced by a foreign key constraint 'c_ibfk_1' on table 'c'.")
    assert refused(a, "TRUNCATE TABLE p") == (
        1701, "Cannot truncate a table referenced in a foreign key constraint (`noria`.`c`, CONSTRAINT `c_ibfk_1`)")
    run(a, "SET foreign_key_checks = 0", "TRUNCATE p", "DROP TABLE p", PARENT, "SET foreign_key_checks = 1",
        "DROP TABLE p, c")


@pytest.mark.parametrize("table, change, code, text", [
    ("p", "DROP COLUMN id", 1829,
     "Cannot drop column 'id': needed in a foreign key constraint 'c_ibfk_1' of table 'c'"),
    ("p", "MODIFY id BIGINT", 1833,
     "Cannot change column 'id': used in a foreign key constraint 'c_ibfk_1' of table 'c'"),
    ("p", "DROP PRIMARY KEY", 1553, "Cannot drop index 'PRIMARY': needed in a foreign key constraint"),
    ("c", "DROP COLUMN p", 1828, "Cannot drop column 'p': needed in a foreign key constraint 'c_ibfk_1'"),
    ("c", "MODIFY p BIGINT", 1832, "Cannot change column 'p': used in a foreign key constraint 'c_ibfk_1'"),
    ("c", "DROP INDEX p", 1553, "Cannot drop index 'p': needed in a foreign key constraint"),
    ("c", "ADD CONSTRAINT x FOREIGN KEY (p) REFERENCES q (id)", 1824, "'q'")])
def test_what_a_key_needs_stays(server: LocalServer, table: str, change: str, code: int, text: str) -> None:
    a = server.connect()
    run(a, CHILD)
    found = refused(a, f"ALTER TABLE {table} {change}")
    assert found[0] == code and text in found[1]
    run(a, "ALTER TABLE c DROP FOREIGN KEY c_ibfk_1")
    if code != 1824:
        run(a, f"ALTER TABLE {table} {change}")


def test_an_index_may_be_dropped_if_another_one_serves(server: LocalServer) -> None:
    a = server.connect()
    run(a, CHILD, "ALTER TABLE c ADD KEY both_of (p, id)", "ALTER TABLE c DROP KEY p",
        "ALTER TABLE p ADD UNIQUE KEY again (id)", "ALTER TABLE p DROP PRIMARY KEY, ADD PRIMARY KEY (id)")
    assert refused(a, "DROP INDEX both_of ON c")[0] == 1553


def test_names_of_the_parent_are_followed(server: LocalServer) -> None:
    a = server.connect()
    run(a, CHILD, "CREATE TABLE d (x INT, y INT, FOREIGN KEY (x, y) REFERENCES p (a, b))",
        "INSERT INTO p VALUES (1, 1, 1, 'x')", "CREATE VIEW v AS SELECT id, p FROM c WHERE p = ?",
        "SELECT * FROM v WHERE p = 1", "RENAME TABLE p TO parents",
        "ALTER TABLE parents RENAME COLUMN a TO aa, CHANGE id ident INT, RENAME TO people")
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `people` (`ident`) ON DELETE CASCADE"]
    assert shown(a, "d") == ["CONSTRAINT `d_ibfk_1` FOREIGN KEY (`x`, `y`) REFERENCES `people` (`aa`, `b`)"]
    run(a, "INSERT INTO c VALUES (1, 1)")
    assert run(a, "SELECT id FROM v WHERE p = 1") == [(1,)]
    server.validate()


@pytest.mark.parametrize("workers", [1, 3])
def test_definitions_survive_a_restart(tmp_path: Path, workers: int) -> None:
    server = LocalServer(tmp_path / "data", workers=workers)
    run(server.connect(), PARENT, CHILD, "ALTER TABLE p RENAME TO q, RENAME COLUMN id TO n")
    server.close()
    server = LocalServer(tmp_path / "data", workers=workers)
    a = server.connect()
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `q` (`n`) ON DELETE CASCADE"]
    assert refused(a, "DROP TABLE q")[0] == 3730
    server.close()


# ------------------------------------------------------------------ ALTER TABLE … ADD FOREIGN KEY
def test_rows_without_a_parent_refuse_a_new_key(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE t (id INT PRIMARY KEY, x INT, y INT)",
        "INSERT INTO p VALUES (1, 10, 100, 'x'), (2, 20, 200, 'y')",
        "INSERT INTO t VALUES (1, 10, 100), (2, 10, NULL), (3, NULL, 7), (4, 20, 100)")
    before = run(a, "SHOW CREATE TABLE t")
    change = "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (x, y) REFERENCES p (a, b) ON DELETE CASCADE"
    assert refused(a, change) == (
        1452, "Cannot add or update a child row: a foreign key constraint fails (`noria`.`t`, CONSTRAINT `f` FOREIGN "
              "KEY (`x`, `y`) REFERENCES `p` (`a`, `b`) ON DELETE CASCADE)")
    assert run(a, "SHOW CREATE TABLE t") == before
    assert refused(a, f"{change}, DROP COLUMN id, ADD COLUMN z INT")[0] == 1452
    renamed = change.replace("(x, y)", "(xx, y)")
    assert refused(a, f"{renamed}, ADD COLUMN z INT, RENAME COLUMN x TO xx, RENAME TO u")[0] == 1452
    assert run(a, "SHOW CREATE TABLE t") == before
    run(a, "DELETE FROM t WHERE id = 4", change)
    assert len(shown(a, "t")) == 1
    server.validate()


def test_without_checks_rows_are_not_counted(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE t (x INT)", "INSERT INTO t VALUES (7)", "SET foreign_key_checks = 0",
        "ALTER TABLE t ADD FOREIGN KEY (x) REFERENCES p (id)")
    assert len(shown(a, "t")) == 1


def test_a_new_column_refers_at_once(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)",
        "ALTER TABLE t ADD x INT, ADD FOREIGN KEY (x) REFERENCES p (id)")
    assert refused(a, "ALTER TABLE t ADD y INT NOT NULL DEFAULT 1 REFERENCES p (id)")[0] == 1452
    run(a, "INSERT INTO p (id) VALUES (1)", "ALTER TABLE t ADD y INT NOT NULL DEFAULT 1 REFERENCES p (id)")
    assert run(a, "SELECT * FROM t") == [(7, None, 1)]
    assert len(shown(a, "t")) == 2
    server.validate()


def test_a_key_is_added_while_the_primary_key_changes(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE TABLE t (id INT PRIMARY KEY, x INT NOT NULL)", "INSERT INTO t VALUES (7, 1)")
    change = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (x), ADD FOREIGN KEY (x) REFERENCES p (id)"
    assert refused(a, change)[0] == 1452
    assert "PRIMARY KEY (`id`)" in run(a, "SHOW CREATE TABLE t")[0][1]
    run(a, "INSERT INTO p (id, a) VALUES (1, 1)", change)
    assert len(shown(a, "t")) == 1 and run(a, "SELECT id FROM t WHERE x = 1") == [(7,)]
    run(a, "ALTER TABLE p DROP PRIMARY KEY, ADD PRIMARY KEY (n, a), ADD UNIQUE KEY i (n), RENAME COLUMN id TO n")
    assert shown(a, "t") == ["CONSTRAINT `t_ibfk_1` FOREIGN KEY (`x`) REFERENCES `p` (`n`)"]
    server.validate()


# ------------------------------------------------------------------ databases
def test_keys_between_databases(server: LocalServer) -> None:
    a = server.connect()
    run(a, "CREATE DATABASE shop", "CREATE DATABASE other", "CREATE TABLE shop.q (id INT PRIMARY KEY)", "USE other",
        "CREATE TABLE c (q INT, x INT, FOREIGN KEY (q) REFERENCES shop.q (id), CONSTRAINT h FOREIGN KEY (x) REFERENCES "
        "noria.p (id))")
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`q`) REFERENCES `shop`.`q` (`id`)",
                        "CONSTRAINT `h` FOREIGN KEY (`x`) REFERENCES `noria`.`p` (`id`)"]
    assert refused(a, "DROP DATABASE shop") == (
        3730, "Cannot drop table 'q' referenced by a foreign key constraint 'c_ibfk_1' on table 'c'.")
    run(a, "RENAME TABLE shop.q TO other.r", "DROP DATABASE shop")
    assert shown(a)[0] == "CONSTRAINT `c_ibfk_1` FOREIGN KEY (`q`) REFERENCES `r` (`id`)"
    run(a, "INSERT INTO r VALUES (1)", "INSERT INTO c VALUES (1, NULL)", "ALTER TABLE c DROP FOREIGN KEY c_ibfk_1",
        "ALTER TABLE c ADD FOREIGN KEY (q) REFERENCES r (id)", "ALTER TABLE c DROP FOREIGN KEY h",
        "DROP DATABASE other")


# ------------------------------------------------------------------ information_schema, dumps
def test_information_schema(server: LocalServer) -> None:
    a = server.connect()
    run(a, CHILD, "CREATE DATABASE shop", "CREATE TABLE shop.d (x INT, y INT, CONSTRAINT two FOREIGN KEY (x, y) "
        "REFERENCES noria.p (a, b) ON UPDATE SET NULL)")
    assert run(a, "SELECT constraint_schema, constraint_name, table_name, column_name, ordinal_position, "
                  "position_in_unique_constraint, referenced_table_schema, referenced_table_name, "
                  "referenced_column_name FROM information_schema.key_column_usage WHERE referenced_table_name IS NOT "
                  "NULL ORDER BY constraint_name, ordinal_position") == [
        ("noria", "c_ibfk_1", "c", "p", 1, 1, "noria", "p", "id"),
        ("shop", "two", "d", "x", 1, 1, "noria", "p", "a"), ("shop", "two", "d", "y", 2, 2, "noria", "p", "b")]
    assert run(a, "SELECT constraint_schema, constraint_name, unique_constraint_schema, unique_constraint_name, "
                  "match_option, update_rule, delete_rule, table_name, referenced_table_name FROM "
                  "information_schema.referential_constraints ORDER BY constraint_name") == [
        ("noria", "c_ibfk_1", "noria", "PRIMARY", "NONE", "NO ACTION", "CASCADE", "c", "p"),
        ("shop", "two", "noria", "ab", "NONE", "SET NULL", "NO ACTION", "d", "p")]
    assert run(a, "SELECT table_name, constraint_name, enforced FROM information_schema.table_constraints WHERE "
                  "constraint_type = 'FOREIGN KEY' ORDER BY table_name") == [
        ("c", "c_ibfk_1", "YES"), ("d", "two", "YES")]


def test_a_dump_is_loaded_in_the_order_of_names(server: LocalServer) -> None:
    a = server.connect()
    run(a, "DROP TABLE p", "/*!40014 SET @OLD_FOREIGN_KEY_CHECKS=@@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS=0 */",
        "DROP TABLE IF EXISTS `c`",
        """CREATE TABLE `c` (
  `id` int NOT NULL,
  `p` int DEFAULT NULL,
  PRIMARY KEY (`id`),
  KEY `p` (`p`),
  CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE CASCADE
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci""", "LOCK TABLES `c` WRITE",
        "/*!40000 ALTER TABLE `c` DISABLE KEYS */", "INSERT INTO `c` VALUES (1,1),(2,NULL)", "UNLOCK TABLES",
        "DROP TABLE IF EXISTS `p`", "CREATE TABLE `p` (`id` int NOT NULL, PRIMARY KEY (`id`))",
        "INSERT INTO `p` VALUES (1)", "/*!40014 SET FOREIGN_KEY_CHECKS=@OLD_FOREIGN_KEY_CHECKS */")
    assert run(a, "SELECT @@foreign_key_checks") == [(1,)]
    assert shown(a) == ["CONSTRAINT `c_ibfk_1` FOREIGN KEY (`p`) REFERENCES `p` (`id`) ON DELETE CASCADE"]
    assert refused(a, "DROP TABLE p")[0] == 3730


def test_the_variable_is_of_a_session(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, CHILD, "SET foreign_key_checks = OFF", "DROP TABLE p")
    run(b, PARENT)
    assert refused(b, "DROP TABLE p")[0] == 3730
    run(a, "SET foreign_key_checks = DEFAULT")
    assert refused(a, "DROP TABLE p")[0] == 3730
