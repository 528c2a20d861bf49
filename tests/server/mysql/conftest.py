from collections.abc import Iterator

import pytest

from server.mysql.mysql_fakes import FakeBackend, Serving


@pytest.fixture
def backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
def serving(backend: FakeBackend) -> Iterator[Serving]:
    with Serving(backend) as running:
        yield running
