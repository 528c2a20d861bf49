"""Sizes the slices of a task: the next slice should use a fixed processor time, whatever else the machine does.

Keeps true: a slice that other processes interrupted does not count as large. A slice that waits for a disk counts as
large if it lasts WAITING_TIMES as long as it should compute. Where most of a slice's time does not depend on its rows,
as on a slow machine, slices last longer: smaller ones would cost nearly as much each.

Make a `Pace` when a slice begins, and call `next_rows` when it ends, with the task's `SliceCost`.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.core.limits import WAITING_TIMES

Clock = Callable[[], int]  # nanoseconds
LONGER = 5  # a slice lasts at most so many times as long as it should


def no_time() -> int:
    """The clock of a worker that has none; its slices grow."""
    return 0


class SliceCost:
    """Estimates, from slices of different sizes, the time of a slice that does not depend on its rows."""

    def __init__(self) -> None:
        self.fixed_ms = 0.0
        self._row_ms: float | None = None
        self._rows, self._ms = 0, 0.0  # of the last slice of another size

    def seen(self, rows: int, ms: float) -> None:
        """Take a slice of `rows` rows into account, which took `ms`."""
        if self._rows not in (0, rows):
            row_ms = max((ms - self._ms) / (rows - self._rows), 0.0)
            self._row_ms = row_ms if self._row_ms is None else (self._row_ms + row_ms) / 2
        if self._row_ms is not None:
            self._row_ms = min(self._row_ms, ms / max(rows, 1))  # earlier slices may have had costlier rows
            self.fixed_ms = (self.fixed_ms + max(ms - self._row_ms * rows, 0.0)) / 2
        if self._rows != rows:
            self._rows, self._ms = rows, ms

    def goal_ms(self, slice_ms: float) -> float:
        """The time of a slice of which two thirds are spent on rows; at least `slice_ms`, at most LONGER times that."""
        return min(max(slice_ms, 3 * self.fixed_ms), LONGER * slice_ms)

    def of_twice(self, rows: int, ms: float) -> float:
        """The time of a slice of twice as many rows as one that took `ms`."""
        return ms + (ms if self._row_ms is None else self._row_ms * rows)


class Pace:
    """Measures one slice, which begins now.

    `clock`: elapsed time. `processor`: time that this thread has computed; None: elapsed time. Without `clock`
    slices keep their size.
    """

    def __init__(self, clock: Clock | None, processor: Clock | None = None):
        self._clock, self._processor = clock, processor or clock
        self._began, self._computed = self._now()

    def _now(self) -> tuple[int, int]:
        if self._clock is None or self._processor is None:
            return 0, 0
        return self._clock(), self._processor()

    def computed_ns(self) -> int:
        """The computed time of this slice so far, in nanoseconds."""
        return self._now()[1] - self._computed

    def next_rows(self, rows: int, slice_ms: float, most: int, cost: SliceCost) -> int:
        """The size of the next slice, at most `most` rows, after this one of `rows` rows."""
        if self._clock is None:
            return rows
        now, computed = self._now()
        took_ms, passed_ms = (computed - self._computed) / 1e6, (now - self._began) / 1e6
        cost.seen(rows, took_ms)
        slice_ms = cost.goal_ms(slice_ms)
        if took_ms > slice_ms or passed_ms > WAITING_TIMES * slice_ms:
            return max(rows // 2, 1)
        return min(rows * 2, most) if cost.of_twice(rows, took_ms) < slice_ms else rows
