"""What a read is told that waits for a named view's first rows: while it waits, and where that takes too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
    mine = [b for b in builds if view in b["views"]]
    rows, of = sum(b["rows"] for b in mine), sum(b["of"] for b in mine)
    done = f"is {100 * min(rows, of) // of} % filled" if of else "is being filled"
    return f"view '{view}' {done} and goes on (SHOW NORIA MIGRATIONS)"
