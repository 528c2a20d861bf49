"""Window: out = the input's rows, each with the values of its window functions over its partition.

f sorts the partition by the window's order, then by all columns, so that ROW_NUMBER is the same on every
evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.limits import NULL_CODE
from noria.core.ranking import Order, SortedBatch, in_order, spelled_ranks
from noria.core.types import Field
from noria.dataflow.graph.nodes import Columns, UpstreamReader
from noria.dataflow.ops.stateless.per_group import PerGroup, expanded
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Spec
from noria.state.grouping.window_kernels import running

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class WindowFunction:
    """One window function.

    `aggregate`: what to accumulate; None for rankings and for functions that pick a row. `frame`: the last row of
    the frame: "range": the last peer; "rows": this row; "all": the last row of the group. `by`: the distance of
    LAG and LEAD in rows.
    """

    name: str
    column: int
    aggregate: Spec | None
    frame: str
    by: int


class Window(PerGroup):
    def __init__(self, fields: tuple[Field, ...], inputs: tuple[Field, ...], partition: Columns, order: Order,
                 functions: Sequence[WindowFunction], text: str):
        super().__init__(fields, inputs, partition, partition, text)
        self._order, self._functions = order, list(functions)

    def of(self, engine: UpstreamReader, rows: Batch) -> Batch:
        rows = expanded(rows)
        if not len(rows):
            return Batch.empty(len(self._fields))
        order = in_order(rows, self.types, self.group_keys(engine, rows), self._order, engine.symbols)
        rows = rows.take(order.at)
        shown = [self._column(engine, f, rows, order) for f in self._functions]
        return Batch.of(np.concatenate([rows.columns, np.stack(shown)]))

    def _column(self, engine: UpstreamReader, f: WindowFunction, rows: Batch, order: SortedBatch) -> Codes:
        """The function's value for each of the sorted rows."""
        if f.name in ("row_number", "rank", "dense_rank"):
            return _ranking(f.name, order)
        values = np.ascontiguousarray(rows.columns[f.column])
        ends = {"range": _last(order.new_peer if self._order else order.new_group), "all": _last(order.new_group),
                "rows": np.ones(len(rows), np.bool_)}[f.frame]
        if f.aggregate is not None:
            best = f.aggregate.kind >= gk.MIN
            compared = spelled_ranks(values, self.types[f.column], engine.symbols) if best else values
            out: Codes = running(f.aggregate.kind, values, compared, order.new_group, ends, f.aggregate.factor)
            return out
        return _picked(f, values, order.new_group, ends)


def _ranking(name: str, order: SortedBatch) -> Codes:
    first = _since(order.new_group)
    if name == "row_number":
        return np.arange(len(first)) - first + 1
    if name == "rank":
        return _since(order.new_peer) - first + 1
    seen = np.cumsum(order.new_peer)
    return np.asarray(seen - seen[first] + 1)


def _picked(f: WindowFunction, values: Codes, new_group: Mask, ends: Mask) -> Codes:
    """The value of another row of the group; NULL if there is no such row."""
    at = np.arange(len(values))
    if f.name == "first_value":
        return values[_since(new_group)]
    if f.name == "last_value":
        return values[_until(ends)]
    from_row = at - f.by if f.name == "lag" else at + f.by
    in_group = (from_row >= _since(new_group)) & (from_row <= _until(_last(new_group)))
    return np.where(in_group, values[np.where(in_group, from_row, at)], NULL_CODE)


def _last(starts: Mask) -> Mask:
    """Mark the last row of each run. `starts`: marks the first rows."""
    return np.append(starts[1:], True)


def _since(starts: Mask) -> Codes:
    """For each row, the position of the first row of its run."""
    return np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))


def _until(ends: Mask) -> Codes:
    """For each row, the position of the last row of its run."""
    n = len(ends)
    return np.minimum.accumulate(np.where(ends, np.arange(n), n)[::-1])[::-1]
