"""What is written is done or refused; what is accepted without effect stands here with the reason why that is harmless."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.core.types import JSON
from noria.sql.commands import CreateTable
from noria.sql.parse import bind, parse, prepare
from sql.catalogs import DictCatalog

SCHEMA = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20))", "CREATE TABLE u (id INT PRIMARY KEY, b INT)")

HARMLESS = {
    # ways, not rows
    "SELECT /*+ MAX_EXECUTION_TIME(1000) NO_INDEX_MERGE(t) */ a FROM t": "an optimizer hint asks for a way",
    "SELECT a FROM t USE INDEX (PRIMARY)": "an index hint asks for a way",
    "SELECT a FROM t FORCE INDEX (PRIMARY) WHERE id = 1": "an index hint asks for a way",
    "SELECT SQL_NO_CACHE a FROM t": "there is no query cache",
    "SELECT STRAIGHT_JOIN t.a FROM t JOIN u ON u.id = t.id": "the order of joins is a way",
    "SELECT t.a FROM t STRAIGHT_JOIN u ON u.id = t.id": "the order of joins is a way",
    "SELECT HIGH_PRIORITY a FROM t": "statements have no priorities",
    "SELECT SQL_SMALL_RESULT a FROM t": "the size of a result is a hint",
    "REPLACE LOW_PRIORITY INTO t VALUES (1, 1, 'x')": "statements have no priorities",
    "INSERT LOW_PRIORITY INTO t VALUES (1, 1, 'x')": "statements have no priorities",
    "UPDATE LOW_PRIORITY t SET a = 1": "statements have no priorities",
    "DELETE LOW_PRIORITY QUICK FROM t": "statements have no priorities, and indexes are compacted in the background",
    "CREATE ALGORITHM=TEMPTABLE VIEW v AS SELECT a FROM t": "a way to read a view, of which there is one",
    "CREATE DEFINER=root SQL SECURITY DEFINER VIEW v AS SELECT a FROM t": "there is one user, who may read all",
    # what keeps, not what is kept
    "CREATE TABLE x (a INT) ENGINE=InnoDB": "there is one engine; what it promises beyond rows is refused where it is asked",
    "CREATE TABLE x (a INT) ROW_FORMAT=DYNAMIC": "a form on disk",
    "CREATE TABLE x (a INT, KEY (a) USING BTREE)": "there is one kind of index",
    "CREATE TABLE x (a INT, KEY (a DESC))": "indexes are read in both directions",
    "CREATE TABLE x (s VARCHAR(99), KEY (s(10)))": "a longer index finds the same rows",
    "CREATE TABLE x (a INT COMMENT 'c') COMMENT='t'": "words for people; they are not kept",
    "CREATE TABLE x (s VARCHAR(9)) DEFAULT CHARSET=latin1": "utf8mb4 holds every text of latin1",
    "CREATE TABLE x (a INT(11))": "a width to show, which MySQL 8 ignores too",
    "SHOW EXTENDED COLUMNS FROM t": "nothing is hidden",
    "FLUSH PRIVILEGES": "a change of accounts holds at once",
    "ANALYZE TABLE t": "there are no statistics",
    "OPTIMIZE TABLE t": "RocksDB compacts by itself",
    "ALTER TABLE t DISABLE KEYS": "rows and indexes are written together",
    "DROP TRIGGER IF EXISTS g": "there are no triggers, so there is none of this name",
    "CREATE TABLE x (a NATIONAL VARCHAR(9))": "all texts are Unicode",
    "DROP TABLE t RESTRICT": "MySQL ignores the word too, and a table that views read is not dropped",
}

REFUSED = [
    "SELECT a FROM t UNION SELECT a FROM u FOR UPDATE", "SELECT a FROM t WHERE a IN (SELECT a FROM u FOR SHARE)",
    "SELECT a FROM t INTO OUTFILE '/tmp/x'", "SELECT a FROM t WHERE a IN (SELECT 1 INTO @x)", "SELECT a FROM (SELECT SQL_CALC_FOUND_ROWS a FROM t) q",
    "SELECT a FROM t PARTITION (p0)", "SELECT a FROM t TABLESAMPLE (10)", "SELECT a FROM t PROCEDURE ANALYSE()",
    "SELECT a FROM t GROUP BY a, a WITH ROLLUP", "SELECT a, COUNT(*) FROM t GROUP BY ROLLUP (a)",
    "SELECT a FROM t QUALIFY a = 1", "SELECT a FROM t LIMIT 1 BY a", "SELECT DISTINCT ON (a) a FROM t",
    "INSERT DELAYED INTO t VALUES (1, 1, 'x')",
    "INSERT INTO t PARTITION (p0) VALUES (1, 1, 'x')",
    "INSERT IGNORE INTO t VALUES (1, 1, 'x') ON DUPLICATE KEY UPDATE a = 1", "INSERT INTO t VALUES (1, 1, 'x') RETURNING id",
    "UPDATE t SET a = LAST_INSERT_ID(a) + 1", "UPDATE t SET a = 1 RETURNING a",
    "UPDATE t, u SET a = 1 LIMIT 1", "UPDATE t JOIN u ON u.id = t.id SET a = 1 ORDER BY a",
    "DELETE t FROM t JOIN u ON u.id = t.id LIMIT 1", "DELETE FROM t PARTITION (p0)",
    "DELETE FROM t RETURNING id", "TRUNCATE TABLE t, u",
    "CREATE TABLE x LIKE t COMMENT='c'", "CREATE TABLE x REPLACE AS SELECT a FROM t",
    "CREATE TABLE x (a INT) PARTITION BY HASH (a)",
    "CREATE TABLE x (a INT, FOREIGN KEY (a) REFERENCES t (id) MATCH FULL)",
    "CREATE TABLE x (a INT INVISIBLE)", "CREATE TABLE x (a INT ZEROFILL)", "CREATE TABLE x (s TEXT, FULLTEXT KEY (s) WITH PARSER ngram)",
    "CREATE TABLE x (a DATETIME ON UPDATE 5)", "CREATE TABLE x (a INT DEFAULT 1 + 2)", "CREATE TABLE x (s VARCHAR(9)) CHARSET=koi8r",
    "CREATE TABLE x (a INT) DATA DIRECTORY='/tmp'", "CREATE TABLE x (a INT) ENCRYPTION='Y'", "CREATE TABLE x (a INT) TABLESPACE z",
    "CREATE VIEW v AS SELECT a FROM t WITH CHECK OPTION", "CREATE MATERIALIZED TABLE v (a INT)", "CREATE MATERIALIZED MATERIALIZED VIEW v AS SELECT a FROM t",
    "CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW SET a = 1", "CREATE FUNCTION f() RETURNS INT RETURN 1", "DROP TEMPORARY VIEW t",
    "DROP TABLE t CASCADE CONSTRAINTS", "DROP INDEX IF EXISTS i ON t", "FLUSH TABLES WITH READ LOCK", "FLUSH STATUS", "LOCK INSTANCE FOR BACKUP",
    "EXPLAIN FORMAT=JSON SELECT a FROM t", "SHOW FULL VARIABLES", "SHOW GLOBAL TABLES", "SHOW ENGINES LIKE 'x'", "SET PASSWORD TO RANDOM",
    "BEGIN NOT ATOMIC", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE", "SET @a := (SELECT 1)",
]


def test_a_text_that_is_checked_to_be_json_is_json() -> None:
    """What MariaDB's SHOW CREATE TABLE says of a JSON column."""
    (made,) = parse("CREATE TABLE x (id INT PRIMARY KEY, `j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT "
                    "'{\"b\":1}' CHECK (json_valid(`j`)))", DictCatalog())
    assert isinstance(made, CreateTable) and made.table.columns[1].type == JSON
    assert made.table.columns[1].default == '{"b": 1}'


def said(text: str) -> str:
    try:
        parse(text, DictCatalog(*SCHEMA))
    except SqlError as e:
        assert e.code in (1064, 1235, 1115, 1146, 1221), e.message
        return e.message
    return ""


@pytest.mark.parametrize("text", HARMLESS)
def test_what_has_no_effect_is_harmless(text: str) -> None:
    assert said(text) == "", HARMLESS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_what_would_have_an_effect_is_refused(text: str) -> None:
    assert said(text), "accepted, and nothing comes of it"


def test_rows_that_are_planned_one_by_one_are_bounded() -> None:
    def text(rows: int) -> str:
        return "INSERT INTO t (id, s) VALUES " + ", ".join(f"({n}, UUID())" for n in range(rows))

    assert said(text(500)) == "" and "more than 500 rows" in said(text(501))


def test_a_limit_of_a_select_without_from_is_bound() -> None:
    prepared = prepare("SELECT 1 LIMIT ?", DictCatalog())
    assert [bind(prepared, [n]).limit for n in (0, 1, 5)] == [0, 1, 5]
    with pytest.raises(SqlError) as told:
        bind(prepared, [-1])
    assert told.value.code == 1210


def test_explain_keeps_its_text_when_it_is_bound() -> None:
    prepared = prepare("EXPLAIN SELECT 1", DictCatalog())
    assert prepared.command.text == bind(prepared, []).text == "SELECT 1"


@pytest.mark.parametrize(("text", "code", "name"), [
    ("DROP TABLE a, b, B", 1066, "B"),
    ("CREATE TABLE t (a INT, b INT, KEY (a, b, B))", 1060, "B"),
])
def test_the_repeated_name_is_named(text: str, code: int, name: str) -> None:
    with pytest.raises(SqlError) as told:
        prepare(text, DictCatalog())
    assert told.value.code == code and f"'{name}'" in told.value.message
