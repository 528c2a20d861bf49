"""Values as codes: there and back, order, and MySQL's strict conversion of what clients send."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noria.core.errors import SqlError
from noria.core.expressions.coerce import MAX_TEXT_BYTES
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import DEFAULT
from noria.core.types import (
    BIGINT,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    TEXT,
    Column,
    Kind,
    SqlType,
    decimal,
)
from noria.core.values import (
    arrow_type,
    convert,
    decode,
    decode_doubles,
    default_code,
    encode,
    encode_doubles,
    from_arrow,
    recode,
    to_arrow,
)

MICROS = SqlType(Kind.DATETIME, scale=6)
VALUES: dict[SqlType, st.SearchStrategy[Any]] = {
    BIGINT: st.integers(MIN_INT, MAX_INT),
    DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
    decimal(18, 4): st.decimals(-10**13, 10**13, places=4),
    DATE: st.dates(),
    MICROS: st.datetimes(),
    TEXT: st.text(),
}
a_type = st.sampled_from(list(VALUES))
typed_lists = a_type.flatmap(lambda t: st.tuples(st.just(t), st.lists(st.none() | VALUES[t], max_size=20)))


@given(typed_lists)
def test_there_and_back_one_by_one_and_through_arrow(case: tuple[SqlType, list[Any]]) -> None:
    type, values = case
    symbols = PlainSymbols()
    codes = np.array([encode(v, type, symbols) for v in values], np.int64)
    assert [decode(c, type, symbols) for c in codes.tolist()] == values
    array = to_arrow(codes, type, symbols)
    assert array.type == arrow_type(type) and array.to_pylist() == values
    assert from_arrow(array, type, symbols).tolist() == codes.tolist()
    assert from_arrow(array[1:], type, symbols).tolist() == codes[1:].tolist()
    assert from_arrow(pa.chunked_array([array, array]), type, symbols).tolist() == codes.tolist() * 2


@given(a_type.filter(lambda t: t is not TEXT).flatmap(
    lambda t: st.tuples(st.just(t), VALUES[t], VALUES[t])))
def test_codes_order_as_values_do_with_null_least(case: tuple[SqlType, Any, Any]) -> None:
    type, a, b = case
    x, y = (encode(v, type, PlainSymbols()) for v in (a, b))
    assert (x < y, x == y) == (a < b, a == b)
    assert min(x, y) > ERROR_CODE > NULL_CODE


@given(st.lists(st.floats(allow_nan=False)))
def test_doubles_by_array_as_one_by_one(values: list[float]) -> None:
    codes = encode_doubles(np.array(values, np.float64))
    assert codes.tolist() == [encode(v, DOUBLE, PlainSymbols()) for v in values]
    assert decode_doubles(codes).tolist() == values


def test_zero_has_one_code() -> None:
    assert encode(-0.0, DOUBLE, PlainSymbols()) == encode(0.0, DOUBLE, PlainSymbols())


@pytest.mark.parametrize("read", [lambda c: decode(c, BIGINT, PlainSymbols()),
                                  lambda c: to_arrow(np.array([1, c]), BIGINT, PlainSymbols())])
def test_reading_an_evaluation_error_is_mysqls(read: Any) -> None:
    with pytest.raises(SqlError, match="BIGINT value is out of range") as error:
        read(ERROR_CODE)
    assert error.value.code == 1690


def test_arrow_of_other_types_is_cast_and_dictionaries_are_read() -> None:
    symbols = PlainSymbols()
    assert from_arrow(pa.array([1, None], pa.int8()), BIGINT, symbols).tolist() == [1, NULL_CODE]
    texts = pa.array(["a", None, "a", "b"]).dictionary_encode()
    codes = from_arrow(texts, TEXT, symbols)
    assert [decode(c, TEXT, symbols) for c in codes.tolist()] == ["a", None, "a", "b"]
    zoned = pa.array([datetime(2020, 1, 1, 12, tzinfo=UTC)], pa.timestamp("ns", "+02:00"))
    assert decode(int(from_arrow(zoned, MICROS, symbols)[0]), MICROS, symbols) == datetime(2020, 1, 1, 12)
    with pytest.raises(pa.ArrowInvalid):
        from_arrow(pa.array([1.5]), BIGINT, symbols)


# ------------------------------------------------------------------ convert
TINY, UNSIGNED = SqlType(Kind.INT, bits=8), SqlType(Kind.INT, bits=64, unsigned=True)
CHAR3 = SqlType(Kind.TEXT, length=3)
STAMP = SqlType(Kind.DATETIME, timestamp=True)
GOOD = [
    (INT, "12", 12), (INT, " 12 ", 12), (INT, "12.5", 13), (INT, "-12.5", -13), (INT, 1e3, 1000),
    (INT, 2.5, 2), (INT, 3.5, 4), (INT, Decimal("2.5"), 3),
    (INT, Decimal("0.5"), 1), (INT, True, 1), (INT, b"7", 7), (INT, "1e2", 100), (BOOL, False, 0), (TINY, -128, -128),
    (UNSIGNED, MAX_INT, MAX_INT), (BIGINT, MIN_INT, MIN_INT), (INT, date(2020, 1, 2), 20200102),
    (DOUBLE, "1.5", 1.5), (DOUBLE, 3, 3.0), (DOUBLE, Decimal("0.1"), 0.1),
    (decimal(5, 2), "1.005", Decimal("1.01")), (decimal(5, 2), 1.005, Decimal("1.01")),
    (decimal(5, 2), -7, Decimal("-7.00")),
    (CHAR3, "abc", "abc"), (CHAR3, "abc   ", "abc"), (CHAR3, 1.5, "1.5"), (CHAR3, 12, "12"), (CHAR3, True, "1"),
    (TEXT, 1e20, "1e20"), (TEXT, date(2020, 1, 2), "2020-01-02"), (TEXT, Decimal("1.50"), "1.50"),
    (TEXT, datetime(2020, 1, 2, 3, 4, 5), "2020-01-02 03:04:05"), (CHAR3, "äöü", "äöü"), (TEXT, 2.0, "2"),
    (DATE, "2020-02-29", date(2020, 2, 29)), (DATE, "2020/2/9", date(2020, 2, 9)), (DATE, 20200209, date(2020, 2, 9)),
    (DATE, "70-1-1", date(1970, 1, 1)), (DATE, "2020-01-02 10:00:00", date(2020, 1, 2)),
    (DATE, datetime(2020, 1, 2, 3), date(2020, 1, 2)),
    (DATETIME, "2020-01-02", datetime(2020, 1, 2)), (DATETIME, "2020-01-02T03:04:05.5", datetime(2020, 1, 2, 3, 4, 6)),
    (DATETIME, "20200102030405", datetime(2020, 1, 2, 3, 4, 5)), (MICROS, "2020-1-2 3:4", datetime(2020, 1, 2, 3, 4)),
    (MICROS, "2020-01-02 03:04:05.1234567", datetime(2020, 1, 2, 3, 4, 5, 123457)),
    (DATETIME, "2020-01-02 03:00:00+02:00", datetime(2020, 1, 2, 1)),
    (DATETIME, date(2020, 1, 2), datetime(2020, 1, 2)),
    (STAMP, "2038-01-19 03:14:07", datetime(2038, 1, 19, 3, 14, 7)),
]
BAD = [
    (INT, "abc", 1366), (INT, "", 1366), (INT, "12abc", 1265), (INT, 2**31, 1264), (INT, "1e99", 1264),
    (INT, float("inf"), 1264), (INT, float("nan"), 1264), (TINY, 128, 1264), (UNSIGNED, -1, 1264),
    (UNSIGNED, 2**63, 1264), (BIGINT, -(2**63), 1264), (BIGINT, -(2**63) + 1, 1264), (INT, object(), 1366),
    (DOUBLE, "x", 1366), (DOUBLE, "1.5x", 1265), (DOUBLE, "1e999", 1264), (DOUBLE, float("nan"), 1264),
    (decimal(5, 2), 1000, 1264), (decimal(5, 2), "a", 1366), (decimal(5, 2), 999.999, 1264),
    (CHAR3, "abcd", 1406), (CHAR3, b"\xff", 1366), (CHAR3, "\ud800", 1366), (TEXT, "x" * (MAX_TEXT_BYTES + 1), 1406),
    (DATE, "2020-02-30", 1292), (DATE, "today", 1292), (DATE, 5, 1292), (DATE, True, 1292), (DATE, "0000-00-00", 1292),
    (DATETIME, "2020-01-02 25:00:00", 1292), (DATETIME, "2020-01-02 nonsense", 1292),
    (DATETIME, "2020-01-02 03:00+99:00", 1292), (DATETIME, "9999-12-31 23:59:59.9", 1292),
    (STAMP, "2038-01-19 03:14:08", 1292), (STAMP, "1970-01-01 00:00:00", 1292),
]


def padded(value: Any, many: bool) -> list[Any]:
    """The value as row 3, alone of its sort or among enough rows for the path of many."""
    return [None, None, value] + [None] * (30 if many else 0)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("type", "value", "wanted"), GOOD, ids=str)
def test_convert_takes_what_mysql_takes(type: SqlType, value: Any, wanted: Any, many: bool) -> None:
    symbols = PlainSymbols()
    codes = convert(padded(value, many), Column("c", type), 1, symbols)
    assert codes[2] == encode(wanted, type, symbols)
    assert all(codes[i] == NULL_CODE for i in range(len(codes)) if i != 2)


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("type", "value", "code"), BAD, ids=lambda x: "object" if type(x) is object else str(x)[:30])
def test_convert_refuses_what_mysql_refuses(type: SqlType, value: Any, code: int, many: bool) -> None:
    with pytest.raises(SqlError) as error:
        convert(padded(value, many), Column("c", type), 1, PlainSymbols())
    assert error.value.code == code and "'c'" in error.value.message and "row 3" in error.value.message


@pytest.mark.parametrize("many", [False, True])
def test_null_and_default(many: bool) -> None:
    symbols = PlainSymbols()
    strict, auto = Column("c", INT, False), Column("c", INT, False, auto_increment=True)
    with pytest.raises(SqlError, match="Column 'c' cannot be null"):
        convert(padded(None, many), strict, 1, symbols)
    assert convert(padded(5, many), auto, 1, symbols)[0] == NULL_CODE
    with pytest.raises(SqlError) as error:
        convert([1, DEFAULT, 2], strict, 1, symbols)
    assert error.value.code == 1364
    filled = Column("c", INT, False, True, "7")
    assert convert([1, DEFAULT], filled, 1, symbols).tolist() == [1, 7] and default_code(filled, symbols) == 7
    assert default_code(auto, symbols) == NULL_CODE == default_code(Column("c", INT), symbols)


@given(a_type.flatmap(lambda t: st.tuples(st.just(t), st.lists(st.none() | VALUES[t], min_size=9, max_size=20))))
def test_the_fast_path_is_the_slow_path(case: tuple[SqlType, list[Any]]) -> None:
    type, values = case
    symbols, column = PlainSymbols(), Column("c", case[0])

    def outcome(given: Any) -> Any:
        try:
            return convert(given, column, 1, symbols).tolist()
        except SqlError as error:
            return error

    def one_by_one() -> Any:
        codes = []
        for row, value in enumerate(values, 1):
            try:
                codes += convert([value], column, row, symbols).tolist()
            except SqlError as error:
                return error
        return codes

    assert outcome(values) == one_by_one() == outcome(pa.array(values, arrow_type(type)))


def test_arrow_columns_of_other_types_are_converted_as_clients_values() -> None:
    symbols = PlainSymbols()
    assert convert(pa.array(["1", "2.5"]), Column("c", INT), 1, symbols).tolist() == [1, 3]
    assert convert(pa.array([True, None]), Column("c", BOOL), 1, symbols).tolist() == [1, NULL_CODE]
    with pytest.raises(SqlError, match="Out of range value for column 'c' at row 2"):
        convert(pa.array([1, 300]), Column("c", TINY), 1, symbols)
    with pytest.raises(SqlError, match="Out of range value for column 'c' at row 2"):
        convert(pa.array([1, 2**64 - 1], pa.uint64()), Column("c", UNSIGNED), 1, symbols)


@pytest.mark.parametrize(("source", "value", "column", "wanted"), [
    (BIGINT, 5, Column("c", INT), 5), (BIGINT, 2**31, Column("c", INT), 1264), (BIGINT, None, Column("c", INT), None),
    (BIGINT, None, Column("c", INT, False), 1048), (decimal(10, 1), Decimal("2.5"), Column("c", INT), 3),
    (DOUBLE, 2.5, Column("c", decimal(5, 2)), Decimal("2.50")), (TEXT, "abcd", Column("c", CHAR3), 1406),
    (TEXT, "abc", Column("c", CHAR3), "abc"), (INT, 7, Column("c", TEXT), "7"),
    (DATE, date(2020, 1, 1), Column("c", DATETIME), datetime(2020, 1, 1)),
    (MICROS, datetime(2020, 1, 1, 0, 0, 0, 600_000), Column("c", DATETIME), datetime(2020, 1, 1, 0, 0, 1)),
])
def test_assigning_an_expression_to_a_column(source: SqlType, value: Any, column: Column, wanted: Any) -> None:
    symbols = PlainSymbols()
    codes = np.array([encode(value, source, symbols)])
    if isinstance(wanted, int) and wanted > 1000:
        with pytest.raises(SqlError) as error:
            recode(codes, source, column, 1, symbols)
        assert error.value.code == wanted
    else:
        assert decode(int(recode(codes, source, column, 1, symbols)[0]), column.type, symbols) == wanted
    with pytest.raises(SqlError) as error:
        recode(np.array([ERROR_CODE]), source, column, 1, symbols)
    assert error.value.code == 1690
