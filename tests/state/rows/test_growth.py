"""Large tables grow in place, a bounded step with each change, and are correct at every step."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.state.rows import table
from noria.state.rows.layout import CLEARED, DESCRIPTOR, EHOFF, HASH, HEADER, MOVED, SLOTS
from noria.state.rows.table import Table
from state.rows.tables import bag, key

PLACES = [HASH, HEADER + EHOFF, HEADER + DESCRIPTOR + EHOFF]  # the hash tables of a table with two indexes


@pytest.fixture
def grows_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "LARGE", 16)


def made(full: bool) -> Table:
    t = Table(3, [False] * 3, None, full=full)
    t.add_index((0,))
    t.add_index((2, 1))
    return t


def growing(t: Table) -> list[bool]:
    return [int(t.arena[g + MOVED]) > 0 for g in PLACES]


def under(rows: Counter, cols: tuple[int, ...], row: tuple[int, ...]) -> Counter:
    return Counter({r: w for r, w in rows.items() if all(r[c] == row[c] for c in cols)})


@pytest.mark.usefixtures("grows_from_the_start")
@pytest.mark.parametrize("seed", range(4))
def test_a_full_table_is_right_while_it_grows(seed: int) -> None:
    rng, t, model = random.Random(seed), made(full=True), Counter()
    arena, seen, most = t.arena, Counter(), 2_500
    while len(model) < most:
        delta: Counter = Counter()
        for _ in range(rng.choice([1, 1, 3, 20, 400])):
            if model and rng.random() < 0.3:
                r = rng.choice(list(model)) if len(model) < 50 else next(iter(model))
                delta[r] = -model[r]
            else:
                delta[rng.randrange(most), rng.randrange(5), rng.randrange(most // 3)] += 1
        t.apply(Batch.from_rows(list(delta), 3, list(delta.values())))
        model.update(delta)
        for r in [r for r in delta if not model[r]]:
            del model[r]
        seen.update(g for g, on in zip(PLACES, growing(t), strict=True) if on)
        for r in [*rng.sample(list(delta), min(len(delta), 3)), *list(model)[:3]]:
            for cols in t.indexes:
                rows_of_key, _ = t.lookup(cols, key(cols, r))
                assert bag(rows_of_key) == under(model, cols, r), (seed, r, cols)
        if rng.random() < 0.1:
            assert bag(t.rows()) == model == bag(Batch.from_rows(
                [r for low in range(0, 64, 8) for r in t.part(64, low, low + 8).rows()], 3,
                [w for low in range(0, 64, 8) for w in t.part(64, low, low + 8).weights.tolist()]))
    assert t.arena is arena, "it was made anew"
    assert all(seen[g] for g in PLACES), "no change met a table that was growing"


@pytest.mark.usefixtures("grows_from_the_start")
@pytest.mark.parametrize("seed", range(4))
def test_a_partial_table_is_right_while_it_grows(seed: int) -> None:
    rng, t = random.Random(seed), made(full=False)
    base = Counter({(rng.randrange(900), rng.randrange(5), rng.randrange(300)): 1 for _ in range(3_000)})
    present: set[int] = set()
    grew = False
    for step in range(2_500):
        number = rng.randrange(1_000)
        some = Counter({r: w for r, w in base.items() if r[0] == number})
        if number in present and rng.random() < 0.3:
            t.evict((0,), np.array([[number]]))
            present.discard(number)
        elif number not in present:
            t.fill((0,), np.array([[number]]), Batch.from_rows(list(some), 3, list(some.values())))
            present.add(number)
        grew |= any(growing(t))
        assert t.missing((0,), np.arange(1_000)[None, :]).sum() == 1_000 - len(present)
        rows_of_key, _ = t.lookup((0,), np.array([[number]]))
        assert bag(rows_of_key) == (some if number in present else Counter())
        if step % 100 == 0:
            assert bag(t.rows()) == Counter({r: w for r, w in base.items() if r[0] in present})
            assert set(t.present((0,))[0].tolist()) == present
    assert grew



def work(t: Table) -> np.ndarray:
    """The slots of each hash table that were passed and cleared since it was made, up to a constant."""
    a = t.arena
    return np.array([(int(a[g + SLOTS] + a[g + MOVED]), int(2 * a[g + SLOTS] + a[g + CLEARED])) for g in PLACES])


def test_the_work_of_a_change_depends_only_on_its_rows() -> None:
    """A table of some millions of rows was once copied in one change, which took 3.6 s."""
    t = made(full=True)
    t.reserve(table.LARGE)
    arena, run = t.arena, 200  # slots up to the end of a run that was begun
    for first in range(0, 400_000, 100):
        ids, before = np.arange(first, first + 100), work(t)
        t.apply(Batch.of(np.stack([ids, ids % 7, ids // 3])))
        passed, cleared = (work(t) - before).max(axis=0)
        assert passed <= 16 * 100 + run and cleared <= 64 * 100
    assert t.arena is arena and all(int(arena[g + SLOTS]) > 4 * table.LARGE for g in PLACES)
    for cols, row in (((0,), (7, 0, 2)), ((2, 1), (7, 0, 2))):
        assert bag(t.lookup(cols, key(cols, row))[0]) == Counter({row: 1})


def test_a_batch_that_is_too_large_moves_the_rest_at_once() -> None:
    t = made(full=True)
    t.reserve(table.LARGE)
    ids = np.arange(1_000_000)
    t.apply(Batch.of(np.stack([ids, ids % 7, ids // 3])))
    for g in PLACES:
        assert int(t.arena[g + SLOTS]) * 3 >= 4 * (1_000_000 if g == HASH else 1)
    assert len(t) == 1_000_000 and len(t.lookup((0,), ids[None, ::1000])[0]) == 1_000


def test_without_addresses_to_reserve_a_large_table_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "reserve_words", lambda words: None)
    t = made(full=True)
    arenas = []
    for first in range(0, 200_000, 20_000):
        ids = np.arange(first, first + 20_000)
        t.apply(Batch.of(np.stack([ids, ids % 7, ids // 3])))
        arenas.append(t.arena)
    assert any(a is not b for a, b in pairwise(arenas[4:])) and len(t.rows()) == 200_000


def test_an_index_more_or_less_and_a_shrink_while_a_table_grows() -> None:
    t = made(full=True)
    ids = np.arange(150_000)
    for first in range(0, len(ids), 1_000):
        some = ids[first:first + 1_000]
        t.apply(Batch.of(np.stack([some, some % 7, some // 3])))
        if growing(t)[0]:
            break
    held = len(t)
    assert growing(t)[0]
    t.add_index((1,))
    assert len(t.lookup((1,), np.array([[3]]))[0]) == np.count_nonzero(ids[:held] % 7 == 3)
    t.drop_index((1,))
    t.apply(Batch.of(np.stack([ids[:held], ids[:held] % 7, ids[:held] // 3])).negated())
    t.shrink()
    assert len(t) == 0 and t.arena.nbytes < 10_000
