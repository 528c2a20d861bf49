"""Reads by ranges of a key column: upqueries fill gaps, deltas keep intervals filled, evictions split them (the
thesis' "Ranged Upqueries").

A gap is filled key by key: the values that base tables have in it are pulled like any other keys. So operators
need no code for ranges. A state on the path remembers which intervals were read by an index
(`state.rows.ranges.Ranges`). Keeps true, for each such index:

* RANGE-WHOLE: a value in a filled interval is present, or no row has it. If a delta has the first row of such a
  value, `admit` makes the value present, without rows, before the operator sees the delta.
* An interval that is filled below is filled above, as with keys: an eviction cuts its values out of every
  interval below. One exception: a key may be present below and only filled above, if another side of a union has
  its first row.

A full state has every value. They are listed when a range is first read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import SqlError
from noria.core.limits import MAX_INT, MIN_INT, WRITTEN_RANGE_ROWS
from noria.core.types import Field
from noria.dataflow.graph import text
from noria.dataflow.graph.nodes import Columns, GraphRuntime, MissMode, Node, ParentPull
from noria.dataflow.graph.protocols import BaseStore
from noria.state.rows.ranges import Ranges


def read(engine: GraphRuntime, node: Node, cols: Columns, low: int, high: int) -> tuple[Batch, Codes]:
    """The reader's rows whose key is in [low, high], and for each row the ordinal of its key."""
    keys = _filled(engine, node, cols, low, high)[None, :]
    return node.op.fetch(engine, node, cols, keys, MissMode.STORED)


def read_first(engine: GraphRuntime, node: Node, cols: Columns, low: int, high: int, rows: int, descending: bool
               ) -> tuple[Batch, Codes]:
    """As `read`, but stop after `rows` rows, counted from low (`descending`: from high). Keys beyond are neither pulled
    nor filled."""
    parts: list[tuple[Batch, Codes]] = []
    have, target, keys = 0, rows, 0
    while have < rows and low <= high:
        end = _reach(engine, node, cols, low, high, target, descending)
        part, ordinal = read(engine, node, cols, *((end, high) if descending else (low, end)))
        parts.append((part, ordinal + keys))
        keys += 1 + int(ordinal.max(initial=-1))
        have += int(part.weights.sum())
        low, high = (low, end - 1) if descending else (end + 1, high)
        target *= 2  # rows on disk may be filtered or joined away
    if not parts:
        return Batch.empty(node.width), np.empty(0, np.int64)
    return concat([p for p, _ in parts], node.width), np.concatenate([o for _, o in parts])


def _reach(engine: GraphRuntime, node: Node, cols: Columns, low: int, high: int, rows: int, descending: bool) -> int:
    """A value up to which base tables have about `rows` rows, or a full state has `rows` values."""
    if not node.parents:
        return node.op.reach(engine, cols, low, high, rows, descending)
    if node.full:
        values = _filled(engine, node, cols, low, high)
        if len(values) < rows:
            return low if descending else high
        return int(values[-rows] if descending else values[rows - 1])
    ends = [_reach(engine, node.parents[n.port], n.cols, low, high, rows, descending) for n in sources(node, cols)]
    return max(ends) if descending else min(ends)


def sources(node: Node, cols: Columns) -> list[ParentPull]:
    """The pulls from the parents that the column derives from, which a pull by the column needs."""
    return [n for n in node.op.needs(node, cols) if n.primary is None or n.primary == n.port]


def _filled(engine: GraphRuntime, node: Node, cols: Columns, low: int, high: int) -> Codes:
    """The values from low to high that rows of the node may have. Fills the gaps if the node has a state."""
    if not node.op.stateful or (not node.parents and node.state is None):
        return _above(engine, node, cols, low, high)
    ranges = node.ranges[cols]
    if node.full and not len(ranges.starts):
        ranges.add(MIN_INT, MAX_INT)
        ranges.note(node.op.all_rows(engine, node).columns[cols[0]])
    for first, last in ranges.gaps(low, high):
        values = _above(engine, node, cols, first, last)
        _pull(engine, node, cols, values[None, :])
        ranges.add(first, last)
        ranges.note(values)
        more = partial(_now_filled, engine, node.fields[cols[0]], first, last, len(values))
        engine.note("fills", node, cols, None, more)
    return ranges.within(low, high)


def _above(engine: GraphRuntime, node: Node, cols: Columns, low: int, high: int) -> Codes:
    """The values that the parents, or the table on disk, may have from low to high."""
    if not node.parents:
        return node.op.values_between(engine, cols, low, high)
    parts = [_filled(engine, node.parents[n.port], n.cols, low, high) for n in sources(node, cols)]
    return parts[0] if len(parts) == 1 else np.unique(np.concatenate(parts))


def _pull(engine: GraphRuntime, node: Node, cols: Columns, keys: Codes) -> None:
    """Make distinct keys present."""
    if not node.parents:
        engine.fetch(node, cols, keys, MissMode.FILL)
        return
    missing = node.stored.missing(cols, keys)
    node.stats.requested += keys.shape[1]
    if missing.any():
        node.stats.misses += int(np.count_nonzero(missing))
        engine.fill(node, cols, np.ascontiguousarray(keys[:, missing]))


def admit(engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> None:
    """Before a tick of the node, make the values of its deltas present that are in filled intervals
    (RANGE-WHOLE)."""
    for cols, ranges in node.ranges.items():
        if not len(ranges.starts):
            continue
        for delta, column in _columns(node, cols, deltas):
            values = delta.columns[column]
            new = np.unique(values[ranges.covers(values)])
            if not len(new):
                continue
            keys = new[None, :]
            missing = np.zeros(len(new), np.bool_) if node.full else node.stored.missing(cols, keys)
            if missing.any() and not _begun(engine, node, cols, np.ascontiguousarray(keys[:, missing]), delta.width):
                ranges.cut(new[missing])
            ranges.note(new)


def _begun(engine: GraphRuntime, node: Node, cols: Columns, keys: Codes, width: int) -> bool:
    """Make keys present that no row had so far. False if a view has no space to publish them; no state is below a
    view."""
    try:
        node.op.fill(engine, node, cols, keys, Batch.empty(width))
    except SqlError:
        return False
    engine.note("keeps", node, cols, keys, lambda: ", which is in a filled range")
    return True


def _columns(node: Node, cols: Columns, deltas: Sequence[Batch | None]) -> Iterator[tuple[Batch, int]]:
    """The deltas that contain the column, and its position in each."""
    places = [(0, cols[0])] if not node.parents else [(n.port, n.cols[0]) for n in sources(node, cols)]
    for port, column in places:
        delta = deltas[port]
        if delta is not None:
            yield delta, column


# ------------------------------------------------------------------ eviction, layout
def adapt_to_layout(node: Node, indexes: set[Columns], promoted: bool) -> None:
    """After a layout, set the indexes by which ranges are read. `promoted`: the node was partial and is full now."""
    node.ranges = {cols: Ranges() if promoted else node.ranges.get(cols, Ranges()) for cols in sorted(indexes)}


def uncovered(node: Node, cols: Columns, low: int, high: int) -> list[Node]:
    """Ancestors whose state does not have the interval filled; `validate` reports them."""
    out = []
    for need in sources(node, cols) if node.parents else []:
        parent = node.parents[need.port]
        if not parent.op.stateful:
            out += uncovered(parent, need.cols, low, high)
        elif (parent.parents or parent.op.drops) and not parent.full and parent.ranges[need.cols].gaps(low, high):
            out.append(parent)
    return out


def _now_filled(engine: GraphRuntime, field: Field, low: int, high: int, values: int) -> str:
    return f"{_interval_text(engine, field, low, high)}, which has {values} values"


def _interval_text(engine: GraphRuntime, field: Field, low: int, high: int) -> str:
    first = "" if low == MIN_INT else text.of_value(engine.symbols, field, low)
    return f"{first}..{'' if high == MAX_INT else text.of_value(engine.symbols, field, high)}"


def are_few(store: BaseStore, argument: str) -> bool:
    """Whether fewer than WRITTEN_RANGE_ROWS rows have a code of the column between low and high, according to an
    index.

    `argument`: that of the `Inspect`, "column low high table".
    """
    numbers, table = argument.split(" ", 3)[:3], argument.split(" ", 3)[3]
    column, low, high = map(int, numbers)
    if low > high or not store.finds(table, (column,)):
        return low > high
    if high < MAX_INT:  # the next code beyond is reached only if the rows are few
        return store.reach(table, column, low, high + 1, WRITTEN_RANGE_ROWS, False) == high + 1
    return store.reach(table, column, low - 1, high, WRITTEN_RANGE_ROWS, True) == low - 1
