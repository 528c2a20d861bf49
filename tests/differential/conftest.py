"""Fixtures of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.mariadb import MariaDb


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    """A MariaDB server, whose answers are compared with Noria's."""
    server = MariaDb(tmp_path_factory.mktemp("m"))
    yield server
    server.close()
