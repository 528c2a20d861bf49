"""The changes of one write call before they are committed; later statements read the effects of earlier ones.

A statement adds *effects*: removed and added rows, as keys and packed rows for disk and as codes for the data-flow.
A failed statement is undone to its mark.  Nothing reaches RocksDB before `fill` puts all effects into the call's one
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat
from typing import Protocol

import numpy as np
from rocksdict import WriteBatch

from noria.core.batch import Batch, Codes, concat
from noria.core.limits import WRITTEN_RANGE_ROWS
from noria.dataflow.graph.request_limits import RequestLimits
from noria.storage.format.encoding import successor
from noria.storage.rocks.engine import RocksEngine
from noria.storage.tables.shards import Shard
from noria.storage.tables.table import Changed, Counters, Index, StoredTable

SCAN_ROWS = 50_000  # per slice: a few milliseconds and some MB
FIRST_OF_RANGE = 256  # rows in the first slice of a range; each later slice has twice as many
MANY_ROWS = 32  # with so many keys it pays to sort them first, and to check whether their range is empty


@dataclass
class FamilyChange:
    """Keys to delete from one family, then keys and values to put."""

    family: str
    removed: list[bytes]
    keys: list[bytes]
    values: list[bytes]


@dataclass
class Effect:
    """What one step of a statement does: to the families, and to the rows as codes."""

    changes: list[FamilyChange]
    old: Codes
    new: Codes


class Guard(Protocol):
    """Refuses what other transactions have locked (`transactions/guard.py`)."""

    def meets(self, family: str, keys: Sequence[bytes]) -> None:
        """Keys of a family are looked up."""

    def found(self, keys: Sequence[bytes]) -> None:
        """A condition found rows with these keys."""

    def needs(self, keys: Sequence[bytes]) -> None:
        """Rows with these keys must stay until the statement's transaction ends."""

    def changes(self, effect: Effect) -> None:
        """An effect is about to be added."""


@dataclass
class TableStage:
    """The effects on one table within one write call.  shard: the rows that may be added.  guard: None if no
    transaction has locked anything."""

    engine: RocksEngine
    table: StoredTable
    counters: Counters
    limits: RequestLimits | None = None  # checked between two slices of a scan
    shard: Shard | None = None
    effects: list[Effect] = field(default_factory=list)
    guard: Guard | None = None
    keeps_counters: bool = False  # store the counters, even if the table has them already
    parents: Callable[[str], TableStage] | None = None  # the stages of tables that a FOREIGN KEY refers to
    _seen: int = 0  # effects already in the overlays
    _overlays: dict[str, dict[bytes, bytes | None]] = field(default_factory=dict)

    # ---------------------------------------------------------------- statements and their undoing
    def mark(self) -> tuple[int, Counters]:
        return len(self.effects), self.counters

    def undo(self, mark: tuple[int, Counters]) -> None:
        effects, self.counters = mark
        del self.effects[effects:]
        if self._seen > effects:
            self._seen = 0
            self._overlays.clear()

    def add(self, effect: Effect) -> None:
        """Add an effect.  Raises Misrouted for new rows of other workers; stored ones may be changed or removed."""
        if self.shard is not None and effect.new.shape[1] and not effect.old.shape[1]:
            self.table.refuse_others(self.shard, effect.new)
        if self.guard is not None:
            self.guard.changes(effect)
        self.effects.append(effect)
        rows = self.counters.rows + effect.new.shape[1] - effect.old.shape[1]
        self.counters = self.counters._replace(rows=rows)

    def of_parent(self, name: str) -> TableStage:
        """The stage of a table that a FOREIGN KEY refers to.  Raises SqlError 1412 if there is no such table."""
        assert self.parents is not None, "who runs an INSERT with parents lends their stages"
        return self.parents(name)

    def take_over(self, effects: Sequence[Effect]) -> None:
        """Add the effects of a transaction, which holds the locks of their keys."""
        rows = sum(e.new.shape[1] - e.old.shape[1] for e in effects)
        self.effects += effects
        self.counters = self.counters._replace(rows=self.counters.rows + rows)
        self.keeps_counters = True

    def adopt(self, effects: list[Effect]) -> None:
        """Replace the effects by equal ones for other indexes."""
        self.effects, self._seen = effects, 0
        self._overlays.clear()

    # ---------------------------------------------------------------- reading through the effects
    def overlay(self, family: str) -> dict[bytes, bytes | None]:
        """The effects so far on a family: key to value, or to None if it was removed."""
        for effect in islice(self.effects, self._seen, None):
            for change in effect.changes:
                seen = self._overlays.setdefault(change.family, {})
                seen.update(zip(change.removed, repeat(None)))
                seen.update(zip(change.keys, change.values, strict=True))
        self._seen = len(self.effects)
        return self._overlays.get(family, {})

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key after the effects, or None."""
        if self.guard is not None:
            self.guard.meets(family, keys)
        overlay = self.overlay(family)
        if not overlay:
            return self._stored(family, keys)
        absent = [k for k in keys if k not in overlay]
        stored = dict(zip(absent, self._stored(family, absent), strict=True))
        return [overlay[k] if k in overlay else stored[k] for k in keys]

    def _stored(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        found: list[bytes | None]
        if len(keys) < MANY_ROWS:
            found = self.engine.get(family, keys)
            return found
        order = key_order(keys)
        if not self.engine.any_between(family, keys[order[0]], keys[order[-1]]):
            return [None] * len(keys)
        found = [None] * len(keys)
        for row, value in zip(order, self.engine.get(family, [keys[r] for r in order]), strict=True):
            found[row] = value
        return found

    def by_prefix(self, index: Index | None, prefixes: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Keys and packed rows under prefixes of an index (None: of the key)."""
        if index is None:
            pairs: dict[bytes, bytes | None] = {}
            for prefix in prefixes:
                pairs.update(self.engine.items_with_prefix(self.table.family, prefix))
            pairs.update(_under(self.overlay(self.table.family), prefixes))
            live = [(k, v) for k, v in pairs.items() if v is not None]
            return [k for k, _ in live], [v for _, v in live]
        entries: dict[bytes, bytes | None] = {}
        for prefix in prefixes:
            entries.update(self.engine.items_with_prefix(index.family, prefix))
        entries.update(_under(self.overlay(index.family), prefixes))
        keys = [k for k in entries.values() if k is not None]
        return keys, self.rows_of(keys)

    def rows_in_range(self, first: bytes, last: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Yield the rows with keys from `first` to those that start with `last`, in slices; perhaps some others."""
        family, end, rows = self.table.family, successor(last), FIRST_OF_RANGE
        overlay, after = self.overlay(family), first
        while True:
            pairs = self.engine.items(family, rows, after)
            self._check()
            kept = [p for p in pairs if p[0] < end and p[0] not in overlay]
            yield [k for k, _ in kept], [v for _, v in kept]
            if len(pairs) < rows or pairs[-1][0] >= end:
                break
            after, rows = pairs[-1][0] + b"\0", min(2 * rows, SCAN_ROWS)
        live = [(k, v) for k, v in overlay.items() if v is not None]
        yield [k for k, _ in live], [v for _, v in live]

    def is_short(self, first: bytes, last: bytes) -> bool:
        """True if fewer than FIRST_OF_RANGE stored rows are in the range, without this call's effects."""
        pairs = self.engine.items(self.table.family, FIRST_OF_RANGE, first)
        return len(pairs) < FIRST_OF_RANGE or pairs[-1][0] >= successor(last)

    def few_between(self, index: Index, first: bytes, last: bytes) -> tuple[list[bytes], list[bytes]] | None:
        """The rows in a range of an index; None if they are more than WRITTEN_RANGE_ROWS."""
        end = successor(last)
        pairs = self.engine.items(index.family, FIRST_OF_RANGE, first)
        if len(pairs) == FIRST_OF_RANGE and pairs[-1][0] < end:
            pairs = self.engine.items(index.family, WRITTEN_RANGE_ROWS, first)
            if len(pairs) == WRITTEN_RANGE_ROWS and pairs[-1][0] < end:
                return None
        entries: dict[bytes, bytes | None] = {k: v for k, v in pairs if k < end}
        entries.update((k, v) for k, v in self.overlay(index.family).items() if first <= k < end)
        keys = [k for k in entries.values() if k is not None]
        return keys, self.rows_of(keys)

    def rows_of(self, keys: list[bytes]) -> list[bytes]:
        """The packed rows of keys that an index returned, so the rows exist."""
        rows = self.get(self.table.family, keys)
        return [row for row in rows if row is not None]

    def scan(self) -> Iterator[tuple[list[bytes] | None, list[bytes]]]:
        """Yield the packed rows of the whole table in slices, with their keys.

        Keys may be None: computing them with `table.keys` is cheaper for the few rows that match a condition.
        """
        overlay = self.overlay(self.table.family)
        if self.table.key and not overlay:
            for values in self.engine.slices(self.table.family, SCAN_ROWS, "values"):
                self._check()
                yield None, values
            return
        for pairs in self.engine.slices(self.table.family, SCAN_ROWS, "items"):
            self._check()
            kept = [p for p in pairs if p[0] not in overlay]
            yield [k for k, _ in kept], [v for _, v in kept]
        live = [(k, v) for k, v in overlay.items() if v is not None]
        yield [k for k, _ in live], [v for _, v in live]

    def _check(self) -> None:
        if self.limits is not None:
            self.limits.check()

    # ---------------------------------------------------------------- to disk and to the data-flow
    @property
    def nbytes(self) -> int:
        """The bytes of keys and values that would be written."""
        return sum(sum(map(len, some)) for effect in self.effects for change in effect.changes
                   for some in (change.removed, change.keys, change.values))

    def fill(self, batch: WriteBatch) -> None:
        for effect in self.effects:
            for change in effect.changes:
                self.engine.fill(batch, change.family, change.removed, change.keys, change.values)
        batch.set_default_column_family(None)  # a batch that outlives a reopening must not hold the database

    def delta(self, since: int = 0) -> Batch:
        """The net delta of all effects.  since: skip so many of the first ones."""
        parts = [Batch.of(codes, weight) for effect in self.effects[since:]
                 for codes, weight in ((effect.old, -1), (effect.new, 1)) if codes.shape[1]]
        both = concat(parts, self.table.width)
        return net(both) if len({int(p.weights[0]) for p in parts}) == 2 else both

    def changed(self, delta: Batch, since: int = 0) -> Changed:
        """The rows removed and added, net, each with its key.  delta: the result of `delta`."""
        if not self.table.key:
            return self.moved(since)
        removed, added = delta.columns[:, delta.weights < 0], delta.columns[:, delta.weights > 0]
        return self.table.keys(removed), removed, self.table.keys(added), added

    def moved(self, since: int = 0) -> Changed:
        """As `changed`, where an equal row with the same key may be both removed and added."""
        removed: dict[bytes, Codes] = {}
        added: dict[bytes, Codes] = {}
        for effect in self.effects[since:]:
            rows = effect.changes[0]
            for at, key in enumerate(rows.removed or rows.keys):
                if effect.old.shape[1] and added.pop(key, None) is None:
                    removed[key] = effect.old[:, at]
                if effect.new.shape[1]:
                    added[key] = effect.new[:, at]
        return list(removed), self._side(removed), list(added), self._side(added)

    def _side(self, rows: dict[bytes, Codes]) -> Codes:
        return np.array(list(rows.values()), np.int64).reshape(len(rows), self.table.width).T


def key_order(keys: Sequence[bytes]) -> list[int]:
    """The positions of the keys in sorted order."""
    return sorted(range(len(keys)), key=keys.__getitem__)


def _under(overlay: dict[bytes, bytes | None], prefixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    heads = tuple(prefixes)
    return ((k, v) for k, v in overlay.items() if k.startswith(heads))


def net(batch: Batch) -> Batch:
    """Merge equal rows (same codes) into one with the sum of their weights; drop those with weight 0."""
    order = np.lexsort(batch.columns[::-1])
    columns, weights = batch.columns[:, order], batch.weights[order]
    starts = np.flatnonzero(np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0)))
    if len(starts) == len(order):
        return batch
    totals = np.add.reduceat(weights, starts)
    kept = np.flatnonzero(totals)
    return Batch(np.ascontiguousarray(columns[:, starts[kept]]), totals[kept])
