"""Keep: out = input, stored; a materialized node of the paper's section 4.2.

The lowering adds it where an operator must find rows by columns that no state has, such as a computed join key or
the right side of a left join.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.batch import Batch
from noria.core.types import Field
from noria.dataflow.graph.nodes import Columns, GraphRuntime, KeyPattern, Node, ParentPull, UpstreamReader
from noria.dataflow.ops.stateful.stateful import Stateful, table_of


class Keep(Stateful):
    def __init__(self, fields: tuple[Field, ...]):
        self._fields = fields

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return "keep"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return inputs[0]

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        return None if delta is None else table_of(node).apply(delta)
