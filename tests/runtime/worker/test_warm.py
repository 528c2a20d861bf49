"""No request waits for a kernel to be compiled or loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from noria.core.batch import Batch
from noria.core.types import BIGINT, Field
from noria.dataflow.messages import packets
from noria.dataflow.worker.worker import Worker
from noria.runtime.worker import warm
from noria.state.rows import slices
from noria.state.symbols import symbol_kernels as kernels
from noria.state.symbols.symbols import SymbolTable
from noria.views import write_kernels
from noria.views.layout import INDEXED
from noria.views.writer import ViewDirectory

KERNELS = (kernels.mark, kernels.sweep, kernels.rehash, kernels.intern, kernels.intern_many, kernels.find)


def test_kernels_for_strings_and_sweeps_are_loaded(tmp_path: Path) -> None:
    """Compilation once delayed the first batch of strings over HTTP, and the first sweep, by 1.5 s."""
    warm.kernels(str(tmp_path))
    before = [tuple(k.signatures) for k in KERNELS]
    assert all(before)
    symbols = SymbolTable()
    for type in (pa.string(), pa.large_string()):
        for texts in (pa.array(["a", None], type), pa.array([], type), pa.array(["a", "b", "c"], type).slice(1),
                      pa.array(["b", "ž"]).cast(type), pa.chunked_array([["x"], ["y"]]).cast(type).combine_chunks()):
            symbols.intern_many(texts)
    symbols.sweep([symbols.intern_many(pa.array(["a"]))])
    assert [tuple(k.signatures) for k in KERNELS] == before


def test_kernels_for_growth_and_builds_are_loaded(tmp_path: Path) -> None:
    warm.kernels(str(tmp_path))
    grown = (write_kernels.begin_growth, write_kernels.pass_all, write_kernels.set_index, write_kernels.fill)
    before = [tuple(k.signatures) for k in (*grown, slices.part_of)]
    assert all(before)
    view = ViewDirectory(None, SymbolTable()).create("v", [Field("a", BIGINT)], (0,), 1, False)
    seen = set()
    for first in (*range(0, 20_000, 500), 20_000):
        keys = np.arange(first, first + (500 if first < 20_000 else 50_000))[None, :]
        view.fill(keys, Batch.of(keys))
        seen.add(int(view._words[INDEXED]) & 1)
    slices.part_of(np.zeros((2, 3), np.int64), 4)
    assert seen == {0, 1} and [tuple(k.signatures) for k in (*grown, slices.part_of)] == before


def test_one_shots_are_executed_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replies: list[packets.Envelope] = []
    step = Worker.step
    monkeypatch.setattr(Worker, "step", lambda self, some: replies.extend(answered := step(self, some)) or answered)
    warm.kernels.__wrapped__(str(tmp_path))
    queries = list(warm.one_shots())
    answers = [e.body for e in replies][-len(queries) - 1 : -1]  # the last one evicts
    assert [(type(a), a.request, a.error) for a in answers] == [(packets.Rows, q.request, None) for q in queries]
    assert all(a.rows.num_rows for a in answers)
