"""Readers in one process while the writer in another sweeps strings all the time: every text is the right one.

The same reads without the look at SWEEPS must give wrong texts.  That shows that this test can fail.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from noria.state.symbols.symbols import AttachedSymbols
from noria.views.reader import AttachedView, attach
from views import sweeper
from views.writer_processes import writing

READS = 60_000
MOST_READS = 5_000_000  # until the broken ones must have gone wrong; they do within some thousands


@pytest.fixture
def view(tmp_path: Path) -> Iterator[AttachedView]:
    with writing(sweeper.__file__, str(tmp_path), "1") as process:
        assert process.stdout is not None and process.stdout.readline() == "1000\n"
        yield attach(str(tmp_path / "views")).view("v")


def wrong(key: int, rows: list[tuple[str, ...]]) -> bool:
    """Whether a text belongs to another key, or the texts are of two moments."""
    texts = [t for row in rows for t in row[1:]]
    return (any(row[0] != f"key {key}" for row in rows) or any(not t.startswith(f"value {key} ") for t in texts)
            or len({t.rsplit(" ", 1)[0] for t in texts}) > 1)


def reads(view: AttachedView, most: int) -> tuple[int, int]:
    """(hits until the first wrong answer, how many were wrong: 0 or 1)."""
    hits = 0
    for n in range(most):
        key = n % sweeper.KEYS
        if n % 50 == 0:
            table, missing = view.lookup_many([(f"key {k}",) for k in range(sweeper.KEYS)], same_tick=False)
            rows = list(zip(*(c.to_pylist() for c in table.columns), strict=True))
            answers = [(k, [r[:-1] for r in rows if r[-1] == k]) for k in range(sweeper.KEYS) if not missing[k]]
        else:
            one = view.lookup((f"key {key}",))
            answers = [] if one is None else [(key, one)]
        for k, answer in answers:
            hits += 1
            if len(answer) != sweeper.ROWS or wrong(k, answer):
                return hits, 1
    return hits, 0


def test_no_text_of_a_swept_id_is_read(view: AttachedView) -> None:
    hits, bad = reads(view, READS)
    assert not bad and hits > READS // 100


def test_without_the_check_of_sweeps_wrong_texts_are_read(view: AttachedView, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttachedSymbols, "sweeps", lambda self: 0)
    with contextlib.suppress(UnicodeDecodeError):  # bytes that were moving: wrong as well
        assert reads(view, MOST_READS)[1]
