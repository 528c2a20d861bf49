"""Reads of a view by keys: one at a time, or many in one upquery if none of them needs special treatment.

Keeps true: a combined read returns for each key the rows that a read of this key alone would return. An error is
reported only for the read that has it.

Call `read` for one read, `prefill` before adjacent ones, `many` for a `ReadMany`, and `fill` for a `FillKeys`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation, SqlError, unfilled, view_changed, view_gone
from noria.core.symbols import Symbols
from noria.dataflow.engine.engine import Engine
from noria.dataflow.engine.lookups import LongLookup
from noria.dataflow.graph.environment import WorkerEnvironment
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.graph.nodes import RemoteRowsNeeded
from noria.dataflow.graph.protocols import StoreBroken
from noria.dataflow.graph.request_limits import RequestLimits
from noria.dataflow.messages import packets
from noria.dataflow.messages.client_keys import codes_of
from noria.dataflow.oneshot.results import LargeResults
from noria.dataflow.worker.graph_changes import GraphChanges


class ViewReads:
    """Answers the reads of a worker (see the module)."""

    def __init__(self, engine: Engine, changes: GraphChanges, symbols: Symbols, environment: WorkerEnvironment,
                 results: LargeResults):
        self._engine, self._changes, self._symbols, self._environment = engine, changes, symbols, environment
        self._results = results

    def read(self, body: packets.Read) -> packets.Rows:
        changes, engine, name = self._changes, self._engine, body.view
        view = changes.views.get(name)
        if name in changes.left_out:
            return packets.Rows(body.request, None, changes.left_out[name])
        if body.definition and (view is None or view.definition != body.definition):
            return packets.Rows(body.request, None, view_changed(name))
        if view is None or name not in engine.readers:
            return packets.Rows(body.request, None, view_gone(name))
        if not engine.ready(name):
            return packets.Rows(body.request, None, engine.builds.error_of(name) or unfilled(name))
        try:
            if body.key_range is not None:
                rows, ordinal = engine.read_between(name, *body.key_range, body.first, body.descending)
            else:
                rows, ordinal = engine.read(name, codes_of(body.keys, view.key_fields, self._symbols), body.nulls)
        except SqlError as error:  # no room for the answer
            return packets.Rows(body.request, None, error)
        if body.fill:
            return packets.Rows(body.request, None)
        return self._results.make_reply(body.request, view, body.chunked, rows, ordinal)

    def fill(self, body: packets.FillKeys) -> packets.Done:
        """Fill keys that several clients wait for. If one of them needs special treatment, each is read by itself."""
        engine, view = self._engine, self._changes.views.get(body.view)
        if (view is None or view.definition != body.definition or body.view in self._changes.left_out
                or body.view not in engine.readers or not engine.ready(body.view)):
            return packets.Done(body.request, False)
        try:
            with engine.lookups.bounded():
                engine.fill_keys(body.view, codes_of(body.keys, view.key_fields, self._symbols))
        except (SqlError, LongLookup):
            return packets.Done(body.request, False)
        except (InvariantViolation, StoreBroken, RemoteRowsNeeded):
            raise
        except Exception:  # each read answered by itself shows which one failed
            engine.forget_partial(ancestors(engine.readers[body.view]))
            return packets.Done(body.request, False)
        return packets.Done(body.request, True)

    # ------------------------------------------------------------ many
    def prefill(self, bodies: Sequence[packets.Read]) -> None:
        """Fill all keys of adjacent reads of one view with one upquery: it costs as much as one for a single key."""
        view = self._changes.views.get(bodies[0].view)
        reads = [b for b in bodies if b.key_range is None and not self._environment.cancelled(b.request)
                 and view is not None and b.definition in (0, view.definition)]
        if len(reads) < 2 or view is None:
            return
        self._environment.began(reads[0].request)
        self._engine.limits = RequestLimits(self._environment.clock, min(r.limit_ms for r in reads) // 2,
                                          processor=self._environment.processor)
        self._together(view, lambda: np.concatenate([codes_of(r.keys, view.key_fields, self._symbols) for r in reads],
                                                    axis=1))

    def many(self, body: packets.ReadMany, answer_singly: Callable[[packets.Read], None]) -> packets.ReadManyReply:
        """Answer many reads together. `answer_singly`: runs a read that needs a reply of its own."""
        parts = []
        for alike in body.alike:
            rows = self._at_once(alike)
            if rows is not None:
                parts.append((alike.requests, rows))
                continue
            for request, key in zip(alike.requests, alike.keys, strict=True):
                answer_singly(packets.Read(request, alike.view, [key], definition=alike.definition,
                                           limit_ms=alike.limit_ms))
        return packets.ReadManyReply(body.request, tuple(parts))

    def _at_once(self, alike: packets.SameViewReads) -> Any:
        """The rows of all these reads. None if one has an error, waits for other workers' rows, or would delay
        all others."""
        view, cancelled = self._changes.views.get(alike.view), self._environment.cancelled
        if view is None or alike.definition not in (0, view.definition):
            return None
        self._engine.limits = RequestLimits(self._environment.clock, alike.limit_ms // 2,
                                          lambda: all(map(cancelled, alike.requests)),
                                          processor=self._environment.processor)
        answer = self._together(view, lambda: codes_of(alike.keys, view.key_fields, self._symbols))
        return None if answer is None else self._results.make_reply(0, view, False, *answer).rows

    def _together(self, view: Any, keys: Callable[[], Codes]) -> tuple[Batch, Codes] | None:
        """The rows of all keys. None if each read must be answered by itself."""
        engine = self._engine
        if not view.key or view.name not in engine.readers or not engine.ready(view.name):
            return None
        try:
            with engine.lookups.bounded():
                return engine.read(view.name, keys())
        except (SqlError, RemoteRowsNeeded, LongLookup):
            return None
        except InvariantViolation:
            raise
        except Exception:  # each read answered by itself shows which one failed
            engine.forget_partial(ancestors(engine.readers[view.name]))
            return None
        finally:
            engine.limits = None


__all__ = ["ViewReads"]
