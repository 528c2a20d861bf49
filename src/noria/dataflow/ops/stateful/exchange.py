"""Exchange: out = the rows of all workers' inputs that this worker owns.

This operator is the receiver. `Exchanges.split` is the sender: it splits the output of the input node and sends each
row to its owner. A tick applies the rows that this worker owns, whichever worker sent them.

It stores rows like any stateful node: a pull that misses requests the rows from the workers, and rows of missing keys
are dropped. A thin exchange (rule R16) stores an answer only until it is used and drops no delta; the states below
drop the rows that they do not need.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.batch import Batch
from noria.core.types import Field
from noria.dataflow.graph.nodes import Columns, GraphRuntime, Node
from noria.dataflow.graph.partition import Partition, Parts
from noria.dataflow.ops.stateful.stateful import StoredInput, table_of


class Exchange(StoredInput):
    """`by`: the columns whose hash determines the owner of a row. No columns: worker 0 owns all rows."""

    remote = True

    def __init__(self, fields: tuple[Field, ...], by: Columns):
        super().__init__(fields)
        self.by = by

    def describe(self) -> str:
        return f"exchange by {', '.join(f'#{c}' for c in self.by)}" if self.by else "exchange to worker 0"

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return Partition((None,), (self.by,))

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None:
            return None
        covered = table_of(node).apply(delta)
        return delta if node.thin else covered
