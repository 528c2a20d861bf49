"""Writes of sessions without a strict sql_mode, and with IGNORE, beside MariaDB: what does not fit is changed, with
warnings.  With one worker and with three."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

TABLES = (
    "CREATE TABLE v (id INT PRIMARY KEY, t TINYINT, u SMALLINT UNSIGNED, i INT, b BIGINT, d DECIMAL(5,2),"
    " e DECIMAL(5,2) UNSIGNED, f DOUBLE, g FLOAT, s VARCHAR(5), c CHAR(3), x TINYTEXT, y VARBINARY(4), z BINARY(3),"
    " n DATE, m DATETIME, p TIMESTAMP NULL DEFAULT NULL, o TIME, a YEAR, l ENUM('one', 'two', ''),"
    " k ENUM('one', 'two'), h SET('r', 'w'))",
    "CREATE TABLE q (id INT AUTO_INCREMENT PRIMARY KEY, i INT NOT NULL, d DECIMAL(5,2) NOT NULL, f DOUBLE NOT NULL,"
    " s VARCHAR(5) NOT NULL, n DATE NOT NULL, m DATETIME NOT NULL, o TIME NOT NULL, a YEAR NOT NULL,"
    " k ENUM('one', 'two') NOT NULL, h SET('r', 'w') NOT NULL, y VARBINARY(4) NOT NULL, w INT NOT NULL DEFAULT 7)",
    "CREATE TABLE p (id INT PRIMARY KEY, c VARCHAR(3), UNIQUE (c))",
)
VALUES = (
    "0", "1", "-1", "127", "128", "-129", "65536", "99999999999", "-99999999999", "9999999999999999999999", "1.5",
    "-0.005", "999.994", "1000", "1e10", "1e40", "-1e40", "''", "' '", "'1'", "'12abc'", "'abc'", "' 7 '", "'1.5x'",
    "'1e3'", "'-'", "'300'", "'-5'", "'12345678'", "'abc   '", "'äöüäöü'", "REPEAT('x', 300)", "x'0102030405'",
    "'2020-01-02'", "'2020-02-31'", "'2020-01-02 03:04:05'", "'2020-01-02 25:00:00'", "'0000-00-00'", "'12:13:14'",
    "'900:00:00'", "'-900:00:00'", "20200102", "20201302", "0.5", "'two'", "'ONE'", "'three'", "3", "'r,w'", "'r,q'",
    "'q'", "4", "1900", "2156", "70", "1 / 0", "5 % 0", "TRUE", "NULL",
)
COLUMNS = ("t", "u", "i", "b", "d", "e", "f", "g", "s", "c", "x", "y", "z", "n", "m", "p", "o", "a", "l", "k", "h")
STATEMENTS = (
    "INSERT INTO q () VALUES ()", "INSERT INTO q (i) VALUES (5)", "INSERT INTO q (id, i, s) VALUES (90, NULL, 'a')",
    "INSERT INTO q (i, s) VALUES (1, 'a'), (NULL, 'b'), (3, NULL)", "INSERT INTO q (w) VALUES (DEFAULT)",
    "INSERT INTO q (i, s) VALUES (DEFAULT, 'abcdefgh')", "INSERT IGNORE INTO q (i, s) VALUES (NULL, 'long text')",
    "INSERT INTO q SET k = 'no', h = 'r,no,w', n = 'no', o = 'no'", "UPDATE q SET i = NULL WHERE id = 2",
    "UPDATE q SET s = NULL, n = NULL, k = NULL, h = NULL WHERE id < 4", "UPDATE q SET k = 'neither' WHERE id < 3",
    "INSERT INTO q (id, i) VALUES (1, 2) ON DUPLICATE KEY UPDATE i = 'many', s = 'abcdefgh'",
    "INSERT INTO q (id, i) VALUES (1, 2) ON DUPLICATE KEY UPDATE w = w * 3",
    "INSERT INTO q (id, i, s) SELECT id + 50, id * 3000000000, CONCAT('number ', id) FROM q ORDER BY id",
    "INSERT INTO q (id, i, s) SELECT 100, NULL, NULL", "REPLACE INTO q (id, s) VALUES ('1x', 'abcdefgh')",
    "INSERT INTO p VALUES (1, 'abcd'), (2, 'abd')", "INSERT INTO p VALUES (3, 'abcx')",
    "INSERT INTO p VALUES ('x', 'z')", "UPDATE p SET c = 'abdddd' WHERE id = 1",
    "UPDATE p SET id = '7up' WHERE id = 2", "UPDATE p, q SET p.c = 'zzzzzz', q.s = 'yyyyyy' WHERE p.id = q.id",
    "UPDATE p SET c = 'longer' ORDER BY id LIMIT 1", "UPDATE IGNORE p SET c = 'another' WHERE id = 1",
)
WITHOUT_WARNINGS = (  # of values that a worker computes
    "UPDATE q SET s = CONCAT(s, ' and more') WHERE id = 5", "UPDATE q SET i = i * 1000000 + 4000000000 WHERE id > 3",
    "UPDATE q SET d = f + 12345", "UPDATE q SET f = 1 / 0 WHERE id = 1", "UPDATE q SET i = i / 0",
    "UPDATE q SET n = CONCAT('2020-02-', id + 27)", "UPDATE q SET a = id * 1000", "UPDATE q SET h = CONCAT('w,', id)",
    "INSERT INTO q (id, i) VALUES (1, 2) ON DUPLICATE KEY UPDATE w = w * 3000000000",
    "INSERT IGNORE INTO p VALUES (1, 'abcx')",
)
IN_STRICT_MODE = (
    "INSERT INTO q (i, d, f, s, n, m, o, a, k, h, y) VALUES (1, 1, 1, 'a', '2020-01-01', '2020-01-01', '1:00',"
    " 2000, 'one', 'r', 'y')", "UPDATE q SET i = i / 0 WHERE id = 2", "UPDATE q SET i = NULL", "UPDATE q SET i = 'x'",
    "UPDATE q SET w = 7 % 0", "INSERT INTO p VALUES (1, 1 / 0), (2, 'x')", "INSERT INTO p VALUES (3, 'abcd')",
    "INSERT IGNORE INTO p VALUES ('4x', 'abcd')", "INSERT IGNORE INTO p VALUES (5, 1 DIV 0), (NULL, 'n')",
    "INSERT IGNORE INTO q (i, n) VALUES ('many', '2020-02-31')", "UPDATE IGNORE p SET c = 'abcd' WHERE id = 2",
    "UPDATE IGNORE p SET c = 'wxyz', id = 'z' WHERE id = 2", "INSERT IGNORE INTO p (c) VALUES ('new')",
    "INSERT IGNORE INTO p SELECT 'k', 'long'",
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


@pytest.fixture(params=[1, 3])
def workers(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def local(workers: int, tmp_path: Path) -> Iterator[LocalServer]:
    with closing(LocalServer(tmp_path / "data", workers=workers)) as server:
        yield server


def outcome(connection: Any, text: str) -> tuple[Any, ...]:
    """What a statement returns, and the numbers of its warnings."""
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            found = list(cursor.fetchall()) if cursor.description else affected
        except pymysql.err.MySQLError as e:
            return ("error", e.args[0])
        cursor.execute("SHOW WARNINGS")
        return found, sorted({code for level, code, _ in cursor.fetchall() if level != "Note"})


def cells(connection: Any, mode: str) -> dict[tuple[str, str], Any]:
    """What each column keeps of each value."""
    found = {}
    outcome(connection, f"SET sql_mode = '{mode}'")
    for text in TABLES:
        assert outcome(connection, text)[0] == 0
    for column in COLUMNS:
        for at, value in enumerate(VALUES):
            done = outcome(connection, f"INSERT INTO v (id, {column}) VALUES ({at}, {value})")
            kept = outcome(connection, f"SELECT {column} FROM v WHERE id = {at}")[0]
            found[column, value] = (done, kept)
    return found


@needs_mariadb
def test_every_value_in_every_column(local: LocalServer, maria: MariaDb, workers: int) -> None:
    with maria.connect(f"cells{workers}") as theirs, local.connect() as mine:
        wanted, got = cells(theirs, ""), cells(mine, "")
        assert {k for k, v in wanted.items() if got[k] != v} == {("t", "x'0102030405'")}  # a number in MySQL 8


def compare(mine: Any, theirs: Any, text: str, warnings: bool) -> None:
    found, wanted = outcome(mine, text), outcome(theirs, text)
    assert (text, found if warnings else found[0]) == (text, wanted if warnings else wanted[0])
    for select in ("SELECT * FROM q ORDER BY id", "SELECT * FROM p ORDER BY id"):
        assert (text, outcome(mine, select)) == (text, outcome(theirs, select))


@needs_mariadb
def test_statements(local: LocalServer, maria: MariaDb, workers: int) -> None:
    with maria.connect(f"statements{workers}") as theirs, local.connect() as mine:
        for text in ("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'", *TABLES):
            outcome(theirs, text), outcome(mine, text)
        for text in STATEMENTS:
            compare(mine, theirs, text, True)
        for text in WITHOUT_WARNINGS:
            compare(mine, theirs, text, False)


@needs_mariadb
def test_ignore_and_divisions_in_strict_mode(local: LocalServer, maria: MariaDb, workers: int) -> None:
    """Without ERROR_FOR_DIVISION_BY_ZERO, a division by zero is NULL.  IGNORE is as lenient as no strict mode."""
    with maria.connect(f"strict{workers}") as theirs, local.connect() as mine:
        for text in ("SET sql_mode = 'STRICT_ALL_TABLES'", *TABLES):
            outcome(theirs, text), outcome(mine, text)
        for text in IN_STRICT_MODE:
            compare(mine, theirs, text, False)


@needs_mariadb
def test_within_a_transaction_and_prepared(local: LocalServer, maria: MariaDb, workers: int) -> None:
    """The statement is tried again within the transaction; ROLLBACK undoes it."""
    with maria.connect(f"within{workers}") as theirs, local.connect() as mine:
        for text in ("SET sql_mode = ''", *TABLES, "BEGIN", "INSERT INTO q (i) VALUES ('12x')"):
            outcome(theirs, text), outcome(mine, text)
        for text in ("UPDATE q SET s = 'abcdefgh'", "INSERT INTO p SELECT id, s FROM q", "SAVEPOINT a",
                     "UPDATE p SET c = NULL, id = 'x'", "ROLLBACK TO a"):
            compare(mine, theirs, text, True)
        compare(mine, theirs, "ROLLBACK", True)
    with closing(local.connector()) as connection, connection.cursor(prepared=True) as cursor:
        connection.cmd_query("SET sql_mode = ''")
        for value in ("12345", "abcdef", "x"):
            cursor.execute("INSERT INTO p VALUES (?, ?)", (f"{len(value)} apples", value))
        connection.commit()
        cursor.execute("SELECT * FROM p ORDER BY id")
        assert cursor.fetchall() == [(1, "x"), (5, "123"), (6, "abc")]


def test_temporary_tables_and_json(local: LocalServer) -> None:
    with local.connect() as c:
        for text in ("SET sql_mode = ''", "CREATE TEMPORARY TABLE e (id INT PRIMARY KEY, s CHAR(2))",
                     "CREATE TABLE j (id INT PRIMARY KEY, d JSON NOT NULL)"):
            assert outcome(c, text)[0] == 0
        assert outcome(c, "INSERT INTO e VALUES ('1a', 'xyz')") == (1, [1265])
        assert outcome(c, "INSERT INTO e SELECT 2, 'uvw'") == (1, [1265])
        assert outcome(c, "SELECT * FROM e ORDER BY id")[0] == [(1, "xy"), (2, "uv")]
        assert outcome(c, "INSERT INTO j VALUES (1, 'no document')") == ("error", 3140)
        assert outcome(c, "INSERT INTO j (id) VALUES (2)") == (1, [1364])
        assert outcome(c, "SELECT * FROM j")[0] == [(2, "null")]


CLOCKS = ("NOW()", "CURRENT_DATE", "CURRENT_TIME", "UNIX_TIMESTAMP()", "NOW() + INTERVAL 1 DAY", "YEAR(NOW()) * 100")


@needs_mariadb
def test_the_clock_in_columns_that_are_too_small(local: LocalServer, maria: MariaDb, workers: int) -> None:
    """The values are compared where they do not depend on the second."""
    with maria.connect(f"clock{workers}") as theirs, local.connect() as mine:
        for text in ("SET sql_mode = ''", *TABLES):
            outcome(theirs, text), outcome(mine, text)
        cases = [(clock, column) for clock in CLOCKS for column in COLUMNS if column != "k"]
        for at, (clock, column) in enumerate(cases):
            insert = f"INSERT INTO v (id, {column}) VALUES ({at}, {clock})"
            kept = f"SELECT {column if column in 'tudelh' else 1} FROM v WHERE id = {at}"
            found = [(outcome(c, insert)[0], outcome(c, kept)[0]) for c in (mine, theirs)]
            assert found[0] == found[1], insert


def test_numbers_of_thousands_of_digits(local: LocalServer) -> None:
    """They are out of range as others are, also with other text behind, and for DOUBLE(M,D) of many digits."""
    nines, wide = "9" * 5_000, {"i": (2147483647,), "f": (99999999.99,), "y": (0,), "d": (10.0**18,), "e": (10.0**38,)}
    with local.connect() as c:
        outcome(c, "CREATE TABLE n (id INT PRIMARY KEY, i INT, f DECIMAL(10,2), y YEAR, d DOUBLE(20,2), e DOUBLE(40,2),"
                   " o TIME)")
        for value in (nines, f"{nines}:00:00", "\u00b2:1:1"):
            assert outcome(c, f"INSERT INTO n (id, o) VALUES (0, '{value}')") == ("error", 1292)
        outcome(c, "SET sql_mode = ''")
        for number, (column, kept) in enumerate(wide.items()):
            for text in (nines, f"{nines}x"):
                assert outcome(c, f"REPLACE INTO n (id, {column}) VALUES ({number}, '{text}')")[1] == [1264]
                (found,), = outcome(c, f"SELECT {column} FROM n WHERE id = {number}")[0]
                assert float(found) == pytest.approx(float(kept[0])), column
        for number, (value, kept) in enumerate((("900:1:1", "838:59:59"), (f"{nines}:1:1", "838:59:59"),
                                                ("\u00b2:1:1", "00:00:00")), 10):
            outcome(c, f"INSERT INTO n (id, o) VALUES ({number}, '{value}')")
            assert outcome(c, f"SELECT CONCAT(o) FROM n WHERE id = {number}")[0] == [(kept,)]


def test_warnings_are_counted_and_the_first_ones_kept(local: LocalServer) -> None:
    rows = ", ".join(f"({n}, 'abcdef')" for n in range(3_000))
    with local.connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE w (id INT PRIMARY KEY, s CHAR(2))")
        cursor.execute("SET sql_mode = ''")
        cursor.execute(f"INSERT INTO w VALUES {rows}")
        assert c._result.message.endswith(b"Warnings: 3000")
        assert cursor.execute("SHOW WARNINGS") == 1_024
