"""Random writes, reads, scans, evictions and migrations of one engine, and the comparison with the slow reference."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from dataflow.engine_rig import Emptying, Rig, has_key, shown, values_of
from noria.core.errors import SqlError
from noria.core.limits import MAX_INT, MIN_INT, NULL_CODE
from noria.core.symbols import fold
from noria.core.types import Kind
from noria.core.values import decode, encode
from noria.dataflow.inspect.validate import validate
from noria.dataflow.oneshot.slicing import QueryLookup, Scan
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory
from reference import mir_reference


def published(symbols: SymbolTable) -> ViewDirectory:
    """Views in memory of this process, published as by a worker."""
    return ViewDirectory(None, symbols, 1)


def play(rig: Rig, rng: random.Random, views: list[ViewDef], late: ViewDef | None, steps: int) -> None:
    """Run random steps, with all states validated after each; then compare each view.  late: views added meanwhile."""
    scans: list[SlicedQuery] = []
    chance = random.Random(rng.random())
    emptying: Emptying | None = None
    for step in range(steps):
        if step % 5 == 0:
            rig.sweep()
        rig.build_some()
        if chance.random() < 0.3:
            scans += SlicedQuery.of(rig, chance, chance.choice([*views, late] if late else views))
        if chance.random() < 0.2:
            rig.fill_ahead(chance, chance.choice(views).name)
            validate(rig.engine)
        scans = [s for s in scans if chance.random() < 0.4 or not s.step(rig, chance)]
        if emptying is None and chance.random() < 0.06:
            emptying = random_truncate(rig, chance)
        elif emptying is not None and chance.random() < 0.5:
            if chance.random() < 0.05:
                emptying.abandon()
            else:
                emptying.step(chance, views)
                if emptying.over:
                    scans = [s for s in scans if not s.is_stale(rig)]
                    views[:] = map(emptying.emptied, views)
                    late = late and emptying.emptied(late)
            emptying = None if emptying.over else emptying
            validate(rig.engine)
        if rng.random() < 0.2:
            read_once(rig, rng, rng.choice([*views, late] if late else views))
        x = rng.random()
        if x < 0.03 and not scans:
            rig.random_load(rng)
        elif x < 0.45:
            rig.random_write(rng)
        elif x < 0.75:
            view = rng.choice(views)
            if not rig.engine.ready(view.name):
                continue
            if view.ranged and rng.random() < 0.7:
                first = rng.choice([None, None, 0, 1, 3])
                read = partial(rig.engine.read_between, view.name, *rig.random_range(rng, view), first,
                               rng.random() < 0.5)
            else:
                read = partial(rig.engine.read, view.name, rig.random_key(rng, view))
            if rng.random() < 0.7 or not rig.cancelled_request(rng, read):
                read()
        elif x < 0.95:
            rig.random_evict(rng)
        elif late is not None:
            if rng.random() < 0.5 and rig.add_cancelled_view(rng, late):
                validate(rig.engine)
                continue
            if late.name not in rig.engine.readers:
                rig.add_view(late)
            views.append(late)
            late = None
        elif len(views) > 1 and rng.random() < 0.3:
            rig.drop_view(views.pop(0).name)
        validate(rig.engine)
    rig.engine.builds.all()
    assert all(rig.engine.ready(v.name) for v in views)
    validate(rig.engine)
    for view in views:
        compare_with_reference(rig, view)
        if view.ranged:
            for _ in range(3):
                compare_range(rig, view, *rig.random_range(rng, view))


def random_truncate(rig: Rig, chance: random.Random) -> Emptying | None:
    """Truncate a table at once, or begin to."""
    table, number = chance.choice(list(rig.tables)), max(t.table_id for t in rig.tables.values()) + 1
    if chance.random() < 0.3:
        rig.empty(table)
        validate(rig.engine)
        return None
    return Emptying(rig, table, number)


def read_once(rig: Rig, rng: random.Random, view: ViewDef) -> None:
    """Read some keys or a range of a view by a one-shot, with or without rows that only this reader sees. The view need
    not be in the graph."""
    delta, rows_of = None, {t: list(rows) for t, rows in rig.rows.items()}
    if rng.random() < 0.5:
        changes, rows_of = rig.random_changes(rng)
        delta = rig.deltas(changes)
    types = [f.type for f in view.plan.fields]
    truth = mir_reference.run(view.plan, rows_of)
    kept = [(n, len(n.state), n.state.memory()) for n in rig.engine.graph.nodes if n.state is not None]
    shot, top, lowered = rig.one_shot(view, delta=delta)
    if view.ranged and rng.random() < 0.5:
        low, high = rig.random_range(rng, view)
        first, descending = rng.choice([None, None, 0, 1, 3]), rng.random() < 0.5
        rows, ordinal = shot.read_between(top, lowered.key, low, high, first, descending)
        codes = rows.columns[view.key[0]]
        assert (codes[np.argsort(ordinal, kind="stable")] == np.sort(codes)).all()
        by_code = [(encode(r[view.key[0]], types[view.key[0]], rig.symbols), r) for r in truth
                   if r[view.key[0]] not in (None, mir_reference.ERROR)]
        have, expected = values_of(rig, rows, types), Counter(shown(r) for code, r in by_code if low <= code <= high)
        if first == 0:
            expected = Counter()
        elif first is not None and have != expected:  # no row nearer to that end is left out
            assert have.total() >= min(first, expected.total())
            low, high = (int(codes.min()), high) if descending else (low, int(codes.max()))
            expected = Counter(shown(r) for code, r in by_code if low <= code <= high)
        assert have == expected, f"{view.name} {low}..{high} once: {have} instead of {expected}\n{view.plan}"
    else:
        nulls = rng.random() < 0.3
        keys = np.concatenate([rig.random_key(rng, view) for _ in range(rng.choice([1, 1, 2, 5]))], axis=1)
        rows, ordinal = shot.read(top, lowered.key, keys, nulls)
        for i in range(keys.shape[1]):
            key = [decode(c, types[k], rig.symbols) for c, k in zip(keys[:, i].tolist(), view.key, strict=True)]
            expected = Counter(shown(r) for r in truth if has_key(r, view, types, key, nulls))
            have = values_of(rig, rows.where(ordinal == i), types)
            assert have == expected, f"{view.name} {key} once: {have} instead of {expected}\n{view.plan}\n{delta}"
    assert kept == [(n, len(n.state), n.state.memory()) for n in rig.engine.graph.nodes if n.state is not None]


class SlicedQuery:
    """A one-shot that reads its table in slices between the other steps. Its rows must be those of the start."""

    def __init__(self, rig: Rig, view: ViewDef, scan: Scan, lowered: ViewDef, lookup: QueryLookup):
        self.view, self.scan, self.lookup, self.lowered = view, scan, lookup, lowered
        (self.table,) = (rig.tables[name] for name in view.plan.table_names)
        self.begin(rig)

    def begin(self, rig: Rig) -> None:
        self.truth = mir_reference.run(self.view.plan, {t: list(rows) for t, rows in rig.rows.items()})

    @staticmethod
    def of(rig: Rig, chance: random.Random, view: ViewDef) -> list[SlicedQuery]:
        shot, top, lowered = rig.one_shot(view)
        if not Scan.can(rig.engine, top):
            return []
        keys = np.concatenate([rig.random_key(chance, view) for _ in range(chance.choice([1, 1, 2, 5]))], axis=1)
        key_range = rig.random_range(chance, view) if view.ranged and chance.random() < 0.5 else None
        lookup = QueryLookup(lowered.key, keys, chance.random() < 0.3, key_range)
        scan = Scan(rig.engine, shot, top, lookup)
        rig.engine.scans.append(scan)
        return [SlicedQuery(rig, view, scan, lowered, lookup)]

    def is_stale(self, rig: Rig) -> bool:
        """Whether the table has been replaced since the start. Then the next slice must raise the error."""
        if rig.tables[self.table.name] == self.table:
            return False
        self.scan.check_table()
        with pytest.raises(SqlError, match="has changed"):
            self.scan.step()
        rig.engine.scans.remove(self.scan)
        return True

    def step(self, rig: Rig, chance: random.Random) -> bool:
        """Run a slice. After the last one, compare the answer and return True."""
        self.scan.rows = chance.randint(1, 4)
        if chance.random() < 0.05:  # as after a bulk load
            self.scan.restart()
            self.begin(rig)
        if not self.scan.step():
            return False
        rig.engine.scans.remove(self.scan)
        rows, ordinal = self.scan.answer()
        view, types = self.view, [f.type for f in self.view.plan.fields]
        if self.lookup.key_range is not None:
            low, high = self.lookup.key_range
            codes = [encode(r[view.key[0]], types[view.key[0]], rig.symbols) if r[view.key[0]] not in (
                None, mir_reference.ERROR) else NULL_CODE for r in self.truth]
            expected = Counter(shown(r) for code, r in zip(codes, self.truth, strict=True) if low <= code <= high)
            have = values_of(rig, rows, types)
            assert have == expected, f"{view.name} {low}..{high} in slices: {have} instead of {expected}\n{view.plan}"
            return True
        for i, codes in enumerate(self.lookup.keys.T):
            key = [decode(c, types[k], rig.symbols) for c, k in zip(codes.tolist(), view.key, strict=True)]
            expected = Counter(shown(r) for r in self.truth if has_key(r, view, types, key, self.lookup.nulls))
            have = values_of(rig, rows.where(ordinal == i), types)
            assert have == expected, f"{view.name} {key} in slices: {have} instead of {expected}\n{view.plan}"
        return True


GUESSES: dict[Any, list[Any]] = {
    Kind.INT: [0, 1, 7], Kind.DOUBLE: [0, 1, 7], Kind.DECIMAL: [0, 1, 7], Kind.TEXT: ["a", "nobody"],
    Kind.TIME: [timedelta(), timedelta(days=1)], "bytes": [b"a", b"nobody"]}


def compare_with_reference(rig: Rig, view: ViewDef) -> None:
    """Read every key that has rows, and some keys without rows, and compare the answers with the slow reference."""
    truth = mir_reference.run(view.plan, {t: list(rows) for t, rows in rig.rows.items()})
    types = [f.type for f in view.plan.fields]
    folds = [types[k].folds for k in view.key]

    def key_of(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(fold(row[k]) if f and row[k] is not None else row[k] for k, f in zip(view.key, folds, strict=True))

    by: dict[tuple[Any, ...], Counter[str]] = {}
    for row in truth:
        by.setdefault(key_of(row), Counter())[shown(row)] += 1
    guesses = set(product(*(GUESSES[types[k].kind if not types[k].is_bytes else "bytes"] for k in view.key)))
    for key in sorted({*by, *guesses}, key=str):
        if any(v is None or v is mir_reference.ERROR for v in key):
            continue
        codes = np.array([[encode(v, types[k], rig.symbols)] for v, k in zip(key, view.key, strict=True)], np.int64)
        rows, _ = rig.engine.read(view.name, codes.reshape(len(key), 1))
        have = values_of(rig, rows, types)
        assert have == by.get(key, Counter()), f"{view.name} {key}: {have} instead of {by.get(key)}\n{view.plan}"


def compare_range(rig: Rig, view: ViewDef, low: int, high: int) -> None:
    """Read the rows with a key in the range, and compare them with the slow reference."""
    types = [f.type for f in view.plan.fields]
    expected: Counter[str] = Counter()
    for row in mir_reference.run(view.plan, {t: list(rows) for t, rows in rig.rows.items()}):
        key = row[view.key[0]]
        if key is not None and key is not mir_reference.ERROR and low <= encode(
                key, types[view.key[0]], rig.symbols) <= high:
            expected[shown(row)] += 1
    for descending in (False, True):
        rows, ordinal = rig.engine.read_between(view.name, low, high, 2, descending)
        part = values_of(rig, rows, types)
        assert part <= expected and part.total() >= min(2, expected.total()), (
            f"{view.name} {low}..{high}: {part} of {expected}")
        keys = rows.columns[view.key[0]]
        assert (keys[np.argsort(ordinal, kind="stable")] == keys).all()
        limit = keys.min(initial=MAX_INT) if descending else keys.max(initial=MIN_INT)
        rows, _ = rig.engine.read_between(view.name, *((limit, high) if descending else (low, limit)))
        assert not len(keys) or values_of(rig, rows, types) == part  # no key in between is left out
    rows, _ = rig.engine.read_between(view.name, low, high)
    have = values_of(rig, rows, types)
    assert have == expected, f"{view.name} {low}..{high}: {have} instead of {expected}\n{view.plan}"
