"""The base of operators whose output is a function of all rows of a group: out = U over groups g of f(rows of g).

Stateless, like a join: it reads the state above. d(out) = f(R') - f(R) over the groups that the delta touches. R'
are their rows after the tick, fetched by the group columns, and R = R' - dR. A pull by some columns pulls their group
columns from the parent, which select complete groups, and filters by the other columns. A pull without any group column
is untraceable.

A delta reads stored rows only, as the primary side of a join does. For a group that is stored in part, d(out) is
wrong, which is harmless. Proof: a pull below that returns a row of the group has at least one of its group columns, so
it makes the complete group present above. Hence d(out) of such a group has missing keys only. R may even seem to
have negative rows then; they are left out. If a state below is full, the groups are filled.

An eviction above continues with the group columns of its pattern alone: a row's change affects all rows of its group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
from noria.dataflow.graph.keys import distinct, folded_keys
from noria.dataflow.graph.nodes import (
    Columns,
    GraphRuntime,
    KeyPattern,
    MissMode,
    Node,
    Operator,
    ParentPull,
    Untraceable,
    UpstreamReader,
)
from noria.dataflow.graph.partition import Partition, Parts, by_groups
from noria.state.rows import probe
from noria.state.rows.layout import MAX_KEY
from noria.state.rows.netting import netted


class PerGroup(Operator):
    """`group`: input columns. `places`: the output column of each of them."""

    def __init__(self, fields: tuple[Field, ...], inputs: tuple[Field, ...], group: Columns, places: Columns,
                 text: str):
        self._fields, self._text, self.group = fields, text, group
        self.types = [f.type for f in inputs]
        self._by = group[:MAX_KEY]  # the columns an index can have; a key of it has complete groups, perhaps several
        self._in = dict(zip(places, group, strict=True))
        self._out = dict(zip(group, places, strict=True))

    def of(self, engine: UpstreamReader, rows: Batch) -> Batch:
        """f: the output of complete groups, from all their rows (weights positive)."""
        raise NotImplementedError

    def group_keys(self, engine: UpstreamReader, rows: Batch) -> Codes:
        """Key columns that are equal for rows of one group."""
        cols = list(self.group)
        return folded_keys(engine.symbols, [self.types[c].folds for c in cols], rows.columns[cols])

    def describe(self) -> str:
        return self._text

    # -------------------------------------------------------------- planning
    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        mine = tuple(self._in[c] for c in cols if c in self._in)
        if not mine:
            names = ", ".join(self._fields[c].name for c in cols)
            raise Untraceable(node, f"{names or 'no key'} does not tell whose group to pull")
        return [ParentPull(0, mine, find=self._by)]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        return by_groups(inputs[0], self.group, self._out)

    def lookups(self) -> list[Columns | None]:
        return [self._by]

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        known = [(self._out[c], p.cols.index(c)) for c in self.group if c in p.cols]
        return [KeyPattern(tuple(o for o, _ in known), p.values[[i for _, i in known]], p.source)]

    # -------------------------------------------------------------- ticks
    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None or not len(delta):
            return None
        after = self._rows_of(engine, node, delta)
        before = _without(after, delta)
        return netted(concat([self.of(engine, after), self.of(engine, before).negated()], node.width))

    def _rows_of(self, engine: UpstreamReader, node: Node, delta: Batch) -> Batch:
        """All rows of the delta's groups after the tick."""
        parent, cols = node.parents[0], list(self._by)
        if not cols:
            return engine.all_rows(parent)
        keys = folded_keys(engine.symbols, [self.types[c].folds for c in cols], delta.columns[cols])
        mode = MissMode.FILL if node.full_below else MissMode.STORED
        return engine.fetch(parent, self._by, distinct(np.ascontiguousarray(keys)), mode)[0]

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return self.of(engine, inputs[0])

    # -------------------------------------------------------------- pulls
    def fetch(self, engine: UpstreamReader, node: Node, cols: Columns, keys: Codes, mode: MissMode) -> tuple[Batch,
                                                                                                             Codes]:
        (need,) = self.needs(node, cols)
        requested = np.ascontiguousarray(folded_keys(engine.symbols, [self._fields[c].type.folds for c in cols], keys))
        groups = distinct(np.ascontiguousarray(requested[[i for i, c in enumerate(cols) if c in self._in]]))
        out = self.of(engine, engine.fetch(node.parents[0], need.cols, groups, mode)[0])
        have = folded_keys(engine.symbols, [self._fields[c].type.folds for c in cols], out.columns[list(cols)])
        ordinal, row = probe.pairs(requested, np.ascontiguousarray(have))
        return out.take(row), ordinal

    def stream(self, engine: UpstreamReader, node: Node) -> Iterator[Batch]:
        parent = node.parents[0]
        yield self.of(engine, engine.all_rows(parent))


def _without(rows: Batch, delta: Batch) -> Batch:
    """The rows before the delta was applied."""
    delta = netted(delta)
    at, which = probe.pairs(rows.columns, delta.columns)
    met, first = np.unique(which, return_index=True)
    weights = rows.weights.copy()
    weights[at[first]] -= delta.weights[met]
    removed = np.ones(len(delta), np.bool_)
    removed[met] = False
    before = concat([Batch(rows.columns, weights), delta.where(removed).negated()], rows.width)
    if len(before) and int(before.weights.min()) < 0:  # equal rows in several places, or a group stored in part
        before = netted(before)
    return before.where(before.weights > 0)


def expanded(rows: Batch) -> Batch:
    """Repeat each row as often as its weight, with weight 1."""
    if (rows.weights == 1).all():
        return rows
    return Batch.of(np.repeat(rows.columns, rows.weights, axis=1))
