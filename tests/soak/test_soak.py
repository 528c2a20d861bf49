"""The short soak: what a server holds does not grow with the shapes, views and connections that it has seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.serving import Served
from soak.soak import Soak, is_flat, shown

pytestmark = pytest.mark.long

SLACK = {"files": 20, "maps": 60, "threads": 8, "resident_mb": 48, "run_mb": 6, "run_files": 60}


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_nothing_grows(tmp_path: Path) -> None:
    server = Served(tmp_path / "data")
    try:
        soak = Soak(server)
        few = bool(os.environ.get("CI"))
        looks = list(soak.run(selects=750 if few else 1_500, cycles=15 if few else 30, connections=100, parts=3))
        print("\n".join(map(shown, looks)))
        soak.close()
        assert not is_flat(looks[1:], SLACK), "\n".join(map(shown, looks))
        assert looks[-1].processes["front"].maps < 2_000
    finally:
        server.close()
