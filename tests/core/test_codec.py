"""The encoding of messages: values survive, shared objects are encoded once, other bytes are `Malformed`."""

from __future__ import annotations

import math
import random
import sys
import types
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core import codec, columns_codec
from noria.core.codec import Codec, Malformed
from noria.core.errors import PlaceholderViewError, SqlError
from noria.core.expressions.functions import HexLiteral, literal
from noria.core.types import INT, TEXT, Column, Kind, TableDef
from noria.runtime.transport.packet_codec import PACKETS


@dataclass(frozen=True)
class Leaf:
    name: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class Pair:
    left: Leaf | Pair
    right: Leaf | Pair


class Named(NamedTuple):
    at: int
    what: Any = None


@dataclass(frozen=True, slots=True)
class Message:
    kind: Kind
    of: Literal["a", "b"]
    value: Any
    leaf: Leaf | None = None
    named: tuple[Named, ...] = ()
    table: TableDef | None = None
    error: SqlError | None = None
    sizes: dict[str, float] = field(default_factory=dict)


CODEC = Codec(Message, Pair)
TABLE = TableDef("t", (Column("id", INT, False), Column("s", TEXT)), (0,), table_id=3)


def sent(value: Any) -> Any:
    return CODEC.decode(CODEC.encode(value))


def raw(*records: Any) -> bytes:
    return b"\x01" + msgspec.msgpack.encode(records)


PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(), st.binary(), st.dates(),
    st.datetimes(), st.timedeltas(), st.times(), st.decimals(allow_nan=False), st.just(object), st.sampled_from(Kind))
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(
    st.text() | st.integers() | st.dates(), inner) | st.sets(st.integers() | st.text()))


@given(VALUES)
def test_values_come_out_as_they_went_in(value: Any) -> None:
    got = sent(Message(Kind.INT, "a", value)).value
    assert got == value and type(got) is type(value)


@given(st.lists(st.tuples(st.integers(), st.text(), st.none() | st.dates()), min_size=10, max_size=40))
def test_many_rows_come_out_as_they_went_in(rows: list[Any]) -> None:
    for value in (rows, tuple(rows), [r[:2] for r in rows], tuple(r[1:2] for r in rows)):
        assert sent(Message(Kind.INT, "a", value)).value == value


@pytest.mark.parametrize("value", [
    2**63, 2**64, -(2**100), 10**400, "\ud800", "a\udfff", -0.0, Decimal("-0"), Decimal("1e400"), frozenset({1}),
    [((1,), [2], {"a": (1, [2])}), {(1, 2): "x"}], Path("/x"), TABLE, Leaf("a"), [Named(1, Leaf("b", (1, 2)))],
    SqlError(1062, "23000", "twice"), time(1, 2, 3), date(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999),
    timedelta(microseconds=-1), bytes(range(256)), ((), [], {}, set())])
def test_special_values(value: Any) -> None:
    got = sent(Message(Kind.INT, "a", value)).value
    assert got == value and type(got) is type(value) and repr(got) == repr(value)


def test_numbers_of_numpy_are_plain_and_nan_stays_one() -> None:
    assert sent([np.int64(5), np.float64(1.5), np.bool_(True), math.nan])[:3] == [5, 1.5, True]
    assert math.isnan(sent([math.nan])[0]) and Decimal("NaN").is_nan() == sent(Decimal("NaN")).is_nan()


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint32", "uint64", "float32", "float64"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (3, 0), ()])
def test_arrays(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    got = sent([array, array.T])
    assert all(a.dtype == array.dtype and a.flags.aligned for a in got)
    assert (got[0] == array).all() and (got[1] == array.T).all() and got[0].shape == shape


@pytest.mark.parametrize("column", [
    pa.array(["a", None, "ä"], pa.large_string()), pa.array(["x" * 20_000], pa.large_string()), pa.array([1, None]),
    pa.array(["a"]), pa.array([], pa.large_string()), pa.array([Decimal("1.5")]), pa.array([[1], None])])
def test_arrow(column: pa.Array) -> None:
    table = pa.table({"a": column, "b": column})
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    got = sent([column, column[1:], table, table.slice(1), batch, table.schema, pa.chunked_array([column])])
    assert got[:6] == [column, column[1:], table, table.slice(1), batch, table.schema] and got[6] == column


def test_decimals_with_more_digits_than_their_type_declares() -> None:
    """Sums are 64-bit codes of DECIMAL(18, s): they may have 19 digits."""
    wide = pa.array([Decimal(2**63 - 1), None, Decimal(-(2**63) + 2)], pa.decimal128(19))
    column = pa.Array.from_buffers(pa.decimal128(18), len(wide), wide.buffers())
    got = sent([column, pa.table({"a": column})])
    assert pa.Array.from_buffers(wide.type, len(wide), got[0].buffers()) == wide and got[1] == pa.table({"a": column})


def test_large_columns_leave_the_message_where_buffers_are_taken() -> None:
    array, buffers = np.arange(100_000), list[memoryview]()
    data = CODEC.encode([array, 2**70, array], buffers)
    assert len(data) < 200 and len(buffers) == 2
    got = CODEC.decode(data, [bytes(b) for b in buffers])
    assert (got[0] == array).all() and got[1] == 2**70
    with pytest.raises(Malformed):
        CODEC.decode(data, [bytes(buffers[0])])


def test_what_is_shared_is_encoded_once_and_shared_again() -> None:
    node: Leaf | Pair = Leaf("leaf")
    for _ in range(20):
        node = Pair(node, node)
    data = CODEC.encode(node)
    got = CODEC.decode(data)
    assert len(data) < 1_000 and got.left is got.right and got.left.left is got.left.right
    both = sent([TABLE, replace(TABLE)])
    assert both[0] is both[1] == TABLE


def test_a_message_that_a_walk_would_never_end_in_is_refused() -> None:
    node: Leaf | Pair = Leaf("leaf")
    for _ in range(60):
        node = Pair(node, node)
    with pytest.raises(Malformed, match="parts"):
        CODEC.decode(CODEC.encode(node))


def module(monkeypatch: pytest.MonkeyPatch, name: str, source: str) -> Any:
    made = types.ModuleType(f"noria.{name}")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(f"from dataclasses import dataclass\n{source}", made.__dict__)
    return made


def test_classes_of_modules_that_are_imported_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark task's process lives on: it encodes reports of one job before it imports another one's."""
    early = module(monkeypatch, "early", "@dataclass(frozen=True)\nclass Report:\n    rows: int = 0")
    sends, takes = Codec(early.Report), Codec(early.Report)
    unknown = bytes([codec.VERSION]) + msgspec.msgpack.encode([["late.Other", 1]])
    for each in (sends, takes):
        assert each.decode(each.encode(early.Report(1))) == early.Report(1)
        with pytest.raises(Malformed, match="unknown type"):
            each.decode(unknown)
    late = module(monkeypatch, "late", "from noria.early import Report\n@dataclass(frozen=True)\n"
                                       "class Late(Report):\n    more: int = 0")
    assert takes.decode(sends.encode(late.Late(1, 2))) == late.Late(1, 2)
    known = takes._layouts
    with pytest.raises(Malformed, match="unknown type"):
        takes.decode(unknown)
    assert takes._layouts is known, "they are looked for once"


def test_exceptions_that_are_known_travel_as_what_they_reduce_to() -> None:
    assert type(sent([PlaceholderViewError("v", "CREATE …")])[0]) is SqlError
    with pytest.raises(TypeError, match="no part of a message"):
        CODEC.encode([ZeroDivisionError("x")])


@pytest.mark.parametrize("value", [print, lambda: 1, ValueError, 1j, np.array(["a"]), np.array([object()]), ..., range])
def test_what_is_no_message_is_not_encoded(value: Any) -> None:
    with pytest.raises(TypeError):
        CODEC.encode([value])


LEAF = ["test_codec.Leaf", "a", [1, 2]]
REF = msgspec.msgpack.Ext(codec.REF, bytes(4))


def test_a_field_that_was_added_since_has_its_default() -> None:
    assert CODEC.decode(raw(["test_codec.Leaf", "a"])) == Leaf("a")
    assert CODEC.decode(raw(LEAF, ["test_codec.Pair", REF, REF])) == Pair(Leaf("a", (1, 2)), Leaf("a", (1, 2)))


@pytest.mark.parametrize("data", [
    b"", b"\x00", b"\x02\x90", raw(), raw([]), raw(["test_codec.Leaf"]), raw(["test_codec.Leaf", "a", [1], 3]),
    raw(["test_codec.Leaf", 1]), raw(["test_codec.Leaf", "a", "b"]), raw(["test_codec.Leaf", "a", ["b"]]),
    raw(["test_codec.Leaf", "a", [True]]), raw(["test_codec.Leaf", "a", [[1]]]), raw(["test_codec.Leaf", "a", None]),
    raw(["os.system", "true"]), raw(["builtins.eval", "1"]), raw([7, 1]), raw([None]), raw([None, 1, 2]), raw("x"),
    raw(["test_codec.Pair", REF, REF]), raw(LEAF, ["test_codec.Pair", REF]), raw(LEAF, ["test_codec.Pair", REF, 1]),
    raw(LEAF, ["test_codec.Pair", [REF], REF]), raw([None, msgspec.msgpack.Ext(99, b"")]),
    raw([None, msgspec.msgpack.Ext(codec.REF, b"\xff" * 4)]), raw([None, msgspec.msgpack.Ext(codec.REF, b"")]),
    raw([None, msgspec.msgpack.Ext(codec.DECIMAL, b"x")]), raw([None, msgspec.msgpack.Ext(codec.DATE, b"\xff")]),
    raw([None, msgspec.msgpack.Ext(codec.MEMBER, b"Kind.__class__")]), raw([None, {1: [[[REF]]]}]),
    raw([None, msgspec.msgpack.Ext(codec.ROWS, b"\xdd\xff\xff\xff\xff")]), raw([None, [1, [2, {}]]])[:-1],
    raw([None, [msgspec.msgpack.Ext(codec.DICT, b""), 1]]), raw([None, [msgspec.msgpack.Ext(codec.COLUMNS, b""), 0]]),
    raw(["types.TableDef", b"\x01\x90"]), raw(["types.TableDef", CODEC.encode(Leaf("a"))]), raw(["types.TableDef", 1]),
    raw(["errors.SqlError", 1, "a"]), raw(["errors.SqlError", "a", 1, 2]), b"\x01" + b"\x91" * 100_000,
    b"\x01\xdd\xff\xff\xff\xff", b"\x01\x91\xdb\xff\xff\xff\xff", b"\x01\x91\x92\xc0" + b"\x91" * 990 + b"\xc0"])
def test_bytes_that_are_no_message(data: bytes) -> None:
    with pytest.raises(Malformed):
        CODEC.decode(data)


@pytest.mark.parametrize("data", [
    b"", b"\x00" * 8, columns_codec.HEAD.pack(0, 99, 1) + bytes(8), columns_codec.HEAD.pack(0, 0, 200),
    columns_codec.HEAD.pack(0, 4, 1) + b"\xff" * 8, columns_codec.HEAD.pack(0, 4, 1) + b"\xff" * 7 + b"\x7f",
    columns_codec.HEAD.pack(0, 4, 2) + (2**32).to_bytes(8, "little") * 2,
    columns_codec.HEAD.pack(1, 0, 0) + b"x" * 40, columns_codec.HEAD.pack(4, 0, 0) + b"\x91\x01",
    columns_codec.HEAD.pack(9, 0, 0)])
def test_columns_that_are_none(data: bytes) -> None:
    with pytest.raises(Malformed):
        CODEC.decode(raw([None, msgspec.msgpack.Ext(codec.COLUMNS, data)]))


def test_damaged_messages_are_malformed_or_well_typed() -> None:
    chance = random.Random(7)
    value = [1, (2.5, "x"), {"k": Decimal("1")}, np.arange(3), pa.table({"a": [1]})]
    whole = CODEC.encode(Message(Kind.INT, "b", value, Leaf("l", (1,)), (Named(1), Named(2, TABLE)), TABLE,
                                 SqlError(1, "HY000", "e"), {"s": 1.0}))
    for _ in range(20_000):
        spoiled = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            spoiled[chance.randrange(len(spoiled))] = chance.randrange(256)
        try:
            got = CODEC.decode(bytes(spoiled[:chance.choice((len(spoiled), chance.randrange(len(spoiled))))]))
        except Malformed:
            continue
        if isinstance(got, Message):
            assert isinstance(got.kind, Kind) and isinstance(got.leaf, Leaf | None) and isinstance(got.named, tuple)
            assert isinstance(got.table, TableDef | None) and isinstance(got.error, SqlError | None)


class Foreign(SqlError):
    """A subclass outside the package, as an application or a test may define."""




def test_classes_of_others_are_no_part_of_messages() -> None:
    @dataclass(frozen=True)
    class Column(TableDef):  # of the same name as one of ours
        pass

    made = Codec(TableDef, SqlError)
    assert not {Foreign, Column} & set(made._layouts)


def test_a_hexadecimal_literal_is_sent_as_bytes() -> None:
    for value in (literal(HexLiteral(b"A")), (HexLiteral(b"A"), 1), ((HexLiteral(b"A"),),)):
        assert PACKETS.decode(PACKETS.encode(value)) == value
