"""Filled intervals against a set of integers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from noria.core.limits import MAX_INT, MIN_INT
from noria.state.rows import ranges
from noria.state.rows.ranges import Ranges


@pytest.mark.parametrize("seed", range(60))
def test_intervals_equal_a_set(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "FRESH", seed % 7)
    chance, r = random.Random(seed), Ranges()
    filled: set[int] = set()
    noted: set[int] = set()
    for _ in range(80):
        low = chance.randrange(40)
        high = low + chance.randrange(8)
        what = chance.randrange(4)
        if what == 0:
            gaps = [v for a, b in r.gaps(low, high) for v in range(a, b + 1)]
            assert gaps == [v for v in range(low, high + 1) if v not in filled]
            for a, b in r.gaps(low, high):
                r.add(a, b)
            filled |= set(range(low, high + 1))
        elif what == 1:
            values = [chance.randrange(48) for _ in range(chance.randrange(4))]
            r.cut(np.array(values, np.int64))
            filled -= set(values)
            noted -= set(values)
        else:
            values = [chance.randrange(48) for _ in range(chance.randrange(9))]
            r.note(np.array(values, np.int64))
            noted |= set(values) & filled
        assert [v for a, b in r.intervals() for v in range(a, b + 1)] == sorted(filled)
        assert all(b + 1 < c for (_, b), (c, _) in zip(r.intervals(), r.intervals()[1:], strict=False))
        assert r.covers(np.arange(-2, 50)).tolist() == [v in filled for v in range(-2, 50)]
        assert r.within(low, high).tolist() == sorted(v for v in noted if low <= v <= high)


def test_the_ends_of_the_numbers() -> None:
    r = Ranges()
    assert r.gaps(MIN_INT, MAX_INT) == [(MIN_INT, MAX_INT)]
    r.add(MIN_INT, MAX_INT)
    assert r.gaps(5, MAX_INT) == []
    r.cut(np.array([MAX_INT, MIN_INT, 0]))
    assert r.intervals() == [(MIN_INT + 1, -1), (1, MAX_INT - 1)]
    assert r.gaps(MIN_INT, MAX_INT) == [(MIN_INT, MIN_INT), (0, 0), (MAX_INT, MAX_INT)]
    r.add(MAX_INT, MAX_INT)
    r.add(0, 0)
    assert r.intervals() == [(MIN_INT + 1, MAX_INT)]
    r.clear()
    assert r.intervals() == [] and r.memory() == 0
