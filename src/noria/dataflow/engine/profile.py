"""Measures one read, node by node, for EXPLAIN ANALYZE.

Keeps true: the time of a node excludes that of the nodes from which it reads.

Set `Engine.profile` to a `ReadProfile` while the read runs: `Engine.fetch` then calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from noria.core.batch import Batch, Codes
from noria.dataflow.engine.runtime import EngineRuntime
from noria.dataflow.graph.nodes import Columns, MissMode, Node

Clock = Callable[[], int]


@dataclass
class Visits:
    """The reads of one node: calls, keys requested, rows returned, misses, nanoseconds."""

    calls: int = 0
    keys: int = 0
    rows: int = 0
    misses: int = 0
    ns: int = 0

    def as_dict(self) -> dict[str, Any]:
        return {"calls": self.calls, "keys": self.keys, "rows": self.rows, "misses": self.misses,
                "ms": round(self.ns / 1e6, 3)}


@dataclass
class ReadProfile:
    """The visits of one read by node number, and the depth of its upquery."""

    clock: Clock
    visits: dict[int, Visits] = field(default_factory=dict)
    depth: int = 0  # the longest chain of states that were filled
    _inner: list[int] = field(default_factory=lambda: [0])  # time of the nodes below, by level
    _filling: int = 0

    def fetch(self, engine: EngineRuntime, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                            Codes]:
        """`Engine.fetch`, measured."""
        visit = self.visits.setdefault(node.id, Visits())
        misses, start = node.stats.misses, self.clock()
        self._inner.append(0)
        self._filling += node.op.stateful
        try:
            rows, ordinal = engine.answer(node, cols, keys, mode)
        finally:
            elapsed = self.clock() - start
            visit.ns += elapsed - self._inner.pop()
            self._inner[-1] += elapsed
            missed = node.stats.misses - misses
            if missed:
                self.depth = max(self.depth, self._filling)
            self._filling -= node.op.stateful
        visit.calls += 1
        visit.keys += keys.shape[1]
        visit.rows += len(rows)
        visit.misses += missed
        return rows, ordinal

    def as_dict(self) -> dict[str, Any]:
        return {"depth": self.depth, "misses": sum(v.misses for v in self.visits.values()),
                "nodes": {node: v.as_dict() for node, v in self.visits.items()}}
