"""The plot of starts is that of the saved figures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def start_plot(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    import start_plot

    yield start_plot
    del sys.modules["start_plot"]


def test_the_plot_has_all_versions(start_plot: Any) -> None:
    rows = start_plot.read()
    assert start_plot.PLOT.read_text() == start_plot.plot(rows), "python bench/start_plot.py"


def test_a_version_is_saved_once(start_plot: Any, tmp_path: Path) -> None:
    path = tmp_path / "starts.csv"
    path.write_bytes(start_plot.FIGURES.read_bytes())
    first, *rest = start_plot.read()
    start_plot.save({**first, "wall_s": "9.9"}, path)
    assert start_plot.read(path) == [*rest, {**first, "wall_s": "9.9"}]
