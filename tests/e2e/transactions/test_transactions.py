"""Transactions over the MySQL protocol: what is undone, who sees what, who waits for whom."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run, until
from noria.core.errors import SqlError


@pytest.fixture()
def server(tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data")
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20), KEY (a))",
        "INSERT INTO t VALUES (1, 10, 'one'), (2, 20, 'two'), (3, 30, 'three')")
    yield server
    server.close()


def test_a_rolled_back_change_is_gone(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = a + 1 WHERE id = 1", "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (4, 40, 'four')")
    assert run(a, "SELECT id, a FROM t ORDER BY id") == [(1, 11), (3, 30), (4, 40)]
    assert run(a, "SELECT s FROM t WHERE id = 4") == [("four",)]
    assert run(a, "SELECT SUM(a), COUNT(*) FROM t") == [(81, 3)]
    assert run(b, "SELECT id, a FROM t ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
    run(a, "ROLLBACK")
    assert run(a, "SELECT id, a FROM t ORDER BY id") == [(1, 10), (2, 20), (3, 30)]
    server.validate()


def test_a_commit_is_seen_as_a_whole(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "CREATE VIEW total AS SELECT SUM(a) AS n FROM t")
    assert run(b, "SELECT n FROM total") == [(60,)]
    run(a, "START TRANSACTION", "UPDATE t SET a = a - 5 WHERE id = 1", "UPDATE t SET a = a + 5 WHERE id = 2")
    assert run(b, "SELECT n FROM total") == [(60,)]
    run(a, "COMMIT")
    assert run(b, "SELECT id, a FROM t ORDER BY id") == [(1, 5), (2, 25), (3, 30)]
    assert run(b, "SELECT n FROM total") == [(60,)]
    server.validate()


def test_savepoints(server: LocalServer) -> None:
    a = server.connect()
    run(a, "BEGIN", "INSERT INTO t VALUES (4, 40, 'x')", "SAVEPOINT s1", "INSERT INTO t VALUES (5, 50, 'y')",
        "SAVEPOINT s2", "DELETE FROM t WHERE id = 4")
    run(a, "ROLLBACK TO s2")
    assert run(a, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,), (5,)]
    run(a, "ROLLBACK TO SAVEPOINT s1")
    assert run(a, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]
    assert refused(a, "ROLLBACK TO s2") == 1305
    run(a, "RELEASE SAVEPOINT s1", "COMMIT")
    assert run(a, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_a_failed_statement_leaves_the_transaction_as_it_was(server: LocalServer) -> None:
    a = server.connect()
    run(a, "BEGIN", "INSERT INTO t VALUES (4, 40, 'x')")
    assert refused(a, "INSERT INTO t VALUES (5, 50, 'y'), (1, 0, 'taken')") == 1062
    run(a, "COMMIT")
    assert run(a, "SELECT id FROM t ORDER BY id") == [(1,), (2,), (3,), (4,)]


def test_autocommit_off(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "SET autocommit = 0", "DELETE FROM t WHERE id = 1")
    assert run(b, "SELECT COUNT(*) FROM t") == [(3,)]
    run(a, "ROLLBACK")
    assert run(a, "SELECT COUNT(*) FROM t") == [(3,)]
    run(a, "DELETE FROM t WHERE id = 1", "SET autocommit = 1")
    assert run(b, "SELECT COUNT(*) FROM t") == [(2,)]
    run(a, "SET autocommit = 0", "BEGIN", "DELETE FROM t WHERE id = 2", "SET autocommit = 1", "ROLLBACK")
    assert run(b, "SELECT COUNT(*) FROM t") == [(1,)]
    run(a, "BEGIN", "DELETE FROM t", "SET autocommit = 1", "ROLLBACK")
    assert run(b, "SELECT COUNT(*) FROM t") == [(1,)], "it was on before"


def test_a_definition_commits(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "DELETE FROM t WHERE id = 1", "CREATE TABLE u (id INT PRIMARY KEY)", "ROLLBACK")
    assert run(b, "SELECT COUNT(*) FROM t") == [(2,)]


@pytest.mark.parametrize("end", ["COMMIT", "BEGIN", "SET autocommit = 1", "CREATE TABLE u (id INT PRIMARY KEY)"])
def test_a_commit_after_another_session_altered_the_table_fails_once(server: LocalServer, end: str) -> None:
    """It must not be tried again: the second try would have nothing to commit, and be acknowledged."""
    a, b = server.connect(), server.connect()
    run(a, "SET autocommit = 0", "INSERT INTO t VALUES (4, 40, 'x')")
    server.define("ALTER TABLE t ADD n INT")
    assert refused(a, end) == 1412
    run(a, "COMMIT")
    assert run(b, "SELECT COUNT(*) FROM t") == [(3,)]
    assert server.ask("stats")["open_transactions"] == 0


def test_a_client_that_goes_is_rolled_back(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "DELETE FROM t WHERE id = 1")
    a.close()
    run(b, "UPDATE t SET a = 0 WHERE id = 1")  # waits for the lock, which goes with its holder
    assert run(b, "SELECT a FROM t WHERE id = 1") == [(0,)]


@pytest.mark.parametrize("statement", ["UPDATE t SET a = 1 WHERE id = 1", "DELETE FROM t WHERE a = 10",
                                       "INSERT INTO t VALUES (9, 1, '')", "REPLACE INTO t VALUES (1, 1, '')"])
@pytest.mark.parametrize("within", [True, False])
def test_a_write_waits_for_the_rows_it_needs(server: LocalServer, statement: str, within: bool) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET s = 'held' WHERE id = 1", "INSERT INTO t VALUES (9, 90, 'held')")
    if within:
        run(b, "BEGIN")
    waiting = Waiting(b, statement)
    until(lambda: server.locks_waited_for() == 1)
    assert waiting.waits()
    run(a, "COMMIT")
    assert waiting.end() == (1062 if statement.startswith("INSERT") else None)
    if within:
        run(b, "COMMIT")
    server.validate()


def test_a_wait_ends_in_time(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1")
    run(b, "SET innodb_lock_wait_timeout = 1", "BEGIN", "UPDATE t SET a = 1 WHERE id = 2")
    assert refused(b, "UPDATE t SET a = 1 WHERE id = 1") == 1205
    run(b, "COMMIT")  # only the statement was undone
    run(a, "ROLLBACK")
    assert run(b, "SELECT id, a FROM t ORDER BY id") == [(1, 10), (2, 1), (3, 30)]


def test_a_deadlock_ends_one_transaction(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1", "UPDATE t SET s = '' WHERE id = 1")
    run(b, "BEGIN", "UPDATE t SET a = 0 WHERE id = 2")
    waiting = Waiting(a, "UPDATE t SET a = 5 WHERE id = 2")
    until(lambda: server.locks_waited_for() == 1)
    assert refused(b, "UPDATE t SET a = 6 WHERE id = 1") == 1213  # it has the least work
    assert waiting.end() is None
    assert run(b, "SELECT a FROM t WHERE id = 2") == [(20,)]  # b is outside of any transaction
    run(a, "COMMIT")
    assert run(b, "SELECT id, a FROM t ORDER BY id") == [(1, 0), (2, 5), (3, 30)]


def test_repeatable_read_is_a_snapshot(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN")
    run(b, "UPDATE t SET a = 11 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]  # the snapshot is of the first read
    run(b, "UPDATE t SET a = 12 WHERE id = 1", "INSERT INTO t VALUES (4, 40, 'new')", "DELETE FROM t WHERE id = 3")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]
    assert run(a, "SELECT id, a, s FROM t ORDER BY id") == [(1, 11, "one"), (2, 20, "two"), (3, 30, "three")]
    assert run(a, "SELECT SUM(a) FROM t") == [(61,)]
    run(a, "UPDATE t SET a = a + 100 WHERE id = 1")  # a write sees the last commit
    assert run(a, "SELECT id, a FROM t ORDER BY id") == [(1, 112), (2, 20), (3, 30)]
    run(a, "COMMIT")
    assert run(a, "SELECT id, a FROM t ORDER BY id") == [(1, 112), (2, 20), (4, 40)]
    server.validate()


def test_read_committed_sees_each_commit(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(10,)]
    run(b, "UPDATE t SET a = 12 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(12,)]
    run(a, "COMMIT", "BEGIN")  # SET TRANSACTION was for one transaction
    assert run(a, "SELECT @@transaction_isolation") == [("REPEATABLE-READ",)]
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(12,)]
    run(b, "UPDATE t SET a = 13 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(12,)]


def test_read_only(server: LocalServer) -> None:
    a = server.connect()
    run(a, "START TRANSACTION READ ONLY")
    assert refused(a, "DELETE FROM t") == 1792
    run(a, "COMMIT", "DELETE FROM t WHERE id = 1")


def test_generated_ids_are_not_given_twice(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "CREATE TABLE n (id INT AUTO_INCREMENT PRIMARY KEY, v INT)", "BEGIN", "INSERT INTO n (v) VALUES (1)")
    run(b, "INSERT INTO n (v) VALUES (2)")
    run(a, "INSERT INTO n (v) VALUES (3)", "COMMIT")
    assert run(b, "SELECT id, v FROM n ORDER BY id") == [(1, 1), (2, 2), (3, 3)]
    run(a, "BEGIN", "INSERT INTO n (v) VALUES (4)", "ROLLBACK", "INSERT INTO n (v) VALUES (5)")
    assert run(b, "SELECT id, v FROM n WHERE v = 5") == [(5, 5)]


def test_a_table_without_a_key(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "CREATE TABLE bag (v INT)", "INSERT INTO bag VALUES (1), (1), (2)", "BEGIN", "DELETE FROM bag WHERE v = 1",
        "INSERT INTO bag VALUES (3)")
    run(b, "INSERT INTO bag VALUES (1), (4)")
    assert run(a, "SELECT v FROM bag ORDER BY v") == [(1,), (2,), (3,), (4,)]
    run(a, "COMMIT")
    assert run(b, "SELECT v FROM bag ORDER BY v") == [(1,), (2,), (3,), (4,)]
    server.validate()


def test_a_lock_that_a_failed_statement_got_goes_with_its_transaction(server: LocalServer) -> None:
    """The statement waits for two rows, gets one, and ends without the other."""
    a, b, c = server.connect(), server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET a = 0 WHERE id = 1")
    run(c, "BEGIN", "UPDATE t SET a = 0 WHERE id = 2")
    run(b, "SET innodb_lock_wait_timeout = 2", "BEGIN")
    waiting = Waiting(b, "UPDATE t SET a = 9 WHERE id IN (1, 2)")
    until(lambda: server.locks_waited_for() > 0)
    run(a, "ROLLBACK")
    assert waiting.end() == 1205
    run(b, "ROLLBACK")
    run(c, "ROLLBACK")
    run(a, "SET innodb_lock_wait_timeout = 2", "BEGIN", "UPDATE t SET a = 1 WHERE id IN (1, 2)", "COMMIT")
    assert run(b, "SELECT a FROM t WHERE id < 3") == [(1,), (1,)]
    assert server.ask("stats")["open_transactions"] == 0


def test_set_transaction_holds_for_the_next_one(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "SET autocommit = 0", "SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "INSERT INTO t VALUES (7, 7, '')")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(10,)]
    run(b, "UPDATE t SET a = 11 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]
    assert refused(a, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ") == 1568
    run(a, "COMMIT")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]
    run(b, "UPDATE t SET a = 12 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]
    run(a, "ROLLBACK", "SET autocommit = 1", "BEGIN")
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")  # for later ones
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(12,)]
    run(b, "UPDATE t SET a = 13 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(12,)]


def test_user_variables_do_not_commit(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "SET autocommit = 0", "DELETE FROM t", "SET @autocommit = 1")
    assert run(b, "SELECT COUNT(*) FROM t") == [(3,)]
    run(a, "SET @x = 1, autocommit = 1")
    assert run(b, "SELECT COUNT(*) FROM t") == [(0,)]


def test_commit_release_answers_and_ends_the_connection(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "DELETE FROM t WHERE id = 1", "COMMIT RELEASE")
    assert run(b, "SELECT COUNT(*) FROM t") == [(2,)]
    with pytest.raises((pymysql.MySQLError, OSError)):
        run(a, "SELECT 1")


def test_a_request_of_its_own_is_told_that_its_transaction_ended(server: LocalServer) -> None:
    sql = server.embedded.sql
    with pytest.raises(SqlError, match="over several calls"):
        sql("BEGIN; DELETE FROM t WHERE id = 1", [])
    assert run(server.connect(), "SELECT COUNT(*) FROM t") == [(3,)]
    sql("BEGIN; DELETE FROM t WHERE id = 1; COMMIT", [])
    assert run(server.connect(), "SELECT COUNT(*) FROM t") == [(2,)]


def test_an_index_that_is_made_meanwhile_has_what_is_committed(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET s = 'new' WHERE id = 1", "SAVEPOINT p", "INSERT INTO t VALUES (4, 40, 'new')",
        "DELETE FROM t WHERE id = 2")
    run(b, "CREATE VIEW by_s AS SELECT id FROM t WHERE s = ?")
    for text in ("new", "one", "two"):
        run(b, f"SELECT id FROM t WHERE s = '{text}'")
        run(b, f"SELECT id FROM t WHERE s = '{text}'")
    run(a, "COMMIT")
    assert run(b, "SELECT id FROM t WHERE s = 'new' ORDER BY id") == [(1,), (4,)]
    assert run(b, "SELECT id FROM t WHERE s = 'two'") == []
    server.evict()
    assert run(b, "SELECT id FROM t WHERE s = 'new' ORDER BY id") == [(1,), (4,)]
    server.validate()


def test_deadlocks_across_workers_end_too(tmp_path: Path) -> None:
    """With three workers some pair of rows is at two of them, whatever the hash: all pairs are tried."""
    server = LocalServer(tmp_path / "three", workers=3)
    try:
        a, b = server.connect(), server.connect()
        run(a, "CREATE TABLE t (id INT PRIMARY KEY, a INT)", *(f"INSERT INTO t VALUES ({n}, 0)" for n in range(5)))
        for other in range(1, 5):
            run(a, "BEGIN", "UPDATE t SET a = a + 1 WHERE id = 0")
            run(b, "BEGIN", f"UPDATE t SET a = a + 1 WHERE id = {other}")
            waiting = Waiting(a, f"UPDATE t SET a = a + 1 WHERE id = {other}")
            until(lambda: server.locks_waited_for() == 1)
            late = Waiting(b, "UPDATE t SET a = a + 1 WHERE id = 0")
            assert sorted((waiting.end() or 0, late.end() or 0)) == [0, 1213]
            run(a, "COMMIT")
            run(b, "COMMIT")
        assert run(a, "SELECT SUM(a) FROM t") == [(8,)]
        assert server.ask("stats")["open_transactions"] == 0
        server.validate()
    finally:
        server.close()


def test_transfers_keep_the_sum(server: LocalServer) -> None:
    """Each transfer is two updates; a snapshot read in two SELECTs never sees half of one."""
    setup, accounts = server.connect(), range(6)
    run(setup, "CREATE TABLE acc (id INT PRIMARY KEY, bal INT)",
        "INSERT INTO acc VALUES " + ", ".join(f"({n}, 100)" for n in accounts))
    wrong: list[object] = []

    def transfer(seed: int) -> None:
        chance, connection = random.Random(seed), server.connect()
        for _ in range(60):
            x, y = chance.sample(accounts, 2)
            try:
                run(connection, "BEGIN", f"UPDATE acc SET bal = bal - 1 WHERE id = {x}",
                    f"UPDATE acc SET bal = bal + 1 WHERE id = {y}", "ROLLBACK" if chance.random() < 0.2 else "COMMIT")
            except pymysql.MySQLError as e:
                if e.args[0] != 1213:
                    wrong.append(e)
                    return

    def look() -> None:
        connection = server.connect()
        while writing.is_set():
            run(connection, "BEGIN")
            low = run(connection, "SELECT bal FROM acc WHERE id < 3")
            high = run(connection, "SELECT bal FROM acc WHERE id >= 3")
            single = [run(connection, f"SELECT bal FROM acc WHERE id = {n}")[0] for n in accounts]
            run(connection, "COMMIT")
            if sum(b for (b,) in low + high) != 600 or sorted(single) != sorted(low + high):
                wrong.append((low, high, single))

    writing = threading.Event()
    writing.set()
    readers = [threading.Thread(target=look) for _ in range(2)]
    writers = [threading.Thread(target=transfer, args=(seed,)) for seed in range(4)]
    for thread in (*readers, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    writing.clear()
    for thread in readers:
        thread.join()
    assert wrong == []
    assert run(setup, "SELECT SUM(bal) FROM acc") == [(600,)]
    server.validate()


def test_a_consistent_snapshot_is_of_the_begin(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    run(b, "UPDATE t SET a = 11 WHERE id = 1")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(10,)]
    run(a, "COMMIT")
    assert run(a, "SELECT a FROM t WHERE id = 1") == [(11,)]


@pytest.mark.parametrize(("statement", "error", "after"), [
    ("UPDATE k SET id = id + 100", None, [(101, "a"), (102, "b"), (103, "c")]),
    ("UPDATE k SET u = CONCAT(u, u)", None, [(1, "aa"), (2, "bb"), (3, "cc")]),
    ("DELETE FROM k WHERE id < 3", None, [(3, "c")]),
    ("INSERT INTO k VALUES (9, 'x'), (1, 'y')", 1062, [(1, "a"), (2, "b"), (3, "c")]),
    ("REPLACE INTO k VALUES (1, 'z'), (9, 'y')", None, [(1, "z"), (2, "b"), (3, "c"), (9, "y")])])
def test_statements_of_several_workers_wait_too(
    tmp_path: Path, statement: str, error: int | None, after: list[tuple[int, str]]
) -> None:
    """Also those that no transaction of several workers can have: they move rows, or write a UNIQUE key."""
    server = LocalServer(tmp_path / "three", workers=3)
    try:
        a, b = server.connect(), server.connect()
        run(a, "CREATE TABLE k (id INT PRIMARY KEY, u VARCHAR(9) UNIQUE)",
            "INSERT INTO k VALUES (1, 'a'), (2, 'b'), (3, 'c')", "BEGIN", "DELETE FROM k WHERE id = 1")
        waiting = Waiting(b, statement)
        run(b := server.connect(), "SELECT 1")
        assert waiting.waits()
        run(a, "ROLLBACK")
        assert waiting.end() == error
        assert run(b, "SELECT id, u FROM k ORDER BY id") == after
        assert server.ask("stats")["open_transactions"] == 0
        server.validate()
    finally:
        server.close()


def test_a_snapshot_reads_what_has_not_changed_from_shared_memory(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data", workers=1)
    a, b, ids = server.connect(), server.connect(), range(200)
    run(b, "CREATE TABLE w (id INT PRIMARY KEY, g INT, a INT)",
        "INSERT INTO w VALUES " + ", ".join(f"({n}, {n % 20}, {n})" for n in ids))
    chance, rows = random.Random(5), {n: (n % 20, n) for n in ids}
    for n in ids:
        run(a, f"SELECT g, a FROM w WHERE id = {n}")  # the keys are present before the snapshot
    for _ in range(10):
        run(a, "BEGIN", "SELECT a FROM w WHERE id = 0")
        seen, changed = dict(rows), set()
        for _ in range(8):
            n = chance.choice(ids)
            changed.add(n)
            if chance.random() < 0.3:
                run(b, f"DELETE FROM w WHERE id = {n}")
                rows.pop(n, None)
            else:
                rows[n] = (chance.randrange(20), chance.randrange(1_000))
                run(b, f"REPLACE INTO w VALUES ({n}, {rows[n][0]}, {rows[n][1]})")
        shots = server.one_shots()
        for n in ids:
            if n not in changed:
                assert run(a, f"SELECT g, a FROM w WHERE id = {n}") == [seen[n] for _ in range(n in seen)]
        assert server.one_shots() - shots <= len(ids) // 10, "of keys that were changed before"
        for n in changed:
            assert run(a, f"SELECT g, a FROM w WHERE id = {n}") == [seen[n] for _ in range(n in seen)]
        assert sorted(run(a, "SELECT id, g, a FROM w WHERE id >= 0")) == [(n, *seen[n]) for n in sorted(seen)]
        run(a, "COMMIT")
        for n in chance.sample(ids, 100):
            assert run(a, f"SELECT g, a FROM w WHERE id = {n}") == [rows[n] for _ in range(n in rows)]
    server.validate()
    server.close()


@pytest.mark.parametrize("statement", ["UPDATE t SET a = a + 1 WHERE id = 1",
                                       "UPDATE t SET a = a + 1 WHERE a >= 10 AND a < 20",
                                       "INSERT INTO t VALUES (1, 0, 'x') ON DUPLICATE KEY UPDATE a = a + 1"])
def test_several_that_wait_for_one_row_write_it_one_after_the_other(server: LocalServer, statement: str) -> None:
    """None of them is the victim of a deadlock, since none holds what another one needs."""
    first, others = server.connect(), [server.connect() for _ in range(4)]
    run(first, "BEGIN", "UPDATE t SET a = a + 1 WHERE id = 1")
    for other in others:
        run(other, "BEGIN")
    waiting = [Waiting(other, statement) for other in others]
    until(lambda: server.locks_waited_for() == len(others))
    run(first, "COMMIT")
    left = list(zip(others, waiting, strict=True))
    while left:
        until(lambda: server.locks_waited_for() < len(left) and any(not asked.waits() for _, asked in left))
        other, asked = next(one for one in left if not one[1].waits())
        assert asked.end() is None
        run(other, "COMMIT")
        left.remove((other, asked))
    assert run(first, "SELECT a FROM t WHERE id = 1") == [(15,)]
    server.validate()
