from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from e2e.mariadb import MariaDb


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as running:
        yield running
