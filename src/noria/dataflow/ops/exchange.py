"""Exchange: out = the rows of the input, of all workers, that belong here.

The receiving end.  It keeps what passes, as any stateful node: a pull that misses here asks the workers above, and
what memory does not cover is dropped.  A thin one (rule R16) keeps an answer only until it is used, and drops nothing:
what is below it does.  What the input puts out at this worker is split by `Shards.split`, which sends
to each worker what is its; a tick here has what belongs here, from wherever it came.
"""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.batch import Batch
from noria.core.types import Field
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Columns, Need, Node, Pattern, Puller
from noria.dataflow.graph.partition import Partition, Parts
from noria.dataflow.ops.stateful import Stateful, table_of


class Exchange(Stateful):
    """by: the columns that tell whose a row is; none: worker 0's."""

    remote = True

    def __init__(self, fields: tuple[Field, ...], by: Columns):
        self._fields, self.by = fields, by

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return f"exchange by {', '.join(f'#{c}' for c in self.by)}" if self.by else "exchange to worker 0"

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return Partition((None,), (self.by,))

    def needs(self, node: Node, cols: Columns) -> list[Need]:
        return [Need(0, cols)]

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        return [p]

    def recompute(self, engine: Puller, node: Node, inputs: Sequence[Batch]) -> Batch:
        """Of all workers together."""
        return inputs[0]

    def tick(self, engine: Engine, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None:
            return None
        covered = table_of(node).apply(delta)
        return delta if node.thin else covered
