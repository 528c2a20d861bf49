"""Given: out = the rows that a query brings itself, such as those of a temporary table.

Only one-shots have this operator, since no table changes the rows and no view keeps them.  With several workers, the
one that runs the query has all rows (`partition.ONE`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.symbols import Symbols
from noria.core.types import Field, Kind
from noria.core.values import encode
from noria.dataflow.graph.keys import folded_keys
from noria.dataflow.graph.nodes import Columns, MissMode, Node, UpstreamReader
from noria.dataflow.ops.stateful.nothing import Nothing
from noria.state.rows import probe


class Given(Nothing):
    """The operator of `constant_row.GivenRows`."""

    def __init__(self, fields: tuple[Field, ...], rows: tuple[tuple[Any, ...], ...]):
        super().__init__(fields)
        self.values = rows

    def batch(self, symbols: Symbols) -> Batch:
        """All rows."""
        types = [f.type for f in self._fields]
        codes = np.empty((len(types), len(self.values)), np.int64)
        for at, (values, type_) in enumerate(zip(zip(*self.values, strict=True), types, strict=False)):
            plain = type_.kind is Kind.INT and None not in values
            codes[at] = values if plain else [encode(v, type_, symbols) for v in values]
        return Batch(codes, np.ones(len(self.values), np.int64))

    def describe(self) -> str:
        return "rows of the statement"

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        yield self.batch(engine.symbols)

    def lookup(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        rows, folds = self.batch(engine.symbols), [self._fields[c].type.folds for c in cols]
        ordinal, row = probe.pairs(np.ascontiguousarray(folded_keys(engine.symbols, folds, keys)),
                                   np.ascontiguousarray(folded_keys(engine.symbols, folds, rows.columns[list(cols)])))
        return rows.take(row), ordinal

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode
              ) -> tuple[Batch, Codes]:
        return self.lookup(engine, node, cols, keys)


__all__ = ["Given"]
