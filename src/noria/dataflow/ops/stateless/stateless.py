"""The base of Filter, Project and Repeat: one input, no state, rows mapped one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noria.core.batch import Batch, Codes
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


class Stateless(Operator):
    """`map` maps input rows to output rows. If it drops some, it also returns the positions of the rows kept.

    The output has the columns of the input, unless an operator redefines `needs` and `carry`."""

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]

    def map(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        raise NotImplementedError

    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        return None if delta is None else self.map(engine, delta)[0]

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        (need,) = self.needs(node, cols)
        rows, ordinal = engine.fetch(node.parents[0], need.cols, keys, mode)
        out, kept = self.map(engine, rows)
        return out, ordinal if kept is None else ordinal[kept]

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return self.map(engine, inputs[0])[0]

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        for rows in engine.stream(node.parents[0]):
            yield self.map(engine, rows)[0]
