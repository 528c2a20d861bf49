"""Parameters of executions: every type, remembered types, pieces sent ahead, and nonsense."""

from __future__ import annotations

import struct
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.errors import SqlError
from noria.server.mysql import codec, parameters
from noria.server.mysql.codec import ProtocolError

Sent = tuple[int, int, bytes, Any]  # type, flags, bytes, the Python value


def integer(kind: int, size: int, unsigned: bool) -> st.SearchStrategy[Sent]:
    low, high = (0, 2**(8 * size) - 1) if unsigned else (-2**(8 * size - 1), 2**(8 * size - 1) - 1)
    return st.integers(low, high).map(
        lambda n: (kind, 0x80 * unsigned, n.to_bytes(size, "little", signed=not unsigned), n))


def moment(value: datetime) -> Sent:
    data = struct.pack("<HBBBBBI", value.year, value.month, value.day, value.hour, value.minute, value.second,
                       value.microsecond)
    short = 11 if value.microsecond else 7 if data[4:7].strip(b"\0") else 4
    return 12, 0, codec.lenenc(data[:short]), value


sent_values = st.one_of(
    *(integer(kind, size, unsigned) for kind, size in ((1, 1), (2, 2), (3, 4), (9, 4), (8, 8))
      for unsigned in (False, True)),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda v: (5, 0, struct.pack("<d", v), v)),
    st.floats(allow_nan=False, allow_infinity=False, width=32).map(lambda v: (4, 0, struct.pack("<f", v), v)),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300).flatmap(lambda v: st.sampled_from(
        [(kind, 0, codec.lenenc(v.encode()), v) for kind in (15, 253, 254, 245)])),
    st.binary(max_size=300).map(lambda v: (252, 0, codec.lenenc(v), v)),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda v: (246, 0, codec.lenenc(str(v).encode()), v)),
    st.dates().map(lambda v: (10, 0, codec.lenenc(struct.pack("<HBB", v.year, v.month, v.day)), v)),
    st.datetimes().map(moment),
    st.sampled_from([(6, 0, b"", None), (3, 0, b"", None)]),
)


def as_sent(values: list[Sent]) -> tuple[bytes, bytes, bytes]:
    """NULL bitmap, types, values."""
    nulls = sum(1 << i for i, v in enumerate(values) if v[3] is None)
    return (nulls.to_bytes((len(values) + 7) // 8, "little"), b"".join(bytes(v[:2]) for v in values),
            b"".join(v[2] for v in values))


@given(st.lists(sent_values, min_size=1, max_size=20))
def test_values_come_as_they_were_bound(values: list[Sent]) -> None:
    bitmap, types, data = as_sent(values)
    first, remembered = parameters.canonical(bitmap + b"\1" + types + data, len(values), None)
    later, again = parameters.canonical(bitmap + b"\0" + data, len(values), remembered)
    assert remembered == again == types and first == later
    assert parameters.decode(first, len(values), {}) == [v[3] for v in values]


@given(st.integers(1, 10), st.binary(max_size=80))
def test_no_bytes_do_worse_than_a_clear_error(count: int, junk: bytes) -> None:
    try:
        given_bytes, _ = parameters.canonical(junk, count, None)
        parameters.decode(given_bytes, count, {})
    except SqlError as failure:
        assert failure.code in (1835, 1300)


def test_types_are_needed_once() -> None:
    with pytest.raises(ProtocolError, match="first execution"):
        parameters.canonical(b"\0\0" + bytes(8), 1, None)


def test_pieces_stand_for_their_parameters() -> None:
    types = bytes((252, 0, 253, 0, 3, 0))
    data = b"\0\1" + types + struct.pack("<i", 5)
    assert parameters.decode(data, 3, {0: bytearray(b"\xff"), 1: bytearray("ä".encode())}) == [b"\xff", "ä", 5]


@pytest.mark.parametrize(("kind", "data", "value"), [
    (12, b"", "0000-00-00 00:00:00"),
    (10, struct.pack("<HBB", 2024, 2, 30), "2024-02-30"),
    (12, struct.pack("<HBBBBBI", 2024, 13, 1, 1, 2, 3, 4), "2024-13-01 01:02:03.000004"),
    (12, struct.pack("<HBBBBBI", 2024, 1, 1, 1, 2, 3, 2**32 - 1), "2024-01-01 01:02:03.4294967295"),
    (12, struct.pack("<HBB", 2024, 2, 29), datetime(2024, 2, 29)),
    (10, struct.pack("<HBB", 2024, 2, 29), date(2024, 2, 29)),
    (11, b"", "00:00:00"),
    (11, struct.pack("<BIBBB", 1, 1, 2, 3, 4), "-26:03:04"),
    (11, struct.pack("<BIBBBI", 0, 0, 2, 3, 4, 5), "02:03:04.000005"),
    (246, b"12.50", Decimal("12.50")),
    (246, b"twelve", "twelve"),  # to be refused by the column it is for, with the row
])
def test_times_and_numbers_that_need_care(kind: int, data: bytes, value: object) -> None:
    assert parameters.decode(b"\0\1" + bytes((kind, 0)) + codec.lenenc(data), 1, {}) == [value]


@pytest.mark.parametrize("kind", [253, 254, 15])
def test_bytes_that_come_as_strings_stay_bytes(kind: int) -> None:
    """Oracle's connector sends both alike; the column tells where it is a text's."""
    for data, value in ((b"\xff\x00", b"\xff\x00"), ("é".encode(), "é"), (b"\xc3", b"\xc3")):
        assert parameters.decode(b"\0\1" + bytes((kind, 0)) + codec.lenenc(data), 1, {}) == [value]
        assert parameters.decode(b"\0\1" + bytes((kind, 0)), 1, {0: bytearray(data)}) == [value]


@pytest.mark.parametrize("message", [
    b"\0\1\x0c\0\x05" + bytes(5),  # a date of five bytes
    b"\0\1\x0b\0\x05" + bytes(5),  # a time of five bytes
    b"\0\1\x63\0" + bytes(8),  # no such type
    b"\0\1\x03\0" + bytes(5),  # one byte too many
    b"\0\1\x03\0" + bytes(3),  # one too few
])
def test_malformed_parameters(message: bytes) -> None:
    with pytest.raises(ProtocolError):
        parameters.decode(message, 1, {})
