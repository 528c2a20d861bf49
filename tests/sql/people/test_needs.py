"""Which privileges a statement needs, as sets of privileges and tables: statements beside those of privileges.txt."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.sql.statements.people.needs import needs_of
from noria.sql.text.databases import NOWHERE, Database, Databases, Names

COLUMNS = {"t": ("a", "b"), "u": ("b", "c"), "secrets": ("a", "word")}
SHOP = Names.of("shop", Databases().having(Database("shop")))


def needs(text: str, names: Names = SHOP) -> set[str]:
    """`SELECT t(a, b)`: the columns that are named; `SELECT t(*)`: they are written as a star."""
    found = set()
    for need in needs_of(text, names, lambda database, table: COLUMNS.get(table, ())):
        database, table = need.table or ("", "")
        where = table if database == "shop" else f"{database}.{table}"
        columns = "" if need.columns is None else f"({'*' if need.star else ', '.join(sorted(need.columns))})"
        found.add(f"{'/'.join(need.privileges) or 'sees'} {where}{columns}".strip(" ."))
    return found


@pytest.mark.parametrize(("text", "wanted"), [
    ("SELECT 1", set()),
    ("SELECT a FROM t", {"SELECT t(a)"}),
    ("SELECT * FROM t", {"SELECT t(*)"}),
    ("SELECT x.* FROM t x, u", {"SELECT t(*)", "SELECT u()"}),
    ("SELECT COUNT(*) FROM other.t", {"SELECT other.t()"}),
    ("SELECT a, c FROM t JOIN u USING (b)", {"SELECT t(a, b)", "SELECT u(b, c)"}),
    ("SELECT (SELECT MAX(c) FROM u WHERE u.b = t.b) FROM t", {"SELECT t(b)", "SELECT u(b, c)"}),
    ("SELECT a FROM t WHERE a IN (SELECT c FROM u WHERE b = a)", {"SELECT t(a)", "SELECT u(b, c)"}),
    ("WITH secrets AS (SELECT a FROM t) SELECT * FROM secrets", {"SELECT t(a)"}),
    ("WITH secrets AS (SELECT a FROM secrets) SELECT a FROM secrets", {"SELECT secrets(a)"}),
    ("SELECT a FROM (WITH secrets AS (SELECT 1 AS a) SELECT a FROM secrets) x, secrets", {"SELECT secrets(a)"}),
    ("SELECT a FROM t FOR UPDATE", {"SELECT t(a)", "UPDATE/DELETE/LOCK TABLES t"}),
    ("SELECT a FROM t FOR SHARE", {"SELECT t(a)"}),
    ("SELECT a INTO @x FROM secrets", {"SELECT secrets(a)"}),
    ("DO (SELECT MAX(a) FROM secrets)", {"SELECT secrets(a)"}),
    ("EXPLAIN ANALYZE FORMAT=TREE SELECT a FROM secrets", {"SELECT secrets(a)", "SHOW VIEW secrets"}),
    ("DESC SELECT a FROM secrets", {"SELECT secrets(a)", "SHOW VIEW secrets"}),
    ("EXPLAIN DELETE FROM t", {"DELETE t"}),
    ("INSERT INTO t VALUES (1, 2)", {"INSERT t(*)"}),
    ("INSERT INTO t (a) VALUES " + ", ".join(f"({i})" for i in range(200)), {"INSERT t(a)"}),
    ("INSERT INTO t (a) VALUES " + ", ".join(f"({i})" for i in range(200)) + " ON DUPLICATE KEY UPDATE b = a",
     {"INSERT t(a)", "UPDATE t(b)", "SELECT t(a)"}),
    ("INSERT INTO t (a) SELECT c FROM u", {"INSERT t(a)", "SELECT u(c)"}),
    ("INSERT INTO t (a) VALUES ((SELECT MAX(a) FROM secrets))", {"INSERT t(a)", "SELECT secrets(a)"}),
    ("REPLACE INTO t (a) VALUES (1)", {"INSERT t(a)", "DELETE t"}),
    ("UPDATE t SET a = 1", {"UPDATE t(a)"}),
    ("UPDATE t SET a = b + 1", {"UPDATE t(a)", "SELECT t(b)"}),
    ("UPDATE t, u SET t.a = u.c WHERE u.b = 1", {"UPDATE t(a)", "SELECT u(b, c)"}),
    ("UPDATE t, u SET t.a = 1, u.c = 2", {"UPDATE t(a)", "UPDATE u(c)"}),
    ("UPDATE t SET a = 1 WHERE a IN (SELECT a FROM secrets)", {"UPDATE t(a)", "SELECT t(a)", "SELECT secrets(a)"}),
    ("DELETE FROM t", {"DELETE t"}),
    ("DELETE x FROM t x JOIN u ON u.b = x.b", {"DELETE t", "SELECT t(b)", "SELECT u(b)"}),
    ("DELETE t, u FROM t JOIN u ON u.b = t.b", {"DELETE t", "DELETE u", "SELECT t(b)", "SELECT u(b)"}),
    ("CREATE TABLE n (a INT, FOREIGN KEY (a) REFERENCES other.p (a))", {"CREATE n", "REFERENCES other.p"}),
    ("CREATE TABLE n LIKE secrets", {"CREATE n", "SELECT secrets()"}),
    ("CREATE TABLE n AS SELECT a FROM t", {"CREATE n", "INSERT n", "SELECT t(a)"}),
    ("CREATE TEMPORARY TABLE n (a INT)", {"CREATE TEMPORARY TABLES"}),
    ("DROP TEMPORARY TABLE n", set()),
    ("CREATE OR REPLACE VIEW v AS SELECT a FROM t", {"CREATE VIEW v", "DROP v", "SELECT t(a)"}),
    ("CREATE FEED f AS SELECT a FROM t", {"CREATE VIEW f", "SELECT t(a)"}),
    ("DROP VIEW v", {"DROP v"}), ("DROP FEED f", {"DROP f"}), ("DROP TABLE t, other.u", {"DROP t", "DROP other.u"}),
    ("ALTER TABLE t ADD n INT", {"ALTER t"}),
    ("ALTER TABLE t RENAME TO n", {"ALTER t", "DROP t", "CREATE n", "INSERT n"}),
    ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES u (b)", {"ALTER t", "REFERENCES u"}),
    ("CREATE INDEX i ON t (a)", {"INDEX t"}), ("DROP INDEX i ON t", {"INDEX t"}), ("TRUNCATE TABLE t", {"DROP t"}),
    ("RENAME TABLE t TO n", {"ALTER t", "DROP t", "CREATE n", "INSERT n"}),
    ("SHOW PROCESSLIST", set()), ("SHOW NORIA VIEWS", {"PROCESS"}), ("FLUSH HOSTS", {"RELOAD"}),
    ("ANALYZE TABLE t", {"SELECT t", "INSERT t"}), ("BEGIN", set()), ("SET autocommit = 0", set()),
    ("GRANT SELECT ON t TO x", set()), ("USE nowhere", {"sees nowhere"}),
    ("SHOW TABLES FROM nowhere", {"sees nowhere"}),
])
def test_needs(text: str, wanted: set[str]) -> None:
    assert needs(text) == wanted


def test_a_name_without_a_database() -> None:
    with pytest.raises(SqlError) as e:
        needs("SELECT a FROM t", Names.of(NOWHERE, Databases()))
    assert e.value.code == 1046
    assert needs("SELECT a FROM t", Names.of("", Databases())) == {"SELECT noria.t(a)"}
