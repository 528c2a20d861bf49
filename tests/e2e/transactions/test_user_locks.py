"""GET_LOCK and its family, of clients at one or two front ends and over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from e2e.transactions.waiting import Waiting, refused, run, until
from noria.client import Database
from noria.core.errors import SqlError


@pytest.fixture(params=[(1, 1), (3, 2)], ids=["one worker", "three workers, two front ends"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    workers, front_ends = request.param
    server = LocalServer(tmp_path / "data", workers=workers, front_ends=front_ends)
    yield server
    server.close()


@pytest.fixture()
def two(server: LocalServer, request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """Two clients, at two front ends if there are two."""
    if "two front ends" in request.node.callspec.id:
        return server.at(0), server.at(1)
    return server.connect(), server.connect()


def one(connection: Any, expression: str) -> Any:
    (row,) = run(connection, f"SELECT {expression}")
    return row[0]


def waits(watcher: Any, number: int) -> Callable[[], bool]:
    """Whether so many sessions wait for a lock now."""
    return lambda: [r[6] for r in run(watcher, "SHOW PROCESSLIST")].count("User lock") == number


def test_a_lock_is_of_one_session(two: tuple[Any, Any]) -> None:
    a, b = two
    assert one(a, "GET_LOCK('Jobs', 10)") == 1
    assert one(b, "GET_LOCK('jobs', 0)") == 0 and one(b, "GET_LOCK('JOBS', 1)") == 0
    assert one(b, "IS_FREE_LOCK('jobs')") == 0 and one(b, "IS_FREE_LOCK('other')") == 1
    assert one(b, "IS_USED_LOCK('jOBS')") == a.thread_id() and one(b, "IS_USED_LOCK('other')") is None
    assert one(b, "RELEASE_LOCK('jobs')") == 0 and one(b, "RELEASE_LOCK('other')") is None
    assert one(a, "RELEASE_LOCK('jobs')") == 1 and one(a, "RELEASE_LOCK('jobs')") is None
    assert one(b, "GET_LOCK('jobs', 0)") == 1


def test_several_and_counted(two: tuple[Any, Any]) -> None:
    a, b = two
    assert run(a, "SELECT GET_LOCK('x', 1), GET_LOCK('y', 1) AS y, GET_LOCK('x', 1)") == [(1, 1, 1)]
    assert one(a, "RELEASE_LOCK('x')") == 1 and one(b, "GET_LOCK('x', 0)") == 0
    assert one(a, "RELEASE_LOCK('x')") == 1 and one(b, "GET_LOCK('x', 0)") == 1
    run(a, "DO GET_LOCK('y', 1), GET_LOCK('z', 0)")
    assert one(a, "RELEASE_ALL_LOCKS()") == 3 and one(a, "RELEASE_ALL_LOCKS()") == 0
    assert run(b, "SELECT IS_FREE_LOCK('x'), IS_FREE_LOCK('y'), IS_FREE_LOCK('z')") == [(0, 1, 1)]


def test_who_waits_gets_it_in_order(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    c = server.connect()
    watcher = server.connect()
    assert one(a, "GET_LOCK('x', 0)") == 1
    first = Waiting(b, "SELECT GET_LOCK('x', 60)")
    until(waits(watcher, 1))
    second = Waiting(c, "SELECT GET_LOCK('x', -1)")
    until(waits(watcher, 2))
    assert one(watcher, "1 + 1") == 2  # nobody else waits
    assert one(a, "RELEASE_LOCK('x')") == 1
    assert first.end() is None and first.rows == [(1,)]
    assert one(watcher, "IS_USED_LOCK('x')") == b.thread_id()
    b.close()  # the end of a session releases its locks
    assert second.end() is None and second.rows == [(1,)]
    assert one(watcher, "IS_USED_LOCK('x')") == c.thread_id()


def test_a_transactions_end_releases_none(two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "BEGIN", "SELECT GET_LOCK('x', 0)", "COMMIT", "BEGIN", "ROLLBACK")
    assert one(b, "GET_LOCK('x', 0)") == 0


def test_a_reset_session_holds_none(server: LocalServer) -> None:
    a, b = server.connector(), server.connect()
    cursor = a.cursor()
    cursor.execute("SELECT GET_LOCK('x', 0)")
    assert cursor.fetchall() == [(1,)]
    a.cmd_reset_connection()
    assert one(b, "GET_LOCK('x', 0)") == 1
    a.close()


def test_a_lost_front_end_holds_none(tmp_path: Path) -> None:
    server = LocalServer(tmp_path / "data", workers=1, front_ends=2)
    a, b = server.at(0), server.at(1)
    assert one(a, "GET_LOCK('x', 0)") == 1
    waiting = Waiting(b, "SELECT GET_LOCK('x', 60)")
    until(waits(server.at(1), 1))

    async def lost() -> None:
        server.mysql.ended[0].set()

    server.embedded.run(lost())
    assert waiting.end() is None and waiting.rows == [(1,)]
    server.close()


def test_parameters(server: LocalServer) -> None:
    a, b = server.connector(), server.connect()
    cursor = a.cursor(prepared=True)
    for name in ("x", "y"):
        cursor.execute("SELECT GET_LOCK(?, ?) AS l", (name, 1))
        assert cursor.fetchall() == [(1,)]
    cursor.execute("DO RELEASE_LOCK(?)", ("x",))
    assert run(b, "SELECT IS_FREE_LOCK('x'), IS_FREE_LOCK('y')") == [(1, 0)]
    run(b, "USE noria", "SET @name = 'Z'",
        "SELECT GET_LOCK(@name, 0), GET_LOCK(DATABASE(), 0), GET_LOCK(CONCAT('a', 1), 0)")
    assert run(b, "SELECT IS_FREE_LOCK('z'), IS_FREE_LOCK('noria'), IS_FREE_LOCK('a1')") == [(0, 0, 0)]
    assert run(b, "SELECT GET_LOCK('none', 0) LIMIT 0") == [] and one(b, "IS_FREE_LOCK('none')") == 1
    a.close()


def test_a_deadlock_is_an_error_for_who_closes_it(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "SELECT GET_LOCK('x', 0)")
    run(b, "SELECT GET_LOCK('y', 0)")
    waiting = Waiting(a, "SELECT GET_LOCK('y', 60)")
    until(waits(server.connect(), 1))
    assert refused(b, "SELECT GET_LOCK('x', 60)") == 3058
    assert one(b, "IS_USED_LOCK('y')") == b.thread_id()  # it keeps its locks
    assert one(b, "GET_LOCK('x', 0)") == 0
    run(b, "DO RELEASE_LOCK('y')")
    assert waiting.end() is None and waiting.rows == [(1,)]


def test_a_kill_ends_a_wait(server: LocalServer, two: tuple[Any, Any]) -> None:
    a, b = two
    watcher = server.connect()
    run(a, "SELECT GET_LOCK('x', 0)")
    waiting = Waiting(b, "SELECT GET_LOCK('x', 60)")
    until(waits(watcher, 1))
    run(watcher, f"KILL QUERY {b.thread_id()}")
    assert waiting.end() == 1317
    run(a, "DO RELEASE_LOCK('x')")
    assert one(watcher, "IS_FREE_LOCK('x')") == 1  # nobody waits any more
    run(a, "SELECT GET_LOCK('x', 0)")
    waiting = Waiting(b, "SELECT GET_LOCK('x', 60)")
    until(waits(watcher, 1))
    run(watcher, f"KILL {a.thread_id()}")  # the holder
    assert waiting.end() is None and waiting.rows == [(1,)]
    run(watcher, f"KILL {b.thread_id()}")
    until(lambda: one(watcher, "IS_FREE_LOCK('x')") == 1)


def test_a_time_limit_ends_a_wait(two: tuple[Any, Any]) -> None:
    a, b = two
    run(a, "SELECT GET_LOCK('x', 0)")
    assert refused(b, "SELECT /*+ MAX_EXECUTION_TIME(10) */ GET_LOCK('x', 60)") == 3024
    run(b, "SET max_execution_time = 10")
    assert refused(b, "SELECT GET_LOCK('x', -1)") == 3024


@pytest.mark.parametrize(("statement", "code", "text"), [
    ("SELECT GET_LOCK('', 0)", 3057, "Incorrect user-level lock name ''."),
    ("SELECT RELEASE_LOCK(NULL)", 3057, "Incorrect user-level lock name 'NULL'."),
    ("SELECT IS_FREE_LOCK(@none)", 3057, "Incorrect user-level lock name 'NULL'."),
    (f"SELECT IS_USED_LOCK('{'x' * 65}')", 4163, "should not exceed 64 characters"),
    ("SELECT GET_LOCK('x')", 1582, "Incorrect parameter count in the call to native function 'GET_LOCK'"),
    ("SELECT RELEASE_ALL_LOCKS(1)", 1582, "native function 'RELEASE_ALL_LOCKS'"),
    ("SELECT GET_LOCK('x', RELEASE_LOCK('y'))", 1235, "one after the other"),
    ("SELECT 1 + GET_LOCK('x', 1 + SLEEP(0))", 1235, "one after the other"),
    ("SELECT IF(1 = 2, GET_LOCK('x', 0), 1)", 1235, "call it in a column of its own"),
    ("SELECT @none AND GET_LOCK('x', 0)", 1235, "call it in a column of its own"),
    ("SET @x = GET_LOCK('x', 0)", 1235, "use SELECT or DO"),
    ("DO 1 FROM t", 1064, "DO takes expressions only"),
    ("DO DISTINCT 1", 1064, "DO takes expressions only"),
    ("DO", 1064, "DO"),
])
def test_what_is_refused(two: tuple[Any, Any], statement: str, code: int, text: str) -> None:
    with pytest.raises(pymysql.MySQLError) as e:
        run(two[0], statement)
    assert e.value.args[0] == code and text in e.value.args[1]
    assert one(two[1], "IS_FREE_LOCK('x')") == 1


def test_names_have_64_characters(two: tuple[Any, Any]) -> None:
    assert one(two[0], f"GET_LOCK('{'é' * 64}', 0)") == 1
    assert one(two[1], f"GET_LOCK('{'É' * 64}', 0)") == 0
    assert run(two[0], "SELECT GET_LOCK('x', NULL), GET_LOCK('y', 1.5), GET_LOCK(5, '0')") == [(1, 1, 1)]


def test_within_an_expression(two: tuple[Any, Any]) -> None:
    # As MediaWiki asks for its locks.
    a, b = two
    ((acquired,),) = run(a, "SELECT IF(GET_LOCK('x', 15), UNIX_TIMESTAMP(SYSDATE(6)), NULL) AS acquired")
    assert acquired > 1_700_000_000
    assert run(b, "SELECT IF(GET_LOCK('x', 0), UNIX_TIMESTAMP(SYSDATE(6)), NULL) AS acquired") == [(None,)]
    assert run(b, "SELECT COALESCE(IS_FREE_LOCK('x'), 7) + 1, IS_USED_LOCK('x') = CONNECTION_ID()") == [(1, 0)]
    assert run(a, "SELECT 1 + RELEASE_LOCK('x'), CONCAT(RELEASE_LOCK('x'), 'y')") == [(2, None)]
    assert run(b, "SELECT GET_LOCK('x', 0) AND @none IS NULL, 2 WHERE GET_LOCK('y', 0) = 1") == [(1, 2)]
    assert run(b, "SELECT RELEASE_LOCK(CONCAT(LEFT('x1', 1), '')), GET_LOCK(CONCAT('x', @none IS NULL), 0)") == [(1, 1)]
    assert run(b, "SELECT RELEASE_LOCK('x1') + 1, GET_LOCK('x', 0 * 1)") == [(2, 1)]
    assert run(b, "SELECT RELEASE_ALL_LOCKS() * 10, (SELECT GET_LOCK('x', 0))") == [(20, 1)]


def test_do_computes_and_answers_nothing(two: tuple[Any, Any]) -> None:
    assert run(two[0], "DO 1 + 1, NOW(), @x") == []
    assert refused(two[0], "DO nothing") == 1054


def test_a_request_without_a_transaction_cannot_keep_one(server: LocalServer) -> None:
    db, b = Database(server.embedded), server.connect()
    with pytest.raises(SqlError, match="GET_LOCK over several requests"):
        db.sql("SELECT GET_LOCK('x', 0)")
    assert one(b, "IS_FREE_LOCK('x')") == 1
    assert db.sql("SELECT GET_LOCK('x', 0); SELECT RELEASE_LOCK('x')").rows == [(1,)]
    with db.transaction() as tx:
        assert tx.sql("SELECT GET_LOCK(?, 0)", ["x"]).rows == [(1,)]
        assert one(b, "GET_LOCK('x', 0)") == 0
    assert one(b, "GET_LOCK('x', 0)") == 1
