"""Every script prints what it printed when its diff was last read.

    NORIA_REWRITE_GOLDENS=1 pytest tests/scripts        writes what is printed now; read the diff
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.several import run_file

HERE = Path(__file__).parent


@pytest.mark.parametrize("name", sorted(p.name for p in HERE.glob("*.txt")))
def test_script(name: str) -> None:
    path = HERE / name
    printed = run_file(path)
    if os.environ.get("NORIA_REWRITE_GOLDENS"):
        path.write_text(printed)
    assert printed == path.read_text()
