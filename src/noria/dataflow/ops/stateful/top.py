"""Top: out = of each group's rows, in a total order, those after the first `offset`, at most `limit` of them.

The state has, for each group that a present key covers, its first rows with their multiplicities. Let k = offset +
limit.

    fewer than k rows kept   they are all rows of the group
    otherwise                all rows up to the last kept one are kept; more may follow

So a change behind the last kept row costs nothing. Only if fewer than k rows remain is the group pulled again,
through an index in which its key is present (rule R15). Without groups the first rows are read from the end of an
index in this order, if one exists.

Some more rows than k are kept, so that pulls are rare. The result is exact under any deletions.

d(out) = the visible rows after the tick - the visible rows before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from noria.core.batch import Batch, Codes, concat
from noria.core.errors import InvariantViolation
from noria.core.ranking import Order, in_order
from noria.core.types import Field
from noria.dataflow.graph.keys import distinct, folded_keys, repeated_per_key
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    ParentPull,
    PartialResult,
    Untraceable,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts, alike, by_groups
from noria.dataflow.ops.stateful.stateful import Stateful, table_of
from noria.state.rows import probe
from noria.state.rows.layout import MAX_KEY
from noria.state.rows.netting import netted

Mask = npt.NDArray[np.bool_]
MOST_OF_PARTS = 1000  # rows: a larger top is not computed by each worker first
SPARE = (4, 1024)  # rows kept beyond k: as many as k, within these bounds


@dataclass(frozen=True)
class _Ranked:
    """Distinct rows in order, with the number of each row's group: 0, 1, … `place`: for each ranked input row,
    its index among these."""

    rows: Codes
    group: Codes
    starts: Codes
    place: Codes

    def sums(self, weights: Codes) -> Codes:
        """The sum of the weights in each group."""
        return np.add.reduceat(weights, self.starts) if len(self.starts) else weights

    def before(self, weights: Codes) -> Codes:
        """For each row, the total weight of the rows before it in its group."""
        total = np.cumsum(weights) - weights
        return np.asarray(total - total[self.starts][self.group])


class Top(Stateful):
    parted = False  # it stores more rows than are visible

    def __init__(self, fields: tuple[Field, ...], group: Columns, order: Order, limit: int, offset: int, text: str,
                 stays: bool = False):
        self._fields, self.group, self.order, self._text = fields, group, order, text
        self._stays = stays  # whether each worker keeps the first of its own rows
        self.offset, self.k = offset, offset + limit
        self.most = self.k + min(max(self.k, SPARE[0]), SPARE[1])
        self._types = [f.type for f in fields]
        self._own = group[:MAX_KEY]  # the index by which ticks find a group's rows

    def describe(self) -> str:
        return self._text

    # -------------------------------------------------------------- planning
    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        others = [c for c in cols if c not in self.group]
        if others:
            names = ", ".join(self._fields[c].name for c in others)
            raise Untraceable(node, f"{names} does not tell whose top it is")
        return [ParentPull(0, cols)]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        if self._stays:
            return alike(inputs)
        return by_groups(inputs[0], self.group, {c: c for c in range(len(self._fields))})

    def in_parts(self) -> tuple[Top, Top] | None:
        """The first rows of all workers are among the first rows of each worker."""
        if self.k > MOST_OF_PARTS:
            return None
        part = Top(self._fields, self.group, self.order, self.k, 0, f"{self._text} of each worker", stays=True)
        return part, self

    def lookups(self) -> list[Columns | None]:
        return [self._own] if self.group else []

    def finds(self, cols: Columns) -> bool:
        return all(c in self.group for c in cols)

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        known = [i for i, c in enumerate(p.cols) if c in self.group]
        return [KeyPattern(tuple(p.cols[i] for i in known), p.values[known], p.source)]

    # -------------------------------------------------------------- state
    def indexes(self, node: Node) -> list[Columns]:
        return [*node.indexes, *([self._own] if self.group and self._own not in node.indexes else [])]

    def all_rows(self, engine: UpstreamReader, node: Node) -> Batch:
        return self.visible_rows(engine, node.stored.rows())

    def fill(self, engine: GraphRuntime, node: Node, cols: Columns, keys: Codes, rows: Batch) -> None:
        """Store the first rows of groups. For groups that a present key of another index covers, the stored rows
        are kept."""
        groups = distinct(self._group_keys(engine, rows))
        covered = self._covered(node, groups)
        kept, fresh = np.ascontiguousarray(groups[:, covered]), np.ascontiguousarray(groups[:, ~covered])
        parts = [self.head(engine, self._only(engine, rows, fresh))]
        if kept.shape[1]:
            parts.append(self._stored(engine, node, kept))
        node.stored.fill(cols, keys, concat(parts, node.width))

    def from_end(self, engine: GraphRuntime, node: Node, source: Node) -> bool:
        rows = None if self.group else engine.first_rows(source, self.order, self.most)
        if rows is not None:
            table_of(node).apply(self.head(engine, rows))
        return rows is not None

    def _covered(self, node: Node, groups: Codes) -> Mask:
        """Which groups (folded keys) a present key covers."""
        out = np.full(groups.shape[1], node.full)
        if not node.full:
            for cols in node.indexes:
                keys = np.ascontiguousarray(groups[[self.group.index(c) for c in cols]])
                out |= ~node.stored.missing(cols, keys)
        return out

    def _stored(self, engine: UpstreamReader, node: Node, groups: Codes) -> Batch:
        """The stored rows of groups."""
        if not self.group:
            return table_of(node).rows()
        groups = distinct(groups)
        if len(self.group) == len(self._own):
            return table_of(node).lookup(self._own, groups)[0]
        keys = distinct(np.ascontiguousarray(groups[: len(self._own)]))
        return self._only(engine, table_of(node).lookup(self._own, keys)[0], groups)

    def _group_keys(self, engine: UpstreamReader, rows: Batch) -> Codes:
        cols = list(self.group)
        keys = folded_keys(engine.symbols, [self._types[c].folds for c in cols], rows.columns[cols])
        return np.ascontiguousarray(keys)

    def _only(self, engine: UpstreamReader, rows: Batch, groups: Codes) -> Batch:
        """The rows of some groups (folded keys)."""
        return rows if not self.group else rows.take(probe.pairs(self._group_keys(engine, rows), groups)[0])

    # -------------------------------------------------------------- the order
    def _ranked(self, engine: UpstreamReader, rows: Batch, keys: Codes) -> _Ranked:
        """Rank the rows. `keys`: columns that are equal for rows of one group."""
        order = in_order(rows, self._types, keys, self.order, engine.symbols)
        columns = rows.columns[:, order.at]
        new = order.new_group.copy()
        new[1:] |= (columns[:, 1:] != columns[:, :-1]).any(axis=0)
        at = np.flatnonzero(new)
        place = np.empty(len(rows), np.int64)
        place[order.at] = np.cumsum(new) - 1
        return _Ranked(columns[:, at], (np.cumsum(order.new_group) - 1)[at], np.flatnonzero(order.new_group[at]), place)

    def _visible(self, ranked: _Ranked, weights: Codes) -> Codes:
        """The number of visible copies of each row."""
        before = ranked.before(weights)
        return np.asarray(np.clip(before + weights, self.offset, self.k) - np.clip(before, self.offset, self.k))

    def visible_rows(self, engine: UpstreamReader, rows: Batch, keys: Codes | None = None) -> Batch:
        """The visible rows of complete groups, computed from all their rows or from the kept ones."""
        if not len(rows):
            return rows
        ranked = self._ranked(engine, rows, self._group_keys(engine, rows) if keys is None else keys)
        weights = _sum(ranked, rows.weights)
        return _some(ranked.rows, self._visible(ranked, weights))

    def head(self, engine: UpstreamReader, rows: Batch) -> Batch:
        """The rows of complete groups that are to be stored."""
        if not len(rows):
            return rows
        ranked = self._ranked(engine, rows, self._group_keys(engine, rows))
        weights = _sum(ranked, rows.weights)
        return _some(ranked.rows, np.where(ranked.before(weights) < self.most, weights, 0))

    # -------------------------------------------------------------- ticks
    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None or not len(delta):
            return None
        keys = self._group_keys(engine, delta)
        if not node.full:
            delta = delta.where(self._covered(node, keys))
            keys = self._group_keys(engine, delta)
        if not len(delta):
            return None
        stored = self._stored(engine, node, keys)
        both = concat([stored, delta], node.width)
        ranked = self._ranked(engine, both, self._group_keys(engine, both))
        n = len(stored)
        old = _sum(ranked, np.concatenate([stored.weights, np.zeros(len(delta), np.int64)]))
        change = _sum(ranked, np.concatenate([np.zeros(n, np.int64), delta.weights]))
        new, short = self._after(ranked, old, change, delta)
        if not short.any() and (new == old).all():  # all rows of the delta are behind the kept ones
            return None
        again = short[ranked.group]
        out = [_some(ranked.rows, np.where(again, 0, self._visible(ranked, new)) - self._visible(ranked, old))]
        kept = [_some(ranked.rows, np.where(again, 0, new) - old)]
        if short.any():
            groups = np.ascontiguousarray(self._group_keys(engine, Batch.of(ranked.rows[:, ranked.starts[short]])))
            rows = self._pull(engine, node, groups)
            out.append(self.visible_rows(engine, rows))
            kept.append(self.head(engine, rows))
        table_of(node).apply(netted(concat(kept, node.width)))
        return netted(concat(out, node.width))

    def _after(self, ranked: _Ranked, old: Codes, change: Codes, delta: Batch) -> tuple[Codes, Mask]:
        """The weights to store, and which groups must be pulled again."""
        number = np.arange(len(old))
        more = ranked.sums(old) >= self.k  # rows that are not kept may follow
        last = np.maximum.reduceat(np.where(old > 0, number, -1), ranked.starts)
        behind = more[ranked.group] & (number > last[ranked.group])
        new = old + np.where(behind, 0, change)
        if int(new.min()) < 0:
            raise InvariantViolation("NO-SPURIOUS", f"{self._text}: a row's weight fell below zero in {delta}")
        short = more & (ranked.sums(new) < self.k)
        return np.where(ranked.before(new) < self.most, new, 0), short

    def _pull(self, engine: GraphRuntime, node: Node, groups: Codes) -> Batch:
        """All rows of groups, by an index in which their keys are present: the input rows are then complete on
        this worker."""
        parent = node.parents[0]
        engine.note("pulls", node, self.group, groups, lambda: " again")
        if not self.group:
            rows = engine.first_rows(parent, self.order, self.most)
            return engine.all_rows(parent) if rows is None else rows
        rest, matched = np.ones(groups.shape[1], np.bool_), []
        for cols in [self._own] if node.full else node.indexes:
            keys = np.ascontiguousarray(groups[[self.group.index(c) for c in cols]])
            present = rest if node.full else rest & ~node.stored.missing(cols, keys)
            if present.any():
                present_keys = distinct(np.ascontiguousarray(keys[:, present]))
                rows = engine.fetch(parent, cols, present_keys, MissMode.FILL)[0]
                matched.append(self._only(engine, rows, np.ascontiguousarray(groups[:, present])))
                rest = rest & ~present
        return concat(matched, node.width)

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return self.visible_rows(engine, inputs[0])

    def partial_result(self, engine: UpstreamReader, node: Node) -> PartialResult:
        return _SlicedTop(self, engine, node.width)

    # -------------------------------------------------------------- reading
    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        if not cols:
            return repeated_per_key(self.all_rows(engine, node), keys.shape[1], engine.limits)
        rows, ordinal = node.stored.lookup(cols, keys, engine.tick_number)
        if not len(rows):
            return rows, ordinal
        tagged = Batch(np.concatenate([rows.columns, ordinal[None, :]]), rows.weights)
        ranked = self._ranked(engine, tagged, np.concatenate([ordinal[None, :], self._group_keys(engine, rows)]))
        out = _some(ranked.rows, self._visible(ranked, _sum(ranked, tagged.weights)))
        return Batch(np.ascontiguousarray(out.columns[:-1]), out.weights), out.columns[-1]


def _sum(ranked: _Ranked, weights: Codes) -> Codes:
    """The sum of the weights of equal rows."""
    out = np.zeros(len(ranked.group), np.int64)
    np.add.at(out, ranked.place, weights)
    return out


def _some(columns: Codes, weights: Codes) -> Batch:
    """The rows whose weight is not zero."""
    some = weights != 0
    return Batch(np.ascontiguousarray(columns[:, some]), weights[some])


class _SlicedTop:
    """Stores, of the rows added so far, only those that may be visible."""

    def __init__(self, top: Top, engine: UpstreamReader, width: int):
        self._top, self._engine = top, engine
        self._head = Batch.empty(width)

    def add(self, rows: Batch) -> None:
        if len(rows):
            self._head = self._top.head(self._engine, concat([self._head, rows], self._head.width))

    def rows(self) -> Batch:
        return self._top.visible_rows(self._engine, self._head)

    def __len__(self) -> int:
        return len(self._head)

    def memory(self) -> int:
        return self._head.columns.nbytes + self._head.weights.nbytes

    def held(self) -> Iterator[Codes]:
        yield from self._head.columns
