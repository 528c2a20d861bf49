"""The zero date as a value: its code, its text, its place among dates, and the ways through messages and Arrow."""

from __future__ import annotations

import pickle
from datetime import date, datetime, timedelta

import pytest

from noria.core.expressions.zero_date import ZERO_CODE, ZERO_DATE, ZERO_DATETIME, is_zero_text
from noria.core.limits import NULL_CODE
from noria.core.symbols import NO_SYMBOLS
from noria.core.types import DATE, DATETIME, SqlType
from noria.core.values import array_of, decode, encode, from_arrow, python_values

FIRST = datetime(1, 1, 1)


def test_its_code_is_that_of_no_date() -> None:
    assert encode(ZERO_DATE, DATE, NO_SYMBOLS) == encode(ZERO_DATETIME, DATETIME, NO_SYMBOLS) == ZERO_CODE
    assert NULL_CODE < ZERO_CODE < encode(FIRST.date(), DATE, NO_SYMBOLS) == encode(FIRST, DATETIME, NO_SYMBOLS)
    assert decode(ZERO_CODE, DATE, NO_SYMBOLS) is ZERO_DATE and decode(ZERO_CODE, DATETIME, NO_SYMBOLS) is ZERO_DATETIME


@pytest.mark.parametrize("zero, first", [(ZERO_DATE, date(1, 1, 1)), (ZERO_DATETIME, FIRST)])
def test_it_is_less_than_every_date(zero: date, first: date) -> None:
    assert zero < first and not zero > first and zero <= zero and zero >= zero and zero != first and first != zero
    assert zero == pickle.loads(pickle.dumps(zero)) and hash(zero) == hash(pickle.loads(pickle.dumps(zero)))
    assert min(first, zero) is zero


def test_its_texts() -> None:
    assert str(ZERO_DATE) == ZERO_DATE.isoformat() == f"{ZERO_DATE}" == "0000-00-00"
    assert str(ZERO_DATETIME) == f"{ZERO_DATETIME}" == "0000-00-00 00:00:00"
    assert f"{ZERO_DATETIME:%Y%m%d%H%M%S}" == ZERO_DATETIME.strftime("%Y%m%d%H%M%S") == "0" * 14
    assert ZERO_DATETIME + timedelta(days=1) is ZERO_DATETIME and ZERO_DATETIME - timedelta(hours=2) is ZERO_DATETIME


@pytest.mark.parametrize("text, is_zero", [
    ("0000-00-00", True), ("0000-00-00 00:00:00", True), (" 0000-00-00T00:00:00.000 ", True), ("00000000", True),
    ("00000000000000", True), ("0000-0-0 0:0:0", True), ("0000-00-01", False), ("0000-01-00", False),
    ("0000-00-00 00:00:01", False), ("0", False), ("", False), (None, False), (0, False)])
def test_texts_of_it(text: object, is_zero: bool) -> None:
    assert is_zero_text(text) is is_zero


@pytest.mark.parametrize("zero, type", [(ZERO_DATE, DATE), (ZERO_DATETIME, DATETIME)])
def test_through_arrow(zero: date, type: SqlType) -> None:
    values = [zero, None, FIRST.date() if type is DATE else FIRST, zero]
    array = array_of(values, type)
    assert python_values(array) == values and python_values(array.slice(1, 2)) == values[1:3]
    codes = from_arrow(array, type, NO_SYMBOLS).tolist()
    assert codes == [ZERO_CODE, NULL_CODE, ZERO_CODE + 86_400_000_000, ZERO_CODE]
