"""Front ends on other hosts: what they ask goes together, and neither end is hurt by the other's silence or end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

from e2e.local import LocalFar, LocalFronts, LocalServer
from e2e.serving import rows, until
from noria.dataflow.messages.packets import Envelope
from noria.runtime.transport import wire
from noria.server.fronts import controller, far, front_end_link, messages
from noria.server.fronts.message_codec import KINDS, MESSAGES

KEYS = 40


@pytest.fixture
def front(server: LocalServer) -> Iterator[LocalFar]:
    made = server.far()
    with closing(client(server, made)) as c:
        rows(c, "CREATE TABLE t (id INT PRIMARY KEY, a INT, s VARCHAR(20))")
        rows(c, "INSERT INTO t VALUES " + ", ".join(f"({i}, {i % KEYS}, 'x{i}')" for i in range(4 * KEYS)))
        rows(c, "CREATE VIEW v AS SELECT a, s, id FROM t WHERE a = ? ORDER BY id")
    yield made
    server.embedded.run(made.end())


def client(server: LocalServer, front: LocalFar) -> Any:
    return server.connect(front.ready.result()[1])


def fronts_of(server: LocalServer) -> LocalFronts:
    assert isinstance(server.mysql, LocalFronts)
    return server.mysql


def soon(server: LocalServer, do: Any, *arguments: Any) -> None:
    server.embedded.loop.call_soon_threadsafe(do, *arguments)


def wanted(key: int) -> list[Any]:
    return [(key, f"x{i}", i) for i in range(key, 4 * KEYS, KEYS)]


def test_many_clients_ask_together(server: LocalServer, front: LocalFar) -> None:
    """Each has its own rows, whether its keys are there, missing, none at all or gone meanwhile."""
    looks: list[messages.LookupKeys] = []
    send = front.looks._send
    front.looks._send = lambda look: (looks.append(look), send(look))
    wrong: list[Any] = []

    def reads(number: int) -> None:
        with closing(client(server, front)) as c:
            for turn in range(60):
                key = (number * 7 + turn) % (KEYS + 3)
                found = rows(c, "SELECT * FROM v WHERE a = %s", (key,))
                if found != (wanted(key) if key < KEYS else []):
                    wrong.append((key, found))
                if turn == 30 and number == 0:
                    server.evict()

    threads = [threading.Thread(target=reads, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert max(len(keys) for look in looks for _, _, keys in look.lookups) >= 8, "some were found all at once"
    until("it has counted them", lambda: fronts_of(server).stats()[2]["reads_total"])


def test_own_writes_and_what_it_was_told_before(server: LocalServer, front: LocalFar) -> None:
    with closing(client(server, front)) as a, closing(server.at(0)) as near:
        for n in range(30):
            rows(a, "INSERT INTO t VALUES (%s, 1000, 'new')", (1_000 + n,))
            assert len(rows(a, "SELECT * FROM v WHERE a = 1000")) == n + 1
        rows(near, "CREATE OR REPLACE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a")
        assert rows(a, "SELECT * FROM v WHERE a = 1000") == [(1000, 30)]
        rows(a, "DROP VIEW v")
        with pytest.raises(pymysql.MySQLError, match="v"):
            rows(near, "SELECT * FROM v WHERE a = 1000")


def test_a_lost_line_is_told_and_made_again(server: LocalServer, front: LocalFar) -> None:
    """Idle clients are told with the next statement; a lock is not held for who is gone."""
    idle, holder = client(server, front), client(server, front)
    number = idle.thread_id()
    rows(holder, "LOCK TABLES t WRITE")
    (there,) = fronts_of(server)._far.lines.values()
    soon(server, there.end)
    with closing(idle), closing(holder), closing(server.at(0)) as near:
        for c in (idle, holder):
            with pytest.raises(pymysql.MySQLError, match=r"The server at the server:1, .* not reached") as told:
                until("it is told", lambda c=c: rows(c, "SELECT 1") and None)
            assert told.value.args[0] == 1053
        rows(near, "INSERT INTO t VALUES (-1, -1, '')")
        again = until("it is reached again", lambda: reached(server, front))
        with closing(again):
            assert again.thread_id() > number and rows(again, "SELECT COUNT(*) FROM t WHERE id = -1") == [(1,)]


def reached(server: LocalServer, front: LocalFar) -> Any:
    try:
        return client(server, front)
    except pymysql.MySQLError as e:
        assert e.args[0] == 1053
        return None


def test_kill_reaches_it(server: LocalServer, front: LocalFar) -> None:
    with closing(client(server, front)) as a, closing(server.at(0)) as near:
        assert a.thread_id() >= controller.FAR_NUMBERS
        rows(near, f"KILL {a.thread_id()}")
        with pytest.raises(pymysql.MySQLError):
            until("hung up", lambda: rows(a, "SELECT 1") and None)


async def _opened(server: LocalServer, *said: Any) -> Any:
    reader, writer = await asyncio.open_unix_connection(str(server.embedded.run_dir / "fronts.sock"))
    for message in said:
        writer.write(wire.encode(Envelope(0, 0, 0, message), MESSAGES))
    return reader, writer


async def _received(reader: asyncio.StreamReader) -> list[Any]:
    """All that is said until the end."""
    messages_of, received = wire.FrameDecoder(MESSAGES, KINDS), []
    while data := await reader.read(2**16):
        received += [item.body for item in messages_of.feed(data) if isinstance(item, Envelope)]
    return received


def test_who_may_not_join_is_told_why(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "FAR_FRONT_ENDS", 1)

    async def test() -> None:
        reader, _ = await _opened(server, messages.RegisterFrontEnd(0, "0.0.1"))
        (refused,) = await _received(reader)
        assert "run one release throughout" in refused.why
        first = await _opened(server, messages.RegisterFrontEnd(0, far.__version__))
        await first[0].read(1)
        reader, _ = await _opened(server, messages.RegisterFrontEnd(0, far.__version__))
        (refused,) = await _received(reader)
        assert "that is the most" in refused.why
        first[1].transport.abort()

    server.embedded.run(test())


def test_one_that_says_nothing_and_one_that_reads_nothing_are_given_up(
        server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others go on meanwhile, changes of the program too."""
    monkeypatch.setattr(controller, "FRONT_SILENT_S", 0.4)
    monkeypatch.setattr(controller, "BEAT_S", 0.1)
    monkeypatch.setattr(front_end_link, "FRONT_UNREAD_S", 0.2)

    async def silent() -> None:
        reader, _ = await _opened(server, messages.RegisterFrontEnd(0, far.__version__))
        received = await asyncio.wait_for(_received(reader), 20)
        assert isinstance(received[0], messages.StartServing) and isinstance(received[-1], messages.Heartbeat)

    async def deaf() -> asyncio.StreamWriter:
        """It asks and asks, says that it is there, and reads nothing."""
        reader, writer = await _opened(server, messages.RegisterFrontEnd(0, far.__version__))
        reader._transport.pause_reading()
        look = messages.LookupKeys(1, 0, (("none", 0, tuple((n,) for n in range(20_000))),))
        with pytest.raises((ConnectionError, asyncio.TimeoutError)):
            for _ in range(20_000):
                writer.write(wire.encode(Envelope(0, 0, 0, look), MESSAGES))
                await asyncio.wait_for(writer.drain(), 20)
        return writer

    server.embedded.run(silent())
    writer = server.embedded.run(deaf())
    assert not fronts_of(server)._far.lines
    with closing(server.at(0)) as near:
        rows(near, "CREATE TABLE u (id INT PRIMARY KEY)")
    soon(server, writer.transport.abort)


def test_a_server_that_says_nothing_is_given_up(server: LocalServer, front: LocalFar, monkeypatch: pytest.MonkeyPatch
                                                ) -> None:
    monkeypatch.setattr(far, "FRONT_SILENT_S", 0.3)
    with closing(client(server, front)) as c:
        until("its sessions are over", lambda: not len(front.sessions))
        with pytest.raises(pymysql.MySQLError, match="nothing was heard of it for"):
            rows(c, "SELECT 1")
