"""A view against a dictionary of bags: applied, filled, evicted, grown; by its writer and by attached readers."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noria.core.batch import Batch, Codes
from noria.core.errors import InvariantViolation
from noria.core.types import BIGINT, TEXT, TEXT_BIN, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views import row_entries
from noria.views.layout import INDEX, LEAST_SLOTS
from noria.views.reader import AttachedView, attach
from noria.views.writer import ViewDirectory, WritableView
from seeds import cases

Row = tuple[int, ...]
WORDS = ["a", "A", "á", "b", "B", "", "straße", "STRASSE"]
SHAPES = [  # types of the columns, key columns
    ("i", (0,)), ("iii", ()), ("itti", ()), ("iti", (0,)), ("iti", (1,)), ("iti", (1, 0)), ("ibi", (1,)),
    ("iiiiiii", (3, 0, 5)),
]


class Model:
    """A view, its expected rows, and random steps for both."""

    def __init__(self, seed: int, shape: tuple[str, tuple[int, ...]], full: bool, path: Path | None, spread: int):
        self.random, self.full, self.spread = random.Random(seed), full, spread
        columns, self.key = shape
        types = {"i": BIGINT, "t": TEXT, "b": TEXT_BIN}
        self.fields = [Field(f"c{i}", types[c]) for i, c in enumerate(columns)]
        symbols = SymbolTable(None if path is None else str(path))
        self.symbols, self.words = symbols, [symbols.intern(w) for w in WORDS]
        self.view: WritableView = ViewDirectory(None if path is None else str(path / "views"), symbols, 1).create(
            "v", self.fields, self.key, len(columns), full)
        self.reader: AttachedView | None = None
        if path is not None:
            self.view.activate()
            self.reader = attach(str(path / "views")).view("v")
        self.held: dict[Row, Counter[Row]] = {}

    def row(self, key: Row | None = None) -> Row:
        row = [self.random.choice(self.words) if f.type.is_text else
               self.random.randrange(self.spread if i in self.key else 4) for i, f in enumerate(self.fields)]
        for i, code in zip(self.key, key or (), strict=False):
            same = [w for w in self.words if int(self.symbols.fold_table[w]) == code]
            row[i] = self.random.choice(same) if self.fields[i].type.folds else code
        return tuple(row)

    def key_of(self, row: Row) -> Row:
        return tuple(int(self.symbols.fold_table[row[k]]) if self.fields[k].type.folds else row[k] for k in self.key)

    def some_keys(self, most: int) -> list[Row]:
        return list({self.key_of(self.row()) for _ in range(self.random.randint(0, most))})

    def codes(self, keys: list[Row]) -> Codes:
        return np.array(keys, np.int64).reshape(len(keys), len(self.key)).T

    def apply(self, size: int) -> None:
        rows, weights, after = [], [], {k: Counter(c) for k, c in self.held.items()}
        for _ in range(size):
            row, weight = self.row(), self.random.randint(0, 3)
            bag = after.get(self.key_of(row))
            if bag and self.random.random() < 0.5:
                row = self.random.choice(list(bag))
                weight = -self.random.randint(1, bag[row]) if bag[row] > 0 else 1
            if bag is None and self.full:
                bag = after[self.key_of(row)] = Counter()
            if bag is not None:
                bag[row] += weight
            rows.append(row)
            weights.append(weight)
        order = self.random.sample(range(size), size)
        self.view.apply(Batch.from_rows([rows[i] for i in order], len(self.fields), [weights[i] for i in order]))
        self.held = {k: +c for k, c in after.items() if +c or not self.full}

    def fill(self, most: int) -> None:
        keys = [k for k in self.some_keys(most) if k not in self.held]
        rows = []
        for key in keys:
            own = [self.row(key) for _ in range(self.random.choice([0, 1, 2, 30]))]
            self.held[key] = Counter(own)
            rows += own
        self.random.shuffle(rows)
        self.view.fill(self.codes(keys), Batch.from_rows(rows, len(self.fields)))

    def evict(self, most: int) -> None:
        keys, before = self.some_keys(most), self.view.memory()
        freed = self.view.evict(self.codes(keys))
        assert (freed > 0) == any(k in self.held for k in keys)
        assert self.view.memory() <= before
        for key in keys:
            self.held.pop(key, None)

    def check(self) -> None:
        keys = list({*self.held, self.key_of(self.row())})
        expected = [+self.held.get(k, Counter()) for k in keys]
        assert self.view.missing(self.codes(keys)).tolist() == [k not in self.held and not self.full for k in keys]
        rows, ordinals = self.view.rows(self.codes(keys))
        read_rows: list[Counter[Row]] = [Counter() for _ in keys]
        for row, weight, at in zip(rows.rows(), rows.weights.tolist(), ordinals.tolist(), strict=True):
            assert row not in read_rows[at], "equal rows are one row with their weights added"
            read_rows[at][row] = weight
        assert read_rows == expected
        assert sorted(map(tuple, self.view.present().T.tolist())) == sorted(self.held)
        if self.reader is not None:
            self.check_reader(self.reader, keys, expected)

    def check_reader(self, reader: AttachedView, keys: list[Row], expected: list[Counter[Row]]) -> None:
        values = [tuple(self.symbols.text(c) if self.fields[i].type.is_text else c
                        for i, c in zip(self.key, key, strict=True)) for key in keys]
        for value, key, bag in zip(values, keys, expected, strict=True):
            decoded = Counter({self.decoded(r): n for r, n in bag.items()})
            rows = reader.lookup(value)
            assert (rows is None) == (key not in self.held and not self.full)
            assert Counter(rows or []) == decoded
        table, missing = reader.lookup_many(values)
        assert missing.tolist() == [k not in self.held and not self.full for k in keys]
        many = Counter(zip(*(c.to_pylist() for c in table.columns), strict=True))
        assert many == Counter({(*self.decoded(r), i): n for i, bag in enumerate(expected) for r, n in bag.items()})

    def decoded(self, row: Row) -> tuple[object, ...]:
        return tuple(self.symbols.text(c) if f.type.is_text else c for c, f in zip(row, self.fields, strict=True))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view without a key is soon stored row by row."""
    monkeypatch.setattr(row_entries, "MOST_BLOCK_WORDS", 40)


@settings(max_examples=cases(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), shape=st.sampled_from(SHAPES), spread=st.sampled_from([2, 300]),
       steps=st.lists(st.tuples(st.sampled_from("aaffe"), st.sampled_from([1, 2, 30, 400])), max_size=25))
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.usefixtures("small_blocks")
def test_like_a_dictionary_of_bags(
    mapped: bool, full: bool, tmp_path: Path, seed: int, shape: tuple[str, tuple[int, ...]], spread: int,
    steps: list[tuple[str, int]]
) -> None:
    model = Model(seed, shape, full, tmp_path if mapped else None, spread)
    for step, size in steps:
        if step == "a":
            model.apply(size)
        elif not full:
            (model.fill if step == "f" else model.evict)(size)
        model.check()
    model.view.drop()


def view_of(width: int, key: tuple[int, ...] = (0,), full: bool = False) -> WritableView:
    fields = [Field(f"c{i}", BIGINT) for i in range(width)]
    return ViewDirectory(None, SymbolTable(), 1).create("v", fields, key, width, full)


def test_a_key_with_many_rows_is_not_quadratic() -> None:
    """50,000 rows under one key, each changed in one delta: linear work, else this takes minutes."""
    n, view = 50_000, view_of(3, full=True)
    rows = np.stack([np.zeros(n, np.int64), np.arange(n), np.zeros(n, np.int64)])
    view.apply(Batch.of(rows))
    changed = rows.copy()
    changed[2] = 1
    view.apply(Batch(np.concatenate([rows, changed], axis=1), np.repeat(np.array([-1, 1], np.int64), n)))
    stored, _ = view.rows(np.zeros((1, 1), np.int64))
    assert len(stored) == n
    assert (stored.columns[2] == 1).all()
    view.apply(Batch.of(changed[:, 5:], -1))
    assert len(view.rows(np.zeros((1, 1), np.int64))[0]) == 5
    assert view.memory() < 8 * (INDEX + LEAST_SLOTS + 2 * 64)


@pytest.mark.parametrize("rows", [1, 3000])
def test_a_negative_weight_is_reported_with_its_row(rows: int) -> None:
    view = view_of(2, full=True)
    view.apply(Batch.from_rows([(7, i) for i in range(rows)], 2))
    with pytest.raises(InvariantViolation, match=r"NO-SPURIOUS.*\(7, 99999\)"):
        view.apply(Batch.from_rows([(7, 99_999)], 2, [-1]))


def test_a_fill_must_agree() -> None:
    view = view_of(2)
    key = np.array([[5]], np.int64)
    view.fill(key, Batch.empty(2))
    assert not view.missing(key).any()
    with pytest.raises(InvariantViolation, match="FILL-AGREES"):
        view.fill(key, Batch.empty(2))
    with pytest.raises(InvariantViolation, match="FILL-AGREES"):
        view.fill(np.array([[6, 6]], np.int64), Batch.empty(2))
    with pytest.raises(InvariantViolation, match="NO-SPURIOUS"):
        view.fill(np.array([[6]], np.int64), Batch.from_rows([(7, 1)], 2))


def test_space_is_used_again() -> None:
    view = view_of(4)
    keys = np.arange(1000, dtype=np.int64)[None, :]
    row = np.concatenate([keys, np.zeros((3, 1000), np.int64)])
    view.fill(keys, Batch.of(row))
    memory = view.memory()
    for value in range(50):
        new = row.copy()
        new[1] = value + 1
        view.apply(Batch(np.concatenate([row, new], axis=1), np.repeat(np.array([-1, 1], np.int64), 1000)))
        row = new
    assert view.memory() == memory
    for _ in range(50):
        view.evict(keys)
        view.fill(keys, Batch.of(row))
    assert view.memory() == memory


def test_evicting_gives_memory_back() -> None:
    view, n = view_of(4), 100_000
    keys = np.arange(n, dtype=np.int64)[None, :]
    view.fill(keys, Batch.of(np.concatenate([keys, keys, keys, keys])))
    held, words = view.memory(), view._land.room * 8
    freed = view.evict(keys[:, : n - 100])
    assert freed <= held - view.memory()
    assert view._land.room * 8 < words / 100
    assert view._slots < n
    rows, _ = view.rows(keys)
    assert sorted(rows.columns[0].tolist()) == list(range(n - 100, n))


def test_the_coldest_keys_are_those_not_read() -> None:
    view = view_of(2)
    keys = np.arange(40, dtype=np.int64)[None, :]
    view.begin_tick(1)
    view.fill(keys, Batch.of(np.concatenate([keys, keys])))
    view.end_tick(1)
    for tick, read in ((2, keys[:, 10:]), (3, keys[:, 20:])):
        view.begin_tick(tick)
        view.end_tick(tick)
        view.rows(read)
    coldest, stamps, sizes = view.coldest(10)
    assert sorted(coldest[0].tolist()) == list(range(10))
    assert stamps.tolist() == [1] * 10
    assert (sizes > 8 * 6).all()
    assert sum(view.evict(coldest[:, i:i + 1]) for i in range(10)) == sizes.sum()
