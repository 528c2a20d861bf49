"""BIT, wide DECIMAL, and FLOAT and DOUBLE with digits, beside MariaDB: definitions, values, conditions, aggregates,
views, the bytes of both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

BITS = (
    "CREATE TABLE b (id INT PRIMARY KEY, f BIT NOT NULL DEFAULT b'0', g BIT(1) DEFAULT NULL, h BIT(8), w BIT(63),"
    " KEY (g))", "CREATE VIEW by_flag AS SELECT g, COUNT(*) AS n, SUM(h) AS total FROM b GROUP BY g",
    "INSERT INTO b (id) VALUES (1)",
    "INSERT INTO b VALUES (2, 1, b'1', 255, 1), (3, TRUE, FALSE, 0x41, 9223372036854775)",
    "INSERT INTO b VALUES (4, b'1', 1, 'A', b'101')", "INSERT INTO b VALUES (5, '\\0', NULL, '\\0', NULL)",
    "INSERT INTO b (id, f) VALUES (6, 2)", "INSERT INTO b (id, f) VALUES (6, '1')",
    "INSERT INTO b (id, h) VALUES (6, 256)", "INSERT INTO b (id, h) VALUES (6, 'AB')",
    "INSERT INTO b (id, f) VALUES (6, -1)", "INSERT INTO b (id, f) VALUES (6, NULL)",
    "UPDATE b SET g = NOT g WHERE id = 2", "UPDATE b SET h = h + 1 WHERE id = 3",
    "UPDATE b SET h = h + 1 WHERE id = 2", "UPDATE b SET h = ~h & 255 WHERE id = 4",
)
SELECTS = (
    "* FROM b ORDER BY id", "* FROM by_flag ORDER BY g", "* FROM by_flag WHERE g = 1", "id FROM b WHERE f ORDER BY id",
    "id FROM b WHERE f = 1 ORDER BY id", "id FROM b WHERE f = b'1' ORDER BY id", "id FROM b WHERE g = 0 ORDER BY id",
    "id FROM b WHERE g IS NULL ORDER BY id", "id FROM b WHERE NOT f ORDER BY id", "h FROM b ORDER BY h DESC LIMIT 2",
    "id FROM b WHERE h > 64 ORDER BY id", "id FROM b WHERE h IN (65, 255) ORDER BY id", "h FROM b WHERE id = 4",
    "id FROM b WHERE f = TRUE AND g = FALSE ORDER BY id", "BIT_OR(h), SUM(f), SUM(h), AVG(h) FROM b",
    "id, f + 0, h * 2, h & 15, HEX(h), BIN(h), CONV(h, 10, 3) FROM b ORDER BY id", "COUNT(DISTINCT h) FROM b",
    "IF(f, 'yes', 'no') FROM b ORDER BY id", "f, COUNT(*) FROM b GROUP BY f ORDER BY f",
    "CAST(h AS UNSIGNED), CONCAT(h), LENGTH(w) FROM b ORDER BY id", "IFNULL(g, 7) FROM b ORDER BY id",
    "x.id, y.id FROM b x JOIN b y ON x.h = y.id ORDER BY 1, 2",
    "f FROM b UNION SELECT g FROM b ORDER BY 1",
    "CASE f WHEN 1 THEN 'on' ELSE 'off' END FROM b ORDER BY id",
    "data_type, column_type, numeric_precision FROM information_schema.columns WHERE table_schema = DATABASE() AND"
    " table_name = 'b' AND column_name <> 'id' ORDER BY ordinal_position",
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running


@pytest.fixture(params=[1, 3])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    with closing(LocalServer(tmp_path / "data", workers=request.param)) as server:
        yield server


def outcome(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else affected
        except pymysql.err.MySQLError as e:
            return e.args[0]


def types(connection: Any, text: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return [d[1] for d in cursor.description]


@needs_mariadb
def test_bits_beside_mariadb(local: LocalServer, maria: MariaDb, request: pytest.FixtureRequest) -> None:
    with maria.connect(f"bits{len(request.node.name)}{request.node.name[-2]}") as theirs, local.connect() as mine:
        for text in BITS:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
        for text in SELECTS:
            assert (text, outcome(mine, f"SELECT {text}")) == (text, outcome(theirs, f"SELECT {text}"))
        assert types(mine, "SELECT f, h FROM b") == types(theirs, "SELECT f, h FROM b") == [16, 16]
        assert "`f` bit(1) NOT NULL DEFAULT b'0'" in outcome(mine, "SHOW CREATE TABLE b")[0][1]


def test_bits_prepared_and_after_a_restart(tmp_path: Path) -> None:
    with closing(LocalServer(tmp_path / "data")) as local, local.connect() as c:
        for text in BITS:
            outcome(c, text)
        with closing(local.connector()) as connection, connection.cursor(prepared=True) as cursor:
            for sql, value, found in (("SELECT id FROM b WHERE f = ? ORDER BY id", True, [(2,), (3,), (4,)]),
                                      ("SELECT id FROM b WHERE f = ? ORDER BY id", b"\1", [(2,), (3,), (4,)]),
                                      ("SELECT id FROM b WHERE h = ?", 255, [(2,)])):
                cursor.execute(sql, (value,))
                assert (sql, cursor.fetchall()) == (sql, found)
            cursor.execute("INSERT INTO b (id, f, g) VALUES (?, ?, ?)", (9, True, b"\1"))
            cursor.execute("SELECT f, g, h FROM b WHERE id = ?", (9,))
            assert cursor.fetchall() == [(b"\1", b"\1", None)]
            connection.commit()
    with closing(LocalServer(tmp_path / "data")) as local, local.connect() as c:
        assert outcome(c, "SELECT f, g FROM b WHERE id = 9") == [(b"\1", b"\1")]
        assert outcome(c, "INSERT INTO b (id) VALUES (10)") == 1
        assert outcome(c, "SELECT f, h FROM b WHERE id = 10") == [(b"\0", None)]


def test_bits_of_a_session_that_is_not_strict(local: LocalServer) -> None:
    with local.connect() as c:
        for text in (*BITS, "SET sql_mode = ''", "INSERT INTO b (id, f, h) VALUES (20, 5, 'AB')"):
            outcome(c, text)
        assert outcome(c, "SELECT f, h FROM b WHERE id = 20") == [(b"\1", b"\xff")]


# ------------------------------------------------------------------ DECIMAL
WIDE = (
    "CREATE TABLE d (id INT PRIMARY KEY, p DECIMAL(20,6) NOT NULL DEFAULT '0.000000', t DECIMAL(26,8),"
    " n DECIMAL(65) UNSIGNED, KEY (p))",
    "CREATE VIEW totals AS SELECT p, SUM(t) AS s, MAX(t) AS m FROM d GROUP BY p",
    "INSERT INTO d VALUES (1, 12.5, 1234567.12345678, 5), (2, 12.5, -0.000000005, 123456789012345678)",
    "INSERT INTO d (id, t) VALUES (3, 92233710368.5), (4, '1e3')",
    "INSERT INTO d VALUES (5, 9999999999.999999, NULL, 0)",
    "UPDATE d SET t = t * 2 WHERE id < 3", "UPDATE d SET n = -1", "ALTER TABLE d ADD q DECIMAL(30,10) DEFAULT 1.5",
)
WIDE_SELECTS = (
    "* FROM d ORDER BY id", "* FROM totals ORDER BY p", "* FROM totals WHERE p = 12.5",
    "id FROM d ORDER BY t, id",
    "id FROM d WHERE p = '12.500000' ORDER BY id", "id FROM d WHERE t > 1000 ORDER BY id",
    "id & ~2, id & 18446744073709551613, ~id & 7 FROM d ORDER BY id",
    "SUM(p), MAX(t), MIN(t), COUNT(DISTINCT p) FROM d",
    "id, p + t, p - 1, ROUND(t, 2), CAST(t AS SIGNED) FROM d ORDER BY id",
    "column_type, numeric_precision, numeric_scale FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = 'd' AND data_type = 'decimal' ORDER BY ordinal_position",
)


@needs_mariadb
def test_wide_decimals_beside_mariadb(local: LocalServer, maria: MariaDb, request: pytest.FixtureRequest) -> None:
    with maria.connect(f"wide{len(request.node.name)}{request.node.name[-2]}") as theirs, local.connect() as mine:
        for text in WIDE:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
        for text in WIDE_SELECTS:
            assert (text, outcome(mine, f"SELECT {text}")) == (text, outcome(theirs, f"SELECT {text}"))


def test_what_does_not_fit_18_digits_is_refused(local: LocalServer) -> None:
    with local.connect() as c:
        outcome(c, WIDE[0])
        assert outcome(c, "INSERT INTO d (id, t) VALUES (1, 92233720369)") == 1264
        assert outcome(c, "INSERT INTO d (id, n) VALUES (1, 9223372036854775808)") == 1264
        assert outcome(c, "CREATE TABLE e (x DECIMAL(66,2))") == 1426
        assert outcome(c, "CREATE TABLE e (x DECIMAL(40,31))") == 1425
        assert outcome(c, "SELECT CAST(1 AS DECIMAL(30,20))") == 1425
        outcome(c, "SET sql_mode = ''")
        outcome(c, "INSERT INTO d (id, t) VALUES (1, 92233720369)")
        assert outcome(c, "SELECT t FROM d") == [(Decimal("92233720368.54775807"),)]
    many = [(n, Decimal(n) / 3 if n % 7 else None) for n in range(5_000)]
    with local.connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE m (id INT PRIMARY KEY, t DECIMAL(38,10))")
        cursor.executemany("INSERT INTO m VALUES (%s, %s)", many)
        cursor.execute("SELECT SUM(t), COUNT(t) FROM m")
        assert cursor.fetchall() == ((sum(round(t, 10) for _, t in many if t is not None), 4_285),)


FRACTIONS = (
    "CREATE TABLE s (id INT PRIMARY KEY, a DECIMAL(20,17), b DECIMAL(32,30) NOT NULL DEFAULT 1.5,"
    " c DECIMAL(30,20) UNSIGNED, KEY (b))",
    "CREATE VIEW of_b AS SELECT b, SUM(a) AS s, MAX(c) AS m FROM s GROUP BY b",
    "INSERT INTO s VALUES (1, 0.5, '12.9', 1234567.000000000001), (2, -999.999999999999999, 0.1, 0)",
    "INSERT INTO s (id, a) VALUES (3, 1e-15), (4, NULL)", "INSERT INTO s (id, a) VALUES (5, 1000)",
    "INSERT INTO s (id, b) VALUES (5, 100)", "INSERT INTO s (id, c) VALUES (5, -1)",
    "UPDATE s SET a = a - 0.4 WHERE id = 1", "UPDATE s SET b = b * 2 WHERE id > 1",
    "INSERT INTO s SELECT id + 10, a, b, c FROM s", "ALTER TABLE s ADD d DECIMAL(19,19) DEFAULT 0.25",
)
FRACTION_SELECTS = (
    "* FROM s ORDER BY id", "* FROM of_b ORDER BY b", "* FROM of_b WHERE b = 12.9",
    "id FROM s WHERE b = '12.9' ORDER BY id", "id FROM s ORDER BY a, id",
    "CONCAT(a, '/', b), CAST(d AS CHAR) FROM s ORDER BY id", "a + 1, b - a FROM s WHERE id = 1",
    "column_type, numeric_precision, numeric_scale FROM information_schema.columns WHERE table_schema ="
    " DATABASE() AND table_name = 's' AND data_type = 'decimal' ORDER BY ordinal_position",
)


@needs_mariadb
def test_decimals_of_many_places_beside_mariadb(local: LocalServer, maria: MariaDb,
                                                request: pytest.FixtureRequest) -> None:
    name = f"places{len(request.node.name)}{request.node.name[-2]}"
    with maria.connect(name) as theirs, local.connect() as mine:
        for text in FRACTIONS:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
        for connection in (mine, theirs):
            outcome(connection, "ALTER TABLE s MODIFY d DECIMAL(21,18)")
        for text in FRACTION_SELECTS:
            assert (text, outcome(mine, f"SELECT {text}")) == (text, outcome(theirs, f"SELECT {text}"))


def test_a_decimal_of_many_places_keeps_all_digits_or_refuses_the_value(local: LocalServer) -> None:
    with local.connect() as c:
        outcome(c, FRACTIONS[0])
        for value in ("0.12345678901234567", "1e-17", "0.00000001 * 0.000000001"):
            assert outcome(c, f"INSERT INTO s (id, a) VALUES (1, {value})") == 1264
        assert outcome(c, "INSERT INTO s (id, a) VALUES (1, 1e-18)") == 1  # MySQL rounds it to 0, too
        assert outcome(c, "UPDATE s SET a = 0.1 * (a + 0.00000000000001) * 0.01") == 1264
        assert outcome(c, "UPDATE s SET a = 1.0000000000000 / 3") == 1  # a quotient is rounded
        assert outcome(c, "SELECT a FROM s") == [(Decimal("0.333333333333333"),)]
        outcome(c, "SET sql_mode = ''")
        assert outcome(c, "INSERT INTO s (id, a) VALUES (2, 0.12345678901234567)") == 1
        assert outcome(c, "SHOW WARNINGS")[0][1] == 1264
        assert outcome(c, "SELECT a FROM s WHERE id = 2") == [(Decimal("0.123456789012346"),)]


# ------------------------------------------------------------------ FLOAT(M,D) and DOUBLE(M,D)
DOUBLES = (
    "CREATE TABLE f (id INT PRIMARY KEY, a FLOAT(10,2) NOT NULL DEFAULT '0.00', b DOUBLE(8,3) UNSIGNED,"
    " c FLOAT UNSIGNED NOT NULL DEFAULT '0', d DOUBLE(5,1))",
    "INSERT INTO f (id, a, b, c, d) VALUES (1, 12.345, 1.0005, 3.5, 9999.94), (2, '7.125', 0.0015, 0, -0.05)",
    "INSERT INTO f (id, d) VALUES (3, 9999.96)", "INSERT INTO f (id, b) VALUES (3, -1)",
    "INSERT INTO f (id, c) VALUES (3, -0.5)", "INSERT INTO f (id) VALUES (3)", "UPDATE f SET a = a / 3 WHERE id = 1",
    "SET sql_mode = ''", "INSERT INTO f (id, d) VALUES (4, 123456)", "INSERT INTO f (id, d) VALUES (5, 'no')",
)
OF_DOUBLES = (
    "* FROM f ORDER BY id", "CONCAT(a, '/', b) FROM f ORDER BY id", "id FROM f WHERE d = 9999.9",
    "MAX(d), MIN(b) FROM f",
    "a, COUNT(*) FROM f GROUP BY a ORDER BY a",
    "column_type, numeric_precision, numeric_scale FROM information_schema.columns WHERE table_schema = DATABASE() AND"
    " table_name = 'f' AND column_name <> 'id' ORDER BY ordinal_position",
)


@needs_mariadb
def test_doubles_with_digits_beside_mariadb(local: LocalServer, maria: MariaDb, request: pytest.FixtureRequest) -> None:
    with maria.connect(f"doubles{len(request.node.name)}{request.node.name[-2]}") as theirs, local.connect() as mine:
        for text in (*DOUBLES, *(f"SELECT {text}" for text in OF_DOUBLES)):
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
