"""Turns: the work of a worker between packets. Each class of work has its share of the turns by weight (`schedule.py`).

    LOOKUPS   slices of reads of keys with very many rows    QUERIES  one-shots that read few rows
    RESULTS   the next chunks of large results               SCANS    one-shots in slices, and larger ones
    BUILDS    slices of first states and indexes             REFILLS  keys that views had before a restart
    FILLS     keys of views that nobody has read yet

Writes and reads of keys are not turns: they run when they arrive. Call `do_quantum` on a busy worker, `quiet` on
another.

Keeps true: while packets arrive, at most half of the worker's time is spent on turns, except for QUERIES, each of
which is bounded. Between two checks of the worker's socket at most one quantum of work runs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noria.core.limits import (
    BUILDS_WEIGHT,
    FILLS_WEIGHT,
    LOOKUPS_WEIGHT,
    QUERIES_WEIGHT,
    REFILLS_WEIGHT,
    RESULTS_WEIGHT,
    SCANS_WEIGHT,
    TURN_UNITS,
)
from noria.dataflow.worker.schedule import StrideScheduler


class WorkClass(enum.Enum):
    LOOKUPS = "lookups"
    QUERIES = "queries"
    RESULTS = "results"
    SCANS = "scans"
    BUILDS = "builds"
    REFILLS = "refills"
    FILLS = "fills"


WEIGHTS = {WorkClass.LOOKUPS: LOOKUPS_WEIGHT, WorkClass.QUERIES: QUERIES_WEIGHT, WorkClass.RESULTS: RESULTS_WEIGHT,
           WorkClass.SCANS: SCANS_WEIGHT, WorkClass.BUILDS: BUILDS_WEIGHT, WorkClass.REFILLS: REFILLS_WEIGHT,
           WorkClass.FILLS: FILLS_WEIGHT}


@dataclass(frozen=True)
class WorkSource:
    """One class of work. `has_work`: whether a turn can run now. `do`: runs one turn and returns its units (rows read
    and made)."""

    has_work: Callable[[], object]
    do: Callable[[], int]


class WorkTurns:
    """The turns of a worker (see the module). `clock`: nanoseconds."""

    def __init__(self, classes: Mapping[WorkClass, WorkSource], clock: Callable[[], int]):
        self._classes, self._clock = dict(classes), clock
        self._schedule = StrideScheduler(WEIGHTS)
        self._next_at = 0  # the earliest next quantum on a busy worker

    def __bool__(self) -> bool:
        """Whether there is work."""
        return any(work.has_work() for work in self._classes.values())

    def do_quantum(self) -> None:
        """Run one quantum on a worker that receives packets: queries, and at most one turn of another class."""
        start, units = self._clock(), 0
        only = None if start >= self._next_at else (WorkClass.QUERIES,)
        while units < TURN_UNITS and (done := self._one(only)) is not None:
            chosen, cost = done
            units += cost if chosen is WorkClass.QUERIES else TURN_UNITS
        if units >= TURN_UNITS:
            self._next_at = 2 * self._clock() - start

    def quiet(self, budget_ms: int) -> None:
        """Work for about `budget_ms` on a worker that receives no packets."""
        ends = self._clock() + budget_ms * 1_000_000
        while self._one(None) is not None and self._clock() < ends:
            pass

    def _one(self, only: tuple[WorkClass, ...] | None) -> tuple[WorkClass, int] | None:
        """Run one turn. Returns its class and units; None if there is no work."""
        ready = [c for c, work in self._classes.items() if (only is None or c in only) and work.has_work()]
        chosen = self._schedule.next(ready) if ready else None
        if chosen is None:
            return None
        units = self._classes[chosen].do()
        self._schedule.charge(chosen, units)
        return chosen, units
