"""`noria serve --front-ends 2 --workers 2`: clients of both front ends are clients of one server; one front end's death
is that of its own connections only."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from e2e.serving import Served, execute, rows, until

PROGRAM = ("CREATE TABLE stories (id INT PRIMARY KEY, author INT, title VARCHAR(20))",
           "CREATE TABLE votes (id INT PRIMARY KEY AUTO_INCREMENT, story INT, who INT)",
           "CREATE VIEW counts AS SELECT story, COUNT(*) AS n FROM votes WHERE story = ? GROUP BY story")
COUNT = "SELECT n FROM counts WHERE story = %s"


def test_two_front_ends(tmp_path: Path) -> None:
    server = Served(tmp_path / "data", "--front-ends", "2", "--workers", "2")
    try:
        a, b = at(server, 0), at(server, 1)
        definitions_reach_both(a, b)
        for text in PROGRAM:
            execute(a, text)
        own_writes(server, (a, b))
        sessions_keep_what_they_are(a, b)
        prepared_statements(server)
        kills_reach_both(server, a, b)
        a_kill_ends_a_large_reply(server, a)
        one_is_frozen(server, a)
        one_dies(server)
    finally:
        server.close()


def at(server: Served, front: int) -> Any:
    """A client of this front end: the kernel chooses, the connection's number tells."""
    while True:
        c = server.connect(read_timeout=60)
        if (c.thread_id() - 1) % 2 == front:
            return c
        c.close()


def pids(server: Served) -> list[int]:
    return list(server.health()["front_end_pids"])


def fails(c: Any, code: int, text: str) -> None:
    with pytest.raises(pymysql.MySQLError) as caught:
        rows(c, text)
    assert caught.value.args[0] == code


def definitions_reach_both(a: Any, b: Any) -> None:
    """What was acknowledged at one holds for the next statement at the other, whatever that had known before."""
    for i in range(4):
        execute(a, "CREATE TABLE t (id INT PRIMARY KEY, x INT)")
        execute(b, "INSERT INTO t VALUES (1, %s)", (i,))
        for _ in range(4):
            assert [rows(c, "SELECT x FROM t WHERE id = 1") for c in (a, b)] == [[(i,)]] * 2
        execute(b, "ALTER TABLE t ADD COLUMN y INT DEFAULT 7")
        assert rows(a, "SELECT * FROM t WHERE id = 1") == [(1, i, 7)]
        execute(a, "CREATE VIEW v AS SELECT id, x AS one FROM t WHERE id = ?")
        assert all(rows(b, "SELECT * FROM v WHERE id = 1") == [(1, i)] for _ in range(4))
        execute(a, "CREATE OR REPLACE VIEW v AS SELECT id, x + 1 AS two FROM t WHERE id = ?")
        assert all(rows(b, "SELECT * FROM v WHERE id = 1") == [(1, i + 1)] for _ in range(4))
        execute(b, "DROP VIEW v")
        fails(a, 1146, "SELECT * FROM v WHERE id = 1")
        execute(a, "DROP TABLE t")
        fails(b, 1146, "SELECT x FROM t WHERE id = 1")


def own_writes(server: Served, clients: tuple[Any, ...]) -> None:
    """Each is seen by who wrote it; what is read often is answered at the front end."""
    for i in range(40):
        c = clients[i % 2]
        execute(c, "INSERT INTO votes (story, who) VALUES (%s, %s)", (i % 10, i))
        assert rows(c, COUNT, (i % 10,)) == [(i // 10 + 1,)]
    before = server.metric("view_hits_total") + server.metric("cached_replies_total")
    for _ in range(10):
        assert [rows(c, COUNT, (k,)) for c in clients for k in range(10)] == [[(4,)]] * 20
    until("they are counted", lambda: server.metric("view_hits_total") + server.metric("cached_replies_total")
          >= before + 200)
    with server.connect() as other:
        assert {int(n) for n, *_ in rows(other, "SHOW PROCESSLIST")} >= {c.thread_id() for c in clients}


def sessions_keep_what_they_are(a: Any, b: Any) -> None:
    """Variables, warnings, locks and the last generated id are the connection's, whoever answers between."""
    execute(a, "SET @x = 5")
    execute(a, "SET max_execution_time = 4000000")
    assert len(rows(a, "SHOW WARNINGS")) == 1
    assert all(rows(a, COUNT, (1,)) == [(4,)] for _ in range(3))
    assert rows(a, "SHOW WARNINGS") == []
    execute(a, "BEGIN")
    assert rows(a, "SELECT @x") == [(5,)]
    with a.cursor() as cursor:
        cursor.execute("INSERT INTO votes (story, who) VALUES (100, 1)")
        assert rows(a, "SELECT LAST_INSERT_ID()") == [(cursor.lastrowid,)]
    assert a.server_status & 1
    assert rows(a, COUNT, (100,)) == [(1,)]
    assert a.server_status & 1
    a.commit()
    execute(a, "LOCK TABLES stories WRITE")
    execute(b, "SET lock_wait_timeout = 0")
    fails(b, 1205, "INSERT INTO stories VALUES (2, 1, 'b')")
    execute(a, "UNLOCK TABLES")
    execute(b, "INSERT INTO stories VALUES (2, 1, 'b')")


def prepared_statements(server: Served) -> None:
    for front in range(2):
        with closing(connector(server, front)) as c, closing(c.cursor(prepared=True)) as cursor:
            for k in range(30):
                cursor.execute("SELECT n FROM counts WHERE story = ?", (k % 10,))
                assert cursor.fetchall() == [(4,)]
            with pytest.raises(mysql.connector.Error) as caught:
                cursor.execute("SELECT n FROM nothing WHERE story = ?", (1,))
            assert caught.value.errno == 1146


def connector(server: Served, front: int) -> Any:
    while True:
        c = mysql.connector.connect(host="127.0.0.1", port=server.mysql_port, user="root", autocommit=True)
        if (c.connection_id - 1) % 2 == front:
            return c
        c.close()


def a_kill_ends_a_large_reply(server: Served, a: Any) -> None:
    execute(a, "CREATE TABLE long_rows (id INT PRIMARY KEY, t VARCHAR(1000))")
    for first in range(0, 20_000, 2_000):
        some = ", ".join(f"({i}, REPEAT(4, 900))" for i in range(first, first + 2_000))
        execute(a, f"INSERT INTO long_rows VALUES {some}")
    with closing(at(server, 1)) as b, b.cursor(pymysql.cursors.SSCursor) as cursor:
        cursor.execute("SELECT id, t FROM long_rows")
        assert cursor.fetchone() is not None
        assert ("sending rows", "SELECT id, t FROM long_rows") in {r[6:] for r in rows(a, "SHOW PROCESSLIST")}
        execute(a, f"KILL QUERY {b.thread_id()}")
        with pytest.raises(pymysql.MySQLError, match="interrupted"):
            cursor.fetchall()
        cursor._result = None  # it would read on to the end
        assert rows(b, "SELECT COUNT(*) FROM long_rows") == [(20_000,)]


def kills_reach_both(server: Served, a: Any, b: Any) -> None:
    victim, failure = at(server, 1), list[Any]()

    def wait() -> None:
        try:
            rows(victim, "SELECT COUNT(*) FROM votes u, votes v, votes w, votes x, votes y WHERE u.who <> v.who")
        except pymysql.MySQLError as e:
            failure.append(e.args[0])

    thread = threading.Thread(target=wait)
    thread.start()
    number = victim.thread_id()
    until("it waits for Spark", lambda: [r for r in rows(a, "SHOW PROCESSLIST") if int(r[0]) == number and r[6]])
    execute(a, f"KILL QUERY {number}")
    thread.join()
    assert failure == [1317] and rows(victim, "SELECT 1") == [(1,)]
    execute(a, f"KILL {number}")
    with pytest.raises(pymysql.MySQLError):
        rows(victim, "SELECT 1")
    fails(b, 1094, f"KILL {number}")


def one_is_frozen(server: Served, a: Any) -> None:
    """A change of the program waits for it a while, and then ends it."""
    frozen = pids(server)[1]
    os.kill(frozen, signal.SIGSTOP)
    execute(a, "CREATE TABLE later (id INT PRIMARY KEY)")
    assert rows(a, "SELECT id FROM later WHERE id = 1") == []
    until("another one", lambda: pids(server)[1] not in (0, frozen))
    b = at(server, 1)
    assert rows(b, "SELECT id FROM later WHERE id = 1") == []
    b.close()


def one_dies(server: Served) -> None:
    """Under load, its clients connect again and lose nothing that was acknowledged; others do not notice."""
    holder = at(server, 0)
    execute(holder, "LOCK TABLES stories WRITE")
    stop, written, kept = threading.Event(), [0, 0], list[Exception]()

    def client(front: int) -> None:
        c = at(server, front)
        while not stop.is_set():
            try:
                execute(c, "INSERT INTO votes (story, who) VALUES (%s, 1)", (200 + front,))
                written[front] += 1
                if rows(c, COUNT, (200 + front,))[0][0] < written[front]:
                    kept.append(AssertionError("an acknowledged write was not read"))
            except pymysql.MySQLError as e:
                if front:
                    kept.append(e)
                c = server.connect()

    threads = [threading.Thread(target=client, args=(i,)) for i in (0, 1)]
    for t in threads:
        t.start()
    try:
        more(written)
        dead = pids(server)[0]
        os.kill(dead, signal.SIGKILL)
        more(written)
        until("another one", lambda: pids(server)[0] not in (0, dead))
        more(written)
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not kept
    c = at(server, 0)
    assert rows(c, COUNT, (201,)) == [(written[1],)]
    assert rows(c, COUNT, (200,))[0][0] >= written[0]
    execute(c, "INSERT INTO stories VALUES (3, 1, 'unlocked')")


def more(written: list[int]) -> None:
    before = list(written)
    until("both write on", lambda: all(n > m + 20 for n, m in zip(written, before, strict=True)))


