"""Front ends: whatever is asked of any of them is answered as without them."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
from contextlib import closing, suppress
from typing import Any

import pymysql
import pytest

from e2e.local import LocalFar, LocalFronts, LocalServer, views_at_once
from e2e.serving import rows
from noria.core.errors import SqlError
from noria.server.fronts import controller
from noria.server.fronts.messages import StartServing
from noria.server.fronts.replica import Replica

SHAPES = ("SELECT a, b FROM t WHERE a = {}", "SELECT b FROM t WHERE b = {}", "SELECT * FROM t WHERE id = {}",
          "SELECT a, n FROM v WHERE a = {}", "SELECT * FROM w WHERE b = {}", "SELECT COUNT(*) FROM t WHERE a = {}",
          "SELECT id FROM t WHERE a = {} ORDER BY id LIMIT 2", "SELECT * FROM u WHERE id = {}")
CHANGES = (
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT)", "DROP TABLE t", "DROP VIEW v", "DROP VIEW w",
    "ALTER TABLE t ADD COLUMN c INT DEFAULT 5", "ALTER TABLE t DROP COLUMN c",
    "RENAME TABLE t TO u", "RENAME TABLE u TO t",
    "CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a", "TRUNCATE TABLE t",
    "CREATE OR REPLACE VIEW v AS SELECT a, SUM(b) AS n FROM t WHERE a = ? GROUP BY a",
    "CREATE VIEW w AS SELECT a, b FROM t WHERE b = ?", "CREATE OR REPLACE VIEW w AS SELECT b, id FROM t WHERE b = ?",
)


def answer(run: Any, text: str) -> Any:
    """Rows in no order, or the error's number and text."""
    try:
        return sorted(run(text))
    except SqlError as e:
        return e.code, e.message
    except pymysql.MySQLError as e:
        return e.args


def here(server: LocalServer, text: str) -> list[Any]:
    """Asked of a session beside the front ends."""
    (outcome,) = server.embedded.run(server.embedded.sessions.run(text, []))
    return list(getattr(outcome, "rows", ()))


@pytest.mark.parametrize("seed", range(4))
def test_random_changes_of_the_program(server: LocalServer, seed: int) -> None:
    """Every statement at every front end has the answer of a session that has none, after each change; what a replica
    knows is what the catalog would say."""
    chance = random.Random(seed)
    views_at_once(server.embedded)
    far = server.far()
    clients = [server.at(0), server.connect(far.ready.result()[1])] if seed % 2 else [server.at(0), server.at(1)]
    with closing(clients[0]), closing(clients[1]):
        answer(lambda text: rows(clients[0], text), CHANGES[0])
        for step in range(40):
            changed = clients[chance.randrange(2)]
            text = chance.choice(CHANGES) if step % 2 else f"INSERT INTO t (id, a, b) VALUES ({step}, {step % 3}, 1)"
            with suppress(pymysql.MySQLError):
                rows(changed, text)
            for shape in chance.sample(SHAPES, 4):
                asked = shape.format(chance.randrange(3))
                wanted = answer(lambda text: here(server, text), asked)
                for c in (*clients, *clients, *clients):
                    assert answer(lambda text, c=c: rows(c, text), asked) == wanted, (seed, step, text, asked)
            server.embedded.run(replicas_are_the_catalog(server, far))
        server.validate()
    server.embedded.run(far.end())


async def replicas_are_the_catalog(server: LocalServer, far: LocalFar) -> None:
    """The far one has taken in what it was told so far."""
    while far.replica.version != server.executor.program.version:
        await asyncio.sleep(0)
    executor, fronts = server.executor, server.mysql
    assert isinstance(fronts, LocalFronts)
    for front in (*fronts.fronts.values(), far):
        assert front.replica.version == executor.program.version
        for shape, known in front.replica._by_shape._kept.items():
            found = executor.statements.recognise(shape.replace("?", "1"))
            if front.replica.valid(known) is None or found is None:
                continue
            told = executor.taught(found[0])
            assert told is not None and told.reader == known.reader and told.through == known.through, shape


def test_hits_are_answered_by_the_front_end(server: LocalServer) -> None:
    with closing(server.at(0)) as a, closing(server.at(1)) as b:
        rows(a, "CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        rows(a, "CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a")
        rows(b, "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        for c in (a, b):
            for _ in range(20):
                assert [rows(c, "SELECT n FROM v WHERE a = %s", (k,)) for k in (1, 2, 3)] == [[(2,)], [(1,)], []]
        fronts = server.mysql
        assert isinstance(fronts, LocalFronts)
        for front in fronts.fronts.values():
            front._count()
        until_counted(server, 110)
        rows(a, "INSERT INTO t VALUES (4, 1)")
        assert rows(b, "SELECT n FROM v WHERE a = 1") == [(3,)]


def until_counted(server: LocalServer, least: int) -> None:
    """The controller has the numbers of both, once it has answered what came after them."""
    with closing(server.at(0)) as a, closing(server.at(1)) as b:
        rows(a, "SELECT 1")
        rows(b, "SELECT 1")
    stats = server.executor.stats()
    assert stats["reads_total"] == 120
    assert stats["cached_replies_total"] + stats["view_hits_total"] >= least
    assert stats["cached_reply_bytes"] > 0
    assert isinstance(server.mysql, LocalFronts) and sum(f["reads_total"] for f in server.mysql.stats()) >= least


def test_a_front_end_that_ends_leaves_nothing(server: LocalServer) -> None:
    """Its sessions are closed, with their locks; its clients' numbers are not used again."""
    fronts = server.mysql
    assert isinstance(fronts, LocalFronts)
    with closing(server.at(1)) as b:
        rows(b, "CREATE TABLE t (id INT PRIMARY KEY)")
        a = server.at(0)
        rows(a, "LOCK TABLES t WRITE")
        rows(b, "SET lock_wait_timeout = 0")
        with pytest.raises(pymysql.MySQLError, match="locked"):
            rows(b, "INSERT INTO t VALUES (1)")
        server.embedded.loop.call_soon_threadsafe(fronts.fronts[0]._transport.abort)
        with pytest.raises(pymysql.MySQLError):
            rows(a, "SELECT 1")
        with closing(server.at(0)) as again:
            assert again.thread_id() > a.thread_id()
            rows(again, "INSERT INTO t VALUES (1)")
        assert int(rows(b, "SELECT COUNT(*) FROM t")[0][0]) == 1
        assert a.thread_id() not in {int(r[0]) for r in rows(b, "SHOW PROCESSLIST")}


def test_large_answers_come_in_pieces(server: LocalServer) -> None:
    """Prepared or not, near or far, to a client that reads and to one that goes away; then their room is free."""
    far = server.far()
    with closing(server.at(0)) as a, closing(server.connect(far.ready.result()[1])) as b:
        rows(a, "CREATE TABLE t (id INT PRIMARY KEY, s VARCHAR(40))")
        some = [(i, f"row {i}") for i in range(12_000)]
        for at in range(0, len(some), 2_000):
            rows(a, "INSERT INTO t VALUES " + ", ".join(f"({i}, '{t}')" for i, t in some[at:at + 2_000]))
        for c in (a, b, a):
            assert rows(c, "SELECT id, s FROM t ORDER BY id DESC") == some[::-1]
            assert sorted(rows(c, "SELECT id, s FROM t")) == some
            assert rows(c, "SELECT COUNT(*) FROM t") == [(12_000,)], "the next statement is answered as ever"
        goes = server.at(1)
        goes._execute_command(3, "SELECT id + 1 AS n, s FROM t")
        goes._force_close()
        assert sorted(rows(b, "SELECT id, s FROM t WHERE id <> 5")) == [r for r in some if r[0] != 5]
        server.embedded.run(_has_room(server))
    server.embedded.run(far.end())


async def _has_room(server: LocalServer) -> None:
    while server.executor.reads.room.reserved:
        gc.collect()
        await asyncio.sleep(0)


def test_a_kill_reaches_every_front_end(server: LocalServer) -> None:
    with closing(server.at(0)) as a, closing(server.at(1)) as b:
        rows(a, f"KILL {b.thread_id()}")
        with pytest.raises(pymysql.MySQLError):
            rows(b, "SELECT 1")
        with pytest.raises(pymysql.MySQLError, match="Unknown thread id"):
            rows(a, f"KILL {b.thread_id()}")
        with pytest.raises(pymysql.MySQLError, match="Unknown thread id"):
            a.kill(b.thread_id())


def test_one_that_cannot_be_forked_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "AGAIN_S", 0.01)

    async def test() -> None:
        fronts = controller.Fronts(1, "", StartServing("", 0, (), 0, 0, 0, 0, "", None),
                                   *(None,) * 2)
        starts, third = list[int](), asyncio.Event()

        async def process(number: int, path: str) -> tuple[int, int]:
            starts.append(number)
            if len(starts) == 2:
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            if len(starts) == 3:
                third.set()
                await asyncio.Event().wait()
            return 1, 0

        monkeypatch.setattr(fronts, "_process", process)
        keeper = asyncio.ensure_future(fronts._keep(0, ""))
        await asyncio.wait((keeper, asyncio.ensure_future(third.wait())), timeout=20,
                           return_when=asyncio.FIRST_COMPLETED)
        assert starts == [0, 0, 0]
        keeper.cancel()

    asyncio.run(test())


def test_what_a_replica_was_told_of_own_writes() -> None:
    """Of a view below an exchange, up to which writes; of one that is gone nothing."""
    replica = Replica(1, 2)
    assert replica.has(0, "v", {1: (5, None)})
    replica.routes.learn((("v", (0,), 1),))
    assert not replica.has(0, "v", {1: (5, None)}) and replica.has(1, "v", {1: (5, None)})
    replica.saw("v", 0, {1: (5, None)})
    assert replica.has(0, "v", {1: (5, None)}) and replica.has(0, "v", {1: (4, None), 0: (9, None)})
    assert not replica.has(0, "v", {1: (6, None)})
    replica.saw("v", 0, {1: (3, None)})
    assert replica.has(0, "v", {1: (5, None)})
    replica.forget("v")
    replica.routes.learn((("v", (0,), 2),))
    assert not replica.has(0, "v", {1: (5, None)})


def test_logins_are_counted_for_all_and_addresses_blocked_by_all(server: LocalServer) -> None:
    guard = server.embedded.sessions.guard
    with closing(server.at(0)) as a, closing(server.at(1)) as b:
        assert rows(b, "SELECT @@max_connect_errors, @@GLOBAL.max_connect_errors") == [(100, 100)]
        rows(a, "SET GLOBAL max_connect_errors = 2")
        assert rows(b, "SHOW VARIABLES LIKE 'max_connect_errors'") == [("max_connect_errors", "2")]
        fronts = server.mysql
        assert isinstance(fronts, LocalFronts)
        for front in fronts.fronts.values():
            assert front.sessions.guard.max_connect_errors == 2
            front.sessions.guard.interrupted("10.0.0.1")
            front.sessions.guard.interrupted("10.0.0.1")
            with pytest.raises(SqlError, match="is blocked"):
                front.sessions.guard.check_host("10.0.0.1")
        with pytest.raises(pymysql.MySQLError, match="Access denied"):
            pymysql.connect(host="127.0.0.1", port=fronts.address[1], user="root", password="wrong", ssl_disabled=True)
        for front in fronts.fronts.values():
            server.embedded.run(counted(front))
        rows(b, "FLUSH HOSTS")
        rows(a, "SELECT 1"), rows(b, "SELECT 1")
        assert guard.numbers["login_failures_total"] == 1
        assert guard.numbers["blocked_connections_total"] == 2
        for front in fronts.fronts.values():
            front.sessions.guard.check_host("10.0.0.1")
        for text, code in (("SET max_connect_errors = 3", 1229), ("SET GLOBAL max_connect_errors = 'x'", 1232)):
            with pytest.raises(pymysql.MySQLError) as refused:
                rows(a, text)
            assert refused.value.args[0] == code
        rows(a, "SET GLOBAL max_connect_errors = 0")
        assert rows(a, "SHOW WARNINGS") == [("Warning", 1292, "Truncated incorrect max_connect_errors value: '0'")]
        rows(a, "SET GLOBAL max_connect_errors = DEFAULT")
        assert guard.max_connect_errors == 100


async def counted(front: Any) -> None:
    front._count()
