"""The clock, log and cancellation checks that a process provides to its worker.

The data-flow has no clock, file or log of its own. So a test controls time and cancellation completely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class WorkerEnvironment:
    """What the process provides to a worker.

    `clock`: nanoseconds; None: nothing is bounded in time. `processor`: nanoseconds that this thread has
    computed; None: the clock counts. `began`: called with the number of the request that begins, 0 for none.
    `cancelled`: whether the request of this number was cancelled. `note`: writes a line to the log. `state_bytes`:
    the limit of one full state; 0: none.
    """

    clock: Callable[[], int] | None = None
    began: Callable[[int], object] = lambda number: None
    cancelled: Callable[[int], bool] = lambda number: False
    note: Callable[[str], object] = lambda text: None
    state_bytes: int = 0
    processor: Callable[[], int] | None = None
