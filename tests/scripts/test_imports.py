"""Benchmarks, scripts and examples import only names that the package has: few of them run in tests."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(p for folder in ("bench", "scripts", "examples") for p in (ROOT / folder).rglob("*.py"))


def missing(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.module.split(".")[0] != "noria":
            continue
        module = importlib.import_module(node.module)
        for name in (alias.name for alias in node.names):
            if not hasattr(module, name) and importlib.util.find_spec(f"{node.module}.{name}") is None:
                found.append(f"{node.module}.{name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imported_names_are_there(path: Path) -> None:
    assert missing(path) == []
