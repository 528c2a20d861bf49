"""Turns: what a worker does between packets, one piece at a time, each class of work by its weight (`schedule.py`).

    LOOKUPS   slices of reads that miss keys of very many rows       QUERIES  one-shots that read little
    RESULTS   the next pieces of large results                       SCANS    one-shots in slices, and larger ones
    BUILDS    slices of first states and indexes

Writes and reads of keys are not here: they are done as they arrive, before any turn.  Keeps true: while packets arrive,
no more than half of the worker's time goes to turns, except for QUERIES, each of which is bounded; between two looks at
the worker's socket there is one quantum of work at most.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from noria.core.limits import (
    BUILDS_WEIGHT,
    LOOKUPS_WEIGHT,
    QUERIES_WEIGHT,
    REFILLS_WEIGHT,
    RESULTS_WEIGHT,
    SCANS_WEIGHT,
    TURN_UNITS,
)
from noria.dataflow.worker.schedule import Schedule


class Class(enum.Enum):
    LOOKUPS = "lookups"
    QUERIES = "queries"
    RESULTS = "results"
    SCANS = "scans"
    BUILDS = "builds"
    REFILLS = "refills"


WEIGHTS = {Class.LOOKUPS: LOOKUPS_WEIGHT, Class.QUERIES: QUERIES_WEIGHT, Class.RESULTS: RESULTS_WEIGHT,
           Class.SCANS: SCANS_WEIGHT, Class.BUILDS: BUILDS_WEIGHT, Class.REFILLS: REFILLS_WEIGHT}


@dataclass(frozen=True)
class Turn:
    """has_work: is there a piece to do now?  do: does one, and returns its units (rows read and made)."""

    has_work: Callable[[], object]
    do: Callable[[], int]


class Turns:
    """See the module.  clock: nanoseconds."""

    def __init__(self, classes: Mapping[Class, Turn], clock: Callable[[], int]):
        self._classes, self._clock = dict(classes), clock
        self._schedule = Schedule(WEIGHTS)
        self._next_at = 0  # not before then is there another quantum on a busy worker

    def __bool__(self) -> bool:
        """Is there work?"""
        return any(work.has_work() for work in self._classes.values())

    def between(self) -> None:
        """One quantum, on a worker to which packets come: queries, up to one piece of something else."""
        start, units = self._clock(), 0
        only = None if start >= self._next_at else (Class.QUERIES,)
        while units < TURN_UNITS and (done := self._one(only)) is not None:
            chosen, cost = done
            units += cost if chosen is Class.QUERIES else TURN_UNITS
        if units >= TURN_UNITS:
            self._next_at = 2 * self._clock() - start

    def quiet(self, budget_ms: int) -> None:
        """Work for about so long, on a worker to which nothing comes."""
        ends = self._clock() + budget_ms * 1_000_000
        while self._one(None) is not None and self._clock() < ends:
            pass

    def _one(self, only: tuple[Class, ...] | None) -> tuple[Class, int] | None:
        """Do one piece of work: of which class, and its units; None where there is none."""
        ready = [c for c, work in self._classes.items() if (only is None or c in only) and work.has_work()]
        chosen = self._schedule.next(ready) if ready else None
        if chosen is None:
            return None
        units = self._classes[chosen].do()
        self._schedule.charge(chosen, units)
        return chosen, units
