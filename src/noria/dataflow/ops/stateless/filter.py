"""Filter: out = {r in input : predicate(r) is true}. Linear: each row of a delta is tested alone."""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, columns_of
from noria.core.types import Field
from noria.dataflow.graph.graph import used_columns
from noria.dataflow.graph.nodes import Columns, GraphRuntime, KeyPattern, Node, ParentPull, UpstreamReader
from noria.dataflow.ops.stateless.stateless import Stateless


class Filter(Stateless):
    def __init__(self, fields: tuple[Field, ...], predicate: Expr):
        self._fields, self._text, self.predicate = fields, str(predicate), predicate
        self._predicate = evaluate.predicate(predicate)
        self._predicate_columns = columns_of(predicate)

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return f"filter {self._text}"

    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        return [ParentPull(0, cols)]

    def used_inputs(self, node: Node) -> frozenset[int] | None:
        below = used_columns(node)
        return None if below is None else below | self._predicate_columns

    def map(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        mask = self._predicate(rows, engine.symbols)
        if mask.all():
            return rows, None
        return rows.where(mask), np.flatnonzero(mask).astype(np.int64)

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        return [p]
