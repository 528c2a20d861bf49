"""ANSI_QUOTES, PIPES_AS_CONCAT, NO_BACKSLASH_ESCAPES and REAL_AS_FLOAT, beside MariaDB: as texts, prepared, in long
texts, through several front ends, beside sessions of the default dialect."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from noria.core.errors import SqlError
from noria.sql.sql_modes import in_default_dialect
from noria.sql.text.databases import in_dialect, modes_of, plain_namespace

SETUP = ("CREATE TABLE t (id INT PRIMARY KEY, `a b` VARCHAR(20), s VARCHAR(40), n INT)",
         r"INSERT INTO t VALUES (1, 'one', 'C:\\dir', 1), (2, 'two', 'a%b', 2), (3, NULL, 'it''s \"x\"', 3), "
         r"(4, 'four', 'a\\%b', NULL)")
ANSI = (
    'SELECT "a b" FROM t ORDER BY id', 'SELECT "t"."id", \'"\' FROM "t" WHERE "n" > 1 ORDER BY "id"',
    'SELECT "a b" AS "x "" y" FROM t WHERE id = 1', "SELECT 'a' || 'b' || id FROM t ORDER BY id",
    "SELECT id FROM t WHERE s || id LIKE 'a%2'", "SELECT 2 * '3' || '4', 1 + 2 || 3, -1 || 2",
    'SELECT id /* "not a name" || */ FROM t -- "nor this" ||' + "\nWHERE id = 1", "SELECT COUNT (*) FROM t",
    "SELECT `a b` || NULL FROM t WHERE id = 1", "SELECT CASE WHEN id = 1 THEN 'x' || s ELSE s END FROM t ORDER BY id",
    "INSERT INTO \"t\" (\"id\", \"s\") VALUES (9, 'say \"x\"' || '!')", "SELECT s FROM t WHERE id = 9",
    "UPDATE t SET \"s\" = \"s\" || 'more' WHERE \"id\" = 9", "SELECT s FROM t WHERE id = 9",
    'DELETE FROM "t" WHERE id = 9', 'SELECT "nope" FROM t', 'SELECT * FROM t WHERE "a b" = \'two\'',
    'CREATE TABLE r ("x y" REAL, z INT)', "INSERT INTO r VALUES (1.1, 1)", 'SELECT "x y" FROM r',
    "SELECT data_type FROM information_schema.columns WHERE table_name = 'r' ORDER BY 1", "DROP TABLE r",
)
NO_ESCAPES = (
    r"SELECT 'a\n' AS a, 'C:\x' AS b, '\' AS c, 'x''y' AS d, '\\' AS e", r"SELECT id FROM t WHERE s = 'C:\dir'",
    r'SELECT "a\b" AS a, "x""y" AS b', r"SELECT id FROM t WHERE s LIKE 'a|%b' ESCAPE '|'",
    r"SELECT id FROM t WHERE s LIKE 'a\%b' ESCAPE '\' ORDER BY id",
    r"INSERT INTO t (id, s) VALUES (8, 'D:\new\')", "SELECT s FROM t WHERE id = 8", "DELETE FROM t WHERE id = 8",
)
LIKES = {  # as MySQL 8 has it: there, LIKE has no escape character in this mode; in MariaDB it has one
    r"s LIKE 'a\%b'": [(4,)], r"s LIKE 'C:\%'": [(1,)], r"s NOT LIKE 'a\%'": [(1,), (2,), (3,)],
    r"s LIKE CONCAT('a\', '%')": [(4,)],
}


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


@pytest.fixture(params=[1, 2], ids=["one front end", "two"])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    with closing(LocalServer(tmp_path / "data", front_ends=request.param)) as server:
        yield server


def outcome(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            return [d[0] for d in cursor.description], list(cursor.fetchall()) if cursor.description else affected
        except pymysql.err.MySQLError as e:
            return e.args[0]
        except TypeError:
            return affected


@needs_mariadb
@pytest.mark.parametrize(("mode", "statements"), [("ANSI", ANSI), ("NO_BACKSLASH_ESCAPES", NO_ESCAPES)])
def test_beside_mariadb(local: LocalServer, maria: MariaDb, request: pytest.FixtureRequest, mode: str,
                        statements: tuple[str, ...]) -> None:
    with maria.connect(f"m{abs(hash(request.node.name))}") as theirs, local.connect() as mine:
        for connection in (theirs, mine):
            for text in (*SETUP, f"SET sql_mode = '{mode},STRICT_ALL_TABLES'"):
                outcome(connection, text)
        for text in statements * 2:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))


def test_like_without_an_escape_character(local: LocalServer) -> None:
    with local.connect() as c:
        for text in (*SETUP, "SET sql_mode = 'NO_BACKSLASH_ESCAPES'"):
            outcome(c, text)
        for condition, found in LIKES.items():
            assert (condition, outcome(c, f"SELECT id FROM t WHERE {condition} ORDER BY id")[1]) == (condition, found)
    with closing(local.connector()) as connection, connection.cursor(prepared=True) as cursor:
        connection.cmd_query("SET sql_mode = 'NO_BACKSLASH_ESCAPES'")
        cursor.execute("SELECT id FROM t WHERE s LIKE ?", ("a\\%b",))
        assert cursor.fetchall() == [(4,)]


def test_like_of_names_lists_and_views(local: LocalServer) -> None:
    r"""LIKE stays in SHOW and CREATE TABLE, and views are stored in the default dialect.  A view of `\` is refused."""
    with local.connect() as c:
        for text in (*SETUP, "CREATE DATABASE shop", "SET sql_mode = 'NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT'"):
            outcome(c, text)
        assert outcome(c, "SHOW TABLES LIKE 't'")[1] == outcome(c, "/* x */ SHOW TABLES LIKE 't'")[1] == [("t",)]
        assert outcome(c, "SHOW VARIABLES LIKE 'port_'")[1] == []
        for text in ("CREATE TABLE u LIKE t", "CREATE TABLE IF NOT EXISTS shop.`u v` (LIKE t)",
                     "CREATE VIEW v AS SELECT id FROM t WHERE s LIKE 'a%' AND id > 1"):
            assert outcome(c, text) == 0, text
        assert outcome(c, "SHOW CREATE VIEW v")[1][0][1] == (
            "CREATE VIEW v AS SELECT id FROM t WHERE s LIKE 'a%' AND id > 1")
        assert sorted(outcome(c, "SELECT * FROM v")[1]) == [(2,), (4,)]
        for database in ("noria", "shop"):
            outcome(c, f"USE {database}")
            for text in (r"CREATE VIEW w AS SELECT id FROM noria.t WHERE s LIKE 'a\%'",
                         "/* x */ CREATE VIEW w AS SELECT id || 'x' AS y FROM noria.t",
                         "/*!50001 CREATE VIEW w AS SELECT id || 'x' AS y FROM noria.t */"):
                assert outcome(c, text) == 1235, text


def test_sessions_of_both_dialects_share_a_server(local: LocalServer) -> None:
    """The same text means another thing to each; kept replies do not mix."""
    with local.connect() as plain, local.connect() as ansi:
        for text in SETUP:
            outcome(plain, text)
        outcome(ansi, "SET sql_mode = 'ANSI'")
        for _ in range(3):
            assert outcome(plain, 'SELECT "s" FROM t WHERE id = 2')[1] == [("s",)]
            assert outcome(ansi, 'SELECT "s" FROM t WHERE id = 2')[1] == [("a%b",)]
            assert outcome(plain, "SELECT COUNT(*) FROM t WHERE 1 || n = 12")[1] == [(4,)]
            assert outcome(ansi, "SELECT COUNT(*) FROM t WHERE 1 || n = 12")[1] == [(1,)]
        outcome(ansi, "SET sql_mode = DEFAULT")
        assert outcome(ansi, 'SELECT "s" FROM t WHERE id = 2')[1] == [("s",)]


def test_definitions_prepared_statements_and_long_texts(local: LocalServer) -> None:
    with local.connect() as c:
        for text in (*SETUP, "SET sql_mode = 'ANSI'", 'CREATE VIEW "v w" AS SELECT "a b", "n" FROM t WHERE "n" > 0'):
            outcome(c, text)
        assert outcome(c, 'SELECT * FROM "v w" ORDER BY n')[1] == [("one", 1), ("two", 2), (None, 3)]
        assert outcome(c, "CREATE VIEW p AS SELECT s || id AS x FROM t") == 1235
        assert outcome(c, "PREPARE p FROM 'SELECT \"s\" || ? FROM t WHERE \"id\" = ?'") == 0
        outcome(c, "SET @a = '!', @b = 2")
        assert outcome(c, "EXECUTE p USING @a, @b")[1] == [("a%b!",)]
        rows = ", ".join(f"({n}, 'row \"{n}\" ' || 'x', NULL, {n})" for n in range(100, 6_000))
        assert outcome(c, f'INSERT INTO "t" VALUES {rows}') == 5_900
        assert outcome(c, 'SELECT "a b" FROM t WHERE id = 5000')[1] == [('row "5000" x',)]
    with closing(local.connector()) as connection, connection.cursor(prepared=True) as cursor:
        connection.cmd_query("SET sql_mode = 'ANSI'")
        for key in (1, 2):
            cursor.execute('SELECT "a b" || ? FROM "t" WHERE "id" = ?', ("!", key))
            assert cursor.fetchall() == [({1: "one!", 2: "two!"}[key],)]


def test_clients_escape_as_the_status_says(local: LocalServer) -> None:
    """Drivers double quotes, and leave backslashes, while the server's status has NO_BACKSLASH_ESCAPES."""
    with local.connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE t (s VARCHAR(20))")
        for mode in ("NO_BACKSLASH_ESCAPES", ""):
            cursor.execute(f"SET sql_mode = '{mode}'")
            for text in (r"a\b'c", "\\", "\n\\n"):
                cursor.execute("SELECT %s", (text,))
                assert cursor.fetchall() == ((text,),)
                cursor.execute("INSERT INTO t VALUES (%s)", (text,))
        cursor.execute("SELECT COUNT(*), COUNT(DISTINCT s) FROM t")
        assert cursor.fetchall() == ((6, 3),)


def test_other_modes_are_refused(local: LocalServer) -> None:
    with local.connect() as c:
        assert outcome(c, "SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'") == 1231
        assert outcome(c, "SET sql_mode = 'ANSI'") == 0
        assert outcome(c, "SELECT @@sql_mode")[1] == [
            ("REAL_AS_FLOAT,PIPES_AS_CONCAT,ANSI_QUOTES,IGNORE_SPACE,ONLY_FULL_GROUP_BY,ANSI",)]


# ------------------------------------------------------------------ the translation
@pytest.mark.parametrize(("modes", "text", "wanted"), [
    ("ANSI_QUOTES", "\"a`b\" '\"' `\"`", "`a``b` '\"' `\"`"), ("ANSI_QUOTES", '"open', '"open'),
    ("ANSI_QUOTES", r'"a\" "b"', r'`a\` `b`'), ("NO_BACKSLASH_ESCAPES", r"'a\' 'b'", r"'a\\' 'b'"),
    ("NO_BACKSLASH_ESCAPES", "a LIKE x.like", "a \ue002 x.like"),
    ("NO_BACKSLASH_ESCAPES", "a LIKE 'x' AND b LIKE 'x' 'y'", "a LIKE 'x' AND b \ue002 'x' 'y'"),
    ("NO_BACKSLASH_ESCAPES", "CREATE TABLE a AS SELECT b LIKE c", "CREATE TABLE a AS SELECT b \ue002 c"),
    ("NO_BACKSLASH_ESCAPES", "CREATE TABLE a (b INT CHECK (b LIKE c))", "CREATE TABLE a (b INT CHECK (b \ue002 c))"),
    ("NO_BACKSLASH_ESCAPES", "-- x\ncreate table `a b` . c like d", "-- x\ncreate table `a b` . c like d"),
    ("PIPES_AS_CONCAT", "a||'||'", "a\ue001'||'"),
    ("PIPES_AS_CONCAT", "/*!40101 a||b */ /* || */", "/*!40101 a\ue001b */ /* || */"),
    ("REAL_AS_FLOAT", "CREATE TABLE real (a real, `real` int)", "CREATE TABLE FLOAT (a FLOAT, `real` int)"),
    ("REAL_AS_FLOAT", "SELECT real FROM t", "SELECT real FROM t"),
])
def test_the_translation(modes: str, text: str, wanted: str) -> None:
    assert in_default_dialect(text, in_dialect("shop", modes)) == wanted
    assert in_default_dialect(text, "shop") == text


def test_names_of_namespaces() -> None:
    assert modes_of(in_dialect("shop", "ANSI_QUOTES")) == "ANSI_QUOTES" and not modes_of("shop")
    assert plain_namespace(in_dialect("shop", "ANSI_QUOTES")) == "shop"
    with pytest.raises(SqlError, match="CONCAT"):
        in_default_dialect("CREATE VIEW v AS SELECT a || b FROM t", in_dialect("", "PIPES_AS_CONCAT"))
