"""What client values mean as lookup keys: MySQL's comparison rules for `column = value`."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.core.types import BIGINT, BYTES, DATE, DATETIME, DOUBLE, TEXT, Field, SqlType, decimal
from noria.server.answering.keys import NO_ROW, _are_stored, _comparable, key_of


def one(value: Any, kind: SqlType) -> Any:
    key = key_of([value], [Field("c", kind)])
    return None if key is None else key[0]


@pytest.mark.parametrize(("value", "kind", "wanted"), [
    (5, BIGINT, 5), (True, BIGINT, 1), (5.0, BIGINT, 5), (Decimal("5.00"), BIGINT, 5), ("5", BIGINT, 5),
    (" 5abc", BIGINT, 5), ("abc", BIGINT, 0), ("1e2", BIGINT, 100),
    (5, DOUBLE, 5.0), ("2.5", DOUBLE, 2.5), (Decimal("2.5"), DOUBLE, 2.5),
    (Decimal("1.50"), decimal(9, 2), Decimal("1.5")), (2.5, decimal(9, 2), Decimal("2.5")), (7, decimal(9, 2), 7),
    ("x", TEXT, "x"), (b"x", TEXT, "x"),
    ("2024-02-29", DATE, date(2024, 2, 29)), (datetime(2024, 2, 29), DATE, date(2024, 2, 29)),
    (date(2024, 2, 29), DATETIME, datetime(2024, 2, 29)),
    ("2024-02-29 01:02:03", DATETIME, datetime(2024, 2, 29, 1, 2, 3)),
])
def test_values_that_rows_can_have(value: Any, kind: SqlType, wanted: Any) -> None:
    assert one(value, kind) == wanted


@pytest.mark.parametrize(("value", "kind"), [
    (None, BIGINT), (5.5, BIGINT), (2**63, BIGINT), (-(2**63), BIGINT), (float("nan"), BIGINT),
    (Decimal("1.234"), decimal(9, 2)), (datetime(2024, 1, 1, 1), DATE),
])
def test_values_that_no_row_has(value: Any, kind: SqlType) -> None:
    assert key_of([value], [Field("c", kind)]) is None


@pytest.mark.parametrize(("value", "kind", "code"), [
    (5, TEXT, 1235), ("no date", DATE, 1525), ("2024-02-30", DATETIME, 1525), (date(2024, 1, 1), BIGINT, 1235),
])
def test_comparisons_that_are_refused(value: Any, kind: SqlType, code: int) -> None:
    with pytest.raises(SqlError) as e:
        one(value, kind)
    assert e.value.code == code


def test_one_impossible_column_is_enough() -> None:
    fields = [Field("a", BIGINT), Field("b", TEXT)]
    assert key_of([1, "x"], fields) == (1, "x")
    assert key_of([1, None], fields) is None


@pytest.mark.parametrize(("values", "kind", "stored"), [
    ((1, 2**63 - 1), BIGINT, True), ((1, 2**63), BIGINT, False), ((1, True), BIGINT, False), ((1, None), BIGINT, False),
    ((1, "2"), BIGINT, False), ((), BIGINT, False), ((1,), DOUBLE, False), (("a", "É"), TEXT, True),
    (("a", b"b"), TEXT, False), (("a", None), TEXT, False), (("a",), BYTES, False), ((1,), TEXT, False),
])
def test_values_that_are_stored_as_they_are(values: tuple[Any, ...], kind: SqlType, stored: bool) -> None:
    """Of many, all are looked at in one go: none of them is another value then."""
    field = Field("c", kind)
    assert _are_stored(values, field) is stored
    if stored:
        assert [_comparable(v, field) for v in values] == list(values) and NO_ROW not in values
