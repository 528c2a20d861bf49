"""Nothing: out = no rows, ever. The root of constants: an Aggregate of it without groups is their one row.

No table is behind it, so nothing is written to it, stored for it or requested from other workers for it. With
several workers it counts as the table of worker 0 (`partition.ONE`), so one worker has the row of an Aggregate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.types import BIGINT, Column, Field, TableDef
from noria.dataflow.graph.nodes import Columns, GraphRuntime, MissMode, Node, UpstreamReader
from noria.dataflow.graph.partition import ONE, Partition, Parts
from noria.dataflow.ops.stateful.base import Base
from noria.dataflow.ops.stateful.gate import Gate, UnslicedScan

_TABLE = TableDef("", (Column("nothing", BIGINT),))  # no table has this name, so no store and no packet knows it


class Nothing(Base):
    """The operator of `mir.Nothing`: a base table that has no rows, outside of every store."""

    def __init__(self, fields: tuple[Field, ...]):
        super().__init__(_TABLE)
        self._fields = fields

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def lookup(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes) -> tuple[Batch, Codes]:
        return _no_rows(node)

    def describe(self) -> str:
        return "nothing"

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return Partition((), ONE)

    def make_state(self, engine: GraphRuntime, node: Node) -> None:
        node.state = None

    def size(self, engine: GraphRuntime, node: Node) -> int:
        return 0

    def gate(self, node: Node) -> Gate:
        return Gate(node, UnslicedScan(node))

    def ahead(self, node: Node, cols: Columns) -> None:
        return None

    def values_between(self, engine: GraphRuntime, cols: Columns, low: int, high: int) -> Codes:
        return np.empty(0, np.int64)

    def reach(self, engine: GraphRuntime, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int:
        return low if descending else high

    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        return _no_rows(node)

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        return iter(())


def _no_rows(node: Node) -> tuple[Batch, Codes]:
    return Batch.empty(node.width), np.empty(0, np.int64)
