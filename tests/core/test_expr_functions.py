"""Types, nullability and folding of functions; order of rows."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Call, Const, Expr, col
from noria.core.expressions.functions import NULL, call, canonical, cast, literal, truth
from noria.core.limits import ERROR_CODE, MAX_INT
from noria.core.order import sort_rows
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import (
    BIGINT,
    BOOL,
    DATE,
    DATETIME,
    DOUBLE,
    INT,
    TEXT,
    TEXT_BIN,
    Field,
    SqlType,
    decimal,
)

N, J, D, X, S, B, K, M = (col(0, INT), col(1, BIGINT, False), col(2, decimal(10, 2)), col(3, DOUBLE), col(4, TEXT),
                          col(5, TEXT_BIN), col(6, DATE), col(7, DATETIME))


@pytest.mark.parametrize("e, type, nullable", [
    (call("add", N, J), BIGINT, True), (call("add", J, J), BIGINT, False),
    (call("add", N, D), decimal(18, 2), True),
    (call("mul", D, D), decimal(18, 4), True), (call("div", J, J), decimal(18, 4), True),
    (call("div", D, J), decimal(18, 6), True), (call("div", X, J), DOUBLE, True),
    (call("mod", J, D), decimal(18, 2), True),
    (call("eq", J, J), BOOL, False), (call("lt", N, X), BOOL, True), (call("nseq", N, J), BOOL, False),
    (call("is_null", N), BOOL, False), (call("coalesce", N, J), BIGINT, False),
    (call("coalesce", N, D), decimal(18, 2), True),
    (call("if", N, S, B), TEXT_BIN, True), (call("case", N, J, J), BIGINT, False),
    (call("case", N, J), BIGINT, True),
    (call("nullif", J, N), BIGINT, True), (call("concat", S, N), TEXT, True),
    (call("length", S), BIGINT, True),
    (call("round", D, literal(1)), decimal(18, 1), True), (call("floor", D), BIGINT, True),
    (call("neg", X), DOUBLE, True),
    (call("coalesce", K, M), DATETIME, True), (cast(S, DATE), DATE, True),
])
def test_types(e: Expr, type: SqlType, nullable: bool) -> None:
    assert (e.type, e.nullable) == (type, nullable)


@pytest.mark.parametrize("op, args, value", [
    ("add", (1, 2), 3), ("div", (1, 8), Decimal("0.1250")), ("div", (-1, 4), Decimal("-0.2500")),
    ("intdiv", (-7, 2), -3), ("mod", (-7, 2), -1),
    ("div", (1.0, 4), 0.25), ("add", ("1x", 2), 3.0), ("add", ("1.5", 2), 3.5),
    ("concat", ("a", 1, Decimal("1.50")), "a11.50"),
    ("concat", ("a", None), None), ("eq", ("a", "Ä"), 1), ("lt", ("a", "B"), 1), ("eq", ("1", 1), 1),
    ("eq", ("a", 0), 1),
    ("like", ("Straße", "%SSE"), 1), ("like", ("a%", "a\\%"), 1), ("like", ("ab", "a\\%"), 0),
    ("like", ("a|b", "a||b", "|"), 1),
    ("and", (0, None), 0), ("and", (1, None), None), ("or", (1, None), 1), ("xor", (1, None), None),
    ("not", (None,), None),
    ("nseq", (None, None), 1), ("in", (3, 1, None), None), ("in", (1, 1, None), 1), ("is_true", (None,), 0),
    ("substring", ("abc", -2), "bc"), ("substring", ("abc", 0), ""), ("substring", ("abc", 2, 1), "b"),
    ("trim", ("  a ",), "a"),
    ("round", (Decimal("2.5"),), Decimal(3)), ("round", (Decimal("-2.5"),), Decimal(-3)),
    ("round", (1250, -2), 1300),
    ("floor", (Decimal("-1.5"),), -2), ("ceil", (Decimal("-1.5"),), -1), ("length", ("é",), 2),
    ("char_length", ("é",), 1),
    ("case", (0, "a", 1, "b"), "b"), ("case", (0, "a"), None), ("coalesce", (None, None), None),
    ("nullif", (1, 1), None),
    ("is_uuid", ("6ccd780c-baba-1026-9564-5b8c656024db",), 1), ("is_uuid", ("6CCD780CBABA102695645B8C656024DB",), 1),
    ("is_uuid", ("{6ccd780c-baba-1026-9564-5b8c656024db}",), 1), ("is_uuid", ("6ccd780c-baba-1026-9564",), 0),
    ("uuid_to_bin", ("6ccd780c-baba-1026-9564-5b8c656024db",), bytes.fromhex("6ccd780cbaba102695645b8c656024db")),
    ("uuid_to_bin", ("6ccd780c-baba-1026-9564-5b8c656024db", 1), bytes.fromhex("1026baba6ccd780c95645b8c656024db")),
    ("bin_to_uuid", (bytes.fromhex("6ccd780cbaba102695645b8c656024db"),), "6ccd780c-baba-1026-9564-5b8c656024db"),
    ("bin_to_uuid", (bytes.fromhex("1026baba6ccd780c95645b8c656024db"), 1), "6ccd780c-baba-1026-9564-5b8c656024db"),
    ("format_bytes", (512,), " 512 bytes"), ("format_bytes", (18446644073709551615.0,), "16.00 EiB"),
    ("json_search", ('["abc", {"y z": "b", "ok": "b"}]', "all", "b"), '["$[1].ok", "$[1].\\"y z\\""]'),
    ("json_pretty", ('{"b": [1, {}], "a": []}',), '{\n  "a": [],\n  "b": [\n    1,\n    {}\n  ]\n}'),
    ("json_extract", ('{"a": {"a": {"a": 1}}}', "$**.a**.a"), '[{"a": 1}, 1]'),
    ("json_extract", ('{"a":' * 60 + "1" + "}" * 60, "$**.a" + "**.a" * 20 + "**.b"), None),
    ("json_search", ('{"a":' * 60 + '"x"' + "}" * 60, "all", "x", None, "$" + "**.a" * 20), '"$' + ".a" * 60 + '"'),
    ("export_set", (5, "a" * 2_000_000, "b", ",", 64), None), ("export_set", (5, "a", "b", ",", 3), "a,b,a"),
    ("json_merge_preserve", ('{"bb": 1}', '{"a": 2}'), '{"a": 2, "bb": 1}'),
])
def test_constants_fold(op: str, args: tuple[Any, ...], value: Any) -> None:
    e = call(op, *map(literal, args))
    assert isinstance(e, Const), e
    assert e.value == value and type(e.value) is type(value)


@pytest.mark.parametrize(("e", "value"), [
    (call("div", literal(2), literal(3)), Decimal("0.6667")),
    (call("div", literal(-2), literal(3)), Decimal("-0.6667")),
    (call("mul", call("div", literal(2), literal(3)), literal(100)), Decimal("66.6667")),
    (call("mul", call("div", literal(1), literal(3)), literal(3)), Decimal("1.0000")),
    (call("div", call("div", literal(1), literal(3)), literal(7)), Decimal("0.04761905")),
])
def test_quotients_keep_their_digits(e: Expr, value: Decimal) -> None:
    """They do not become constants, which have the digits of their type alone."""
    assert isinstance(e, Call)
    assert evaluate.constant(e) == value
    shown = call("round", e, literal(3))
    assert isinstance(shown, Const) and abs(shown.value - value) < Decimal("0.0006")


@pytest.mark.parametrize("e", [call("uuid_to_bin", literal("x")), call("bin_to_uuid", literal(b"short"))])
def test_no_uuid_is_an_error_of_its_row(e: Expr) -> None:
    assert evaluate.compile(e)(Batch.from_rows([[5], [-5]], 1), PlainSymbols()).tolist() == [ERROR_CODE] * 2


def test_overflow_is_an_error_when_evaluated_not_when_planned() -> None:
    e = call("add", literal(MAX_INT), literal(1))
    assert isinstance(e, Call)
    with pytest.raises(SqlError) as raised:
        evaluate.constant(e)
    assert raised.value.code == 1690
    short = call("and", call("lt", N, literal(0)), call("gt", e, literal(0)))
    batch = Batch.from_rows([[5], [-5]], 1)
    assert evaluate.compile(short)(batch, PlainSymbols()).tolist() == [0, ERROR_CODE]
    assert evaluate.predicate(short)(batch, PlainSymbols()).tolist() == [False, False]


def test_literals_are_read_at_plan_time() -> None:
    assert str(call("eq", N, literal("12"))) == "eq(#0, 12)"
    assert str(call("lt", literal(3), N)) == "gt(#0, 3)"
    assert str(call("eq", K, literal("2020-1-2"))) == "eq(#6, 2020-01-02)"
    assert str(call("in", N, literal("2"), literal(1), literal(2))) == "in(#0, 1, 2)"
    assert str(call("eq", D, literal(Decimal("3.00")))) == "eq(#2, 3.00)"
    with pytest.raises(SqlError) as raised:
        call("eq", K, literal("x"))
    assert raised.value.code == 1525


def test_scales_compare_exactly_beyond_doubles() -> None:
    big = col(0, BIGINT)
    batch = Batch.from_rows([[10**18], [10**18 + 1], [-(10**18)]], 1)
    e = call("gt", big, literal(Decimal("999999999999999.5")))
    assert evaluate.predicate(e)(batch, PlainSymbols()).tolist() == [True, True, False]


def test_not_goes_into_comparisons() -> None:
    assert str(call("not", call("lt", N, J))) == "ge(#0, #1)"
    assert str(call("not", call("not", call("is_null", N)))) == "is_null(#0)"
    assert call("is_null", J) == literal(False)
    assert str(truth(N)) == "ne(#0, 0)"


def test_canonical() -> None:
    a, b = call("lt", N, literal(1)), call("eq", J, N)
    assert canonical(call("and", a, b)) == canonical(call("and", call("eq", N, J), a))
    assert canonical(call("lt", J, N)) == canonical(call("gt", N, J))


@pytest.mark.parametrize("op, args, code", [
    ("nope", (N,), 1305), ("add", (N,), 1582), ("sqrt", (), 1582),
    ("round", (N, J), 1235),
    ("like", (S, S, literal("ab")), 1210),
])
def test_nonsense(op: str, args: tuple[Expr, ...], code: int) -> None:
    with pytest.raises(SqlError) as raised:
        call(op, *args)
    assert raised.value.code == code


def test_null_takes_any_type() -> None:
    assert call("coalesce", NULL, S) == S
    assert call("if", N, NULL, K).type == DATE
    assert call("eq", S, NULL).nullable


# ------------------------------------------------------------------ order
FIELDS = (Field("n", INT), Field("s", TEXT), Field("b", TEXT_BIN), Field("m", DATETIME))
ROWS: list[tuple[Any, ...]] = [
    (2, "b", "b", datetime(2020, 1, 1)), (None, "A", "A", None), (1, "ä", "a", datetime(1960, 1, 1)),
    (2, None, "B", None)]


@pytest.mark.parametrize("order, places", [
    ([(0, False)], [1, 2, 0, 3]), ([(0, True)], [0, 3, 2, 1]), ([(1, False), (0, True)], [3, 2, 1, 0]),
    ([(2, False)], [1, 3, 2, 0]), ([(3, True), (0, False)], [0, 2, 1, 3]), ([], [0, 1, 2, 3]),
])
def test_order(order: list[tuple[int, bool]], places: list[int]) -> None:
    assert sort_rows(ROWS, order, FIELDS) == [ROWS[i] for i in places]


def test_dates_are_compared_with_datetimes() -> None:
    batch = Batch(np.array([[0] * 1] * 8, np.int64), np.ones(1, np.int64))
    e = call("le", K, literal(datetime(1970, 1, 1, 0, 0, 1)))
    assert evaluate.predicate(e)(batch, PlainSymbols()).tolist() == [True]
    assert str(call("lt", K, literal(date(2020, 1, 1)))) == "lt(#6, 2020-01-01)"


def test_casts_are_clipped_but_division_is_not() -> None:
    assert cast(literal(1e300), BIGINT) == Const(BIGINT, False, MAX_INT)
    assert cast(literal(12345), decimal(4, 1)) == Const(decimal(4, 1), False, Decimal("999.9"))
    with pytest.raises(SqlError) as raised:
        evaluate.constant(call("intdiv", literal(1e300), literal(2)))
    assert raised.value.code == 1690
