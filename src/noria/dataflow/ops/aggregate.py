"""Aggregate: out = one row per group of the input, with exact aggregates (section 4.1).

A delta emits -old +new for each group that it changes.  A group without rows has no output row, except that
without GROUP BY there is always exactly one.  MIN and MAX pull their group again when what they keep went
(rule R15), through an index that holds it.

Of several workers each groups its own rows first (`in_parts`), so that a group's row crosses an exchange where its
rows would: COUNT, SUM, MIN and MAX of a whole are those of its parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from noria.core.batch import Batch, Codes, concat
from noria.core.types import Field
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Columns, Gathered, Mode, Need, Node, Pattern, Puller, Untraceable
from noria.dataflow.graph.partition import SPREAD, Partition, Parts, by_groups
from noria.dataflow.ops.stateful import Stateful
from noria.state import group_kernels as gk
from noria.state.groups import Dirty, Groups, Spec

WHOLES = {gk.COUNT_STAR: gk.SUM, gk.COUNT_COL: gk.SUM, gk.SUM: gk.SUM, gk.MIN: gk.MIN, gk.MAX: gk.MAX,
          gk.TEXT_MIN: gk.TEXT_MIN, gk.TEXT_MAX: gk.TEXT_MAX}  # of the parts' values


class Aggregate(Stateful):
    """group: input columns; specs: the aggregates.  Output: group columns, then aggregates.  fails: may the sum of a
    part be too large where that of the whole is not?  stays: is each worker's row of a group its own?"""

    def __init__(self, fields: tuple[Field, ...], group: Sequence[int], specs: Sequence[Spec], text: str,
                 fails: bool = False, stays: bool = False):
        self._fields, self.group, self._specs, self._text = fields, tuple(group), list(specs), text
        self._fails, self._stays = fails, stays

    def fields(self) -> tuple[Field, ...]:
        return self._fields

    def describe(self) -> str:
        return self._text

    # -------------------------------------------------------------- planning
    def needs(self, node: Node, cols: Columns) -> list[Need]:
        values = [c for c in cols if c >= len(self.group)]
        if values:
            names = ", ".join(self._fields[c].name for c in values)
            raise Untraceable(node, f"{names} is aggregated, so no index above can answer it")
        return [Need(0, tuple(self.group[c] for c in cols))]

    def partition(self, inputs: Sequence[Parts]) -> Partition:
        if self._stays:
            return Partition((None,), SPREAD)
        return by_groups(inputs[0], self.group, {c: i for i, c in enumerate(self.group)})

    def in_parts(self) -> tuple[Aggregate, Aggregate] | None:
        if self._fails or any(s.kind not in WHOLES for s in self._specs):
            return None
        first = len(self.group)
        wholes = [Spec(WHOLES[s.kind], c, 1 if WHOLES[s.kind] == gk.SUM else s.factor)
                  for c, s in enumerate(self._specs, first)]
        return (Aggregate(self._fields, self.group, self._specs, f"{self._text} of each worker", stays=True),
                Aggregate(self._fields, range(first), wholes, f"{self._text} of all workers"))

    def looks_at(self, node: Node) -> frozenset[int]:
        return frozenset((*self.group, *(s.column for s in self._specs)))

    def lookups(self) -> list[Columns | None]:
        again = any(Groups.pulls_again(s) for s in self._specs) or any(
            self._fields[j].type.folds for j in range(len(self.group)))
        return [self.group] if again and self.group else []

    def finds(self, cols: Columns) -> bool:
        return all(c < len(self.group) for c in cols)

    def carry(self, engine: Engine, node: Node, port: int, primary: int | None, p: Pattern) -> list[Pattern]:
        known = [(j, p.cols.index(c)) for j, c in enumerate(self.group) if c in p.cols]
        return [Pattern(tuple(j for j, _ in known), p.values[[i for _, i in known]], p.source)]

    # -------------------------------------------------------------- state
    def fresh(self, engine: Engine, node: Node) -> Groups:
        folds = [node.fields[j].type.folds for j in range(len(self.group))]
        return Groups(self.group, folds, self._specs, engine.symbols, full=node.full, name=self.describe())

    def begin(self, engine: Engine, node: Node, rows: int, keys: int) -> None:
        if not self.group and not node.elsewhere:
            _groups(node).start()

    def saved(self, node: Node) -> Batch:
        """With the accumulators."""
        return _groups(node).table.rows()

    def restore(self, engine: Engine, node: Node, rows: Batch) -> None:
        _groups(node).table.apply(rows)

    def recompute(self, engine: Puller, node: Node, inputs: Sequence[Batch]) -> Batch:
        return self.whole(engine, node, iter(inputs))

    def gathered(self, engine: Puller, node: Node) -> Gathered:
        groups = Groups(self.group, [f.type.folds for f in self._fields[: len(self.group)]], self._specs,
                        engine.symbols, full=True)
        if not self.group:
            groups.start()
        return _Gathered(groups, [c for c, f in enumerate(self._fields) if f.type.is_text])

    # -------------------------------------------------------------- ticks
    def tick(self, engine: Engine, node: Node, deltas: Sequence[Batch | None]) -> Batch | None:
        (delta,) = deltas
        if delta is None:
            return None
        out, dirty = _groups(node).apply(delta)
        more = self._refill(engine, node, dirty)
        return out if more is None else concat([out, more], node.width)

    def _refill(self, engine: Engine, node: Node, dirty: Dirty | None) -> Batch | None:
        """Pull dirty groups again: by an index that has the group's key present, so that what it derives from
        is local and complete."""
        if dirty is None:
            return None
        if not self.group:
            rows = engine.everything(node.parents[0])
            return _groups(node).refill(dirty, rows)
        rest = np.ones(dirty.keys.shape[1], np.bool_)
        found: list[Batch] = []
        for cols in [tuple(range(len(self.group)))] if node.full else node.indexes:
            keys = np.ascontiguousarray(dirty.keys[list(cols)])
            here = rest if node.full else rest & ~_groups(node).table.missing(cols, keys)
            if here.any():
                up = tuple(self.group[c] for c in cols)
                groups = np.ascontiguousarray(dirty.keys[:, here])
                rows, _ = engine.fetch(node.parents[0], up, np.unique(keys[:, here], axis=1), Mode.FILL)
                found.append(_groups(node).only(rows, groups))
                rest = rest & ~here
        engine.note("pulls", node, tuple(range(len(self.group))), dirty.keys, lambda: " again")
        return _groups(node).refill(dirty, concat(found, node.parents[0].width))


class _Gathered:
    """Groups of rows that come in slices."""

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
