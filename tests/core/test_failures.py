"""An exception while a row is evaluated is that row's error, whatever raised it, and no other row's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation, SqlError
from noria.core.errors.codes import OUT_OF_RESOURCES
from noria.core.expressions import evaluate
from noria.core.expressions.evaluate_numbers import NUMBERS
from noria.core.expressions.evaluate_text import TEXTS
from noria.core.expressions.expr import Call, Expr, col
from noria.core.expressions.functions import call, literal
from noria.core.limits import ERROR_CODE, MAX_INT, NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.types import BIGINT, TEXT, decimal

A, B, S = col(0, BIGINT), col(1, BIGINT), col(2, TEXT)
ROWS = [(1, 10), (7, 20), (NULL_CODE, 30), (7, 40), (2, 50)]
BROKEN = Call(BIGINT, True, "neg", (A,))  # raises for 7
TRUE, FALSE, E = 1, 0, ERROR_CODE
runs: list[int] = []


@pytest.fixture(autouse=True)
def _broken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """neg is a kernel that raises for a batch with a 7."""
    def make(e: Call, nodes: list[Any]) -> Any:
        def run(columns: Any, symbols: Any) -> Any:
            codes = nodes[0](columns, symbols)
            runs.append(len(codes))
            if (codes == 7).any():
                raise KeyError("no seven")
            return np.where(codes > ERROR_CODE, -codes, codes)

        return run

    monkeypatch.setitem(NUMBERS, "neg", make)
    runs.clear()
    yield


def batch(symbols: PlainSymbols) -> Batch:
    text = symbols.intern("a")
    return Batch.from_rows([(*r, text) for r in ROWS], 3)


def codes(e: Expr) -> list[int]:
    symbols = PlainSymbols()
    return evaluate.compile(e)(batch(symbols), symbols).tolist()


@pytest.mark.parametrize("e, expected", [
    (BROKEN, [-1, E, NULL_CODE, E, -2]),
    (call("add", BROKEN, B), [9, E, NULL_CODE, E, 48]),
    (call("coalesce", B, BROKEN), [10, 20, 30, 40, 50]),
    (call("coalesce", BROKEN, B), [-1, E, 30, E, -2]),
    (call("if", call("eq", A, literal(7)), B, BROKEN), [-1, 20, NULL_CODE, 40, -2]),
    (call("is_null", BROKEN), [FALSE, E, TRUE, E, FALSE]),
    (call("and", call("gt", BROKEN, literal(-9)), call("gt", B, literal(30))), [FALSE, FALSE, FALSE, E, TRUE]),
    (call("or", call("gt", BROKEN, literal(0)), call("gt", B, literal(30))), [FALSE, E, NULL_CODE, TRUE, TRUE]),
    (call("not", call("lt", BROKEN, literal(0))), [FALSE, E, NULL_CODE, E, FALSE]),
])
def test_the_rows_that_raise_are_errors(e: Expr, expected: list[int]) -> None:
    assert codes(e) == expected


def test_a_condition_that_raises_is_not_true() -> None:
    symbols = PlainSymbols()
    rows = batch(symbols)
    found = evaluate.predicate(call("lt", BROKEN, literal(0)))(rows, symbols)
    assert found.tolist() == [True, False, False, False, True]
    with pytest.raises(SqlError) as raised:
        evaluate.certain(call("lt", BROKEN, literal(0)))(rows, symbols)
    assert raised.value.code == 1690


def test_a_condition_whose_own_comparison_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def like(e: Call, wanted: bool) -> Any:
        def run(columns: Any, symbols: Any) -> Any:
            if (columns[1] == 20).any():
                raise RecursionError
            return np.full(columns.shape[1], wanted)

        return run

    monkeypatch.setitem(evaluate._MASKS, "like", like)
    found = codes(call("like", S, literal("a%")))
    assert found == [1, E, 1, 1, 1]


def test_a_batch_in_which_nothing_raises_is_evaluated_once() -> None:
    symbols = PlainSymbols()
    run = evaluate.compile(BROKEN)
    run(batch(symbols).where(np.array([1, 0, 1, 0, 1], np.bool_)), symbols)
    assert runs == [3]


def test_what_is_the_same_for_all_rows_is_tried_with_one() -> None:
    symbols = PlainSymbols()
    e = Call(BIGINT, True, "neg", (literal(7),))
    rows = Batch.of(np.zeros((1, 10_000), np.int64))
    assert (evaluate.compile(e)(rows, symbols) == ERROR_CODE).all() and len(runs) == 2
    with pytest.raises(SqlError):
        evaluate.constant(e)


@pytest.mark.parametrize("fault", [
    InvariantViolation("HOLE-CLOSED", "x"), MemoryError(), OSError(12, "no memory"),
    SqlError(*OUT_OF_RESOURCES, "no room")])
def test_what_is_no_fault_of_a_row_leaves(fault: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(e: Call, nodes: list[Any]) -> Any:
        def run(columns: Any, symbols: Any) -> Any:
            raise fault

        return run

    monkeypatch.setitem(TEXTS, "concat", make)
    with pytest.raises(type(fault)):
        codes(call("concat", S, S))


@pytest.mark.parametrize("op, value, digits, expected", [
    ("round", 5, -19, 0), ("round", MAX_INT, -18, 9 * 10**18), ("round", MAX_INT, -20, 0), ("round", 5, -(10**18), 0),
    ("round", MAX_INT, -19, E), ("round", MAX_INT, -1, E), ("round", -99, -19, 0), ("round", 1250, -2, 1300),
    ("round", 55, 400, 55), ("truncate", MAX_INT, -18, 9 * 10**18), ("truncate", -MAX_INT + 1, -18, -9 * 10**18),
    ("truncate", 5, -30, 0), ("truncate", 5, MAX_INT, 5),
    # MariaDB and MySQL give 8446744073709551616 here: 10**19 overflows in them.  Nothing is left above that digit.
    ("truncate", MAX_INT, -19, 0),
])
def test_digits_before_the_point(op: str, value: int, digits: int, expected: int) -> None:
    symbols = PlainSymbols()
    e = call(op, col(0, BIGINT), literal(digits))
    assert evaluate.compile(e)(Batch.from_rows([(value,)], 1), symbols).tolist() == [expected]


@pytest.mark.parametrize("value, digits, rounded, truncated", [
    ("123456789012.345678", -19, 0, 0), ("99.900000", -1, 100, 90), ("99.900000", -2, 100, 0),
    ("99.900000", -30, 0, 0), ("999999999999.999999", -12, 10**12, 0), ("999999999999.999999", -13, 0, 0),
    ("500000000000.000000", -12, 10**12, 0), ("-500000000000.000000", -12, -(10**12), 0),
])
def test_digits_before_the_point_of_decimals(value: str, digits: int, rounded: int, truncated: int) -> None:
    """As MariaDB gives them."""
    x = replace(literal(Decimal(value)), type=decimal(18, 6))
    assert evaluate.constant(Call(decimal(18, 0), False, "round", (x, literal(digits)))) == rounded
    assert evaluate.constant(Call(decimal(18, 0), False, "truncate", (x, literal(digits)))) == truncated


@pytest.mark.parametrize("value, digits, rounded, truncated", [
    (1.5, 400, 1.5, 1.5), (1.5, -400, 0.0, 0.0), (1.5e300, -19, 1.5e300, 1.5e300), (1.5e300, 400, 1.5e300, 1.5e300),
    (1e-320, 320, 1e-320, 1e-320), (1.25, -(2**63) + 2, 0.0, 0.0), (1.25, MAX_INT, 1.25, 1.25)])
def test_digits_of_doubles(value: float, digits: int, rounded: float, truncated: float) -> None:
    """As MariaDB gives them."""
    assert evaluate.constant(call("round", literal(value), literal(digits))) == rounded
    assert evaluate.constant(call("truncate", literal(value), literal(digits))) == truncated


@pytest.mark.parametrize("period, months, expected", [
    (202001, 1, 202002), (0, 5, 0), (1, 5, 200006), (12, 1, 200101), (202013, 5, 202106), (202001, -24240, 1)])
def test_periods(period: int, months: int, expected: int) -> None:
    assert evaluate.constant(call("period_add", literal(period), literal(months))) == expected


@pytest.mark.parametrize("period, months", [(202001, MAX_INT), (-1, 5), (202001, -100_000), (MAX_INT, MAX_INT)])
def test_periods_beyond_the_range(period: int, months: int) -> None:
    """MariaDB takes some of the bits of these numbers."""
    with pytest.raises(SqlError) as raised:
        evaluate.constant(call("period_add", literal(period), literal(months)))
    assert raised.value.code == 1690
