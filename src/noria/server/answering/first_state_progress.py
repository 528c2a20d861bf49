"""Describes the progress of views without a first state, for waiting reads, /health, and the server's ready line."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from noria.core.limits import FILL_ROWS_S

_WAITS = "waiting for the first rows of view "


def waits_for(view: str) -> str:
    """Return the state (SHOW PROCESSLIST) of a statement that waits for a view's first rows."""
    return _WAITS + view


def awaited(state: str) -> str:
    """Return the view that a statement in this state waits for; "" if none."""
    return state.removeprefix(_WAITS) if state.startswith(_WAITS) else ""


def how_far(view: str, builds: Sequence[dict[str, Any]]) -> str:
    """Describe the progress of a view in words.  builds: the running builds (`Inspect` builds).

    >>> how_far("home", [{"views": ["home"], "rows": 17, "of": 100}])
    "view 'home' is 17 % filled and goes on (SHOW NORIA MIGRATIONS)"
    """
    rows, of = _rows_of(view, builds)
    done = f"is {100 * min(rows, of) // of} % filled" if of else "is being filled"
    return f"view '{view}' {done} and goes on (SHOW NORIA MIGRATIONS)"


def _rows_of(view: str, builds: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Return (rows done, rows in all), summed over the builds that the view waits for."""
    mine = [b for b in builds if view in b["views"]]
    return sum(b["rows"] for b in mine), sum(b["of"] for b in mine)


@dataclass(frozen=True)
class FirstStateProgress:
    """The progress of a view.  rows: input rows done; of: input rows in all; seconds: the estimated remaining time."""

    view: str
    rows: int
    of: int
    seconds: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class FillRate:
    """Estimates how fast views fill, from repeated reports.

    Before a view has been observed for SEEN_S seconds, it assumes FILL_ROWS_S, the rate of a busy worker.
    """

    SEEN_S = 1.0
    NAMED = 3  # a line names so many views and counts the others

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._first: dict[str, tuple[float, int]] = {}

    def progress_of(self, builds: Sequence[dict[str, Any]]) -> list[FirstStateProgress]:
        """Return the progress of all views that are being filled.  builds: the running builds (`Inspect` builds)."""
        now, found = self._clock(), list[FirstStateProgress]()
        names = dict.fromkeys(v for b in builds if b["state"] != "failed" for v in b["views"])
        for view in names:
            rows, of = _rows_of(view, builds)
            since, before = self._first.setdefault(view, (now, rows))
            seen = now - since >= self.SEEN_S and rows > before
            rate = (rows - before) / (now - since) if seen else FILL_ROWS_S
            found.append(FirstStateProgress(view, min(rows, of), of, math.ceil(max(of - rows, 0) / rate)))
        self._first = {view: first for view, first in self._first.items() if view in names}
        return found

    @staticmethod
    def line(found: Sequence[FirstStateProgress]) -> str:
        """Format the progress as the end of a line that programs read.  Names are quoted as in URLs.

        >>> FillRate.line([FirstStateProgress("home", 17, 100, 2)])
        ' filling=home:17%:2s'
        """
        if not found:
            return ""
        parts = [f"{quote(f.view)}:{100 * f.rows // f.of if f.of else 0}%:{f.seconds}s"
                 for f in found[: FillRate.NAMED]]
        more = [f"and-{len(found) - FillRate.NAMED}-more"] if len(found) > FillRate.NAMED else []
        return " filling=" + ",".join(parts + more)
