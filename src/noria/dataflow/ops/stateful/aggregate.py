"""Aggregate: out = one row per group of the input, with exact aggregates (section 4.1).

For each group that it changes, a delta emits -old +new. A group without rows has no output row; without GROUP BY
there is always exactly one row. When the kept MIN or MAX of a group is deleted, its rows are pulled again,
through an index in which the group's key is present (rule R15).

With several workers each groups its own rows first (`in_parts`), so one row per group crosses the exchange
instead of all its rows. This holds for COUNT, SUM, MIN and MAX: the results of the workers can be combined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
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
from noria.dataflow.graph.partition import SPREAD, Partition, Parts, by_groups
from noria.dataflow.ops.stateful.stateful import Stateful
from noria.state.grouping import group_kernels as gk
from noria.state.grouping.groups import Dirty, Groups, Spec

COMBINED_BY = {gk.COUNT_STAR: gk.SUM, gk.COUNT_COL: gk.SUM, gk.SUM: gk.SUM, gk.MIN: gk.MIN, gk.MAX: gk.MAX,
               gk.TEXT_MIN: gk.TEXT_MIN, gk.TEXT_MAX: gk.TEXT_MAX}  # of the workers' results


class Aggregate(Stateful):
    """Output: group columns, then aggregates.

    `group`: input columns. `specs`: the aggregates. `fails`: whether one worker's sum may overflow although the total
    does not. `stays`: whether the output row of a group remains at its worker.
    """

    def __init__(self, fields: tuple[Field, ...], group: Sequence[int], specs: Sequence[Spec], text: str,
                 fails: bool = False, stays: bool = False):
        self._fields, self.group, self._specs, self._text = fields, tuple(group), list(specs), text
        self._fails, self._stays = fails, stays

    def describe(self) -> str:
        return self._text

    # -------------------------------------------------------------- planning
    def needs(self, node: Node, cols: Columns) -> list[ParentPull]:
        values = [c for c in cols if c >= len(self.group)]
        if values:
            names = ", ".join(self._fields[c].name for c in values)
            raise Untraceable(node, f"{names} is aggregated, so no index above can answer it")
        return [ParentPull(0, tuple(self.group[c] for c in cols))]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        if self._stays:
            return Partition((None,), SPREAD)
        return by_groups(inputs[0], self.group, {c: i for i, c in enumerate(self.group)})

    def in_parts(self) -> tuple[Aggregate, Aggregate] | None:
        if self._fails or any(s.kind not in COMBINED_BY for s in self._specs):
            return None
        first = len(self.group)
        combined = [Spec(COMBINED_BY[s.kind], c, 1 if COMBINED_BY[s.kind] == gk.SUM else s.factor)
                    for c, s in enumerate(self._specs, first)]
        return (Aggregate(self._fields, self.group, self._specs, f"{self._text} of each worker", stays=True),
                Aggregate(self._fields, range(first), combined, f"{self._text} of all workers"))

    def used_inputs(self, node: Node) -> frozenset[int]:
        return frozenset((*self.group, *(s.column for s in self._specs)))

    def lookups(self) -> list[Columns | None]:
        again = any(Groups.pulls_again(s) for s in self._specs) or any(
            self._fields[j].type.folds for j in range(len(self.group)))
        return [self.group] if again and self.group else []

    def finds(self, cols: Columns) -> bool:
        return all(c < len(self.group) for c in cols)

    def carry(self, engine: GraphRuntime, node: Node, port: int, primary: int | None,
              p: KeyPattern) -> list[KeyPattern]:
        known = [(j, p.cols.index(c)) for j, c in enumerate(self.group) if c in p.cols]
        return [KeyPattern(tuple(j for j, _ in known), p.values[[i for _, i in known]], p.source)]

    # -------------------------------------------------------------- state
    def fresh(self, engine: GraphRuntime, node: Node) -> Groups:
        folds = [node.fields[j].type.folds for j in range(len(self.group))]
        return Groups(self.group, folds, self._specs, engine.symbols, full=node.full, name=self.describe())

    def begin(self, engine: GraphRuntime, node: Node, rows: int, keys: int) -> None:
        if not self.group and not node.all_remote:
            _groups(node).start()

    def saved(self, node: Node) -> Batch:
        """The stored groups with their accumulators."""
        return _groups(node).table.rows()

    def restore(self, engine: GraphRuntime, node: Node, rows: Batch) -> None:
        _groups(node).table.apply(rows)

    def recompute(self, engine: UpstreamReader, node: Node, inputs: Sequence[Batch]) -> Batch:
        return self.recompute_sliced(engine, node, iter(inputs))

    def partial_result(self, engine: UpstreamReader, node: Node) -> PartialResult:
        groups = Groups(self.group, [f.type.folds for f in self._fields[: len(self.group)]], self._specs,
                        engine.symbols, full=True)
        if not self.group:
            groups.start()
        return _SlicedGroups(groups, [c for c, f in enumerate(self._fields) if f.type.is_text])

    # -------------------------------------------------------------- ticks
    def tick(self, engine: GraphRuntime, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None:
            return None
        out, dirty = _groups(node).apply(delta)
        more = self._refill(engine, node, dirty)
        return out if more is None else concat([out, more], node.width)

    def _refill(self, engine: GraphRuntime, node: Node, dirty: Dirty | None) -> Batch | None:
        """Pull dirty groups again, by an index in which the group's key is present: its input rows are then
        complete on this worker."""
        if dirty is None:
            return None
        if not self.group:
            rows = engine.all_rows(node.parents[0])
            return _groups(node).refill(dirty, rows)
        rest = np.ones(dirty.keys.shape[1], np.bool_)
        matched: list[Batch] = []
        for cols in [tuple(range(len(self.group)))] if node.full else node.indexes:
            keys = np.ascontiguousarray(dirty.keys[list(cols)])
            present = rest if node.full else rest & ~_groups(node).table.missing(cols, keys)
            if present.any():
                up = tuple(self.group[c] for c in cols)
                groups = np.ascontiguousarray(dirty.keys[:, present])
                rows, _ = engine.fetch(node.parents[0], up, np.unique(keys[:, present], axis=1), MissMode.FILL)
                matched.append(_groups(node).only(rows, groups))
                rest = rest & ~present
        engine.note("pulls", node, tuple(range(len(self.group))), dirty.keys, lambda: " again")
        return _groups(node).refill(dirty, concat(matched, node.parents[0].width))


class _SlicedGroups:
    """Groups of rows that arrive in slices."""

    def __init__(self, groups: Groups, texts: Sequence[int]):
        self._groups, self._texts = groups, texts
        self.rows, self.memory = groups.rows, groups.memory

    def add(self, rows: Batch) -> None:
        self._groups.apply(rows)

    def __len__(self) -> int:
        return len(self._groups)

    def held(self) -> Iterator[Codes]:
        return self._groups.held(self._texts)


def _groups(node: Node) -> Groups:
    assert isinstance(node.state, Groups)
    return node.state
