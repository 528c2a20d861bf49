"""Commands and their replies, packet by packet: what each state allows, prepared statements, several results."""

from __future__ import annotations

import asyncio
import struct
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core import limits
from noria.core.errors import SqlError
from noria.core.types import BIGINT, TEXT, Field
from noria.server.logins import LoginGuard
from noria.server.mysql import auth, codec, encode_result
from noria.server.mysql.codec import Packet
from noria.server.mysql.session import Conversation, ConversationState, PendingReply
from noria.server.outcomes import (
    Client,
    Encoded,
    Entry,
    FailedStatement,
    Ok,
    PendingOutcome,
    ReadVersion,
    ResultSet,
)
from server.mysql import mysql_fakes as fakes
from server.mysql.mysql_fakes import FakeBackend, RawClient, read_error

NONCE = bytes(range(1, 21))
READ = "SELECT n FROM t WHERE n = ?"
FIELDS = [Field("n", BIGINT, nullable=False)]


def greeted(backend: FakeBackend) -> Conversation:
    directory = auth.Directory(fakes.USERS, auth.ServerKey())
    return Conversation(backend, directory, 7, "here", NONCE, LoginGuard())


def ready(backend: FakeBackend, flags: int = fakes.BASE) -> Conversation:
    conversation = greeted(backend)
    token = fakes.native_token("lovelace", NONCE)
    reply = conversation.receive(Packet(1, 2, RawClient.response("ada", token, flags)))
    assert isinstance(reply, bytes) and reply[3:5] == b"\x02\0" and conversation.ready
    return conversation


def replies(packets: object, first: int = 1) -> list[bytes]:
    """Payloads of a reply numbered from `first`."""
    assert isinstance(packets, bytes)
    unframer, got = codec.Unframer(2**30), []
    unframer.feed(packets)
    while (packet := unframer.next()) is not None:
        assert packet.first == first + len(got)
        got.append(packet.payload)
    assert unframer.clean
    return got


def error_of(reply: object) -> tuple[int, str]:
    (payload,) = replies(reply)
    return read_error(payload)


def prepare(conversation: Conversation, sql: str) -> bytes:
    """The statement's id, as four bytes."""
    first = replies(conversation.command(b"\x16" + sql.encode()))[0]
    assert first[0] == 0, read_error(first)
    return first[1:5]


def execution(statement: bytes, parameters: bytes = b"") -> bytes:
    return b"\x17" + statement + b"\0" + struct.pack("<I", 1) + parameters


def number(value: int) -> bytes:
    return b"\0\1\x08\0" + struct.pack("<q", value)


@pytest.mark.parametrize("first", [0, 2, 255])
def test_a_handshake_out_of_order(backend: FakeBackend, first: int) -> None:
    conversation = greeted(backend)
    (payload,) = replies(conversation.receive(Packet(first, first + 1, b"x")))
    assert read_error(payload)[0] == 1156 and conversation.state is ConversationState.CLOSED


def test_a_command_out_of_order(backend: FakeBackend) -> None:
    conversation = ready(backend)
    assert read_error(replies(conversation.receive(Packet(1, 2, b"\x0e")), 2)[0])[0] == 1156
    assert conversation.closed


def test_an_oversized_command_is_refused_and_the_next_one_served(backend: FakeBackend) -> None:
    conversation = ready(backend)
    reply = conversation.receive(Packet(0, 5, b"", oversized=True))
    assert read_error(replies(reply, 5)[0])[0] == 1153
    assert replies(conversation.command(b"\x0e"))[0][0] == 0


@pytest.mark.parametrize("payload", [b"", b"\x05", b"\x0d", b"\x1c\0\0\0\0\0\0\0\0", b"\xff"])
def test_unknown_commands(backend: FakeBackend, payload: bytes) -> None:
    conversation = ready(backend)
    assert error_of(conversation.command(payload))[0] == 1047
    assert conversation.ready


def test_quit_ends_it(backend: FakeBackend) -> None:
    conversation = ready(backend)
    assert conversation.command(b"\x01") == b"" and conversation.closed


def test_what_the_backend_learns_of_the_client(backend: FakeBackend) -> None:
    conversation = greeted(backend)
    flags = fakes.BASE | fakes.DEPRECATE_EOF
    token = fakes.native_token("lovelace", NONCE)
    conversation.receive(Packet(1, 2, RawClient.response("ada", token, flags, "app")))
    assert backend.sessions[0].client == Client("ada", "app", 7, "here", True, True, {})


def test_an_unknown_database_refuses_the_client(backend: FakeBackend) -> None:
    conversation = greeted(backend)
    token = fakes.native_token("lovelace", NONCE)
    reply = conversation.receive(Packet(1, 2, RawClient.response("ada", token, database="nowhere")))
    assert read_error(replies(reply, 2)[0])[0] == 1049 and conversation.closed


def test_init_db(backend: FakeBackend) -> None:
    conversation = ready(backend)
    assert replies(conversation.command(b"\x02app"))[0][0] == 0
    assert error_of(conversation.command(b"\x02nowhere"))[0] == 1049
    assert backend.sessions[0].database == "app"


def test_text_that_is_not_utf8(backend: FakeBackend) -> None:
    conversation = ready(backend)
    assert error_of(conversation.command(b"\x03SELECT \xe9"))[0] == 1300 and conversation.ready


def test_the_ok_packet(backend: FakeBackend) -> None:
    backend.answers["INSERT"] = Ok(3, 1000, [("Note", 1, "")] * 2, "Records: 3")
    conversation = ready(backend)
    assert replies(conversation.command(b"\x03INSERT")) == [b"\0\x03\xfc\xe8\x03\x02\0\x02\0\nRecords: 3"]
    backend.sessions[0].status = 1
    assert replies(conversation.command(b"\x0e")) == [b"\0\0\0\x01\0\0\0"]


@pytest.mark.parametrize("flags", [fakes.BASE, fakes.BASE | fakes.DEPRECATE_EOF])
def test_several_statements(backend: FakeBackend, flags: int) -> None:
    eof = bool(flags & fakes.DEPRECATE_EOF)
    rows = ResultSet(FIELDS, [(1,)])
    backend.answers |= {"A": Ok(1), "B": rows, "C": Encoded(encode_result(FIELDS, [(2,)], False, eof)),
                        "D": FailedStatement(SqlError(1146, "42S02", "gone"))}
    conversation = ready(backend, flags)
    got = replies(conversation.command(b"\x03A; B; C; D"))
    middle = [] if eof else [codec.eof(2 | 8, 0)]
    ends = [codec.end_of_rows(2 | 8, 0, eof)]
    assert got[0] == codec.ok(1, 0, 2 | 8, 0)
    assert got[1] == b"\x01" and got[3:3 + len(middle)] == middle
    rows_at = 3 + len(middle)
    assert got[rows_at:rows_at + 2] == [b"\x011", *ends]
    assert got[-3:-1] == [b"\x012", *ends] and read_error(got[-1]) == (1146, "gone")
    assert conversation.ready
    assert replies(conversation.command(b"\x1b\x01\0")) == [codec.end_of_rows(2, 0, eof)]
    assert error_of(conversation.command(b"\x03A; B"))[0] == 1064
    assert error_of(conversation.command(b"\x1b\x07\0"))[0] == 1047


def test_field_list(backend: FakeBackend) -> None:
    backend.tables["t"] = [Field("n", BIGINT), Field("s", TEXT)]
    conversation = ready(backend)
    got = replies(conversation.command(b"\x04t\0%"))
    assert len(got) == 3 and got[2] == codec.eof(2, 0) and got[0].endswith(b"\xfb")
    assert error_of(conversation.command(b"\x04x\0"))[0] == 1146
    assert error_of(conversation.command(b"\x04x"))[0] == 1835 and conversation.closed


@pytest.mark.parametrize("flags", [fakes.BASE, fakes.BASE | fakes.DEPRECATE_EOF])
def test_prepare_says_parameters_and_columns(backend: FakeBackend, flags: int) -> None:
    backend.answers |= {READ: ResultSet(FIELDS, [(4,)]), "DELETE": Ok()}
    conversation = ready(backend, flags)
    ends = 0 if flags & fakes.DEPRECATE_EOF else 1
    got = replies(conversation.command(b"\x16" + READ.encode()))
    assert got[0] == struct.pack("<BIHHBH", 0, 1, 1, 1, 0, 0) and len(got) == 3 + 2 * ends
    got = replies(conversation.command(b"\x16DELETE"))
    assert got == [struct.pack("<BIHHBH", 0, 2, 0, 0, 0, 0)]
    assert error_of(conversation.command(b"\x16nonsense"))[0] == 1064
    assert len(replies(conversation.command(execution(b"\x01\0\0\0", number(5))))) == 4 + ends


def test_executions_remember_types_and_ask_the_cache(backend: FakeBackend) -> None:
    cached = encode_result(FIELDS, [(42,)], True, False)
    backend.answers[READ] = ResultSet(FIELDS, [(4,)])
    backend.replies.kept[number(2)] = cached
    conversation = ready(backend)
    statement = prepare(conversation, READ)
    conversation.command(execution(statement, number(1)))
    conversation.command(execution(statement, b"\0\0" + struct.pack("<q", 3)))
    assert backend.sessions[0].log == [(READ, [1]), (READ, [3])]
    assert conversation.command(execution(statement, number(2))) == cached
    assert conversation.command(execution(statement, b"\0\0" + struct.pack("<q", 2))) == cached
    assert len(backend.sessions[0].log) == 2
    backend.sessions[0].keepable = False
    assert conversation.command(execution(statement, number(2))) != cached, "as another session was told"


def test_what_stands_on_an_entry_is_kept_under_what_was_asked_and_its_form(backend: FakeBackend) -> None:
    stands = ReadVersion(cast(Entry, object()), 3)
    backend.answers |= {READ: ResultSet(FIELDS, [(4,)], (), stands), "SELECT 1": ResultSet(FIELDS, [(1,)], (), stands),
                        "SELECT 2": ResultSet(FIELDS, [(2,)])}
    conversation = ready(backend)
    conversation.command(b"\x03SELECT 1")
    conversation.command(b"\x03SELECT 2")
    conversation.command(execution(prepare(conversation, READ), number(1)))
    backend.sessions[0].status = 3
    conversation.command(b"\x03SELECT 1")
    conversation.receive(Packet(0, 3, b"\x03SELECT 1"))
    ready(backend, fakes.BASE | fakes.DEPRECATE_EOF).command(b"\x03SELECT 1")
    assert backend.replies.put_under == [(b"SELECT 1", 4), (fakes.NUMBER, number(1), 4), (b"SELECT 1", 6),
                                         (b"SELECT 1", 5)], "numbered from 1 only"


def test_cached_texts(backend: FakeBackend) -> None:
    cached = encode_result(FIELDS, [(42,)], False, False)
    backend.replies.kept[b"SELECT 42"] = cached
    conversation = ready(backend)
    assert conversation.command(b"\x03SELECT 42") == cached
    assert conversation.receive(Packet(0, 3, b"\x03SELECT 42")) == codec.renumber(cached, 3)


def test_statements_that_are_not_there(backend: FakeBackend) -> None:
    backend.answers["X"] = Ok()
    conversation = ready(backend)
    for command in (execution(b"\x09\0\0\0"), b"\x1a\x09\0\0\0", b"\x17", b"\x1a"):
        assert error_of(conversation.command(command))[0] == 1243
    assert conversation.command(b"\x19\x09\0\0\0") == b"" and conversation.command(b"\x18\x09\0\0\0\0\0x") == b""
    statement = prepare(conversation, "X")
    assert conversation.command(b"\x19" + statement) == b"" and backend.sessions[0].open == []
    assert error_of(conversation.command(execution(statement)))[0] == 1243 and conversation.ready


def test_long_data(backend: FakeBackend) -> None:
    sql = "INSERT ? ?"
    backend.answers[sql] = lambda *values: Ok()
    conversation = ready(backend)
    statement = prepare(conversation, sql)
    types = bytes((252, 0, 254, 0))

    def piece(parameter: int, data: bytes) -> bytes:
        return b"\x18" + statement + struct.pack("<H", parameter) + data

    for data in (b"ab", b"", b"cd"):
        assert conversation.command(piece(0, data)) == b""
    conversation.command(execution(statement, b"\0\1" + types + b"\2hi"))
    conversation.command(execution(statement, b"\0\1" + types + b"\1x\2hi"))
    conversation.command(piece(0, b"lost"))
    conversation.command(b"\x1a" + statement)
    conversation.command(execution(statement, b"\0\1" + types + b"\1y\2hi"))
    log = backend.sessions[0].log
    assert [entry[1] for entry in log] == [[b"abcd", "hi"], [b"x", "hi"], [b"y", "hi"]]
    conversation.command(piece(2, b"z"))
    assert error_of(conversation.command(execution(statement, b"\0\1" + types + b"\1y\2hi")))[0] == 1210
    assert replies(conversation.command(execution(statement, b"\0\1" + types + b"\1y\2hi")))[0][0] == 0


def test_long_data_is_bounded_over_all_statements(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_PACKET_BYTES", 100)
    backend.answers["INSERT ?"] = lambda *values: Ok()
    conversation = ready(backend)
    one, two = prepare(conversation, "INSERT ?"), prepare(conversation, "INSERT ?")
    run = b"\0\1\xfc\0"
    conversation.command(b"\x18" + one + b"\0\0" + bytes(60))
    conversation.command(b"\x18" + two + b"\0\0" + bytes(60))
    assert error_of(conversation.command(execution(two, run)))[0] == 1153
    assert replies(conversation.command(execution(one, run)))[0][0] == 0
    conversation.command(b"\x18" + two + b"\0\0" + bytes(60))
    assert replies(conversation.command(execution(two, run)))[0][0] == 0


def test_too_many_statements(backend: FakeBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MYSQL_STATEMENTS", 2)
    backend.answers["X"] = Ok()
    conversation = ready(backend)
    prepare(conversation, "X"), prepare(conversation, "X")
    assert error_of(conversation.command(b"\x16X"))[0] == 1461


def test_too_many_placeholders(backend: FakeBackend) -> None:
    sql = "INSERT " + "?," * 65_536
    backend.answers[sql] = Ok()
    assert error_of(ready(backend).command(b"\x16" + sql.encode()))[0] == 1390
    assert backend.sessions[0].open == []


def test_reset_connection(backend: FakeBackend) -> None:
    backend.answers["X"] = Ok()
    conversation = ready(backend)
    statement = prepare(conversation, "X")
    assert replies(conversation.command(b"\x1f"))[0][0] == 0
    session = backend.sessions[0]
    assert session.log == ["reset"] and session.open == [] and not session.closed.is_set()
    assert error_of(conversation.command(execution(statement)))[0] == 1243


def test_a_broken_execution_hangs_up(backend: FakeBackend) -> None:
    backend.answers[READ] = ResultSet(FIELDS, [])
    conversation = ready(backend)
    statement = prepare(conversation, READ)
    assert error_of(conversation.command(execution(statement, b"\0\1\x08\0" + bytes(3))))[0] == 1835
    assert conversation.closed


def done(value: object) -> asyncio.Future[object]:
    future: asyncio.Future[object] = asyncio.Future(loop=asyncio.new_event_loop())
    future.set_result(value)
    return future


def test_an_answer_that_a_future_settles(backend: FakeBackend) -> None:
    future = done(3)
    backend.answers["LATER"] = lambda: PendingOutcome(future, lambda f: Ok(f.result()))
    conversation = ready(backend)
    waiting = conversation.command(b"\x03LATER")
    assert isinstance(waiting, PendingReply) and waiting.awaitable is future
    (payload,) = replies(waiting.encode(future))
    assert payload[:2] == b"\0\3"


def test_answers_that_come_later(backend: FakeBackend) -> None:
    async def later() -> ResultSet:
        return ResultSet(FIELDS, [(1,)])

    backend.answers["LATER"] = later
    conversation = ready(backend)
    waiting = conversation.receive(Packet(0, 1, b"\x03LATER"))
    assert isinstance(waiting, PendingReply)
    waiting.awaitable.close()
    assert len(replies(waiting.encode(done(ResultSet(FIELDS, [(1,)]))))) == 5
    waiting = conversation.command(b"\x03LATER")
    assert isinstance(waiting, PendingReply)
    waiting.awaitable.close()
    assert error_of(waiting.refuse(SqlError(1205, "HY000", "late")))[0] == 1205 and conversation.ready


commands = st.one_of(
    st.binary(max_size=40),
    st.builds(lambda code, rest: bytes([code]) + rest, st.sampled_from(
        [1, 2, 3, 4, 9, 14, 17, 22, 23, 24, 25, 26, 27, 31]), st.binary(max_size=60)),
    st.just(b"\x16" + READ.encode()),
    st.builds(lambda code, number, rest: bytes([code, number, 0, 0, 0]) + rest, st.sampled_from([23, 24, 25, 26]),
              st.integers(0, 3), st.binary(max_size=60)),
    st.builds(lambda n, kind, rest: execution(bytes([n, 0, 0, 0]), b"\0\1" + bytes([kind, 0]) + rest),
              st.integers(1, 2), st.integers(0, 255), st.binary(max_size=30)),
)


@given(st.lists(commands, max_size=30), st.sampled_from([fakes.BASE, fakes.BASE | fakes.DEPRECATE_EOF]))
def test_whatever_is_sent_gets_packets_or_a_farewell(sent: list[bytes], flags: int) -> None:
    """Every reply is whole packets in order; a client that is hung up on was told why, unless it quit."""
    backend = FakeBackend()
    backend.answers[READ] = ResultSet(FIELDS, [(4,)])
    conversation = ready(backend, flags)
    for payload in sent:
        reply = conversation.command(payload)
        assert isinstance(reply, bytes)
        got = replies(reply)
        assert got or payload[0] in (1, 24, 25)
        if conversation.closed:
            assert payload[0] == 1 or read_error(got[-1])[0] in (1835, 1156, 1045, 1049)
        if not conversation.ready:
            break


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_whatever_is_sent_before_the_login(first: bytes, second: bytes) -> None:
    conversation = greeted(FakeBackend())
    for i, payload in enumerate((first, second)):
        reply = conversation.receive(Packet(2 * i + 1, 2 * i + 2, payload))
        if conversation.closed:
            assert read_error(replies(reply, 2 * i + 2)[-1])[0] in (1835, 1300, 1251, 1045, 1049)
            break
        assert conversation.state is ConversationState.PROVING
