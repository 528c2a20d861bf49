"""Sizes the slices of a task: the next slice should use a fixed processor time, whatever else the machine does.

Keeps true: a slice that other processes interrupted does not count as large. A slice that waits for a disk counts as
large if it lasts WAITING_TIMES as long as it should compute.

Make a `Pace` when a slice begins, and call `next_rows` when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.core.limits import WAITING_TIMES

Clock = Callable[[], int]  # nanoseconds


def no_time() -> int:
    """The clock of a worker that has none; its slices grow."""
    return 0


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

    def next_rows(self, rows: int, slice_ms: float, most: int) -> int:
        """The size of the next slice, at most `most` rows, after this one of `rows` rows."""
        if self._clock is None:
            return rows
        now, computed = self._now()
        took_ms, passed_ms = (computed - self._computed) / 1e6, (now - self._began) / 1e6
        if took_ms > slice_ms or passed_ms > WAITING_TIMES * slice_ms:
            return max(rows // 2, 1)
        return min(rows * 2, most) if took_ms < slice_ms / 2 else rows
