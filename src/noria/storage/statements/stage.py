"""The changes of one write call, before they are committed: later statements see earlier ones.

A statement hands over *effects*: rows that go and rows that come, as keys and packed rows for disk and as
codes for the data-flow.  A statement that fails is taken back to its mark.  Nothing reaches RocksDB before
`fill` puts all effects into the one batch of the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, repeat

import numpy as np
from rocksdict import WriteBatch

from noria.core.batch import Batch, Codes, concat
from noria.core.limits import WRITTEN_RANGE_ROWS
from noria.dataflow.graph.work import Work
from noria.storage.format.encoding import successor
from noria.storage.rocks.engine import Engine
from noria.storage.tables.shards import Shard
from noria.storage.tables.table import Counters, Index, Table

SCAN_ROWS = 50_000  # of one slice: a few ms, and some MB
FIRST_OF_RANGE = 256  # rows that are looked at of a range; then twice as many
MANY_ROWS = 32  # from so many keys on it pays to sort them first, and to ask whether their range is empty


@dataclass
class Change:
    """Keys that go from one family, then keys and values that come."""

    family: str
    removed: list[bytes]
    keys: list[bytes]
    values: list[bytes]


@dataclass
class Effect:
    """What one step of a statement does: to the families, and to the rows as codes."""

    changes: list[Change]
    old: Codes
    new: Codes


@dataclass
class Stage:
    """One table within one write call.  shard: whose rows may come."""

    engine: Engine
    table: Table
    counters: Counters
    work: Work | None = None  # asked between two slices of a scan
    shard: Shard | None = None
    effects: list[Effect] = field(default_factory=list)
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
        """Misrouted where rows come that are none of this worker's; one that lies here may be changed."""
        if self.shard is not None and effect.new.shape[1] and not effect.old.shape[1]:
            self.table.refuse_others(self.shard, effect.new)
        self.effects.append(effect)
        rows = self.counters.rows + effect.new.shape[1] - effect.old.shape[1]
        self.counters = self.counters._replace(rows=rows)

    # ---------------------------------------------------------------- reading through the effects
    def overlay(self, family: str) -> dict[bytes, bytes | None]:
        """Key to value, or to None where it was removed, of all effects so far."""
        for effect in islice(self.effects, self._seen, None):
            for change in effect.changes:
                seen = self._overlays.setdefault(change.family, {})
                seen.update(zip(change.removed, repeat(None)))
                seen.update(zip(change.keys, change.values, strict=True))
        self._seen = len(self.effects)
        return self._overlays.get(family, {})

    def get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """The value of each key, or None."""
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
        """Keys and packed rows under prefixes of an index (of the key: None)."""
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

    def between(self, first: bytes, last: bytes) -> Iterator[tuple[list[bytes], list[bytes]]]:
        """Keys from `first` to those that start with `last`, and their packed rows, in slices; perhaps some others."""
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
        """Are fewer than FIRST_OF_RANGE rows there, without those of this commit?"""
        pairs = self.engine.items(self.table.family, FIRST_OF_RANGE, first)
        return len(pairs) < FIRST_OF_RANGE or pairs[-1][0] >= successor(last)

    def few_between(self, index: Index, first: bytes, last: bytes) -> tuple[list[bytes], list[bytes]] | None:
        """Likewise of an index; None where they are more than WRITTEN_RANGE_ROWS."""
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
        """Packed rows of keys that an index gave, hence of rows that exist."""
        rows = self.get(self.table.family, keys)
        return [row for row in rows if row is not None]

    def scan(self) -> Iterator[tuple[list[bytes] | None, list[bytes]]]:
        """Packed rows of the whole table in slices, and their keys: None where `table.keys` of the rows gives
        them, which is cheaper for the few that a condition leaves."""
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
        if self.work is not None:
            self.work.check()

    # ---------------------------------------------------------------- to disk and to the data-flow
    @property
    def nbytes(self) -> int:
        """Of keys and values that would be written."""
        return sum(sum(map(len, some)) for effect in self.effects for change in effect.changes
                   for some in (change.removed, change.keys, change.values))

    def fill(self, batch: WriteBatch) -> None:
        for effect in self.effects:
            for change in effect.changes:
                batch.set_default_column_family(self.engine.handle(change.family))
                deque(map(batch.delete, change.removed), maxlen=0)
                deque(map(batch.__setitem__, change.keys, change.values), maxlen=0)
        batch.set_default_column_family(None)  # a batch that outlives a reopening must not hold the database

    def delta(self, since: int = 0) -> Batch:
        """What all effects together did, net.  since: without so many of the first ones."""
        parts = [Batch.of(codes, weight) for effect in self.effects[since:]
                 for codes, weight in ((effect.old, -1), (effect.new, 1)) if codes.shape[1]]
        both = concat(parts, self.table.width)
        return net(both) if len({int(p.weights[0]) for p in parts}) == 2 else both

    def changed(self, delta: Batch, since: int = 0) -> tuple[list[bytes], Codes, list[bytes], Codes]:
        """The rows that go and the rows that come, net, each with its key.  delta: as `delta` has it."""
        if not self.table.key:
            return self.moved(since)
        gone, came = delta.columns[:, delta.weights < 0], delta.columns[:, delta.weights > 0]
        return self.table.keys(gone), gone, self.table.keys(came), came

    def moved(self, since: int = 0) -> tuple[list[bytes], Codes, list[bytes], Codes]:
        """Rows of a bag that went and rows that came, net, each with its key."""
        gone: dict[bytes, Codes] = {}
        came: dict[bytes, Codes] = {}
        for effect in self.effects[since:]:
            rows = effect.changes[0]
            for at, key in enumerate(rows.removed or rows.keys):
                if effect.old.shape[1] and came.pop(key, None) is None:
                    gone[key] = effect.old[:, at]
                if effect.new.shape[1]:
                    came[key] = effect.new[:, at]
        return list(gone), self._side(gone), list(came), self._side(came)

    def _side(self, rows: dict[bytes, Codes]) -> Codes:
        return np.array(list(rows.values()), np.int64).reshape(len(rows), self.table.width).T


def key_order(keys: Sequence[bytes]) -> list[int]:
    """The rows in the order of their keys."""
    return sorted(range(len(keys)), key=keys.__getitem__)


def _under(overlay: dict[bytes, bytes | None], prefixes: Sequence[bytes]) -> Iterator[tuple[bytes, bytes | None]]:
    heads = tuple(prefixes)
    return ((k, v) for k, v in overlay.items() if k.startswith(heads))


def net(batch: Batch) -> Batch:
    """Equal rows (same codes) become one with the sum of their weights; those that cancel go."""
    order = np.lexsort(batch.columns[::-1])
    columns, weights = batch.columns[:, order], batch.weights[order]
    starts = np.flatnonzero(np.append(True, (columns[:, 1:] != columns[:, :-1]).any(axis=0)))
    if len(starts) == len(order):
        return batch
    totals = np.add.reduceat(weights, starts)
    kept = np.flatnonzero(totals)
    return Batch(np.ascontiguousarray(columns[:, starts[kept]]), totals[kept])
