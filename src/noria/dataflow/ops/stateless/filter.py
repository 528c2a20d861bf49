"""Filter: out = {r in input : predicate(r) is true}. Linear: each row of a delta is tested alone."""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr, columns_of
from noria.core.types import Field
from noria.dataflow.graph.graph import used_columns
from noria.dataflow.graph.nodes import Node, UpstreamReader
from noria.dataflow.ops.stateless.stateless import Stateless


class Filter(Stateless):
    def __init__(self, fields: tuple[Field, ...], predicate: Expr):
        self._fields, self._text, self.predicate = fields, str(predicate), predicate
        self._predicate = evaluate.predicate(predicate)
        self._predicate_columns = columns_of(predicate)

    def describe(self) -> str:
        return f"filter {self._text}"

    def used_inputs(self, node: Node) -> frozenset[int] | None:
        below = used_columns(node)
        return None if below is None else below | self._predicate_columns

    def map(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        mask = self._predicate(rows, engine.symbols)
        if mask.all():
            return rows, None
        return rows.where(mask), np.flatnonzero(mask).astype(np.int64)
