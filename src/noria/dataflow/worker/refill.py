"""Fills the keys again that partial views had before a restart, by upqueries in turns between other work.

Keeps true: saved keys are hints, so they may be outdated. Filling stops for good when memory is short or texts
are swept: keys that clients read are worth more.

`has_work` says whether a slice can run, and `step` runs it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np

from noria.core.batch import Codes
from noria.core.errors import InvariantViolation, SqlError
from noria.core.limits import REFILL_KEYS, REFILL_LEAST_KEYS, REFILL_SLICE_MS
from noria.dataflow.backfill.pace import Pace, SliceCost
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import Node
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.graph.published import view_of

_FIRST_KEYS, _MOST_KEYS = 16, 4_096  # of a slice


def present_keys(reader: Node) -> Codes:
    """The keys of a partial view, of shape (columns, keys), most recently read first, at most REFILL_KEYS."""
    view = view_of(reader)
    keys, _, _ = view.coldest(view.present_count())
    return np.ascontiguousarray(keys[:, ::-1][:, :REFILL_KEYS])


def has_keys(engine: Engine, reader: Node) -> bool:
    """Whether the reader has a partial state with many keys, which clients look up singly."""
    return (not reader.full and reader.live and reader.state is not None and bool(engine.reads.get(reader))
            and not reader.ranges and view_of(reader).present_count() >= REFILL_LEAST_KEYS)


class Refill:
    """The keys still to fill. `keys`: by view, of shape (columns, keys), the most recently read first."""

    def __init__(self, engine: Engine, keys: Mapping[str, Codes]):
        self._engine = engine
        self._left = deque((view, some) for view, some in keys.items() if some.shape[1])
        self._keys, self._most = _FIRST_KEYS, _MOST_KEYS  # of the next slice, and of any
        self._cost = SliceCost()

    def has_work(self) -> bool:
        """Whether a view can be filled now. Drops the keys of views that no longer fit."""
        self._left = deque((view, keys) for view, keys in self._left if self._fits(view, keys))
        return any(self._engine.ready(view) for view, _ in self._left)

    def step(self) -> int:
        """Fill one slice of one view. Returns the number of keys."""
        engine = self._engine
        while not engine.ready(self._left[0][0]):
            self._left.rotate(-1)
        view, keys = self._left.popleft()
        some, rest = keys[:, :self._keys], keys[:, self._keys:]
        pace = Pace(engine.clock, engine.processor)
        try:
            with engine.lookups.bounded():
                engine.read(view, np.ascontiguousarray(some))
        except (InvariantViolation, StoreBroken):
            raise
        except LongLookup:  # of several keys: try half as many. Of one key, which has very many rows: leave it out
            several = some.shape[1] > 1
            self._keys = self._most = some.shape[1] // 2 if several else _MOST_KEYS
            rest = keys if several else rest
        except SqlError:  # reads of the view will report it
            pass
        except Exception:  # a defect, which reads of the view will report; half-filled states are dropped
            engine.forget_partial(ancestors(engine.readers[view]))
            return int(some.shape[1])
        self._keys = pace.next_rows(self._keys, REFILL_SLICE_MS, self._most, self._cost)
        if rest.shape[1]:
            self._left.append((view, rest))
        return int(some.shape[1])

    def _fits(self, view: str, keys: Codes) -> bool:
        reader = self._engine.readers.get(view)
        return reader is not None and not reader.full and len(self._engine.reads.get(reader, ())) == len(keys)


def has_work(engine: Engine) -> bool:
    """Whether any keys can be filled now."""
    return engine.refill is not None and engine.refill.has_work()


def step(engine: Engine) -> int:
    """Fill one slice (see `Refill.step`)."""
    return 0 if engine.refill is None else engine.refill.step()
