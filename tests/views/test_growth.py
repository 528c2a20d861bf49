"""A large view's index grows in place, and keys move to it in steps: readers can read each key at every moment."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.views import files
from noria.views.layout import INDEXED, LIVE
from noria.views.reader import attach
from noria.views.writer import WritableView
from views import grower
from views.writer_processes import writing

STEP = 1_000  # keys at a time, in this process


def growing(view: WritableView) -> bool:
    return bool(int(view._words[INDEXED]) & 1)


def stored_keys(view: WritableView, n: int) -> list[int]:
    """The keys below n that have their row."""
    rows, _ = view.rows(np.arange(n, dtype=np.int64)[None, :])
    assert (rows.columns[1] == 3 * rows.columns[0]).all()
    return sorted(rows.columns[0].tolist())


@pytest.mark.parametrize("full", [True, False])
def test_keys_are_added_changed_and_removed_while_the_index_grows(full: bool) -> None:
    view, chance, there = grower.make(None, full), random.Random(1), set[int]()
    places, seen = set(), set[bool]()
    for tick in range(1, 61):
        grower.add(view, tick, (tick - 1) * STEP, STEP)
        there |= set(range((tick - 1) * STEP, tick * STEP))
        removed = np.array(chance.sample(sorted(there), STEP // 5), np.int64)
        if full:
            view.apply(Batch.of(grower.rows_of(removed).columns, -1))
        else:
            view.evict(removed[None, :])
            assert view.missing(removed[None, :]).all()
        there -= set(removed.tolist())
        places.add(id(view._land))
        seen.add(growing(view))
        assert len(view) == int(view._words[LIVE]) == len(there)
        assert stored_keys(view, tick * STEP) == sorted(there)
        assert sorted(view.present()[0].tolist()) == sorted(there)
    assert seen == {True, False} and len(places) < 6, "it moves while it is small only"


def test_the_coldest_keys_are_sampled_and_stamps_move() -> None:
    view = grower.make(None, False)
    while not growing(view) or len(view) < 10 * STEP:
        grower.add(view, 1, len(view), STEP)
    view.begin_tick(1_000)
    read = np.arange(0, len(view), 7, dtype=np.int64)
    view.rows(read[None, :])
    view.end_tick(1_000)
    while growing(view):
        grower.add(view, 2, len(view), STEP)
    stamps = dict(zip(*(part.tolist() for part in _stamps(view)), strict=True))
    assert {stamps[key] for key in read.tolist()} == {1_000}
    assert max(stamps[key] for key in range(1, int(read[-1])) if key % 7) < 1_000


def _stamps(view: WritableView) -> tuple[np.ndarray, np.ndarray]:
    keys, stamps, _ = view.coldest(len(view))
    return keys[0], stamps


def test_a_handle_is_valid_until_its_key_moves(tmp_path: Path) -> None:
    view = grower.make(str(tmp_path), False)
    while len(view) < 20 * STEP or growing(view):
        grower.add(view, 1, len(view), STEP)
    reader = attach(str(tmp_path / "views")).view("v")
    handles = {key: reader.lookup_entry((key,)) for key in range(0, len(view), 11)}
    while not growing(view):
        grower.add(view, 2, len(view), STEP)
    grower.add(view, 3, len(view), 100)
    current = 0
    for key, entry in handles.items():
        assert entry is not None
        rows, handle, version = entry
        assert rows == [(key, 3 * key)] and reader.version(handle) in (version, -1)
        current += reader.version(handle) == version
        again = reader.lookup_entry((key,))
        assert again is not None and again[0] == rows and reader.version(again[1]) == again[2] == version
    assert 0 < current < len(handles), "some have moved"
    while growing(view):
        grower.add(view, 4, len(view), STEP)
    assert all(entry is not None and reader.version(entry[1]) == -1 for entry in handles.values())


@pytest.mark.parametrize("listing", ["before the move", "without any record"])
def test_a_view_that_moves_while_its_records_are_listed_is_read(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str) -> None:
    """A directory that changes while it is listed may show neither the old name nor the new one."""
    view = grower.make(str(tmp_path), False)
    grower.add(view, 1, 0, 10)
    list_records, times = files.newest_first, 0

    def moving(folder: str) -> list[str]:
        nonlocal times
        times += 1
        records = list_records(folder)
        if times > 1:
            return records
        grower.add(view, 2, 10, STEP)
        assert list_records(folder) != records
        return records if listing == "before the move" else []

    monkeypatch.setattr(files, "newest_first", moving)
    reader = attach(str(tmp_path / "views")).view("v")
    assert reader.lookup((0,)) == [(0, 0)] and times == 2


@pytest.mark.parametrize("full", [True, False])
def test_another_process_reads_every_key_while_the_index_grows(tmp_path: Path, full: bool) -> None:
    with writing(grower.__file__, str(tmp_path), "full" if full else "partial") as process:
        view, chance = attach(str(tmp_path / "views")).view("v"), random.Random(2)
        assert view.lookup((0,)) == [(0, 0)]  # compiles its kernel if that is new
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        while_it_grew, there = 0, grower.BATCH
        while there < grower.KEYS:
            there = (view.tick() or 0) * grower.BATCH or there
            key = chance.randrange(there)
            while_it_grew += int(view._words[INDEXED]) & 1
            assert view.lookup((key,)) == [(key, 3 * key)], f"key {key} of {there}"
            if not key % 64:
                some = [(chance.randrange(there),) for _ in range(32)]
                table, missing = view.lookup_many(some, same_tick=False)
                assert not missing.any() and table["b"].to_pylist() == [3 * k for k, in some]
    assert while_it_grew > 100
