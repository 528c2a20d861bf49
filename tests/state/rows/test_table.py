"""`Table` against dictionaries: rows with weights, several indexes, presence, eviction, growth, shrinking."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noria.core.batch import Batch
from noria.core.errors import InvariantViolation
from noria.state.rows.layout import HASH, HCAP
from noria.state.rows.table import Table
from seeds import cases
from state.rows.tables import bag, key

row = st.tuples(st.integers(0, 5), st.integers(-2, 2), st.integers(0, 3))
INDEXES = [(0,), (2, 1), ()]


class Model:
    """All rows ever written, and the present keys; both determine the expected rows of the table."""

    def __init__(self) -> None:
        self.rows: Counter = Counter()
        self.present: dict[tuple, set] = {i: set() for i in INDEXES}

    def covered(self, r: tuple) -> bool:
        return any(tuple(r[c] for c in i) in keys for i, keys in self.present.items())

    def stored(self) -> Counter:
        return Counter({r: w for r, w in self.rows.items() if w and self.covered(r)})


@settings(max_examples=cases(150), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["write", "fill", "evict"]), st.sampled_from(INDEXES),
                          st.lists(st.tuples(row, st.integers(1, 2), st.booleans()), min_size=1, max_size=12)),
                max_size=30))
def test_a_partial_table_holds_exactly_what_present_keys_cover(steps: list) -> None:
    table, model = Table(3, [False] * 3, None, full=False), Model()
    for i in INDEXES:
        table.add_index(i)
    for what, index, rows in steps:
        if what == "write":
            delta: Counter = Counter()
            for r, w, take in rows:
                w = -min(w, model.rows[r] + delta[r]) if take else w
                delta[r] += w
            model.rows.update(delta)
            table.apply(Batch.from_rows(list(delta), 3, list(delta.values())))
        elif what == "fill":
            k = tuple(rows[0][0][c] for c in index)
            if k in model.present[index]:
                continue
            pulled = {r: w for r, w in model.rows.items() if w and tuple(r[c] for c in index) == k}
            table.fill(index, key(index, rows[0][0]), Batch.from_rows(list(pulled), 3, list(pulled.values())))
            model.present[index].add(k)
        else:
            k = tuple(rows[0][0][c] for c in index)
            table.evict(index, key(index, rows[0][0]))
            model.present[index].discard(k)
        assert bag(table.rows()) == model.stored()
        for i in INDEXES:
            have = {tuple(k) for k in table.present(i).T.tolist()} if i else ({()} if table.present_count(i) else set())
            assert have == model.present[i]
            for r in list(model.rows)[:3]:
                matched, _ = table.lookup(i, key(i, r))
                expected = {q: w for q, w in model.stored().items() if all(q[c] == r[c] for c in i)}
                assert bag(matched) == expected


def test_it_grows_past_any_capacity_and_shrinks_when_it_empties() -> None:
    table = Table(2, [False, False], None, full=True)
    table.add_index((0,))
    rows = Batch.of(np.stack([np.arange(100_000) % 777, np.arange(100_000)]))
    table.apply(rows)
    assert len(table) == 100_000
    _, ordinal = table.lookup((0,), np.array([[5, 776, 777]]))
    assert Counter(ordinal.tolist()) == {0: 129, 1: 128}
    large = table.arena.nbytes
    table.apply(rows.negated())
    table.shrink()
    assert len(table) == 0 and table.arena.nbytes < large / 100


def test_a_weight_below_zero_is_a_violation_whatever_the_order_of_the_delta() -> None:
    table = Table(1, [False], None, full=True)
    table.apply(Batch.from_rows([(1,), (1,)], 1, [-1, 1]))
    assert len(table) == 0
    with pytest.raises(InvariantViolation, match="NO-SPURIOUS"):
        table.apply(Batch.from_rows([(1,)], 1, [-1]))


def test_rows_copied_in_parts_are_spread_over_the_hash_table() -> None:
    """Copied in hash order, the rows would fill a table of the same columns without a gap, and probes would be long."""
    rows, parts = 20_000, 1_024
    source, copy = (Table(1, [False], None, full=True) for _ in range(2))
    source.apply(Batch.of(np.arange(rows, dtype=np.int64)[None, :]))
    for number in range(0, parts, 16):
        some = source.part(parts, number, number + 16)
        assert set(source.part_of(some, parts).tolist()) <= set(range(number, number + 16))
        copy.apply(some)
        assert longest_run(copy) < 150
    assert bag(copy.rows()) == bag(source.rows())


def longest_run(table: Table) -> int:
    """The longest run of occupied slots in the identity hash."""
    a = table.arena
    free = np.flatnonzero(a[a[HASH]:a[HASH] + a[HCAP]] < 0)
    return int(np.diff(free).max(initial=0))
