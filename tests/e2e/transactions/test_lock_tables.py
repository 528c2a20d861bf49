"""LOCK TABLES: waits for transactions and for other locks; statements of others wait for it; errors 1099 and 1100."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from e2e.transactions.waiting import Waiting, cut, refused, run, until


@pytest.fixture(params=[1, 3])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    server = LocalServer(tmp_path / "data", workers=request.param)
    run(server.connect(), "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (1, 10), (2, 20)", "INSERT INTO u VALUES (1, 10)",
        "CREATE VIEW by_v AS SELECT v, COUNT(*) AS n FROM t GROUP BY v")
    yield server
    server.close()


def is_waiting(server: LocalServer, text: str) -> bool:
    """Whether a session's statement waits for LOCK TABLES, or as LOCK TABLES."""
    return any(row[7] == text and row[6] == "Waiting for table metadata lock" for row in run(
        server.connect(), "SHOW FULL PROCESSLIST"))


def waits(server: LocalServer, session: Any, text: str) -> Waiting:
    """Begin the statement, and return it once it waits."""
    waiting = Waiting(session, text)
    until(lambda: is_waiting(server, text))
    return waiting


@pytest.mark.parametrize("lock", ["LOCK TABLES t READ", "LOCK TABLES u WRITE, t WRITE"])
def test_it_waits_for_a_transaction_that_has_written(server: LocalServer, lock: str) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET v = 11 WHERE id = 1")
    waiting = waits(server, b, lock)
    run(a, "UPDATE t SET v = 12 WHERE id = 1", "UPDATE u SET v = 12 WHERE id = 1", "COMMIT")
    assert waiting.end() is None
    assert run(b, "SELECT v FROM t WHERE id = 1") == [(12,)]


@pytest.mark.parametrize("write", ["UPDATE t SET v = 11 WHERE id = 1", "INSERT INTO t VALUES (3, 30)", "TRUNCATE t",
                                   "SELECT v FROM t WHERE id = 1 FOR UPDATE", "ALTER TABLE t ADD COLUMN w INT"])
@pytest.mark.parametrize("lock", ["READ", "WRITE"])
def test_a_write_waits(server: LocalServer, write: str, lock: str) -> None:
    a, b = server.connect(), server.connect()
    run(a, f"LOCK TABLES t {lock}")
    waiting = waits(server, b, write)
    assert run(a, "SELECT * FROM t ORDER BY id") == [(1, 10), (2, 20)]
    run(a, "UNLOCK TABLES")
    assert waiting.end() is None


def test_a_write_within_a_transaction_waits(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "LOCK TABLES t WRITE", "UPDATE t SET v = 15 WHERE id = 1")
    run(b, "BEGIN", "UPDATE u SET v = 1 WHERE id = 1")
    waiting = waits(server, b, "UPDATE t SET v = v + 1 WHERE id = 1")
    run(a, "UPDATE t SET v = 16 WHERE id = 1", "UNLOCK TABLES")
    assert waiting.end() is None
    assert run(b, "COMMIT", "SELECT v FROM t WHERE id = 1") == [(17,)]


def test_reads_wait_for_a_write_lock_only(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    assert run(b, "SELECT n FROM by_v WHERE v = 10") == [(1,)]
    run(a, "LOCK TABLES t READ")
    assert run(b, "SELECT n FROM by_v WHERE v = 10") == [(1,)]
    run(a, "LOCK TABLES t WRITE", "UPDATE t SET v = 30 WHERE id = 1")
    waiting = waits(server, b, "SELECT n FROM by_v WHERE v = 10")
    assert run(server.connect(), "SELECT v FROM u") == [(10,)]
    run(a, "UPDATE t SET v = 10", "UNLOCK TABLES")
    assert waiting.end() is None and waiting.rows == [(2,)]


def test_own_statements(server: LocalServer) -> None:
    a = server.connect()
    run(a, "LOCK TABLES t READ")
    assert run(a, "SELECT v FROM t WHERE id = 1") == [(10,)]
    assert refused(a, "SELECT v FROM u") == 1100
    assert refused(a, "UPDATE t SET v = 1") == 1099
    assert refused(a, "SELECT v FROM t WHERE id = 1 FOR UPDATE") == 1099
    assert refused(a, "INSERT INTO u VALUES (9, 9)") == 1100
    assert refused(a, "DROP TABLE t") == 1099
    run(a, "LOCK TABLES t WRITE")
    run(a, "UPDATE t SET v = 1 WHERE id = 1")
    assert run(a, "SELECT n FROM by_v WHERE v = 1") == [(1,)]
    assert refused(a, "SELECT v FROM u WHERE id = 1") == 1100
    run(a, "START TRANSACTION", "SELECT v FROM u", "UPDATE u SET v = 2 WHERE id = 1", "COMMIT")
    run(a, "LOCK TABLES by_v READ", "SELECT * FROM by_v")
    assert refused(a, "SELECT v FROM u") == 1100
    run(a, "UNLOCK TABLES", "SELECT v FROM u")


def test_a_view_without_tables_can_be_locked(server: LocalServer) -> None:
    """mariadb-dump locks every view, also one that is only text."""
    a = server.connect()
    run(a, "CREATE VIEW constants AS SELECT 1 AS one", "LOCK TABLES constants READ, t READ",
        "SHOW CREATE VIEW constants")
    assert refused(a, "SELECT * FROM u") == 1100


def test_it_commits(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "UPDATE t SET v = 11 WHERE id = 1", "LOCK TABLES t WRITE", "ROLLBACK", "UNLOCK TABLES")
    assert run(b, "SELECT v FROM t WHERE id = 1") == [(11,)]
    run(a, "SET autocommit = 0", "LOCK TABLES t WRITE", "UPDATE t SET v = 12 WHERE id = 1", "UNLOCK TABLES", "ROLLBACK")
    assert run(b, "SELECT v FROM t WHERE id = 1") == [(12,)]


@pytest.mark.parametrize("end", ["BEGIN", "close", "LOCK TABLES u WRITE", "UNLOCK TABLES"])
def test_what_releases(server: LocalServer, end: str) -> None:
    a, b = server.connect(), server.connect()
    run(a, "LOCK TABLES t WRITE")
    waiting = waits(server, b, "UPDATE t SET v = 11 WHERE id = 1")
    if end == "close":
        a.close()
    else:
        run(a, end)
    assert waiting.end() is None


def test_locks_wait_for_each_other_in_turn(server: LocalServer) -> None:
    a, b, c, d = (server.connect() for _ in range(4))
    run(a, "LOCK TABLES t READ")
    run(d, "LOCK TABLES t READ", "UNLOCK TABLES")
    first = waits(server, b, "LOCK TABLES t WRITE, u WRITE")
    second = waits(server, c, "LOCK TABLES u WRITE, t WRITE")
    write = waits(server, d, "UPDATE t SET v = v + 1 WHERE id = 1")  # behind those that wait
    run(a, "UNLOCK TABLES")
    assert first.end() is None
    run(b, "UPDATE t SET v = v * 2 WHERE id = 1", "UNLOCK TABLES")
    assert second.end() is None
    run(c, "UPDATE t SET v = v * 2 WHERE id = 1", "UNLOCK TABLES")
    assert write.end() is None
    assert run(a, "SELECT v FROM t WHERE id = 1") == [(41,)]


def test_the_wait_has_an_end(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(b, "SET lock_wait_timeout = 0")
    run(a, "BEGIN", "UPDATE t SET v = 11 WHERE id = 1")
    assert refused(b, "LOCK TABLES t READ") == 1205
    run(a, "COMMIT", "LOCK TABLES t WRITE")
    for text in ("LOCK TABLES t READ", "UPDATE t SET v = 1", "SELECT * FROM t", "DROP TABLE t"):
        assert refused(b, text) == 1205
    run(b, "UPDATE u SET v = 5")
    run(a, "UNLOCK TABLES")
    run(b, "UPDATE t SET v = 1", "LOCK TABLES t WRITE")


def test_a_killed_wait_leaves_nothing(server: LocalServer) -> None:
    a, b, c = (server.connect() for _ in range(3))
    run(a, "LOCK TABLES t READ")
    waiting = waits(server, b, "LOCK TABLES t WRITE")
    run(c, f"KILL QUERY {b.thread_id()}")
    assert waiting.end() == 1317
    run(c, "SELECT * FROM t")
    run(a, "UNLOCK TABLES")
    run(c, "UPDATE t SET v = 1")


def test_a_cascade_waits_for_its_children(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(a, "CREATE TABLE child (id INT PRIMARY KEY, t INT, FOREIGN KEY (t) REFERENCES t (id) ON DELETE CASCADE)",
        "INSERT INTO child VALUES (1, 1)", "LOCK TABLES child READ")
    waiting = waits(server, b, "DELETE FROM t WHERE id = 1")
    assert run(a, "SELECT * FROM child") == [(1, 1)]
    run(a, "UNLOCK TABLES")
    assert waiting.end() is None
    assert run(a, "SELECT * FROM child") == []


def test_nothing_of_others_is_written_meanwhile(server: LocalServer) -> None:
    """Writers of several kinds, and a session that locks, reads twice and unlocks."""
    stop, errors = threading.Event(), list[Exception]()

    def write(statements: tuple[str, ...]) -> None:
        session = server.connect()
        while not stop.is_set():
            try:
                run(session, *statements)
            except pymysql.MySQLError as e:
                if e.args[0] != 1213:
                    errors.append(e)
                run(session, "ROLLBACK")

    kinds = [("UPDATE t SET v = v + 1 WHERE id = 1",), ("UPDATE t SET v = v + 1",),
             ("BEGIN", "UPDATE u SET v = v + 1 WHERE id = 1", "UPDATE t SET v = v + 1 WHERE id = 1", "COMMIT")]
    threads = [threading.Thread(target=write, args=(kind,)) for kind in kinds]
    for thread in threads:
        thread.start()
    locker, seen = server.connect(), set[int]()
    for n in range(20):
        run(locker, f"LOCK TABLES t {'READ' if n % 2 else 'WRITE'}")
        before = run(locker, "SELECT v FROM t ORDER BY id")
        if not n % 2:
            run(locker, "UPDATE t SET v = 0 WHERE id = 2")
            before[1] = (0,)
        assert run(locker, "SELECT v FROM t ORDER BY id") == before
        seen.add(before[0][0])
        run(locker, "UNLOCK TABLES")
    stop.set()
    for thread in threads:
        thread.join(60)
    assert not errors and len(seen) > 5


@pytest.mark.skipif(shutil.which("mariadb-dump") is None, reason="mariadb-dump is not installed")
def test_a_dump_with_locks_beside_writers(server: LocalServer) -> None:
    """Both tables are of one moment, because one transaction writes them alike."""
    stop = threading.Event()

    def write() -> None:
        session = server.connect()
        while not stop.is_set():
            run(session, "BEGIN", *(f"UPDATE {t} SET v = v + 1 WHERE id = 1" for t in "tu"), "COMMIT")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        dumped = subprocess.run(
            ["mariadb-dump", "--no-defaults", "--host=127.0.0.1", f"--port={server.mysql.address[1]}", "--user=root",
             "--skip-ssl", "--lock-tables", "--skip-extended-insert", "noria"], capture_output=True, text=True,
            timeout=120)
    finally:
        stop.set()
        thread.join(60)
    assert dumped.returncode == 0, dumped.stderr
    rows = [line for line in dumped.stdout.splitlines() if line.startswith("INSERT INTO")]
    first = {line.split("`")[1]: line.split("(1,")[1].split(")")[0] for line in rows if "(1," in line}
    assert first["t"] == first["u"]


READS = [("SELECT * FROM t", "tu"), ("SELECT n FROM by_v WHERE v = 10", "tu"),
         ("SELECT v FROM t WHERE id = 1 FOR SHARE", "u"),
         ("SELECT u.v FROM u JOIN t ON t.id = u.id WHERE u.id = 1 FOR UPDATE OF u", "t")]


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize(("read", "free"), READS)
def test_a_write_lock_waits_for_a_transaction_that_has_read(server: LocalServer, read: str, free: str, level: str
                                                            ) -> None:
    a, b, c = (server.connect() for _ in range(3))
    run(c, read, read)  # now a view answers, and a reply may be kept
    run(a, f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", "BEGIN", read, read)
    run(b, *(f"LOCK TABLES {name} READ" for name in free), "UNLOCK TABLES", "SET lock_wait_timeout = 0")
    assert refused(b, "LOCK TABLES t WRITE") == 1205
    run(c, "UPDATE t SET v = 21 WHERE id = 2")
    run(b, "SET lock_wait_timeout = 60")
    waiting = waits(server, b, "LOCK TABLES t WRITE")
    run(a, read, "COMMIT")
    assert waiting.end() is None


def test_what_a_transaction_has_read_ends_with_it(server: LocalServer) -> None:
    a, b = server.connect(), server.connect()
    run(b, "SET lock_wait_timeout = 0")
    for end in ("COMMIT", "ROLLBACK", "BEGIN", "SET autocommit = 1", "UNLOCK TABLES", "LOCK TABLES u READ",
                "TRUNCATE u", "close"):
        for level in ("READ COMMITTED", "REPEATABLE READ"):
            run(a, "SET autocommit = 0", f"SET SESSION TRANSACTION ISOLATION LEVEL {level}", "SELECT v FROM t")
            assert refused(b, "LOCK TABLES t WRITE") == 1205
            if end == "UNLOCK TABLES":
                run(a, "LOCK TABLES t READ", "SELECT v FROM t")
                assert refused(b, "LOCK TABLES t WRITE") == 1205
            if end == "close":
                a.close()
                a = server.connect()
                until(lambda: len(run(b, "SHOW PROCESSLIST")) == 2)
            else:
                run(a, end)
            run(b, "LOCK TABLES t WRITE", "UNLOCK TABLES")
            run(a, "COMMIT", "SET autocommit = 1", "UNLOCK TABLES")
    run(a, "SELECT v FROM t", "SELECT v FROM t")  # without a transaction
    run(b, "LOCK TABLES t WRITE")


def test_a_transaction_that_has_read_goes_on(server: LocalServer) -> None:
    """MySQL ends it with 1213 here: it has a lock of its own in the way of the one that waits."""
    a, b = server.connect(), server.connect()
    run(a, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "BEGIN", "SELECT v FROM t")
    waiting = waits(server, b, "LOCK TABLES t WRITE, u WRITE")
    run(a, "SELECT v FROM u", "UPDATE t SET v = v + 1", "COMMIT")
    assert waiting.end() is None
    assert run(b, "SELECT v FROM t ORDER BY id") == [(11,), (21,)]


@pytest.mark.parametrize("statement", ["DROP TABLE t", "TRUNCATE t", "RENAME TABLE t TO w",
                                       "ALTER TABLE t ADD COLUMN n INT DEFAULT 7"])
def test_a_definition_waits_for_a_transaction_that_has_read(server: LocalServer, statement: str) -> None:
    a, b, c = (server.connect() for _ in range(3))
    run(c, "DROP VIEW by_v")
    run(a, "BEGIN", "SELECT v FROM t ORDER BY id")
    run(b, "SET lock_wait_timeout = 0")
    assert refused(b, statement) == 1205
    run(b, "SET lock_wait_timeout = 60")
    waiting = waits(server, b, statement)
    run(c, "UPDATE t SET v = 11 WHERE id = 1")  # writes go on, unlike in MySQL
    assert run(a, "SELECT v FROM t ORDER BY id") == [(10,), (20,)]
    run(a, "COMMIT")
    assert waiting.end() is None


@pytest.mark.parametrize("how", ["KILL QUERY", "KILL", "close"])
@pytest.mark.parametrize("what", ["LOCK TABLES t WRITE", "DROP TABLE t", "UPDATE t SET v = 3"])
def test_who_dies_while_it_waits_leaves_nothing(server: LocalServer, how: str, what: str) -> None:
    a, b, c = (server.connect() for _ in range(3))
    if what.startswith("UPDATE"):
        run(a, "LOCK TABLES t WRITE")
    run(a, "SELECT v FROM t")
    if not what.startswith("UPDATE"):
        run(a, "BEGIN", "SELECT v FROM t")
    number = b.thread_id()
    waiting = waits(server, b, what)
    if how == "close":
        cut(b)
    else:
        run(c, f"{how} {number}")
    assert waiting.end() == (1317 if how == "KILL QUERY" else waiting.error) and waiting.error
    until(lambda: not is_waiting(server, what) and server.executor.locks.waits == 0)
    run(a, "COMMIT", "UNLOCK TABLES")
    run(c, "UPDATE t SET v = 7", "LOCK TABLES t WRITE", "UNLOCK TABLES")
    assert not server.executor.locks.busy and server.ask("stats")["open_transactions"] == 0


def test_a_lock_waits_without_polling(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """While nothing ends, LOCK TABLES does not look again."""
    a, b = server.connect(), server.connect()
    run(a, "BEGIN", "SELECT v FROM t")
    looks = list[None]()
    running = server.embedded.sessions.processes
    using = running.using
    monkeypatch.setattr(running, "using", lambda besides: looks.append(None) or using(besides))
    waiting = waits(server, b, "LOCK TABLES t WRITE")
    before = len(looks)
    run(a, *["SELECT v FROM u WHERE id = 1"] * 20)
    assert len(looks) <= before + 25  # once for each statement that ended
    run(a, "COMMIT")
    assert waiting.end() is None


HISTORY = (  # session, statement; what waits is error 1205 at once, or after a second
    (0, "LOCK TABLES t READ"), (1, "SELECT * FROM t"), (1, "UPDATE t SET v = 1"), (1, "LOCK TABLES t READ"),
    (1, "UPDATE t SET v = 1"), (1, "SELECT * FROM u"), (0, "SELECT * FROM u"), (0, "INSERT INTO u VALUES (7, 7)"),
    (1, "UNLOCK TABLES"), (0, "LOCK TABLES t WRITE, u READ"), (0, "UPDATE t SET v = 5"), (0, "UPDATE u SET v = 5"),
    (1, "SELECT * FROM u"), (1, "SELECT * FROM t"), (1, "LOCK TABLES u READ"), (1, "UPDATE u SET v = 3"),
    (0, "BEGIN"), (0, "UPDATE u SET v = 8"), (1, "UNLOCK TABLES"), (1, "LOCK TABLES u WRITE"),
    (0, "UPDATE u SET v = 8"), (1, "LOCK TABLES t WRITE"), (0, "ROLLBACK"), (0, "SELECT * FROM t"),
    (1, "UPDATE t SET v = 77 WHERE id = 1"),
    (1, "START TRANSACTION"), (0, "SELECT * FROM t"), (0, "SELECT * FROM u"),
    (1, "SELECT * FROM t"), (0, "LOCK TABLES u READ"), (0, "LOCK TABLES t READ"), (0, "UNLOCK TABLES"),
    (0, "LOCK TABLES t WRITE"), (0, "SELECT * FROM u"), (0, "LOCK TABLES u WRITE, t WRITE"), (0, "TRUNCATE t"),
    (0, "DROP TABLE t"), (0, "ALTER TABLE t ADD COLUMN w INT"), (1, "COMMIT"), (1, "SELECT * FROM t"),
    (0, "LOCK TABLES t WRITE"), (0, "UNLOCK TABLES"), (1, "SET autocommit = 0"), (1, "SELECT * FROM u"),
    (0, "LOCK TABLES u WRITE"), (1, "SET autocommit = 1"), (0, "LOCK TABLES u WRITE"))


def answers(connect: Any) -> list[Any]:
    """What each statement of the history returns."""
    sessions = [connect() for _ in range(2)]
    found = []
    for session in sessions:
        run(session, "SET SESSION lock_wait_timeout = 1", "SET SESSION innodb_lock_wait_timeout = 1")
    for n, text in HISTORY:
        try:
            found.append((n, text, sorted(run(sessions[n], text))))
        except pymysql.MySQLError as e:
            found.append((n, text, e.args[0]))
    for session in sessions:
        session.close()
    return found


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_as_in_mariadb(server: LocalServer, tmp_path: Path) -> None:
    mariadb = MariaDb(tmp_path)
    try:
        run(mariadb.connect(), *(f"CREATE TABLE {t} (id INT PRIMARY KEY, v INT)" for t in "tu"),
            "INSERT INTO t VALUES (1, 10), (2, 20)", "INSERT INTO u VALUES (1, 10)")
        expected = answers(mariadb.connect)
    finally:
        mariadb.close()
    assert answers(server.connect) == expected
