"""Window: out = the input's rows, each with the values of its window functions over its partition.

f sorts the partition by the window's order, then by all columns, so that ROW_NUMBER is the same on every
evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes
from noria.core.limits import NULL_CODE
from noria.core.ranking import Order, SortedBatch, in_order, spelled_ranks
from noria.core.types import Field
from noria.core.values import encode_doubles
from noria.dataflow.graph.nodes import Columns, UpstreamReader
from noria.dataflow.ops.stateless.per_group import PerGroup, expanded
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Spec
from noria.state.grouping.window_kernels import framed, running

Mask = npt.NDArray[np.bool_]


class FrameEnds(NamedTuple):
    """The ends of a frame. `rows`: they are distances in rows; otherwise 0 means the row's peers. None: the group's
    first or last row."""

    rows: bool
    start: int | None
    end: int | None


@dataclass(frozen=True)
class WindowFunction:
    """One window function.

    `aggregate`: what to accumulate; None for rankings and for functions that pick a row. `frame`: the rows that
    aggregates, FIRST_VALUE, LAST_VALUE and NTH_VALUE read. `by`: the distance of LAG and LEAD in rows, NTH_VALUE's row,
    NTILE's number of buckets.
    """

    name: str
    column: int
    aggregate: Spec | None
    frame: FrameEnds
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
        if f.name in _RANKINGS:
            return _RANKINGS[f.name](order, f.by)
        values = np.ascontiguousarray(rows.columns[f.column])
        if f.name in ("lag", "lead"):
            return _shifted(values, -f.by if f.name == "lag" else f.by, order.new_group)
        first, last = _frame(f.frame, order, bool(self._order))
        if f.aggregate is not None:
            grows = f.frame.start is None and f.frame.end in (None, 0)
            best = f.aggregate.kind >= gk.MIN
            compared = spelled_ranks(values, self.types[f.column], engine.symbols) if best else values
            return _aggregated(f.aggregate, values, compared, order, first, last, grows)
        at = last if f.name == "last_value" else first + (f.by - 1 if f.name == "nth_value" else 0)
        return _picked(values, at, (first <= at) & (at <= last))


def _aggregated(of: Spec, values: Codes, compared: Codes, order: SortedBatch, first: Codes, last: Codes,
                grows: bool) -> Codes:
    """An aggregate over each row's frame. `compared`: the numbers that MIN and MAX compare. `grows`: frames begin with
    the group and end with a run of rows that have the same frame."""
    if not grows:
        moving: Codes = framed(of.kind, values, compared, first, last, of.factor)
        return moving
    ends = last == np.arange(len(last))
    growing: Codes = running(of.kind, values, compared, order.new_group, ends, of.factor)
    return growing


def _frame(ends: FrameEnds, order: SortedBatch, ordered: bool) -> tuple[Codes, Codes]:
    """The first and the last row of each row's frame. The last is before the first if there are none."""
    lowest, highest = _since(order.new_group), _until(_last(order.new_group))
    new_peer = order.new_peer if ordered else order.new_group
    at = np.arange(len(new_peer))

    def end(by: int | None, whole: Codes, peers: Codes) -> Codes:
        if by is None:
            return whole
        return at + max(min(by, len(at)), -len(at)) if ends.rows else peers

    first = end(ends.start, lowest, _since(new_peer))
    last = end(ends.end, highest, _until(_last(new_peer)))
    return np.clip(first, lowest, highest + 1), np.clip(last, lowest - 1, highest)


# ------------------------------------------------------------------ rankings
def _row_number(order: SortedBatch, by: int) -> Codes:
    return np.arange(len(order.new_group)) - _since(order.new_group) + 1


def _rank(order: SortedBatch, by: int) -> Codes:
    return _since(order.new_peer) - _since(order.new_group) + 1


def _dense_rank(order: SortedBatch, by: int) -> Codes:
    seen = np.cumsum(order.new_peer)
    return np.asarray(seen - seen[_since(order.new_group)] + 1)


def _percent_rank(order: SortedBatch, by: int) -> Codes:
    return encode_doubles((_rank(order, by) - 1) / np.maximum(_sizes(order) - 1, 1))


def _cume_dist(order: SortedBatch, by: int) -> Codes:
    through = _until(_last(order.new_peer)) - _since(order.new_group) + 1
    return encode_doubles(through / _sizes(order))


def _ntile(order: SortedBatch, by: int) -> Codes:
    """The number of the row's bucket, of `by`. The first buckets have one more row if the rows do not divide."""
    at, size = _row_number(order, by) - 1, _sizes(order)
    least, longer = size // by, size % by
    within_longer = longer * (least + 1)
    return np.where(at < within_longer, at // (least + 1) + 1,
                    longer + (at - within_longer) // np.maximum(least, 1) + 1)


_RANKINGS: dict[str, Callable[[SortedBatch, int], Codes]] = {
    "row_number": _row_number, "rank": _rank, "dense_rank": _dense_rank, "percent_rank": _percent_rank,
    "cume_dist": _cume_dist, "ntile": _ntile,
}


# ------------------------------------------------------------------ rows of a group
def _shifted(values: Codes, by: int, new_group: Mask) -> Codes:
    """The value of the row that is `by` rows behind; NULL beyond the group."""
    at = np.arange(len(values)) + by
    return _picked(values, at, (at >= _since(new_group)) & (at <= _until(_last(new_group))))


def _picked(values: Codes, at: Codes, there: Mask) -> Codes:
    """The values of these rows; NULL where `there` is false."""
    return np.where(there, values[np.where(there, at, 0)], NULL_CODE)


def _sizes(order: SortedBatch) -> Codes:
    """The number of rows of each row's group."""
    return _until(_last(order.new_group)) - _since(order.new_group) + 1


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
