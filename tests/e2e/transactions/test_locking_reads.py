"""SELECT … FOR UPDATE, FOR SHARE, NOWAIT and SKIP LOCKED: what is read, what is locked, who waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run
from noria.storage.transactions import staging

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), KEY (a))",
          "INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two'), (3, 20, 'three'), (4, NULL, NULL)",
          "CREATE TABLE u (k VARCHAR(9), n INT, v INT, PRIMARY KEY (k, n))",
          "INSERT INTO u VALUES ('a', 10, 1), ('A2', 20, 2), ('b', 20, 3)", "CREATE TABLE bag (x INT)")


@pytest.fixture(params=[1, 3])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), *TABLES)
    yield server
    assert server.ask("stats")["open_transactions"] == 0
    server.close()


def test_a_row_stays_locked_until_the_end(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(a, "BEGIN", "SELECT a, s FROM t WHERE id = 1 FOR UPDATE") == [(10, "one")]
    run(b, "UPDATE t SET a = 21 WHERE id = 2")
    waiting = Waiting(b, "UPDATE t SET a = a + 5 WHERE id = 1")
    assert run(server.connect(), "SELECT a FROM t WHERE id = 1") == [(10,)]
    assert waiting.waits()
    run(a, "UPDATE t SET a = a + 1 WHERE id = 1", "COMMIT")
    assert waiting.end() is None
    assert run(a, "SELECT id, a FROM t ORDER BY id") == [(1, 16), (2, 21), (3, 20), (4, None)]


def test_what_is_read_is_the_latest_not_the_snapshot(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(a, "BEGIN", "SELECT a FROM t WHERE id = 1") == [(10,)]
    run(b, "UPDATE t SET a = 11 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(10,)]
    assert run(a, "SELECT a FROM t WHERE id = 1 FOR UPDATE") == [(11,)]
    assert run(a, "SELECT a FROM t WHERE id = 1 LOCK IN SHARE MODE") == [(11,)]
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(10,)]
    run(a, "UPDATE t SET a = a + 1 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1 FOR UPDATE") == [(12,)]
    run(a, "COMMIT")


def test_counters_lose_no_increment(server: LocalServer) -> None:
    def count() -> None:
        connection = server.connect()
        for _ in range(10):
            while True:
                try:
                    ((n,),) = run(connection, "BEGIN", "SELECT a FROM t WHERE id = 1 FOR UPDATE")
                    run(connection, f"UPDATE t SET a = {n + 1} WHERE id = 1", "COMMIT")
                    break
                except pymysql.MySQLError as e:
                    assert e.args[0] == 1213

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run(server.connect(), "SELECT a FROM t WHERE id = 1") == [(50,)]


def test_shared_locks_are_shared(server: LocalServer) -> None:
    a, b, c = (server.connect() for _ in range(3))
    for one in (a, b):
        assert run(one, "BEGIN", "SELECT id FROM t WHERE a = 20 ORDER BY id FOR SHARE") == [(2,), (3,)]
    assert refused(c, "SELECT id FROM t WHERE id = 3 FOR UPDATE NOWAIT") == 3572
    assert run(c, "SELECT id FROM t WHERE id = 3 FOR SHARE NOWAIT") == [(3,)]
    waiting = Waiting(c, "DELETE FROM t WHERE id = 3")
    run(a, "COMMIT")
    assert run(b, "SELECT COUNT(*) FROM t") == [(4,)] and waiting.waits()
    run(b, "ROLLBACK")
    assert waiting.end() is None
    assert run(b, "SELECT COUNT(*) FROM t") == [(3,)]


def test_skip_locked_hands_out_each_row_once(server: LocalServer) -> None:
    sessions = [server.connect() for _ in range(4)]
    taken = [run(s, "BEGIN", "SELECT id FROM t WHERE id < 4 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED")
             for s in sessions]
    assert taken == [[(1,)], [(2,)], [(3,)], []]
    run(sessions[1], "DELETE FROM t WHERE id = 2", "COMMIT")
    assert run(sessions[3], "SELECT id FROM t WHERE id < 4 FOR UPDATE SKIP LOCKED") == []
    run(sessions[0], "ROLLBACK")
    assert run(sessions[3], "SELECT id FROM t FOR UPDATE SKIP LOCKED") in ([(1,), (4,)], [(4,), (1,)])
    for s in sessions:
        run(s, "ROLLBACK")


def test_a_join_locks_the_tables_that_are_named(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(a, "BEGIN", "SELECT t.id, u.k FROM t JOIN u ON t.a = u.n WHERE u.v = 2 ORDER BY t.id FOR UPDATE OF u"
               ) == [(2, "A2"), (3, "A2")]
    run(b, "UPDATE t SET s = 'x' WHERE id = 2")
    assert refused(b, "SELECT v FROM u WHERE k = 'a2' AND n = 20 FOR UPDATE NOWAIT") == 3572
    assert run(a, "SELECT t.id, u.k FROM t LEFT JOIN u ON t.a = u.n WHERE t.id IN (1, 4) ORDER BY 1 FOR UPDATE"
               ) == [(1, "a"), (4, None)]
    assert refused(b, "SELECT id FROM t WHERE id = 4 FOR SHARE NOWAIT") == 3572
    assert refused(b, "SELECT t.id FROM t FOR UPDATE OF x") == 3568
    run(a, "COMMIT")


def test_a_grouping_select_locks_what_it_groups(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(a, "BEGIN", "SELECT COUNT(*), SUM(a) FROM t WHERE a = 20 FOR UPDATE") == [(2, 40)]
    for n in (2, 3):
        assert refused(b, f"SELECT id FROM t WHERE id = {n} FOR UPDATE NOWAIT") == 3572
    assert run(b, "SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT") == [(1,)]
    assert run(a, "SELECT s, COUNT(*) FROM t GROUP BY s HAVING COUNT(*) > 0 ORDER BY s LIMIT 1 FOR UPDATE"
               ) == [(None, 1)]
    assert refused(b, "SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT") == 3572
    run(a, "COMMIT")


def test_own_rows_are_found_and_locked(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "INSERT INTO t VALUES (9, 20, 'nine')", "DELETE FROM t WHERE id = 2")
    assert run(a, "SELECT id FROM t WHERE a = 20 ORDER BY id FOR UPDATE") == [(3,), (9,)]
    assert refused(b, "SELECT id FROM t WHERE id = 3 FOR UPDATE NOWAIT") == 3572
    run(a, "ROLLBACK")
    assert run(b, "SELECT id FROM t WHERE a = 20 ORDER BY id FOR UPDATE") == [(2,), (3,)]


def test_a_waiting_select_reads_what_the_other_has_committed(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = 30 WHERE id = 2")
    run(b, "BEGIN")
    waiting = Waiting(b, "SELECT id, a FROM t WHERE a IN (20, 30) ORDER BY id FOR UPDATE")
    run(server.connect(), "SELECT 1")
    assert waiting.waits()
    run(a, "COMMIT")
    assert waiting.end() is None and waiting.rows == [(2, 30), (3, 20)]
    run(b, "ROLLBACK")


def test_a_deadlock_of_locking_reads_ends_one(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "SELECT id FROM t WHERE id = 1 FOR UPDATE")
    run(b, "BEGIN", "SELECT id FROM t WHERE id = 2 FOR UPDATE")
    waiting = Waiting(a, "SELECT id FROM t WHERE id = 2 FOR UPDATE")
    other = Waiting(b, "SELECT id FROM t WHERE id = 1 FOR UPDATE")
    assert sorted([waiting.end() or 0, other.end() or 0]) == [0, 1213]
    for one in (a, b):
        run(one, "ROLLBACK")


def test_prepared_with_parameters(server: LocalServer) -> None:
    connection = server.connector()
    cursor = connection.cursor(prepared=True)
    other = server.connect()
    for n in (1, 3):
        cursor.execute("START TRANSACTION")
        cursor.execute("SELECT s FROM t WHERE id = ? FOR UPDATE", (n,))
        assert cursor.fetchall() == [("one",) if n == 1 else ("three",)]
        assert refused(other, f"SELECT id FROM t WHERE id = {n} FOR UPDATE NOWAIT") == 3572
        cursor.execute("SELECT id FROM t WHERE a > ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED", (5, 2))
        assert cursor.fetchall() == [(1,), (2,)]
        cursor.execute("COMMIT")
    connection.close()


@pytest.mark.parametrize(("text", "code"), [
    ("SELECT x FROM bag FOR UPDATE", 1235), ("SELECT COUNT(*) FROM t FOR UPDATE SKIP LOCKED", 1235),
    ("SELECT id FROM t WHERE id IN (SELECT n FROM u FOR UPDATE)", 1235),
    ("SELECT id FROM t UNION SELECT n FROM u FOR UPDATE", 1235),
    ("SELECT id FROM nix FOR UPDATE", 1146)])
def test_what_is_refused(server: LocalServer, text: str, code: int) -> None:
    assert refused(server.connect(), text) == code


def test_without_a_transaction_nothing_stays_locked(server: LocalServer) -> None:
    a: Any = server.connect()
    assert run(a, "SELECT id FROM t WHERE id = 1 FOR UPDATE") == [(1,)]
    assert run(server.connect(), "SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT") == [(1,)]
    assert run(a, "SELECT 1 FOR UPDATE") == [(1,)]


def test_locks_are_bounded(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MOST_LOCKS", 4)
    a = server.connect()
    run(a, "BEGIN", "SELECT id FROM t WHERE id = 1 FOR UPDATE")
    for number in range(5, 20):
        run(server.connect(), f"INSERT INTO t VALUES ({number}, 1, NULL)")
    assert refused(a, "SELECT id FROM t FOR UPDATE") == 1206
    run(a, "UPDATE t SET a = 1 WHERE id = 1", "COMMIT")


def test_rows_of_a_derived_table(server: LocalServer) -> None:
    # As MediaWiki locks the revisions of a page that it deletes.
    a, b = server.connect(), server.connect()
    assert run(a, "BEGIN", "SELECT COUNT(*) AS rowcount FROM (SELECT 1 FROM t WHERE a = 20 FOR UPDATE) tmp_count"
               ) == [(2,)]
    for n in (2, 3):
        assert refused(b, f"SELECT id FROM t WHERE id = {n} FOR UPDATE NOWAIT") == 3572
    assert run(b, "SELECT id FROM t WHERE id = 1 FOR UPDATE NOWAIT") == [(1,)]
    assert run(a, "SELECT x + 1 FROM (SELECT id AS x FROM t WHERE id > 1 ORDER BY id LIMIT 1 FOR UPDATE) AS d"
               ) == [(3,)]
    assert run(a, "ROLLBACK", "BEGIN", "SELECT s FROM (SELECT a, MAX(s) AS s FROM t WHERE a = 20 GROUP BY a LOCK IN "
               "SHARE MODE) AS d") == run(a, "SELECT MAX(s) FROM t WHERE a = 20")
    assert refused(b, "SELECT id FROM t WHERE id = 3 FOR UPDATE NOWAIT") == 3572
    assert run(b, "SELECT id FROM t WHERE id = 3 FOR SHARE NOWAIT") == [(3,)]
    assert refused(b, "SELECT x FROM (SELECT id AS x FROM t FOR UPDATE SKIP LOCKED) AS d") == 1235
    assert refused(b, "SELECT SQL_CALC_FOUND_ROWS x FROM (SELECT id AS x FROM t FOR UPDATE) AS d LIMIT 1") == 1235
