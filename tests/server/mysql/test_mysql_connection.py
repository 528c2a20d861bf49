"""Sockets: order, back-pressure, bounds, silence, clients that vanish, bugs in the backend, closing."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from noria.core.errors import SqlError
from noria.core.types import BIGINT, TEXT, Field
from noria.server.mysql import MysqlLimits, codec, encode_result
from noria.server.outcomes import Ok, ResultSet
from server.mysql.mysql_fakes import BASE, FakeBackend, RawClient, Serving, packet, read_error, serves_on

FIELDS = [Field("n", BIGINT)]


@contextmanager
def bounded(backend: FakeBackend, bounds: MysqlLimits) -> Iterator[Serving]:
    with Serving(backend, bounds=bounds) as serving:
        yield serving


def test_commands_byte_by_byte(serving: Serving) -> None:
    serving.backend.answers["A"] = Ok(9)
    with RawClient(serving.port) as client:
        client.login()
        for byte in packet(b"\x03A"):
            client.sock.sendall(bytes([byte]))
        assert client.receive() == (1, codec.ok(9, 0, 2, 0))


def test_pipelined_commands_are_answered_in_order(serving: Serving) -> None:
    """Also when an early one waits and later ones would not have to."""
    gate = serving.call(_event)

    async def slow() -> Ok:
        await gate.wait()
        return Ok(1)

    serving.backend.answers |= {"SLOW": slow, "QUICK": Ok(2), "BAD": SqlError(1146, "42S02", "gone")}
    with RawClient(serving.port) as client:
        client.login()
        client.sock.sendall(b"".join(packet(b"\x03" + q) for q in (b"QUICK", b"SLOW", b"QUICK", b"BAD", b"SLOW")))
        assert client.receive() == (1, codec.ok(2, 0, 2, 0))
        client.sock.sendall(packet(b"\x0e"))
        serving.loop.call_soon_threadsafe(gate.set)
        expected = [codec.ok(1, 0, 2, 0), codec.ok(2, 0, 2, 0), b"\xff", codec.ok(1, 0, 2, 0), codec.ok(0, 0, 2, 0)]
        for want in expected:
            seq, got = client.receive()
            assert seq == 1 and got.startswith(want)


async def _event() -> asyncio.Event:
    return asyncio.Event()


def test_errors_that_come_later(serving: Serving) -> None:
    async def late() -> Ok:
        raise SqlError(1205, "HY000", "too late")

    serving.backend.answers["LATE"] = late
    with RawClient(serving.port) as client:
        assert client.login().ask_error(b"\x03LATE") == (1205, "too late")
        assert client.command(b"\x0e")[0] == 0


@pytest.mark.parametrize("later", [False, True])
def test_a_bug_is_its_commands_error_and_is_logged(serving: Serving, later: bool,
                                                   caplog: pytest.LogCaptureFixture) -> None:
    def now() -> Ok:
        raise RuntimeError("the backend is broken")

    async def soon() -> Ok:
        return now()

    serving.backend.answers["BUG"] = soon if later else now
    with RawClient(serving.port) as client:
        code, message = client.login().ask_error(b"\x03BUG")
        assert code == 1105 and "M1.1" in message and "broken" not in message
        assert client.ask_error(b"\x03BUG")[0] == 1105  # the connection goes on
    assert "the backend is broken" in caplog.text and "internal error M1.1" in caplog.text
    serves_on(serving)


@pytest.mark.parametrize("sent", [b"", b"\x05", packet(b"\x03SELECT")[:-2], struct.pack("<I", 0xFFFFFF) + bytes(9000)])
def test_a_client_that_vanishes_mid_packet(serving: Serving, sent: bytes) -> None:
    client = RawClient(serving.port).login()
    session = serving.backend.sessions[-1]
    client.sock.sendall(sent)
    client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.__exit__()
    assert session.closed.wait(20)
    serves_on(serving)


def test_a_client_that_vanishes_before_its_answer(serving: Serving) -> None:
    gate, done = serving.call(_event), serving.call(_event)

    async def slow() -> Ok:
        await gate.wait()
        done.set()
        return Ok()

    serving.backend.answers["SLOW"] = slow
    client = RawClient(serving.port).login()
    session = serving.backend.sessions[-1]
    client.send(b"\x03SLOW")
    client.__exit__()
    assert session.closed.wait(20)
    serving.loop.call_soon_threadsafe(gate.set)
    serving.call(done.wait)
    serves_on(serving)


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\nHost: noria\r\n\r\n", bytes(100), b"\xff" * 100])
def test_who_does_not_speak_the_protocol(serving: Serving, junk: bytes) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.sock.sendall(junk)
        client.sock.shutdown(socket.SHUT_WR)
        seq, reply = client.receive()
        assert seq == -1 or read_error(reply)[0] in (1156, 1835, 1251, 1153)
    serves_on(serving)


def test_pieces_misnumbered(serving: Serving) -> None:
    with RawClient(serving.port) as client:
        client.login()
        client.sock.sendall(struct.pack("<I", 0xFFFFFF) + bytes(0xFFFFFF) + packet(b"", 5))
        assert read_error(client.receive()[1])[0] == 1156
        assert client.receive() == (-1, b"")


def test_a_packet_larger_than_allowed(backend: FakeBackend) -> None:
    with bounded(backend, MysqlLimits(packet_bytes=1000)) as serving, RawClient(serving.port) as client:
        backend.answers["A"] = Ok(5)
        client.login()
        client.sock.sendall(packet(b"\x03" + bytes(1000)) + packet(b"\x03A"))
        assert read_error(client.receive()[1])[0] == 1153
        assert client.receive() == (1, codec.ok(5, 0, 2, 0))


def test_a_large_handshake_is_refused(serving: Serving) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.send(bytes(100_000), 1)
        assert read_error(client.receive()[1])[0] == 1153
        assert client.receive() == (-1, b"")


def test_more_than_16_mb_both_ways(serving: Serving) -> None:
    size = 17 * 2**20
    serving.backend.answers["BIG"] = ResultSet([Field("t", TEXT)], [("x" * size,)])
    with RawClient(serving.port) as client:
        client.login(flags=BASE | 1 << 24)
        text = b"\x03BIG" + b" " * size
        client.sock.sendall(codec.frame(text, 0))
        unframer, got = codec.Unframer(2**30), []
        while len(got) < 4:
            unframer.feed(client.sock.recv(1 << 20))
            got += iter(unframer.next, None)
        assert got[0].first == 2  # two packets came
        assert got[2].payload == codec.lenenc(b"x" * size) and got[3].payload[0] == 0xFE


def test_who_does_not_read_is_not_read_from(serving: Serving) -> None:
    """Replies of 64 MB to one pipelining client: the server holds only a few of them, and serves others."""
    rows = ResultSet([Field("t", TEXT)], [("x" * 2**20,)])
    answered = []

    def big() -> ResultSet:
        answered.append(1)
        return rows

    serving.backend.answers["BIG"] = big
    with RawClient(serving.port) as client:
        client.login(flags=BASE | 1 << 24)
        client.sock.sendall(packet(b"\x03BIG") * 64)
        first = client.receive()
        serves_on(serving)
        assert first == (1, b"\x01") and len(answered) < 32
        for _ in range(64 * 4 - 1):
            assert client.receive()[0] > 0
    assert len(answered) == 64


def test_too_many_connections(backend: FakeBackend) -> None:
    with bounded(backend, MysqlLimits(connections=1)) as serving:
        with RawClient(serving.port) as client:
            client.login()
            with RawClient(serving.port) as late:
                assert read_error(late.receive()[1])[0] == 1040
                assert late.receive() == (-1, b"")
            assert client.command(b"\x0e")[0] == 0
            session = backend.sessions[-1]
        assert session.closed.wait(20)
        serves_on(serving)


@pytest.mark.parametrize("begun", [b"", packet(b"\x85\xa6", 1)[:-1]])
def test_who_never_logs_in_is_hung_up_on(serving: Serving, begun: bytes) -> None:
    with RawClient(serving.port) as client:
        client.greeting()
        client.sock.sendall(begun)
        look(serving)
        assert client.receive() == (-1, b"")


def test_the_login_timer_runs(backend: FakeBackend) -> None:
    with bounded(backend, MysqlLimits(handshake_s=0.01)) as serving, RawClient(serving.port) as client:
        client.greeting()
        assert client.receive() == (-1, b"")


def look(serving: Serving) -> None:
    """What the timer of every connection does."""

    async def at_all() -> None:
        for connection in tuple(serving.server.connections):
            connection.look()

    serving.call(at_all)


def test_who_is_silent_is_hung_up_on(serving: Serving) -> None:
    with RawClient(serving.port) as silent, RawClient(serving.port) as lively:
        silent.login()
        lively.login()
        look(serving)
        assert lively.command(b"\x0e")[0] == 0
        look(serving)
        assert silent.receive() == (-1, b"")
        assert lively.command(b"\x0e")[0] == 0


def stalls(serving: Serving, received: int | None = None) -> None:
    """What the timer of a begun packet does; received: bytes at its last look (None: as many as now)."""

    async def at_all() -> None:
        for connection in tuple(serving.server.connections):
            if connection._stalled is not None:
                connection.goes_on(connection._received if received is None else received)

    serving.call(at_all)


def begun(serving: Serving) -> bool:
    return any(c._stalled is not None for c in tuple(serving.server.connections))


def until_begun(serving: Serving, received: int = 0) -> None:
    """It comes about on the server's thread."""
    paused = threading.Event()
    while not any(c._stalled is not None and c._received >= received for c in tuple(serving.server.connections)):
        paused.wait(0.01)


def test_a_packet_that_does_not_go_on(serving: Serving) -> None:
    with RawClient(serving.port) as stuck, RawClient(serving.port) as lively:
        lively.login()
        stuck.login()
        stuck.sock.sendall(packet(b"\x03SELECT" + bytes(10_000))[:100])
        until_begun(serving)
        stalls(serving)
        assert stuck.receive() == (-1, b"")
        assert lively.command(b"\x0e")[0] == 0


def test_a_packet_that_goes_on_is_waited_for(serving: Serving) -> None:
    serving.backend.answers["A"] = Ok(9)
    with RawClient(serving.port) as client:
        client.login()
        sent = packet(b"\x03A" + b" " * 10_000)
        client.sock.sendall(sent[:5000])
        until_begun(serving, 5000)
        stalls(serving, 0)
        client.sock.sendall(sent[5000:])
        assert client.receive() == (1, codec.ok(9, 0, 2, 0))
        stalls(serving)
        assert not begun(serving), "a whole packet ends the watch"
        assert client.command(b"\x0e")[0] == 0


def test_the_timer_of_a_begun_packet_runs(backend: FakeBackend) -> None:
    with bounded(backend, MysqlLimits(stall_s=0.05)) as serving, RawClient(serving.port) as client:
        client.login()
        client.sock.sendall(b"\x05")
        assert client.receive() == (-1, b"")


def test_a_begun_packet_may_wait_for_an_answer(serving: Serving) -> None:
    gate = serving.call(_event)

    async def slow() -> Ok:
        await gate.wait()
        return Ok(3)

    serving.backend.answers |= {"SLOW": slow, "A": Ok(9)}
    with RawClient(serving.port) as client:
        client.login()
        following = packet(b"\x03A")
        client.sock.sendall(packet(b"\x03SLOW") + following[:3])
        until_begun(serving)
        stalls(serving)
        stalls(serving)
        serving.loop.call_soon_threadsafe(gate.set)
        assert client.receive() == (1, codec.ok(3, 0, 2, 0))
        client.sock.sendall(following[3:])
        assert client.receive() == (1, codec.ok(9, 0, 2, 0))


def test_who_does_not_read_at_all_is_hung_up_on(serving: Serving) -> None:
    serving.backend.answers["BIG"] = ResultSet([Field("t", TEXT)], [("x" * 2**25,)])
    paused = threading.Event()

    async def reads() -> None:
        for connection in tuple(serving.server.connections):
            if connection._full:
                connection.reads(connection._transport.get_write_buffer_size())

    with RawClient(serving.port) as client:
        client.login()
        session = serving.backend.sessions[-1]
        client.send(b"\x03BIG")
        while not session.closed.is_set():
            serving.call(reads)
            paused.wait(0.01)
    serves_on(serving)


def test_who_waits_for_an_answer_is_not_silent(serving: Serving) -> None:
    gate, begun = serving.call(_event), serving.call(_event)

    async def slow() -> Ok:
        begun.set()
        await gate.wait()
        return Ok(3)

    serving.backend.answers["SLOW"] = slow
    with RawClient(serving.port) as client:
        client.login().send(b"\x03SLOW")
        serving.call(begun.wait)
        for _ in range(3):
            look(serving)
        serving.loop.call_soon_threadsafe(gate.set)
        assert client.receive() == (1, codec.ok(3, 0, 2, 0))


def test_closing_lets_running_commands_finish(backend: FakeBackend) -> None:
    with Serving(backend) as serving:
        gate, begun = serving.call(_event), serving.call(_event)

        async def slow() -> Ok:
            begun.set()
            await gate.wait()
            return Ok(3)

        backend.answers["SLOW"] = slow
        with RawClient(serving.port) as idle, RawClient(serving.port) as busy:
            idle.login()
            busy.login().send(b"\x03SLOW")
            serving.call(begun.wait)
            serving.loop.call_soon_threadsafe(serving.server.close)
            assert idle.receive() == (-1, b"")
            serving.loop.call_soon_threadsafe(gate.set)
            assert busy.receive() == (1, codec.ok(3, 0, 2, 0)) and busy.receive() == (-1, b"")
        serving.call(serving.server.wait_closed)
        with pytest.raises(ConnectionRefusedError):
            RawClient(serving.port)


def test_cached_replies_leave_at_once(serving: Serving) -> None:
    cached = encode_result(FIELDS, [(42,)], False, False)
    serving.backend.replies.kept[b"SELECT 42"] = cached
    with RawClient(serving.port) as client:
        client.login().send(b"\x03SELECT 42")
        assert client.stream.read(len(cached)) == cached
