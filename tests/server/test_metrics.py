"""Every number of the front end has a description, and the page is Prometheus' format."""

from __future__ import annotations

from pathlib import Path

import noria
from noria.server.http.metrics import DESCRIPTIONS, render


def test_every_number_is_described(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        numbers = db._transport._executor.stats()  # type: ignore[attr-defined]
    assert set(numbers) <= set(DESCRIPTIONS)


def test_the_format() -> None:
    page = render({"reads_total": 7, "worker_memory": 5}).decode().splitlines()
    assert "# TYPE noria_reads_total counter" in page and "noria_reads_total 7.0" in page
    assert "# TYPE noria_worker_memory gauge" in page
