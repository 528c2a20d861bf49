"""The limits of one request on its worker: time, memory, cancellation.

An engine checks its `work`, the `RequestLimits` of the current request, during an upquery or a first state: before each
pull and before each product of rows.

Keeps true: the limits are checked only while every state is consistent. This is so between two fills, between two
slices of a first state, and between two slices of a scan before the commit. So an abandoned request leaves no state
half changed. Ticks of committed writes have no limits: they always finish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from noria.core.batch import Batch, concat
from noria.core.errors import SqlError, interrupted, statement_timeout, too_much_at_once
from noria.core.errors.codes import TABLE_FULL
from noria.core.limits import REQUEST_BYTES, WAITING_TIMES

Clock = Callable[[], int]


class RequestLimits:
    """The limits of one request.

    `limit_ms`: its time; 0: unlimited. If there is a `processor` clock, the limit is on computed time, so that a
    busy machine does not count. Then `clock` allows WAITING_TIMES as much, for waits on a disk. Both clocks
    return nanoseconds.

    `cancelled`: whether it was cancelled. `nbytes`: the limit of one intermediate result. `state_bytes`: the limit
    of a full state that it builds; 0: none. `on_defect`: records a defect in a part of the request and returns
    the error to answer with.
    """

    __slots__ = (
        "_cancelled",
        "_clock",
        "_ends",
        "_limit_ms",
        "_nbytes",
        "_on_defect",
        "_processor",
        "_state_bytes",
        "_stops",
    )

    def __init__(self, clock: Clock | None = None, limit_ms: int = 0, cancelled: Callable[[], bool] | None = None,
                 nbytes: int = REQUEST_BYTES, state_bytes: int = 0,
                 on_defect: Callable[[Exception], SqlError] | None = None, processor: Clock | None = None):
        self._state_bytes, self._on_defect = state_bytes, on_defect
        self._clock, self._processor = (clock, processor) if limit_ms else (None, None)
        self._limit_ms, self._cancelled, self._nbytes = limit_ms, cancelled, nbytes
        limit_ns = limit_ms * 1_000_000
        self._stops = 0 if self._processor is None else self._processor() + limit_ns
        times = 1 if self._processor is None else WAITING_TIMES
        self._ends = 0 if self._clock is None else self._clock() + times * limit_ns

    def check(self) -> None:
        """Raise SqlError 1317 if the request was cancelled, 3024 if its time is over."""
        if self._cancelled is not None and self._cancelled():
            raise interrupted()
        if self._clock is not None and self._clock() > self._ends:
            raise self.timeout()
        if self._processor is not None and self._processor() > self._stops:
            raise self.timeout()

    def product(self, rows: int, width: int) -> None:
        """Call it before `rows` rows are made. SqlError 3024 if they exceed the memory of one request."""
        self.check()
        if 8 * rows * (width + 1) > self._nbytes:
            raise too_much_at_once(rows, self._nbytes)

    def grown(self, nbytes: int, what: str) -> None:
        """Call it between two slices of a first state. SqlError 1114 if the state exceeds its limit on this
        machine."""
        self.check()
        if self._state_bytes and nbytes > self._state_bytes:
            raise SqlError(*TABLE_FULL, f"The table '{what}' is full: its state passes the "
                                        f"{self._state_bytes >> 20} MB that one may take here; give the view a "
                                        "`column = ?` to be read by")

    def defect(self, bug: Exception) -> SqlError:
        """Return the error for a defect in a part of the request; without `on_defect`, raise the defect itself."""
        if self._on_defect is None:
            raise bug
        return self._on_defect(bug)

    def timeout(self) -> SqlError:
        return statement_timeout(self._limit_ms)


def collect(slices: Iterable[Batch], width: int, limits: RequestLimits | None) -> Batch:
    """Concatenate all rows of a stream, within the limits of the request."""
    parts: list[Batch] = []
    for rows in slices:
        parts.append(rows)
        if limits is not None:
            limits.product(sum(map(len, parts)), width)
    return concat(parts, width)
