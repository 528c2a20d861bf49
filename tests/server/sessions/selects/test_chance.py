"""RAND() and UUID() for each row, and SLEEP.  Their values cannot be compared with another server's: what must hold of
them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE t (id INT PRIMARY KEY, g INT, u VARCHAR(36), KEY (g))", "CREATE TABLE plain (n INT)",
         "INSERT INTO plain VALUES (1), (2)",
         "INSERT INTO t VALUES " + ", ".join(f"({n}, {n % 3}, NULL)" for n in range(60)))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    with found.connect() as c:
        for text in SETUP:
            rows(c, text)
    yield found
    found.close()


def test_an_order_by_chance_differs_and_has_each_row_once(server: LocalServer) -> None:
    with server.connect() as c:
        orders = {tuple(r[0] for r in rows(c, "SELECT id FROM t ORDER BY RAND()")) for _ in range(6)}
        assert len(orders) == 6
        assert {tuple(sorted(o)) for o in orders} == {tuple(range(60))}
        firsts = Counter(rows(c, "SELECT id FROM t WHERE g = 1 ORDER BY RAND() LIMIT 1")[0][0] for _ in range(60))
        assert len(firsts) > 5
        assert all(n % 3 == 1 for n in firsts)
        assert server.executor.stats()["adhoc_views"] == 0


def test_each_call_in_each_row_has_a_value_of_its_own(server: LocalServer) -> None:
    with server.connect() as c:
        found = rows(c, "SELECT RAND(), RAND(), UUID() FROM t")
        assert len({v for row in found for v in row}) == 180
        assert all(0 <= a < 1 and 0 <= b < 1 for a, b, _ in found)
        rows(c, "UPDATE t SET u = UUID()")
        assert len(rows(c, "SELECT DISTINCT u FROM t")) == 60
        assert rows(c, "SELECT COUNT(*) FROM t WHERE LENGTH(u) = 36 AND u LIKE '%-4%'") == [(60,)]
        assert 0 < rows(c, "SELECT COUNT(*) FROM t WHERE RAND() < 0.5")[0][0] < 60
        rows(c, "INSERT INTO t SELECT id + 1000, FLOOR(1 + RAND() * 5), UUID() FROM t")
        assert len(rows(c, "SELECT DISTINCT u FROM t")) == 120
        assert len(rows(c, "SELECT g, COUNT(*), RAND() FROM t GROUP BY g ORDER BY RAND()")) > 3


def test_a_seed_repeats_the_order(server: LocalServer) -> None:
    with server.connect() as c:
        assert rows(c, "SELECT id FROM t ORDER BY RAND(7)") == rows(c, "SELECT id FROM t ORDER BY RAND(7)")
        assert rows(c, "SELECT id FROM t ORDER BY RAND(7)") != rows(c, "SELECT id FROM t ORDER BY RAND(8)")


def test_within_a_transaction_and_prepared(server: LocalServer) -> None:
    with server.connect() as c, server.connector() as prepared:
        rows(c, "BEGIN")
        rows(c, "INSERT INTO t VALUES (100, 9, NULL)")
        assert rows(c, "SELECT id FROM t WHERE g = 9 ORDER BY RAND() LIMIT 3") == [(100,)]
        rows(c, "ROLLBACK")
        seen = set()
        for _ in range(12):
            with prepared.cursor(prepared=True) as cursor:
                cursor.execute("SELECT id FROM t WHERE g = ? ORDER BY RAND() LIMIT ?", (2, 1))
                seen.add(cursor.fetchall()[0][0])
        assert len(seen) > 2
        assert all(n % 3 == 2 for n in seen)


def test_a_count_without_limit(server: LocalServer) -> None:
    with server.connect() as c:
        assert len(rows(c, "SELECT SQL_CALC_FOUND_ROWS id FROM t WHERE g = 0 ORDER BY RAND() LIMIT 3")) == 3
        assert rows(c, "SELECT FOUND_ROWS()") == [(20,)]


@needs_mariadb
def test_seeds_without_rows_are_mariadbs(server: LocalServer, tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        with server.connect() as ours, mariadb.connect() as theirs:
            for text in ("SELECT RAND(3), RAND(0), RAND(NULL), RAND(-5), RAND(1099511627783), RAND(2) < 1",
                         "SELECT RAND(n) FROM (SELECT 1 AS n UNION ALL SELECT 2 UNION ALL SELECT NULL) q ORDER BY n",
                         "SELECT SLEEP(0), SLEEP(0.01), SLEEP('0')"):
                assert rows(ours, text) == rows(theirs, text), text
    finally:
        mariadb.close()


def test_sleep_waits_and_refuses(server: LocalServer) -> None:
    with server.connect() as c:
        assert rows(c, "DO SLEEP(0)") == []
        assert code(c, "SELECT SLEEP(NULL)") == code(c, "SELECT SLEEP(-1)") == 1210
        assert code(c, "SET max_execution_time = 20") == 0
        assert code(c, "SELECT SLEEP(100)") == 3024
        assert code(c, "SELECT id, SLEEP(1) FROM t") == code(c, "SELECT BENCHMARK(5, 1)") == 1235


def test_no_view_depends_on_chance(server: LocalServer) -> None:
    with server.connect() as c:
        for text in ("SELECT id, RAND() FROM t", "SELECT id, UUID() FROM t", "SELECT id FROM t ORDER BY RAND(3)"):
            assert code(c, f"CREATE VIEW v AS {text}") == 1235
