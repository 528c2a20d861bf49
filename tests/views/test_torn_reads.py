"""Readers in one process, a writer in another: every read is one complete version.

The same loop over a reader kernel that does not look at the entry a second time must see torn reads; and so
must one with plain loads in place of the atomic ones.  That shows that this test can fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

from noria.views import read_kernels
from noria.views.read_kernels import LOOKUP_KEY, PLAIN, ROWS, ROWS_AT
from noria.views.reader import attach
from views import hammer
from views.fresh import fresh
from views.writer_processes import start_writer, writing

READS = 400_000  # of the real kernel
MOST_READS = 200_000_000  # until the broken ones must have torn; they tear within some hundred thousand
STRIDE = hammer.WIDTH + 1

SECOND_LOOK = "if load_acquire(A, block) != version or load_acquire(A, at) != word:"
NO_SECOND_LOOK = (SECOND_LOOK, "if False:")
PLAIN_LOADS = ("from noria.state.memory.atomics import fence, load_acquire, prefetch", """
from noria.state.memory.atomics import prefetch
@njit(inline="always")
def load_acquire(words, i):
    return words[i]
@njit(inline="always")
def fence():
    pass
""")


@pytest.fixture
def hammered(tmp_path: Path) -> Iterator[Path]:
    with writing(hammer.__file__, str(tmp_path), "1"):
        yield tmp_path / "views"


def reading(kernel: Any) -> Any:
    """A loop of `reads` reads that ends at the first torn one: (reads done, torn ones)."""

    @njit
    def loop(words, stamps, answer, reads):
        for i in range(reads):
            answer[LOOKUP_KEY] = i % hammer.KEYS
            if kernel(words, stamps, answer) != PLAIN:
                return i, -1
            if answer[ROWS] != hammer.ROWS:
                return i, 1
            number = answer[ROWS_AT + 2]
            for r in range(hammer.ROWS):
                at = ROWS_AT + r * STRIDE + 1
                if answer[at] != i % hammer.KEYS:
                    return i, 1
                for c in range(1, hammer.WIDTH - 1):
                    if answer[at + c] != number:
                        return i, 1
        return reads, 0

    return loop


def test_no_read_is_torn(hammered: Path) -> None:
    view = attach(str(hammered)).view("v")
    done, torn = reading(read_kernels.read)(view._words, view._stamps, view._answer, READS)
    assert (done, torn) == (READS, 0)


@pytest.mark.parametrize("change", [NO_SECOND_LOOK, PLAIN_LOADS], ids=["no second look", "plain loads"])
def test_without_the_protocol_reads_are_torn(hammered: Path, change: tuple[str, str]) -> None:
    broken = fresh("noria.views.read_kernels", change)
    view = attach(str(hammered)).view("v")
    done, torn = reading(broken.read)(view._words, view._stamps, view._answer, MOST_READS)
    assert torn, f"{done} reads by the broken kernel and none was torn: this test would not notice"


def test_lookups_over_several_keys_fall_between_ticks(hammered: Path) -> None:
    """All keys show the same tick's version, or all are reported missing; without ticks they differ."""
    view = attach(str(hammered)).view("v")
    keys = [(k,) for k in range(hammer.KEYS)]
    differed = False
    for _ in range(2000):
        table, missing = view.lookup_many(keys)
        if missing.any():
            assert missing.all()
            assert table.num_rows == 0
        else:
            assert len(set(table["c1"].to_pylist())) == 1
            assert table.num_rows == hammer.KEYS * hammer.ROWS
        table, missing = view.lookup_many(keys, same_tick=False)
        assert not missing.any()
        differed = differed or len(set(table["c1"].to_pylist())) > 1
    assert differed


@pytest.mark.parametrize("lines", range(1, 7))
def test_a_killed_writer_leaves_complete_versions_and_the_next_continues(tmp_path: Path, lines: int) -> None:
    process = start_writer(hammer.__file__, str(tmp_path), "7")
    view = attach(str(tmp_path / "views")).view("v")
    assert process.stdout is not None
    for _ in range(lines):
        process.stdout.readline()
    process.kill()
    process.communicate()
    last = 0
    for key in range(hammer.KEYS):
        rows = view.lookup((key,))
        assert rows is not None
        assert len(rows) == hammer.ROWS
        assert len({r[1] for r in rows}) == 1
        last = max(last, rows[0][1])
    assert last >= 1000 * lines
    _, handle, version = view.lookup_entry((0,)) or ([], 0, 0)
    assert version >> 40 == 7
    successor = hammer.make(str(tmp_path), 8)
    assert view.lookup((0,)) is not None, "nothing is published yet: the old versions stand"
    successor.begin_tick(1)
    assert view.version(handle) == -1
    assert view.lookup((0,)) is None
    assert len(list((tmp_path / "views" / "view.v").glob("*.json"))) == 1
    assert len(list((tmp_path / "views").glob("*.pool"))) == 1
    columns = hammer.version(0, 5)
    successor.fill(np.zeros((1, 1), np.int64), hammer.Batch.of(columns))
    assert sorted(view.lookup((0,)) or []) == sorted(map(tuple, columns.T.tolist()))
    _, handle, version = view.lookup_entry((0,)) or ([], 0, 0)
    assert version >> 40 == 8
    assert view.version(handle) == version
