"""What is told of views whose first rows are not all there: to a read that waits for them, by /health, and by the line
that says that a server is ready."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from noria.core.limits import FILL_ROWS_S

_WAITS = "waiting for the first rows of view "


def waits_for(view: str) -> str:
    """The state of a statement that waits for them."""
    return _WAITS + view


def awaited(state: str) -> str:
    """The view that a statement waits for by its state; "" where it waits for none."""
    return state.removeprefix(_WAITS) if state.startswith(_WAITS) else ""


def how_far(view: str, builds: Sequence[dict[str, Any]]) -> str:
    """Of what is being built (`Ask` builds), in words.

    >>> how_far("home", [{"views": ["home"], "rows": 17, "of": 100}])
    "view 'home' is 17 % filled and goes on (SHOW NORIA MIGRATIONS)"
    """
    rows, of = _rows_of(view, builds)
    done = f"is {100 * min(rows, of) // of} % filled" if of else "is being filled"
    return f"view '{view}' {done} and goes on (SHOW NORIA MIGRATIONS)"


def _rows_of(view: str, builds: Sequence[dict[str, Any]]) -> tuple[int, int]:
    """Rows done, and of how many, of all that the view waits for."""
    mine = [b for b in builds if view in b["views"]]
    return sum(b["rows"] for b in mine), sum(b["of"] for b in mine)


@dataclass(frozen=True)
class Filling:
    """A view that is filled with so many rows of tables, or of what stands between, and of how many; seconds: how long
    the rest will take."""

    view: str
    rows: int
    of: int
    seconds: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Progress:
    """How fast views fill, by what is told of them from time to time.  Until a view has been seen for SEEN_S its rows
    are taken to come as on a busy machine."""

    SEEN_S = 1.0
    NAMED = 3  # views by name in a line

    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._first: dict[str, tuple[float, int]] = {}

    def told(self, builds: Sequence[dict[str, Any]]) -> list[Filling]:
        """builds: what is being built (`Ask` builds)."""
        now, found = self._clock(), list[Filling]()
        names = dict.fromkeys(v for b in builds if b["state"] != "failed" for v in b["views"])
        for view in names:
            rows, of = _rows_of(view, builds)
            since, before = self._first.setdefault(view, (now, rows))
            seen = now - since >= self.SEEN_S and rows > before
            rate = (rows - before) / (now - since) if seen else FILL_ROWS_S
            found.append(Filling(view, min(rows, of), of, math.ceil(max(of - rows, 0) / rate)))
        self._first = {view: first for view, first in self._first.items() if view in names}
        return found

    @staticmethod
    def line(found: Sequence[Filling]) -> str:
        """For the end of a line, which other programs read: names as in addresses.

        >>> Progress.line([Filling("home", 17, 100, 2)])
        ' filling=home:17%:2s'
        """
        if not found:
            return ""
        told = [f"{quote(f.view)}:{100 * f.rows // f.of if f.of else 0}%:{f.seconds}s" for f in found[: Progress.NAMED]]
        more = [f"and-{len(found) - Progress.NAMED}-more"] if len(found) > Progress.NAMED else []
        return " filling=" + ",".join(told + more)
