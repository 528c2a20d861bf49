"""Keep: out = input, stored; a materialized node of the paper's section 4.2.

The lowering adds it where an operator must find rows by columns that no state has, such as a computed join key or
the right side of a left join.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.batch import Batch
from noria.dataflow.graph.nodes import GraphRuntime, Node
from noria.dataflow.ops.stateful.stateful import StoredInput, table_of


class Keep(StoredInput):
    def describe(self) -> str:
        return "keep"

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        return None if delta is None else table_of(node).apply(delta)
