"""Large replies: chunks are made as the client reads them, others go on meanwhile, and the room is given back."""

from __future__ import annotations

import gc
import socket
import threading
from typing import Any

import pyarrow as pa
import pytest

from noria.core.errors import SqlError
from noria.core.limits import OFF_LOOP_ROWS
from noria.core.types import BIGINT, TEXT, Field
from noria.runtime.link.result_memory import ResultMemory
from noria.server.mysql import codec, encode_result
from noria.server.mysql.chunks import Renumbered, chunks_of
from noria.server.mysql.rows import encode_chunks
from noria.server.mysql.streaming import EncodedStream
from noria.server.outcomes import FailedStatement, Ok, Outcome, ResultSet, Streamed
from noria.server.rows import LargeRows
from noria.server.sessions.running import RunningStatement
from server.mysql.mysql_fakes import BASE, DEPRECATE_EOF, RawClient, Serving, packet, serves_on

FIELDS = (Field("n", BIGINT), Field("t", TEXT))
ROWS = 40_000  # of some 500 bytes


class Watched(LargeRows):
    """Counts the rows that were made."""

    made = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.made += len(found) if isinstance(at, slice) else 1
        return found


def watched(rows: int = ROWS, lease: Any = None) -> Watched:
    table = pa.table({"n": list(range(rows)), "t": [f"{i:0500}" for i in range(rows)], "__key": [0] * rows})
    return Watched(table, 2, lease)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("deprecate_eof", [False, True])
@pytest.mark.parametrize("first", [1, 254])
def test_the_chunks_are_the_whole_reply(binary: bool, deprecate_eof: bool, first: int) -> None:
    rows = watched(3_000)
    rows.chunk_rows = 128
    chunks = list(encode_chunks(FIELDS, rows, binary, deprecate_eof, 2, 3, first))
    assert b"".join(chunks) == encode_result(FIELDS, list(rows), binary, deprecate_eof, 2, 3, first)
    assert len(chunks) == 2 + 24 and max(map(len, chunks)) < 128 * 600


def test_rows_are_made_when_they_are_looked_at() -> None:
    rows = watched(3_000)
    assert len(rows) == 3_000 and not rows.made
    assert rows[5] == (5, f"{5:0500}") and rows[-1][0] == 2_999 and rows[10:20:3] == list(rows)[10:20:3]
    with pytest.raises(IndexError):
        rows[3_000]
    assert list(rows) == list(zip(range(3_000), (f"{i:0500}" for i in range(3_000)), strict=True))


def test_several_outcomes_are_numbered_through() -> None:
    outcomes: list[Outcome] = [Ok(3), ResultSet(FIELDS, watched(2_000)), ResultSet(FIELDS, [(1, "a")])]
    whole = b"".join(chunks_of(outcomes, False, True, 2))
    at, numbers = 0, list[int]()
    while at < len(whole):
        numbers.append(whole[at + 3])
        at += 4 + int.from_bytes(whole[at:at + 3], "little")
    assert numbers == [(n + 1) & 255 for n in range(len(numbers))] and len(numbers) == 1 + 2_004 + 5
    renumbered: list[bytes | None] = []
    stream = Renumbered(EncodedStream(chunks_of(outcomes, False, True, 2)), 9)
    while not renumbered or renumbered[-1] is not None:
        stream.pull(renumbered.append)
    assert b"".join(p for p in renumbered if p is not None) == b"".join(chunks_of(outcomes, False, True, 2, 9))


def test_a_reply_that_is_stopped_ends_with_an_error() -> None:
    running = RunningStatement(lambda write: None)
    running.begin("SELECT 1")
    running.end()
    rows = [(i,) for i in range(9_000)]
    chunks = chunks_of([ResultSet(FIELDS[:1], rows), ResultSet(FIELDS[:1], rows)], False, True, 2, 1, running.sending())
    first = next(chunks) + next(chunks)
    assert (running.text, running.state, running.command) == ("SELECT 1", "sending rows", "Query")
    running.stop(SqlError(1317, "70100", "Query execution was interrupted"))
    (last,) = chunks
    assert last[3] == codec.count_packets(first) + 1 & 255 and last[4] == 0xFF and b"interrupted" in last
    assert running.command == "Sleep" and running._why is None
    with running.sending() as stopped:
        assert stopped() is None, "the next one"


def test_a_reply_that_nobody_wants_is_sent_no_more() -> None:
    running = RunningStatement(lambda write: None)
    chunks = EncodedStream(chunks_of([ResultSet(FIELDS[:1], [(1,)] * 9_000)], False, True, 2, 1, running.sending()))
    chunks.pull(lambda chunk: None)
    assert running.command == "Query"
    chunks.close()
    assert running.command == "Sleep"


def test_a_client_that_does_not_read_holds_a_chunk_and_others_go_on(serving: Serving) -> None:
    rows = watched()
    serving.backend.answers["BIG"] = ResultSet(FIELDS, rows)
    with RawClient(serving.port) as client:
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        client.login(flags=BASE | DEPRECATE_EOF)
        client.send(b"\x03BIG")
        assert client.receive() == (1, b"\x02")
        for _ in range(3):
            serves_on(serving)
        (waiting,) = [c for c in serving.server.connections if c._stream is not None]
        assert rows.made < ROWS / 2 and waiting._transport.get_write_buffer_size() < 2**20
        client.sock.sendall(packet(b"\x0e"))  # waits for the end of the rows
        for n in range(2 + ROWS):
            seq, payload = client.receive()
            assert seq == (n + 2) & 255 and payload
        assert client.receive()[1][:1] == b"\xfe"
        assert client.receive() == (1, client_ok())
    assert rows.made == ROWS


def client_ok() -> bytes:
    return b"\0\0\0\x02\0\0\0"


@pytest.mark.parametrize("how", ["goes", "is silent", "is killed"])
def test_the_room_is_given_back_with_the_client(serving: Serving, how: str) -> None:
    room = ResultMemory(10**9)

    async def big() -> ResultSet:
        lease = room.lease()
        await lease.cover(12_345)
        return ResultSet(FIELDS, watched(lease=lease))

    async def look() -> None:
        for connection in tuple(serving.server.connections):
            if connection._full and how == "is silent":
                connection.reads(connection._transport.get_write_buffer_size())
            elif connection._stream is not None and how == "is killed":
                serving.server.hang_up(connection.number)
        gc.collect()

    serving.backend.answers["BIG"] = big
    with RawClient(serving.port) as client:
        client.login(flags=BASE | DEPRECATE_EOF).send(b"\x03BIG")
        assert client.receive() == (1, b"\x02")
        assert room.reserved == 12_345
        if how == "goes":
            client.sock.shutdown(socket.SHUT_RDWR)
        paused = threading.Event()
        while room.reserved:
            serving.call(look)
            paused.wait(0.01)
    serves_on(serving)


def test_rows_that_are_values_already_leave_in_chunks(serving: Serving) -> None:
    rows = [(n, "x") for n in range(OFF_LOOP_ROWS + 1)]
    serving.backend.answers["BIG"] = ResultSet(FIELDS, rows)
    with RawClient(serving.port) as client:
        client.login(flags=BASE | DEPRECATE_EOF).send(b"\x03BIG")
        received = [client.receive()[1] for _ in range(len(rows) + 4)]
    assert received[3] == b"\x010\x01x" and received[-1][:1] == b"\xfe"


def test_a_large_reply_that_cannot_be_made_costs_its_connection(serving: Serving, caplog: pytest.LogCaptureFixture
                                                                 ) -> None:
    rows = [(n, "x") for n in range(OFF_LOOP_ROWS)] + [(object(), "no number")]
    serving.backend.answers["BIG"] = ResultSet(FIELDS, rows)
    with RawClient(serving.port) as client:
        client.login(flags=BASE | DEPRECATE_EOF).send(b"\x03BIG")
        while client.receive()[0] >= 0:
            pass
    assert "could not be made" in caplog.text
    serves_on(serving)


def test_a_stream_of_another_process(serving: Serving) -> None:
    whole = [ResultSet(FIELDS, [(1, "a")]), FailedStatement(_error())]
    serving.backend.answers["BIG"] = Streamed(EncodedStream(chunks_of(whole, False, True, 2)))
    with RawClient(serving.port) as client:
        client.login(flags=BASE | DEPRECATE_EOF).send(b"\x03BIG")
        received = [client.receive() for _ in range(6)]
    assert [seq for seq, _ in received] == [1, 2, 3, 4, 5, 6] and received[-1][1][:1] == b"\xff"


def _error() -> Any:
    from noria.core.errors import parse_error

    return parse_error("near 'x'")
