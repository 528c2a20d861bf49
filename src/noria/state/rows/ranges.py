"""`Ranges`: the filled intervals of one column's codes, and the values in them that may have rows.

This implements "Ranged Upqueries" of the thesis.  A read of a range upqueries only its gaps, and a state keeps a delta
that falls into a filled interval.  Codes of numbers and dates have the order of their values.  Codes of text do not, so
text has no ranges.

Keeps true: intervals are closed, disjoint, not adjacent and ascending.  `within` returns each value with rows in a
filled interval, and perhaps values whose rows were removed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from noria.core.batch import Codes
from noria.core.limits import MAX_INT, MIN_INT

FRESH = 4_096  # new values in a small array of their own; with more, they are merged into the large one
_NONE = np.empty(0, np.int64)


class Ranges:
    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Mark nothing as filled."""
        self.starts: Codes = _NONE
        self.ends: Codes = _NONE
        self._values: Codes = _NONE
        self._fresh: Codes = _NONE

    # -------------------------------------------------------------- intervals
    def covers(self, values: Codes) -> npt.NDArray[np.bool_]:
        """Return for each value True if a filled interval contains it."""
        if not len(self.starts):
            return np.zeros(len(values), np.bool_)
        at = np.searchsorted(self.starts, values, "right") - 1
        inside: npt.NDArray[np.bool_] = (at >= 0) & (values <= self.ends[np.maximum(at, 0)])
        return inside

    def gaps(self, low: int, high: int) -> list[tuple[int, int]]:
        """Return the parts of [low, high] that are not filled, as closed intervals."""
        out: list[tuple[int, int]] = []
        first = int(np.searchsorted(self.ends, low))
        last = int(np.searchsorted(self.starts, high, "right"))
        for start, end in zip(self.starts[first:last].tolist(), self.ends[first:last].tolist(), strict=True):
            if low < start:
                out.append((low, start - 1))
            low = end + 1
        return [*out, (low, high)] if low <= high else out

    def add(self, low: int, high: int) -> None:
        """Mark [low, high] as filled.  It is merged with the intervals that it meets or touches."""
        first = int(np.searchsorted(self.ends, max(low - 1, MIN_INT)))
        last = int(np.searchsorted(self.starts, min(high + 1, MAX_INT), "right"))
        if first < last:
            low, high = min(low, int(self.starts[first])), max(high, int(self.ends[last - 1]))
        self.starts = np.concatenate([self.starts[:first], [low], self.starts[last:]]).astype(np.int64)
        self.ends = np.concatenate([self.ends[:first], [high], self.ends[last:]]).astype(np.int64)

    def cut(self, values: Codes) -> None:
        """Remove single values from the filled intervals, which split there."""
        points = np.unique(values[self.covers(values)])
        if not len(points):
            return
        last = points[-1] == MAX_INT  # no interval begins after it
        starts = np.sort(np.concatenate([self.starts, (points[:-1] if last else points) + 1]))
        ends = np.sort(np.concatenate([self.ends[:-1] if last else self.ends, points - 1]))
        some = starts <= ends
        self.starts, self.ends = starts[some], ends[some]
        self._values, self._fresh = _without(self._values, points), _without(self._fresh, points)

    def intervals(self) -> list[tuple[int, int]]:
        return list(zip(self.starts.tolist(), self.ends.tolist(), strict=True))

    # -------------------------------------------------------------- values
    def note(self, values: Codes) -> None:
        """Record values that may have rows now.  Values outside the filled intervals are ignored."""
        new = np.unique(values[self.covers(values)])
        new = new[~(_among(new, self._values) | _among(new, self._fresh))]
        if not len(new):
            return
        self._fresh = np.insert(self._fresh, np.searchsorted(self._fresh, new), new)
        if len(self._fresh) > FRESH:
            self._values = np.insert(self._values, np.searchsorted(self._values, self._fresh), self._fresh)
            self._fresh = _NONE

    def within(self, low: int, high: int) -> Codes:
        """Return the recorded values from low to high, ascending."""
        parts = [a[np.searchsorted(a, low):np.searchsorted(a, high, "right")] for a in (self._values, self._fresh)]
        return np.sort(np.concatenate(parts)) if len(parts[1]) else parts[0]

    def memory(self) -> int:
        return 8 * (2 * len(self.starts) + len(self._values) + len(self._fresh))


def _among(some: Codes, values: Codes) -> npt.NDArray[np.bool_]:
    """Return for each of some values True if a sorted array contains it."""
    at = np.searchsorted(values, some)
    contained: npt.NDArray[np.bool_] = at < len(values)
    contained[contained] = values[at[contained]] == some[contained]
    return contained


def _without(values: Codes, removed: Codes) -> Codes:
    """Remove some values from a sorted array."""
    there = _among(removed, values)
    return np.delete(values, np.searchsorted(values, removed[there]))
