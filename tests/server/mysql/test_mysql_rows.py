"""Result rows, read back by decoders written here from the protocol's description."""

from __future__ import annotations

import struct
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.types import (
    BOOL,
    BYTES,
    DATE,
    DOUBLE,
    JSON,
    TEXT,
    TEXT_BIN,
    YEAR,
    Collation,
    Field,
    Kind,
    SqlType,
    decimal,
)
from noria.server.mysql import codec, rows
from noria.server.mysql.codec import PayloadReader, Unframer


def integers(bits: int, unsigned: bool) -> st.SearchStrategy[int]:
    return st.integers(0, min(2**bits, 2**63) - 1) if unsigned else st.integers(-2**(bits - 1), 2**(bits - 1) - 1)


def decimals(kind: SqlType) -> st.SearchStrategy[Decimal]:
    top = 10**kind.precision - 1
    return st.integers(-top, top).map(lambda n: Decimal(n).scaleb(-kind.scale))


def datetimes(scale: int) -> st.SearchStrategy[datetime]:
    unit = 10**(6 - scale)
    return st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)).map(
        lambda t: t.replace(microsecond=t.microsecond // unit * unit))


TYPES: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    *((SqlType(Kind.INT, bits=bits, unsigned=unsigned), integers(bits, unsigned))
      for bits in (8, 16, 24, 32, 64) for unsigned in (False, True)),
    (BOOL, st.booleans()),
    (DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
    *((decimal(p, s), decimals(decimal(p, s))) for p, s in ((1, 0), (10, 2), (18, 0), (18, 18))),
    (TEXT, st.text(st.characters(exclude_categories=["Cs"]))),
    (TEXT_BIN, st.text(st.characters(exclude_categories=["Cs"]))),
    (SqlType(Kind.TEXT, length=20), st.text(st.characters(exclude_categories=["Cs"]), max_size=20)),
    (DATE, st.dates()),
    *((SqlType(Kind.DATETIME, scale=scale), datetimes(scale)) for scale in (0, 3, 6)),
    (SqlType(Kind.DATETIME, scale=6, timestamp=True), datetimes(6)),
]
columns = st.lists(st.sampled_from(TYPES), min_size=1, max_size=12)


@st.composite
def relations(draw: st.DrawFn) -> tuple[list[Field], list[tuple[Any, ...]]]:
    chosen = draw(columns)
    fields = [Field(f"c{i}", kind, draw(st.booleans())) for i, (kind, _) in enumerate(chosen)]
    row = st.tuples(*(st.none() | values for _, values in chosen))
    return fields, draw(st.lists(row, max_size=4))


def payloads_of(packets: bytes, first: int = 1) -> list[bytes]:
    unframer, got, seq = Unframer(2**30), [], first
    unframer.feed(packets)
    while (packet := unframer.next()) is not None:
        assert packet.first == seq & 255
        seq = packet.following
        got.append(packet.payload)
    assert unframer.clean
    return got


def split(packets: bytes, deprecate_eof: bool, first: int = 1) -> tuple[list[dict[str, Any]], list[bytes], bytes]:
    """Column definitions, row payloads, the end."""
    payloads = payloads_of(packets, first)
    count = PayloadReader(payloads[0]).lenenc_int()
    definitions = [read_definition(p) for p in payloads[1:count + 1]]
    rest = payloads[count + 1:]
    if not deprecate_eof:
        assert rest[0][0] == 0xFE and len(rest[0]) == 5
        rest = rest[1:]
    assert rest[-1][0] == 0xFE and len(rest[-1]) == (7 if deprecate_eof else 5)
    return definitions, rest[:-1], rest[-1]


def read_definition(payload: bytes) -> dict[str, Any]:
    reader = PayloadReader(payload)
    catalog, _, _, _, name, original = (reader.lenenc() for _ in range(6))
    assert catalog == b"def" and original == b"" and reader.integer(1) == 12  # no column of a table
    keys = ("charset", "length", "type", "flags", "decimals", "filler")
    return {"name": name.decode(), **dict(zip(keys, struct.unpack("<HIBHBH", reader.rest()), strict=True))}


def read_binary(payload: bytes, definitions: list[dict[str, Any]]) -> list[Any]:
    reader = PayloadReader(payload)
    assert reader.integer(1) == 0
    nulls = int.from_bytes(reader.take((len(definitions) + 9) // 8), "little")
    row = [None if nulls >> i + 2 & 1 else read_value(reader, d) for i, d in enumerate(definitions)]
    assert not reader.left
    return row


def read_value(reader: PayloadReader, column: dict[str, Any]) -> Any:
    kind, unsigned = column["type"], bool(column["flags"] & 32)
    if kind in (1, 2, 3, 8, 9):
        return reader.integer({1: 1, 2: 2, 9: 4, 3: 4, 8: 8}[kind], signed=not unsigned)
    if kind == 5:
        return struct.unpack("<d", reader.take(8))[0]
    if kind in (10, 7, 12):
        parts = PayloadReader(reader.lenenc())
        day = [parts.integer(2), parts.integer(1), parts.integer(1)]
        if kind == 10:
            return date(*day)
        time = [parts.integer(1) for _ in range(3)] if parts.left else [0, 0, 0]
        return datetime(*day, *time, parts.integer(4) if parts.left else 0)
    value = reader.lenenc().decode()
    return Decimal(value) if kind == 246 else value


def read_text(payload: bytes, definitions: list[dict[str, Any]]) -> list[Any]:
    reader, row = PayloadReader(payload), []
    for column in definitions:
        if reader.data[reader.position] == 0xFB:
            reader.take(1)
            row.append(None)
            continue
        shown, kind = reader.lenenc().decode(), column["type"]
        if kind in (1, 2, 3, 8, 9):
            row.append(int(shown))
        elif kind == 10:
            row.append(date.fromisoformat(shown))
        elif kind in (7, 12):
            assert len(shown) == column["length"]
            row.append(datetime.fromisoformat(shown))
        else:
            row.append({5: float, 246: Decimal}.get(kind, str)(shown))
    assert not reader.left
    return row


@given(relations(), st.booleans(), st.booleans(), st.sampled_from([1, 2, 250]))
def test_rows_read_back_as_they_were(relation: tuple[list[Field], list[tuple[Any, ...]]], binary: bool,
                                     deprecate_eof: bool, first: int) -> None:
    fields, sent = relation
    packets = rows.encode_result(fields, sent, binary, deprecate_eof, warnings=2, first=first)
    definitions, payloads, _ = split(packets, deprecate_eof, first)
    assert [d["name"] for d in definitions] == [f.name for f in fields]
    assert [bool(d["flags"] & 1) for d in definitions] == [not f.nullable for f in fields]
    read = read_binary if binary else read_text
    assert [tuple(read(p, definitions)) for p in payloads] == sent


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-10**9, max_value=10**9))
def test_decimals_keep_their_scale(value: Decimal) -> None:
    shown = rows.format_decimal(value, 6)
    assert Decimal(shown) == value and len(shown.partition(".")[2]) == 6


def test_a_row_of_more_than_16_mb() -> None:
    value = "é" * (9 * 2**20)
    for binary in (False, True):
        packets = rows.encode_result([Field("t", TEXT)], [(value,), ("after",)], binary, True)
        definitions, payloads, _ = split(packets, True)
        read = read_binary if binary else read_text
        assert [read(p, definitions) for p in payloads] == [[value], ["after"]]


def test_more_rows_than_sequence_numbers() -> None:
    packets = rows.encode_result([Field("n", BOOL)], [(n % 2,) for n in range(1000)], False, False)
    _, payloads, end = split(packets, False)
    assert len(payloads) == 1000 and end == codec.eof(2, 0)


@pytest.mark.parametrize(("kind", "wire"), [
    (BOOL, {"type": 1, "length": 1, "charset": 63}),
    (SqlType(Kind.INT, bits=32, unsigned=True), {"type": 3, "flags": 128 | 32}),
    (decimal(10, 2), {"type": 246, "decimals": 2, "length": 12}),
    (SqlType(Kind.TEXT, length=20), {"type": 253, "charset": 255, "length": 80, "flags": 0}),
    (TEXT_BIN, {"type": 252, "charset": 46, "flags": 16}),
    (SqlType(Kind.DATETIME, scale=3), {"type": 12, "length": 23, "decimals": 3}),
])
def test_column_definitions(kind: SqlType, wire: dict[str, int]) -> None:
    definition = read_definition(rows.column_definition(Field("x", kind)))
    assert {key: definition[key] for key in wire} == wire


def test_names_are_as_long_as_aliases_may_be() -> None:
    """A column without an alias is called by its text; longer than a packet, it would take the number of the next."""
    fields = [Field("é" * 17_000_000, TEXT), Field("y" * 256, TEXT)]
    packets = rows.encode_result(fields, [("a", "b")], False, True, 2, 0)
    assert codec.count_packets(packets) == 1 + 2 + 1 + 1
    assert [read_definition(rows.column_definition(f))["name"] for f in fields] == ["é" * 256, "y" * 256]


def test_a_row_of_the_wrong_width_is_a_bug_and_is_seen() -> None:
    with pytest.raises(ValueError, match=r"shorter|longer"):
        rows.encode_result([Field("n", BOOL)], [(1, 2)], False, False)


@pytest.mark.parametrize(("kind", "value", "text", "binary"), [
    (SqlType(Kind.DOUBLE, bits=32), 0.10000000149011612, b"0.1", struct.pack("<f", 0.1)),
    (SqlType(Kind.DOUBLE, bits=32), 1e10, b"10000000000", struct.pack("<f", 1e10)),
    (YEAR, 1999, b"1999", struct.pack("<H", 1999)),
    (YEAR, 0, b"0000", struct.pack("<H", 0)),
    (SqlType(Kind.TIME), timedelta(hours=10, minutes=11, seconds=12), b"10:11:12", b"\x08\0\0\0\0\0\x0a\x0b\x0c"),
    (SqlType(Kind.TIME, scale=3), -timedelta(hours=30, milliseconds=5), b"-30:00:00.005",
     b"\x0c\x01\x01\0\0\0\x06\0\0" + struct.pack("<I", 5000)),
    (SqlType(Kind.TIME), timedelta(), b"00:00:00", b"\0"),
    (SqlType(Kind.ENUM, members=("a", "b")), "b", b"b", b"\x01b"),
    (SqlType(Kind.SET, members=("a", "b")), "a,b", b"a,b", b"\x03a,b"),
    (BYTES, b"\xff\0", b"\xff\0", b"\x02\xff\0"),
    (JSON, '{"a": 1}', b'{"a": 1}', b'\x08{"a": 1}'),
])
def test_values_of_further_types(kind: SqlType, value: object, text: bytes, binary: bytes) -> None:
    assert rows._text_encoder(kind)([value]) == [bytes([len(text)]) + text]
    assert rows._binary_encoder(kind)([value]) == [binary]


@pytest.mark.parametrize(("kind", "wire"), [
    (SqlType(Kind.DOUBLE, bits=32), {"type": 4, "length": 12, "decimals": 31}),
    (YEAR, {"type": 13, "length": 4, "flags": 32 | 64 | 128}),
    (SqlType(Kind.TIME, scale=3), {"type": 11, "length": 14, "decimals": 3, "flags": 128}),
    (SqlType(Kind.ENUM, members=("a", "bcd")), {"type": 254, "length": 12, "flags": 256}),
    (SqlType(Kind.SET, members=("a", "bcd")), {"type": 254, "length": 20, "flags": 2048}),
    (SqlType(Kind.TEXT, length=4, declared="char"), {"type": 254, "charset": 255, "length": 16}),
    (SqlType(Kind.TEXT, length=4, declared="binary", collation=Collation.BYTES),
     {"type": 254, "charset": 63, "length": 4}),
    (SqlType(Kind.TEXT, declared="longtext"), {"type": 252, "length": 2**32 - 1, "flags": 16}),
    (SqlType(Kind.TEXT, declared="tinyblob", collation=Collation.BYTES), {"type": 252, "charset": 63, "length": 255}),
    (JSON, {"type": 245, "charset": 63, "flags": 16 | 128}),
])
def test_column_definitions_of_further_types(kind: SqlType, wire: dict[str, int]) -> None:
    definition = read_definition(rows.column_definition(Field("x", kind)))
    assert {key: definition[key] for key in wire} == wire
