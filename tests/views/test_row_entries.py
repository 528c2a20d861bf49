"""A full view without a key, stored row by row: a write copies only changed rows, and a read shows one tick."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from noria.core.batch import Batch
from noria.core.types import BIGINT, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views import row_entries
from noria.views.reader import AttachedView, attach
from noria.views.writer import ViewDirectory, WritableView
from views.fresh import fresh
from views.writer_processes import writing

ROWS = 200
MANY = 2_000  # more than one block holds
WIDTH = 3
READS = 3_000  # at least
MOST_READS = 1_000_000  # until one must have seen two ticks; as few as seven of 3,000 fall between two


def view_of(path: Path | None) -> WritableView:
    fields = [Field(f"c{i}", BIGINT) for i in range(WIDTH)]
    directory = ViewDirectory(None if path is None else str(path / "views"), SymbolTable(None if path is None else
                                                                                         str(path)), 1)
    return directory.create("v", fields, (), WIDTH, True)


def rows(number: int, count: int = ROWS) -> np.ndarray:
    """Rows of a distinct value, then a number twice."""
    columns = np.full((WIDTH, count), number, np.int64)
    columns[0] = np.arange(count)
    return columns


def hammer(path: str) -> None:
    """Write the next number to all rows in each tick, until this process is killed."""
    row_entries.MOST_BLOCK_WORDS = 64
    view = view_of(Path(path))
    view.apply(Batch.of(rows(0)))
    view.apply(Batch.empty(WIDTH))  # now it is stored row by row
    view.activate()
    weights = np.repeat(np.array([-1, 1], np.int64), ROWS)
    print("up", flush=True)
    number = 0
    while True:
        change = Batch(np.concatenate([rows(number), rows(number + 1)], axis=1), weights)
        view.begin_tick(number + 1)
        view.apply(change)
        number += 1
        view.end_tick(number)


@pytest.fixture
def hammered(tmp_path: Path) -> Iterator[AttachedView]:
    code = f"from views.test_row_entries import hammer; hammer({str(tmp_path)!r})"
    with writing("-c", code):
        yield attach(str(tmp_path / "views")).view("v")


def numbers(view: AttachedView) -> set[int] | None:
    """The numbers in one read; None if it did not fit between two ticks."""
    codes = view.lookup_codes(())
    if codes is None:
        return None
    assert len(codes) == ROWS
    assert (codes[:, 1] == codes[:, 2]).all()
    return set(codes[:, 1].tolist())


def test_a_read_shows_one_tick(hammered: AttachedView) -> None:
    seen: set[int] = set()
    for reads in range(MOST_READS):
        one = numbers(hammered)
        if one is not None:
            assert len(one) == 1
            seen |= one
        if reads >= READS and len(seen) > 1:
            return
    raise AssertionError("no reads fell between two ticks: this test showed nothing")


def test_a_reader_that_ignores_the_tick_reads_two(hammered: AttachedView, monkeypatch: pytest.MonkeyPatch
                                                         ) -> None:
    broken = fresh("noria.views.row_entries", ("if load_acquire(A, TICK) != tick or rows == -1:", "if rows == -1:"))
    monkeypatch.setattr(row_entries, "read_all", broken.read_all)
    for _ in range(MOST_READS):
        codes = hammered.lookup_codes(())
        if codes is not None and len(set(codes[:, 1].tolist())) > 1:
            return
    raise AssertionError("no read showed two ticks: the other test would not notice")


def test_a_write_costs_what_it_changes() -> None:
    """Writing one row of many leaves the used memory as it was."""
    view = view_of(None)
    view.apply(Batch.of(rows(0, MANY)))
    view.apply(Batch.of(rows(1, 1)))  # from one block to row entries
    before = view.memory()
    for number in range(1, 300):
        view.apply(Batch(np.concatenate([rows(number, 1), rows(number + 1, 1)], axis=1), np.array([-1, 1], np.int64)))
    assert abs(view.memory() - before) < 1_000
    all_rows, ordinal = view.rows(np.empty((0, 2), np.int64))
    assert len(all_rows) == 2 * (MANY + 1)
    assert ordinal.tolist() == [0] * (MANY + 1) + [1] * (MANY + 1)
