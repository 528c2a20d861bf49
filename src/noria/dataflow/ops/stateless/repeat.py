"""Repeat: out = each input row as many times as its count column says. Rows with NULL or a count below 1 are
dropped. Linear."""

from __future__ import annotations

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.types import Field
from noria.dataflow.graph.nodes import UpstreamReader
from noria.dataflow.ops.stateless.stateless import Stateless


class Repeat(Stateless):
    def __init__(self, fields: tuple[Field, ...], count: int):
        self._fields, self._count = fields, count

    def describe(self) -> str:
        return f"repeat #{self._count} times"

    def map(self, engine: UpstreamReader, rows: Batch) -> tuple[Batch, Codes | None]:
        times = rows.columns[self._count]
        some = np.flatnonzero(times > 0)  # NULL and errors are coded below all numbers
        return Batch(rows.columns.take(some, axis=1), rows.weights[some] * times[some]), some
