"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
WITH_EXAMPLES = sorted(".".join(p.relative_to(SOURCE).with_suffix("").parts)
                       for p in SOURCE.rglob("*.py") if ">>> " in p.read_text())


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_examples(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted and not found.failed
