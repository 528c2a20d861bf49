"""The story before a violation: what happened lately, request by request, base delta by base delta, miss by miss.

An engine's story keeps the last events as they come, and makes text of them only when somebody reads it; what the other
nodes emit, which follows from these, it has where it is the engine's `trace` too (tests).  Keeps true: an event holds
on to no more than a few rows, whatever came by, and to no node: a view that is dropped is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.limits import STORY_EVENTS, STORY_ROWS
from noria.core.types import Field
from noria.dataflow.graph import text

if TYPE_CHECKING:
    from noria.dataflow.engine.engine import Engine
    from noria.dataflow.graph.nodes import Columns

More = Callable[[], str]


class Story:
    """Call it with each event (`told` has the parts); `tell` gives them back as text."""

    def __init__(self, engine: Engine, events: int = STORY_EVENTS):
        self._engine = engine
        self._events: deque[tuple[Any, ...]] = deque(maxlen=events)
        self._note = self._events.append

    def __call__(self, kind: str, node: int, fields: Sequence[Field], cols: Columns, rows: Batch | Codes | None,
                 more: More | None = None) -> None:
        kept: Any = rows
        if isinstance(rows, Batch):  # bytes: arrays may be parts of large ones, and copies take thrice as long
            few = len(rows.weights) <= STORY_ROWS
            kept = (rows.columns.tobytes(), rows.weights.tobytes()) if few else len(rows.weights)
        elif rows is not None:
            kept = rows.tobytes() if rows.shape[1] <= STORY_ROWS else rows.shape[1]
        self._note((kind, node, fields, cols, kept, more))

    def request(self, number: int, what: str) -> None:
        """The worker begins with a request."""
        self._note((what, number))

    def tell(self, key: str = "") -> str:
        """The events that mention the key as it is shown, such as "(7, 'a')"; all of them for "".  A composite row that
        starts with the key's values counts too."""
        inner = key.strip("()")
        lines = map(self._line, list(self._events))
        return "\n".join(e for e in lines if not key or f"({inner})" in e or f"({inner}," in e)

    def _line(self, event: tuple[Any, ...]) -> str:
        if len(event) == 2:
            return f"{event[0]} {event[1]}"
        kind, node, fields, cols, kept, more = event
        if isinstance(kept, tuple):
            columns, weights = (np.frombuffer(part, np.int64) for part in kept)
            kept = Batch(columns.reshape(len(fields), len(weights)), weights)
        elif isinstance(kept, bytes):
            codes = np.frombuffer(kept, np.int64)
            kept = codes.reshape(len(cols), -1) if cols else codes.reshape(0, 0)
        try:
            return told(self._engine, kind, node, fields, cols, kept, more)
        except Exception as e:  # strings that were swept since
            return f"n{event[1]} {event[0]} what can no longer be shown: {type(e).__name__}"


def told(engine: Engine, kind: str, node: int, fields: Sequence[Field], cols: Columns,
         rows: Batch | Codes | int | None, more: More | None = None) -> str:
    """An event in people's terms.  node: its number; fields: its columns; kind: emits (rows: the
    delta); misses, fills, reads, pulls, evicts, keeps (rows: keys by `cols`); a number stands for as many rows.  more:
    what else is to be said."""
    if isinstance(rows, Batch):
        shown = text.of_delta(engine.symbols, fields, rows)
    elif rows is None or isinstance(rows, int):
        shown = "" if rows is None else f"{rows} rows"
    else:
        shown = text.of_keys(engine.symbols, fields, cols, rows)
    at = f"n{node}" if kind in ("emits", "pulls") else f"n{node}{list(cols)}"
    return f"{at} {kind} {shown}{'' if more is None else more()}"
