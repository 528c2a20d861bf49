"""Integers at the end of int64: exact, or an error; never another type."""

from __future__ import annotations

import numpy as np
import pytest

from noria.core.integers import codes_of, span


@pytest.mark.parametrize(("first", "count"), [(0, 0), (-(2**63), 3), (2**63 - 4, 4), (5, 1), (2**63 - 1, 1)])
def test_a_span_has_exact_integers(first: int, count: int) -> None:
    found = span(first, count)
    assert found.dtype == np.int64 and found.tolist() == list(range(first, first + count))


@pytest.mark.parametrize(("first", "count"), [(2**63 - 3, 4), (2**63 - 1, 2), (2**63, 1)])
def test_a_span_that_leaves_int64_is_an_error(first: int, count: int) -> None:
    with pytest.raises(OverflowError):
        span(first, count)


def test_integers_beyond_int64_are_an_error() -> None:
    assert codes_of([]).dtype == np.int64
    assert codes_of(n for n in (-(2**63), 2**63 - 1)).tolist() == [-(2**63), 2**63 - 1]
    for beyond in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            codes_of([0, beyond])
