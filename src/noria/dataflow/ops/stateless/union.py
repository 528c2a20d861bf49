"""Union: out = the rows of all inputs, duplicates kept. Linear: d(out) = dI0 + dI1 + …

A pull fetches from every parent and returns when all have answered (UNION-WHOLE). Inside a worker these are
consecutive calls. The eviction of a key in one parent continues below, whichever parent has the key's rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    Operator,
    ParentPull,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts


class Union(Operator):
    """Input columns correspond by position. A text column is case-insensitive in every input or in none."""

    def __init__(self, fields: tuple[Field, ...]):
        self._fields = fields

    def describe(self) -> str:
        return "union all"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(port, cols) for port in range(len(node.parents))]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return Partition((None,) * len(inputs), tuple(p for p in inputs[0] if all(p in other for other in inputs)))

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        return concat([d for d in deltas if d is not None], node.width)

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return concat(inputs, node.width)

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        parts = [engine.fetch(p, cols, keys, mode) for p in node.parents]
        return concat([rows for rows, _ in parts], node.width), np.concatenate([ordinal for _, ordinal in parts])

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        for p in node.parents:
            yield from engine.stream(p)
