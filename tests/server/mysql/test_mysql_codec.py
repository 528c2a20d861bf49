"""Packets and fields: round trips against bytes made by hand, pieces of any size, nothing read past an end."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.errors import SqlError
from noria.server.mysql import codec
from noria.server.mysql.codec import MAX_PAYLOAD, Capability, PayloadReader, ProtocolError, Unframer
from server.mysql import mysql_fakes as raw

payloads = st.lists(st.binary(max_size=300), max_size=8)


def all_of(unframer: Unframer) -> list[codec.Packet]:
    return list(iter(unframer.next, None))


@given(payloads, st.integers(1, 40))
def test_payloads_survive_any_cutting(sent: list[bytes], size: int) -> None:
    stream = b"".join(codec.frame(p, 0) for p in sent)
    unframer, got = Unframer(1000), []
    for at in range(0, len(stream), size):
        unframer.feed(stream[at:at + size])
        got += all_of(unframer)
    assert [p.payload for p in got] == sent
    assert all((p.first, p.following, p.oversized) == (0, 1, False) for p in got)
    assert unframer.clean


@given(st.lists(st.binary(max_size=60), max_size=6), st.integers(1, 90))
def test_an_oversized_payload_is_skipped_and_its_neighbours_are_not(sent: list[bytes], size: int) -> None:
    stream = b"".join(codec.frame(p, 0) for p in sent)
    unframer, got = Unframer(30), []
    for at in range(0, len(stream), size):
        unframer.feed(stream[at:at + size])
        got += all_of(unframer)
    assert [p.oversized for p in got] == [len(p) > 30 for p in sent]
    assert [p.payload for p in got] == [b"" if len(p) > 30 else p for p in sent]


@pytest.mark.parametrize("size", [MAX_PAYLOAD - 1, MAX_PAYLOAD, MAX_PAYLOAD + 1, 2 * MAX_PAYLOAD])
def test_large_payloads_travel_in_several_packets(size: int) -> None:
    payload = bytes(range(251)) * (size // 251) + bytes(size % 251)
    packets = codec.frame(payload, 254)
    assert codec.count_packets(packets) == size // MAX_PAYLOAD + 1
    unframer = Unframer(64 * 2**20)
    unframer.feed(packets)
    got = unframer.next()
    assert got is not None and got.payload == payload
    assert (got.first, got.following) == (254, (254 + size // MAX_PAYLOAD + 1) % 256)


def test_an_oversized_payload_of_several_packets() -> None:
    unframer = Unframer(MAX_PAYLOAD + 10)
    unframer.feed(codec.frame(bytes(MAX_PAYLOAD + 11), 0) + codec.frame(b"next", 0))
    first, second = all_of(unframer)
    assert (first.oversized, first.following, first.payload) == (True, 2, b"")
    assert (second.oversized, second.payload) == (False, b"next")


def test_pieces_of_a_payload_are_numbered_on() -> None:
    unframer = Unframer(64 * 2**20)
    unframer.feed(struct.pack("<I", MAX_PAYLOAD) + bytes(MAX_PAYLOAD) + raw.packet(b"tail", 7))
    with pytest.raises(ProtocolError) as caught:
        unframer.next()
    assert caught.value.code == 1156


@given(payloads, st.integers(0, 300))
def test_renumbering(sent: list[bytes], seq: int) -> None:
    packets = codec.frame_all(sent, 1)
    assert codec.renumber(packets, seq) == codec.frame_all(sent, seq)
    assert codec.count_packets(packets) == len(sent)


@given(st.integers(0, 2**64 - 1))
def test_length_encoded_integers(value: int) -> None:
    data = codec.lenenc_int(value)
    reader = PayloadReader(data + b"rest")
    assert reader.lenenc_int() == value and reader.rest() == b"rest"
    for end in range(len(data)):
        with pytest.raises(ProtocolError):
            PayloadReader(data[:end]).lenenc_int()


@given(st.binary(max_size=400))
def test_length_encoded_strings(value: bytes) -> None:
    assert PayloadReader(codec.lenenc(value)).lenenc() == value
    with pytest.raises(ProtocolError):
        PayloadReader(codec.lenenc(value + b"x")[:-1]).lenenc()


@pytest.mark.parametrize("size", [250, 251, 65_535, 65_536, 2**24 - 1, 2**24])
def test_length_encoded_strings_at_the_widths(size: int) -> None:
    assert PayloadReader(codec.lenenc(bytes(size))).lenenc() == bytes(size)


names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


@given(names, st.binary(max_size=40).filter(lambda b: b"\0" not in b), names, names,
       st.dictionaries(names, names, max_size=3), st.booleans(), st.booleans())
def test_handshake_responses(user: str, token: bytes, database: str, plugin: str, attributes: dict[str, str],
                             with_database: bool, with_plugin: bool) -> None:
    flags = Capability.PROTOCOL_41 | Capability.PLUGIN_AUTH_LENENC | Capability.CONNECT_ATTRS
    flags |= Capability.CONNECT_WITH_DB if with_database else Capability(0)
    flags |= Capability.PLUGIN_AUTH if with_plugin else Capability(0)
    pairs = b"".join(codec.lenenc(part.encode()) for pair in attributes.items() for part in pair)
    payload = b"".join((struct.pack("<IIB23x", flags, 1 << 24, 45), user.encode(), b"\0", codec.lenenc(token),
                        database.encode() + b"\0" if with_database else b"",
                        plugin.encode() + b"\0" if with_plugin else b"", codec.lenenc(pairs)))
    got = codec.decode_handshake(payload)
    assert (got.user, got.token, got.attributes) == (user, token, attributes)
    assert got.database == (database if with_database else "") and got.plugin == (plugin if with_plugin else "")


@given(st.binary(max_size=120), st.integers(0, 2**32 - 1))
def test_no_bytes_do_worse_than_a_clear_error(junk: bytes, flags: int) -> None:
    known = Capability(flags & codec.SERVER_CAPABILITIES)
    for decode in (lambda: codec.decode_handshake(struct.pack("<I", flags | 1 << 9) + bytes(28) + junk),
                   lambda: codec.decode_handshake(junk),
                   lambda: codec.decode_change_user(b"\x11" + junk, known)):
        try:
            decode()
        except SqlError as failure:
            assert failure.code in (1835, 1300, 1251)


def test_clients_before_41_are_told() -> None:
    with pytest.raises(ProtocolError, match="authentication protocol"):
        codec.decode_handshake(bytes(40))


def test_text_is_utf8_or_error_1300() -> None:
    assert codec.text("é".encode()) == "é"
    with pytest.raises(SqlError, match="E9") as caught:
        codec.text("SELECT 'é'".encode("latin1"))
    assert caught.value.code == 1300


@pytest.mark.parametrize(("sent", "read"), [
    (b"SELECT 'a\xc3\xa9'", "SELECT 'aé'"),
    (rb"INSERT INTO t VALUES ('1', '\0" + b"\xff" + rb"\'\n''', " + b'"\xfe""")',
     "INSERT INTO t VALUES ('1', X'00ff270a27', X'fe22')"),
    (b"UPDATE t SET b = _binary'\xff', c = 'x' WHERE b IN (_BINARY \"\xfe\", _binary 'y')",
     "UPDATE t SET b = X'ff', c = 'x' WHERE b IN (X'fe', _binary 'y')"),
    (b"SELECT 1 FROM t WHERE b = '\\0F\xfe' AND c <> 'x'", "SELECT 1 FROM t WHERE b = X'0046fe' AND c <> 'x'"),
    (b" replace into t values (_binary '\xff', `\xc3\xa9`)", " replace into t values (X'ff', `é`)"),
])
def test_bytes_of_a_dump(sent: bytes, read: str) -> None:
    """mariadb-dump writes those of a BLOB as they are, with escapes, between quotes."""
    assert codec.statement(sent) == read


@pytest.mark.parametrize("sent", [
    b"INSERT INTO t VALUES (1, /* '\xff' */ 2)", b"INSERT INTO `\xff` VALUES (1)",
    b"INSERT INTO t VALUES ('\xff", b"SELECT \xff", b"SELECT `a\xff`"])
def test_what_is_no_utf8_elsewhere_is_error_1300(sent: bytes) -> None:
    with pytest.raises(SqlError) as caught:
        codec.statement(sent)
    assert caught.value.code == 1300


@pytest.mark.parametrize("deprecate_eof", [False, True])
def test_more_results_is_patched_into_the_last_packet(deprecate_eof: bool) -> None:
    body = codec.frame(b"rows", 1)
    plain = body + codec.frame(codec.end_of_rows(2, 3, deprecate_eof), 2)
    more = body + codec.frame(codec.end_of_rows(2 | codec.MORE_RESULTS, 3, deprecate_eof), 2)
    assert codec.with_more_results(plain, deprecate_eof) == more


def test_a_negative_insert_id_is_sent_as_mysql_does() -> None:
    assert codec.ok(1, -5, 2, 0)[2:11] == b"\xfe" + (2**64 - 5).to_bytes(8, "little")
