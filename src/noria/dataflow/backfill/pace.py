"""How many rows the next slice of some work gets: as many as take the processor so long, whatever else the machine
does.

Keeps true: a slice that was interrupted by other processes is not taken for a large one; one that waits for a disk is,
once it takes WAITING_TIMES as long as it should compute.
"""

from __future__ import annotations

from collections.abc import Callable

from noria.core.limits import WAITING_TIMES

Clock = Callable[[], int]  # nanoseconds


def no_time() -> int:
    """The clock of a worker without one, whose slices grow."""
    return 0


class Pace:
    """Of one slice, which begins now.  clock: of the time that passes; processor: of what this thread has computed
    (None: the time that passes).  No clock at all: slices stay as they are."""

    def __init__(self, clock: Clock | None, processor: Clock | None = None):
        self._clock, self._processor = clock, processor or clock
        self._began, self._computed = self._now()

    def _now(self) -> tuple[int, int]:
        if self._clock is None or self._processor is None:
            return 0, 0
        return self._clock(), self._processor()

    def computed_ns(self) -> int:
        """Of this slice, so far."""
        return self._now()[1] - self._computed

    def next_rows(self, rows: int, slice_ms: float, most: int) -> int:
        """After a slice of so many rows, which is over: of the next one, at most `most`."""
        if self._clock is None:
            return rows
        now, computed = self._now()
        took_ms, passed_ms = (computed - self._computed) / 1e6, (now - self._began) / 1e6
        if took_ms > slice_ms or passed_ms > WAITING_TIMES * slice_ms:
            return max(rows // 2, 1)
        return min(rows * 2, most) if took_ms < slice_ms / 2 else rows
