"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.local import LocalServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    """A server in this process, with two front ends."""
    local = LocalServer(tmp_path / "data", front_ends=2)
    try:
        yield local
    finally:
        local.close()
