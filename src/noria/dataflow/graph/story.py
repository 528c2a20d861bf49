"""The story of a violation: the last requests, base deltas and misses before it.

An engine's story stores events as they happen and formats them only when it is read. Deltas of nodes that are no base
tables follow from these events, so they are not stored, unless the story is the engine's `trace`, as in tests.

Keeps true: an event has a few rows at most, however large the delta was. It refers to no node, so the memory of a
dropped view is freed.

Call the `Story` with each event, and `describe` for the text.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.limits import STORY_EVENTS, STORY_ROWS
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.dataflow.graph import text
from noria.state.rows.table import Columns

More = Callable[[], str]


class Story:
    """Records events: call it with the arguments of `format_event`. `describe` returns them as text."""

    def __init__(self, symbols: Symbols, events: int = STORY_EVENTS):
        self._symbols = symbols
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
        """Record that the worker begins a request."""
        self._note((what, number))

    def describe(self, key: str = "") -> str:
        """The events that mention a key, written as it is shown, such as "(7, 'a')". All events for "". A
        composite row that starts with the key's values counts too."""
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
            return format_event(self._symbols, kind, node, fields, cols, kept, more)
        except Exception as e:  # its texts were swept since
            return f"n{event[1]} {event[0]} what can no longer be shown: {type(e).__name__}"


def format_event(symbols: Symbols, kind: str, node: int, fields: Sequence[Field], cols: Columns,
                 rows: Batch | Codes | int | None, more: More | None = None) -> str:
    """Format an event.

    `node`: its number. `fields`: its columns. `kind`: emits (`rows` is the delta), or misses, fills, reads,
    pulls, evicts, keeps (`rows` are keys by `cols`). A number for `rows` means that many rows. `more`: appended
    text.
    """
    if isinstance(rows, Batch):
        shown = text.of_delta(symbols, fields, rows)
    elif rows is None or isinstance(rows, int):
        shown = "" if rows is None else f"{rows} rows"
    else:
        shown = text.of_keys(symbols, fields, cols, rows)
    at = f"n{node}" if kind in ("emits", "pulls") else f"n{node}{list(cols)}"
    return f"{at} {kind} {shown}{'' if more is None else more()}"
