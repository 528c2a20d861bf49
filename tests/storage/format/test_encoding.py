"""Keys and rows as bytes: order, prefixes, there and back, and one form whatever the way."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from noria.core.batch import Codes
from noria.core.limits import MAX_INT, MIN_INT, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.symbols import fold
from noria.core.types import BIGINT, BYTES, DOUBLE, TEXT, TEXT_BIN, Kind, SqlType
from noria.core.values import arrow_type, decode, encode, to_arrow
from noria.storage.format.encoding import (
    key_parts_of,
    key_parts_of_arrow,
    keys_of,
    pack_few_keys,
    pack_few_rows,
    pack_keys,
    pack_rows,
    parts_of,
    parts_of_arrow,
    rows_of,
    successor,
    unpack_rows,
)

TYPES: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (BIGINT, st.integers(MIN_INT, MAX_INT)), (DOUBLE, st.floats(allow_nan=False)),
    (TEXT, st.text(max_size=6) | st.sampled_from(["a", "A", "ä", "ab", "a\0", "ß", ""])),
    (TEXT_BIN, st.text(max_size=6)),
]


@st.composite
def tables(draw: st.DrawFn, rows: int = 30) -> tuple[tuple[SqlType, ...], list[tuple[Any, ...]]]:
    columns = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    row = st.tuples(*(st.none() | values for _, values in columns))
    return tuple(t for t, _ in columns), draw(st.lists(row, min_size=1, max_size=rows))


def coded(types: tuple[SqlType, ...], rows: list[tuple[Any, ...]], symbols: PlainSymbols) -> Codes:
    return np.array([[encode(v, t, symbols) for v, t in zip(r, types, strict=True)] for r in rows], np.int64).T.copy()


def sql_order(row: tuple[Any, ...], types: tuple[SqlType, ...]) -> list[Any]:
    """A Python key that orders as SQL does: NULL first, text by the bytes of its folded form."""
    def one(value: Any, type: SqlType) -> Any:
        if value is None:
            return (0,)
        return (1, (fold(value) if type.folds else value).encode() if type.is_text else value)
    return [one(v, t) for v, t in zip(row, types, strict=True)]


@given(tables())
def test_keys_order_as_values_and_equal_keys_are_equal_values(case: Any) -> None:
    types, rows = case
    symbols = PlainSymbols()
    keys = keys_of(list(coded(types, rows, symbols)), types, symbols)
    orders = [sql_order(r, types) for r in rows]
    for key, order in zip(keys, orders, strict=True):
        for other_key, other in zip(keys, orders, strict=True):
            assert (key < other_key, key == other_key) == (order < other, order == other)


@given(tables())
def test_leading_columns_are_a_prefix_and_nothing_else_has_it(case: Any) -> None:
    types, rows = case
    symbols = PlainSymbols()
    codes = coded(types, rows, symbols)
    keys = keys_of(list(codes), types, symbols)
    for length in range(1, len(types) + 1):
        prefixes = keys_of(list(codes[:length]), types[:length], symbols)
        orders = [sql_order(r[:length], types[:length]) for r in rows]
        for prefix, order in zip(prefixes, orders, strict=True):
            inside = [key.startswith(prefix) for key in keys]
            assert inside == [other == order for other in orders]
            assert inside == [prefix <= key < successor(prefix) for key in keys]


@given(tables())
def test_there_and_back_by_every_way(case: Any) -> None:
    types, rows = case
    symbols = PlainSymbols()
    codes = coded(types, rows, symbols)
    few, many = pack_few_rows(codes, types, symbols), pack_rows(parts_of(list(codes), types, symbols))
    arrays = [to_arrow(c, t, symbols) for c, t in zip(codes, types, strict=True)]
    assert few == many == rows_of(codes, types, symbols) == pack_rows(parts_of_arrow(arrays, types))
    keys = pack_few_keys(list(codes), types, symbols)
    assert keys == pack_keys(key_parts_of(list(codes), types, symbols)) == pack_keys(key_parts_of_arrow(arrays, types))
    assert unpack_rows(many, types, no_defaults, symbols).tolist() == codes.tolist()
    assert unpack_rows(many[:2], types, no_defaults, symbols).tolist() == codes[:, :2].tolist()


def no_defaults() -> Codes:
    raise AssertionError("all columns are there")


@given(tables(), st.integers(1, 40))
def test_rows_written_before_a_column_was_added_get_its_default(case: Any, old: int) -> None:
    types, rows = case
    symbols = PlainSymbols()
    codes = coded(types, rows, symbols)
    wide = (*types, TEXT, BIGINT)
    defaults = np.array([NULL_CODE] * len(types) + [symbols.intern("new"), 7], np.int64)
    after = np.vstack([codes, np.repeat(defaults[-2:, None], codes.shape[1], axis=1)])
    after[-1, old:] = 8
    packed = rows_of(codes[:, :old], types, symbols)
    if old < codes.shape[1]:
        packed += rows_of(after[:, old:], wide, symbols)
    assert unpack_rows(packed, wide, lambda: defaults, symbols).tolist() == after.tolist()


def test_successor_of_the_greatest() -> None:
    assert successor(b"a\xff\xff") == b"b" and successor(b"\xff" * 8) > b"\xff" * 70


def test_columns_of_arrow_pack_as_codes_do() -> None:
    """What a bulk load writes of further types is what the worker reads."""
    types = [SqlType(Kind.TIME), SqlType(Kind.ENUM, members=("a", "é")), SqlType(Kind.SET, members=("x", "y")), BYTES]
    rows = [(timedelta(hours=-5), "é", "x,y", b"\xff\0a"), (None, None, None, None), (timedelta(0), "a", "", b"")]
    columns = [pa.array([r[i] for r in rows], arrow_type(t)) for i, t in enumerate(types)]
    symbols = PlainSymbols()
    codes = unpack_rows(pack_rows(parts_of_arrow(columns, types)), types, lambda: np.empty(0, np.int64), symbols)
    assert [tuple(decode(int(c), t, symbols) for c, t in zip(row, types, strict=True)) for row in codes.T] == rows
    keys = pack_keys(key_parts_of_arrow(columns, types))
    assert keys == pack_few_keys(list(codes), types, symbols)


@given(tables(), st.integers(1, 4), st.sampled_from([1, 20]))
def test_rows_of_before_and_after_columns_were_added(table: tuple[Any, Any], width: int, times: int) -> None:
    """A reader may know more columns than a row has, or fewer; rows of both kinds come together."""
    types, rows = table
    width, rows = min(width, len(types)), rows * times
    symbols = PlainSymbols()
    codes = coded(types, rows, symbols)
    whole = rows_of(codes, types, symbols)
    short = rows_of(np.ascontiguousarray(codes[:width]), types[:width], symbols)
    initial = np.arange(len(types), dtype=np.int64) + 7
    assert (unpack_rows(whole, types[:width], lambda: initial, symbols) == codes[:width]).all()
    both = unpack_rows([r for pair in zip(whole, short, strict=True) for r in pair], types, lambda: initial, symbols)
    assert (both[:, 0::2] == codes).all() and (both[:width, 1::2] == codes[:width]).all()
    assert (both[width:, 1::2] == initial[width:, None]).all()
