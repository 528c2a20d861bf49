"""'0000-00-00' in sessions without NO_ZERO_DATE, beside MariaDB: stored, compared, computed with, in views, as keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

SETUP = (
    "SET sql_mode = 'NO_ENGINE_SUBSTITUTION'", "DROP TABLE IF EXISTS z",
    "CREATE TABLE z (id INT PRIMARY KEY, d DATE NOT NULL DEFAULT '0000-00-00', m DATETIME NOT NULL DEFAULT "
    "'0000-00-00 00:00:00', t TIMESTAMP NULL DEFAULT NULL, n DATETIME, KEY (m))",
    "CREATE VIEW by_moment AS SELECT m, COUNT(*) AS n, MIN(d) AS first FROM z GROUP BY m",
    "INSERT INTO z (id) VALUES (1)",
    "INSERT INTO z VALUES (2, '2024-02-03', '2024-02-03 04:05:06', '2024-01-01 00:00:00', NULL), "
    "(3, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '0000-00-00'), "
    "(4, '0001-01-01', '0001-01-01 00:00:00', NULL, '0001-01-01')",
)
SELECTS = (
    "* FROM z ORDER BY id", "* FROM by_moment ORDER BY m", "id FROM z WHERE m = '0000-00-00 00:00:00' ORDER BY id",
    "id FROM z WHERE m = '0000-00-00' ORDER BY id", "id FROM z WHERE d = '0000-00-00' ORDER BY id",
    "id FROM z WHERE m > '0000-00-00 00:00:00' ORDER BY id", "id FROM z WHERE m <> '0000-00-00 00:00:00' ORDER BY id",
    "YEAR(d), MONTH(d), DAY(m), QUARTER(m), HOUR(m), MINUTE(m), SECOND(m) FROM z ORDER BY id",
    "DAYOFWEEK(d), WEEKDAY(d), DAYOFYEAR(d), TO_DAYS(d), LAST_DAY(d), DATEDIFF(d, '2024-01-01') FROM z ORDER BY id",
    "DATE_FORMAT(m, '%Y-%m-%d %H:%i:%s'), DATE_FORMAT(d, '%c/%e/%y'), DATE_FORMAT(d, '%M %W') FROM z ORDER BY id",
    "DATE(m), TIME(m), CONCAT(m, ''), CONCAT(d, 'x') FROM z ORDER BY id", "m + 0, d + 0 FROM z ORDER BY id",
    "DATE_ADD(m, INTERVAL 1 DAY), DATE_SUB(d, INTERVAL 1 MONTH) FROM z WHERE id <> 4 ORDER BY id",
    "MIN(m), MAX(m), MIN(d), COUNT(m), COUNT(DISTINCT d) FROM z", "m, COUNT(*) FROM z GROUP BY m ORDER BY m",
    "GREATEST(m, '2000-01-01'), LEAST(d, '2000-01-01') FROM z ORDER BY id",
    "IFNULL(n, 'x'), COALESCE(n, m), n IS NULL, m IS NULL FROM z ORDER BY id",
    "CASE WHEN m = '0000-00-00' THEN 'none' ELSE 'some' END FROM z ORDER BY id",
    "CAST(m AS DATE), CAST(d AS DATETIME), CAST(m AS CHAR), CAST(d AS SIGNED) FROM z ORDER BY id",
    "id FROM z ORDER BY m, id", "id FROM z WHERE m BETWEEN '0000-00-00' AND '2024-12-31' ORDER BY id",
    "id FROM z WHERE m IN ('0000-00-00 00:00:00', '2024-02-03 04:05:06') ORDER BY id",
    "YEAR('0000-00-00'), DATE_FORMAT('0000-00-00', '%Y')", "id FROM z WHERE YEAR(m) = 0 ORDER BY id",
    "a.id, b.id FROM z a JOIN z b ON a.m = b.m ORDER BY 1, 2", "GROUP_CONCAT(m ORDER BY id) FROM z",
    "JSON_OBJECT('a', m) FROM z ORDER BY id", "TIMESTAMPDIFF(DAY, m, '2024-01-01') FROM z WHERE id <> 4 ORDER BY id",
)
WRITES = (
    "UPDATE z SET m = '0000-00-00 00:00:00' WHERE id = 2", "UPDATE z SET n = m WHERE id = 2",
    "INSERT INTO z (id, m) VALUES (1, '2024-01-01') ON DUPLICATE KEY UPDATE m = '2024-03-01', d = '0000-00-00'",
    "INSERT INTO z (id, m) VALUES (6, '2024-01-01'), (7, '00000000000000')", "DELETE FROM z WHERE m = '0000-00-00'",
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


@needs_mariadb
def test_beside_mariadb(local: LocalServer, maria: MariaDb) -> None:
    with maria.connect() as theirs, local.connect() as mine:
        outcome(theirs, "DROP VIEW IF EXISTS by_moment")
        for text in SETUP:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
        for write in (None, *WRITES):
            if write is not None:
                assert (write, outcome(mine, write)) == (write, outcome(theirs, write))
            for text in SELECTS:
                assert (text, outcome(mine, f"SELECT {text}")) == (text, outcome(theirs, f"SELECT {text}"))


def test_prepared_keys_and_a_restart(tmp_path: Path) -> None:
    """It is another key than 0001-01-01, beside which its code is."""
    with closing(LocalServer(tmp_path / "data")) as server, server.connect() as plain:
        for text in SETUP:
            outcome(plain, text)
        with closing(server.connector()) as prepared, prepared.cursor(prepared=True) as cursor:
            for sql, found in (("SELECT id FROM z WHERE m = ? ORDER BY id", [(1,), (3,)]),
                               ("SELECT COUNT(*) FROM z WHERE m = ?", [(2,)]),
                               ("SELECT id FROM z WHERE d <= ? ORDER BY id", [(1,), (3,)]),
                               ("SELECT id FROM z WHERE m > ? ORDER BY id", [(2,), (4,)])):
                for _ in range(2):
                    cursor.execute(sql, ("0000-00-00",))
                    assert (sql, cursor.fetchall()) == (sql, found)
            cursor.execute("SELECT id FROM z WHERE m = ?", ("0001-01-01",))
            assert cursor.fetchall() == [(4,)]
            cursor.execute("SELECT m, d FROM z WHERE id = ?", (1,))
            assert cursor.fetchall() == [(None, None)]  # as this driver shows it
    with closing(LocalServer(tmp_path / "data")) as server, server.connect() as plain:
        assert outcome(plain, "SELECT m, n FROM by_moment ORDER BY m LIMIT 1") == [("0000-00-00 00:00:00", 2)]
        assert "DEFAULT '0000-00-00 00:00:00'" in outcome(plain, "SHOW CREATE TABLE z")[0][1]


def test_with_no_zero_date_it_is_refused(local: LocalServer) -> None:
    with local.connect() as c:
        for text in SETUP:
            outcome(c, text)
        outcome(c, "SET sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE'")
        assert outcome(c, "INSERT INTO z (id, m) VALUES (9, '0000-00-00')") == 1292
        assert outcome(c, "UPDATE z SET m = '0000-00-00'") == 1292
        assert outcome(c, "CREATE TABLE y (m DATETIME DEFAULT '0000-00-00 00:00:00')") == 1067
        assert outcome(c, "ALTER TABLE z ADD e DATE DEFAULT '0000-00-00'") == 1067
        assert outcome(c, "ALTER TABLE z ADD e DATE") == 0
        assert outcome(c, "SELECT COUNT(*) FROM z WHERE m = '0000-00-00'") == [(2,)]
        assert outcome(c, "SELECT COUNT(*) FROM z WHERE m = '0000-00-01'") == 1525


def test_many_rows_in_one_statement(local: LocalServer) -> None:
    with local.connect() as c:
        for text in SETUP[:3]:
            outcome(c, text)
        rows = ", ".join(f"({n}, '{'0000-00-00' if n % 3 else '2024-01-01'}', '2024-01-01')" for n in range(1_000))
        assert outcome(c, f"INSERT INTO z (id, d, m) VALUES {rows}") == 1_000
        assert outcome(c, "SELECT d, COUNT(*) FROM z GROUP BY d ORDER BY d")[0] == ("0000-00-00", 666)
