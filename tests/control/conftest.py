"""A database with the tables of the test's module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from control import databases
from noria.client import Database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def db(path: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    """The module's TABLES are the statements that have been run in it."""
    yield from databases.of(path, request.module.TABLES)
