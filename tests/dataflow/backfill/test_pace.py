"""The sizes of slices on simulated machines: slices are short where rows cost time, and few where each slice does."""

from __future__ import annotations

import random

import pytest

from noria.dataflow.backfill.pace import LONGER, Pace, SliceCost

SLICE_MS, MOST = 3.0, 65_536


def work(rows: int, fixed_ms: float, row_ms: float, noise: float = 0.0) -> list[tuple[int, float]]:
    """Do so many rows in slices.  Returns the rows and the milliseconds of each."""
    times, size, cost, chance, slices = [0], 16, SliceCost(), random.Random(4), list[tuple[int, float]]()
    left = rows
    while left > 0:
        pace = Pace(lambda: times[0])
        took = (fixed_ms + row_ms * min(size, left)) * (1 + noise * chance.random())
        times[0] += int(took * 1e6)
        slices.append((size, took))
        left -= size
        size = pace.next_rows(size, SLICE_MS, MOST, cost)
    return slices


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("fixed_ms", [0.1, 1.0, 3.0, 6.0])
def test_most_of_the_time_is_spent_on_rows(fixed_ms: float, noise: float) -> None:
    slices = work(200_000, fixed_ms, 0.002, noise)
    assert sum(took for _, took in slices) < 3.5 * 200_000 * 0.002 * (1 + noise)
    assert max(took for _, took in slices) <= 2 * LONGER * SLICE_MS * (1 + noise)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("row_ms", [0.1, 1.0, 5.0])
def test_slices_of_expensive_rows_are_short(row_ms: float, noise: float) -> None:
    slices = work(2_000, 0.1, row_ms, noise)
    late = slices[20:]
    assert sum(took for _, took in late) / len(late) <= max(1.5 * SLICE_MS, 1.5 * row_ms) * (1 + noise)


def test_without_a_clock_slices_keep_their_size() -> None:
    assert Pace(None).next_rows(64, SLICE_MS, MOST, SliceCost()) == 64
