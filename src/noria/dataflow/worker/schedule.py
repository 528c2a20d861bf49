"""Stride scheduling: decides which class of work runs next, in proportion to weights.

    next        the class with work whose pass is least
    charge      pass(c) += cost / weight(c): cost in units of work (rows, bytes), never in time

Keeps true: a class that always has work receives its weight's share of all units, up to one turn of each class. A class
without work accumulates no claim. No class with work waits for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import Generic, TypeVar

C = TypeVar("C")


class StrideScheduler(Generic[C]):
    """The scheduler (see the module). `weights`: of every class; in a tie the class named first runs."""

    def __init__(self, weights: Mapping[C, int]):
        self._weights = dict(weights)
        self._pass = dict.fromkeys(self._weights, Fraction(0))
        self._now = Fraction(0)  # the pass of the class that was chosen last
        self._had_work: frozenset[C] = frozenset()

    def next(self, ready: Collection[C]) -> C | None:
        """Choose the class to run among those that have work."""
        for c in ready:
            if c not in self._had_work:
                self._pass[c] = max(self._pass[c], self._now)
        self._had_work = frozenset(ready)
        chosen = min((c for c in self._weights if c in self._had_work), key=self._pass.__getitem__, default=None)
        if chosen is not None:
            self._now = self._pass[chosen]
        return chosen

    def charge(self, c: C, cost: int) -> None:
        """Record `cost` units of work of a class, at least one."""
        self._pass[c] += Fraction(max(cost, 1), self._weights[c])
