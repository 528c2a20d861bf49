"""What a worker is told of the world around it, and tells it: the core itself knows no clock, file or log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Surroundings:
    """What a worker is told of the world, and tells it.  clock: nanoseconds (None: nothing is bounded in time);
    processor: nanoseconds that this thread has computed (None: the clock counts);
    began: called with the number of the request that is begun, 0 for none; unwanted: has the request of this number
    been cancelled?  note: a line for the log.  state_bytes: the most that one full state may take (0: any)."""

    clock: Callable[[], int] | None = None
    began: Callable[[int], object] = lambda number: None
    unwanted: Callable[[int], bool] = lambda number: False
    note: Callable[[str], object] = lambda text: None
    state_bytes: int = 0
    processor: Callable[[], int] | None = None
