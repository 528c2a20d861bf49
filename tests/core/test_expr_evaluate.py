"""Expressions over batches against the row-at-a-time reference, for random trees and rows."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Col, Expr
from noria.core.expressions.functions import call, cast, literal
from noria.core.limits import ERROR_CODE, MAX_INT, MIN_INT
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
    Kind,
    SqlType,
    decimal,
)
from noria.core.values import decode, encode
from reference import mir_reference
from seeds import cases

COLUMNS = (BIGINT, INT, DOUBLE, decimal(10, 2), decimal(18, 0), TEXT, TEXT_BIN, DATE, DATETIME, BOOL)
TEXTS = ["", "a", "A", "ä", "b", "ab%", "12", "-3.5x", "1e2", " a ", "2020-01-02", "Straße", "a_b", "line\nbreak"]


def value_of(type: SqlType) -> st.SearchStrategy[Any]:
    if type.kind is Kind.INT and type.boolean:
        return st.sampled_from([0, 1])
    if type.kind is Kind.INT:
        return st.integers(-5, 5) | st.sampled_from([MAX_INT, MIN_INT, 2**53 + 1, 10**17])
    if type.kind is Kind.DOUBLE:
        return st.sampled_from([0.0, 0.5, -1.5, 2.0, 1e300, -1e300, 1e-9, 3.25, 1e15, 123456.789])
    if type.kind is Kind.DECIMAL:
        most = 10**type.precision - 1
        return (st.integers(-500, 500) | st.sampled_from([most, -most])).map(
            lambda i: Decimal(i).scaleb(-type.scale))
    if type.kind is Kind.TEXT:
        return st.sampled_from(TEXTS)
    if type.kind is Kind.DATE:
        return st.sampled_from([date(2020, 1, 2), date(1969, 12, 31), date(9999, 12, 31)])
    return st.sampled_from([datetime(2020, 1, 2), datetime(2020, 1, 2, 3, 4, 5), datetime(1960, 1, 1, 23)])


LITERALS = st.one_of(
    st.integers(-3, 3), st.sampled_from([MAX_INT, 0.5, 1e300, Decimal("1.50"), Decimal("-2.505"), None, True]),
    st.sampled_from(TEXTS), st.just(date(2020, 1, 2)), st.just(datetime(2020, 1, 2, 3, 4, 5)))
BINARY = ["add", "sub", "mul", "div", "intdiv", "mod", "eq", "ne", "lt", "le", "gt", "ge", "nseq", "and", "or", "xor",
          "coalesce", "nullif", "like", "concat", "substring"]
UNARY = ["neg", "abs", "round", "floor", "ceil", "not", "is_null", "is_true", "lower", "upper", "length",
         "char_length", "trim"]
CASTS = [BIGINT, DOUBLE, decimal(18, 3), decimal(4, 1), TEXT, TEXT_BIN, DATE, DATETIME, SqlType(Kind.TEXT, length=2)]


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> Expr:
    """Any tree that types allow."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        if draw(st.booleans()):
            i = draw(st.integers(0, len(COLUMNS) - 1))
            return Col(COLUMNS[i], True, i)
        return literal(draw(LITERALS))
    kind = draw(st.sampled_from(["binary", "binary", "unary", "cast", "if", "case", "in"]))
    inner = expressions(depth - 1)
    try:
        if kind == "binary":
            return call(draw(st.sampled_from(BINARY)), draw(inner), draw(inner))
        if kind == "unary":
            return call(draw(st.sampled_from(UNARY)), draw(inner))
        if kind == "cast":
            return cast(draw(inner), draw(st.sampled_from(CASTS)))
        if kind == "in":
            return call("in", draw(inner), *(literal(draw(LITERALS)) for _ in range(3)))
        count = {"if": 3, "case": draw(st.integers(2, 5))}[kind]
        return call(kind, *(draw(inner) for _ in range(count)))
    except SqlError:
        return literal(1)


@st.composite
def rows(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    one = st.tuples(*(st.none() | value_of(t) for t in COLUMNS))
    return draw(st.lists(one, min_size=1, max_size=6))


def encoded(values: list[tuple[Any, ...]], symbols: PlainSymbols) -> Batch:
    return Batch.from_rows([[encode(v, t, symbols) for v, t in zip(r, COLUMNS, strict=True)] for r in values],
                           len(COLUMNS))


def decoded(code: int, type: SqlType, symbols: PlainSymbols) -> Any:
    return mir_reference.ERROR if code == ERROR_CODE else decode(code, type, symbols)


@settings(max_examples=cases(300), deadline=None)
@given(expressions(), rows())
def test_codes_agree_with_the_reference(e: Expr, values: list[tuple[Any, ...]]) -> None:
    symbols = PlainSymbols()
    batch = encoded(values, symbols)
    codes = evaluate.compile(e)(batch, symbols)
    mask = evaluate.predicate(call("and", e) if e.type != BOOL else e)(batch, symbols) if _as_condition(e) else None
    for i, r in enumerate(values):
        want = mir_reference.evaluate(e, r)
        got = decoded(int(codes[i]), e.type, symbols)
        note(f"{e} : {e.type} over {r}")
        assert got == want or (isinstance(want, float) and got == pytest.approx(want, rel=1e-12)), (got, want)
        if want is None:
            assert e.nullable, "NULL from what is said not to be nullable"
        if mask is not None:
            assert bool(mask[i]) == mir_reference.is_true(want)


def _as_condition(e: Expr) -> bool:
    return e.type.is_number


@settings(max_examples=cases(60), deadline=None)
@given(expressions(), rows())
def test_one_row_at_a_time_is_the_same(e: Expr, values: list[tuple[Any, ...]]) -> None:
    symbols = PlainSymbols()
    batch, run = encoded(values, symbols), evaluate.compile(e)
    whole = run(batch, symbols)
    for i in range(len(batch)):
        assert run(batch.take(np.array([i])), symbols)[0] == whole[i]
    assert len(run(batch.take(np.empty(0, np.int64)), symbols)) == 0


QUOTIENTS = ["div", "div", "div", "add", "sub", "mul", "mod", "intdiv", "neg", "abs", "round", "truncate", "floor",
             "ceil", "cast", "if", "coalesce", "greatest", "eq", "lt", "nseq", "in", "total"]


@st.composite
def quotients(draw: st.DrawFn, depth: int = 4) -> Expr:
    """Arithmetic of exact numbers with many divisions."""
    exact = [i for i, t in enumerate(COLUMNS) if t.kind in (Kind.INT, Kind.DECIMAL)]
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        if draw(st.booleans()):
            i = draw(st.sampled_from(exact))
            return Col(COLUMNS[i], True, i)
        return literal(draw(st.sampled_from([0, 1, 3, 7, -9, 100, 10**12, Decimal("1.5"), Decimal("0.019")])))
    inner = quotients(depth - 1)
    op = draw(st.sampled_from(QUOTIENTS))
    try:
        if op in ("neg", "abs", "floor", "ceil"):
            return call(op, draw(inner))
        if op in ("round", "truncate"):
            return call(op, draw(inner), literal(draw(st.integers(-3, 8))))
        if op == "cast":
            return cast(draw(inner), draw(st.sampled_from([BIGINT, DOUBLE, decimal(18, 6), decimal(6, 2), TEXT])))
        if op == "total":
            whole, rest = draw(inner), draw(inner)
            exact_ones = all(e.type.kind in (Kind.INT, Kind.DECIMAL) for e in (whole, rest))
            return call(op, call("round", whole, literal(3)), rest, literal(3)) if exact_ones else whole
        if op in ("if", "in"):
            return call(op, draw(inner), draw(inner), draw(inner))
        return call(op, draw(inner), draw(inner))
    except SqlError:
        return literal(3)


@settings(max_examples=cases(400), deadline=None)
@given(quotients(), st.sampled_from([1, 1, 1000, 10**6, 10**9]), rows())
def test_quotients_agree_with_the_reference(e: Expr, times: int, values: list[tuple[Any, ...]]) -> None:
    symbols, e = PlainSymbols(), call("mul", e, literal(times)) if times > 1 and e.type.is_number else e
    batch, run = encoded(values, symbols), evaluate.compile(e)
    codes = run(batch, symbols)
    for i, r in enumerate(values):
        want, got = mir_reference.evaluate(e, r), decoded(int(codes[i]), e.type, symbols)
        note(f"{e} : {e.type} over {r}")
        assert got == want or (isinstance(want, float) and got == pytest.approx(want, rel=1e-12)), (got, want)
        assert run(batch.take(np.array([i])), symbols)[0] == codes[i]
