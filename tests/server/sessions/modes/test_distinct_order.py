"""SELECT DISTINCT a … ORDER BY b: an error with ONLY_FULL_GROUP_BY, and without it the order of some b of each a."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

SETUP = ("CREATE TABLE p (id INT PRIMARY KEY, a INT, b VARCHAR(10), c INT)", "CREATE TABLE q (id INT, pid INT)",
         "INSERT INTO p VALUES (1, 1, 'x', 5), (2, 1, 'x', 5), (3, 2, 'y', 4), (4, 3, 'z', 1), (5, 2, 'y', 4)",
         "INSERT INTO q VALUES (1, 1), (2, 2), (3, 3), (4, 4), (1, 1)")
SELECTS = (
    "SELECT DISTINCT a FROM p ORDER BY c", "SELECT DISTINCT a FROM p ORDER BY c DESC, b",
    "SELECT DISTINCT a, b FROM p ORDER BY c LIMIT 2", "SELECT DISTINCT a + 1 AS k FROM p ORDER BY c",
    "SELECT DISTINCT p.id, q.id FROM p JOIN q ON p.id = q.pid WHERE q.pid IN (1, 2, 3) ORDER BY p.b DESC, p.id",
    "SELECT DISTINCT p.id, q.pid FROM p JOIN q ON p.id = q.pid WHERE p.c = 5 ORDER BY p.b, p.id DESC",
    "SELECT DISTINCT a, 7 FROM p ORDER BY c", "SELECT DISTINCT * FROM p ORDER BY c + 1, id",
    "SELECT COUNT(*) FROM (SELECT DISTINCT a FROM p ORDER BY c LIMIT 2) t",
    "SELECT DISTINCT a FROM p WHERE c > 1 ORDER BY c + 0 DESC",
)


@pytest.fixture(params=[1, 3])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalServer]:
    with closing(LocalServer(tmp_path / "data", workers=request.param)) as server:
        yield server


@needs_mariadb
def test_beside_mariadb(local: LocalServer, tmp_path: Path) -> None:
    with closing(MariaDb(tmp_path)) as maria, maria.connect() as theirs, local.connect() as mine:
        for text in ("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'", *SETUP):
            rows(mine, text)
            rows(theirs, text)
        for text in SELECTS:
            assert (text, rows(mine, text)) == (text, rows(theirs, text))
        for text in ("INSERT INTO p VALUES (6, 4, 'w', 0)", "DELETE FROM p WHERE a = 2"):
            rows(mine, text)
            rows(theirs, text)
            for text in SELECTS:
                assert (text, rows(mine, text)) == (text, rows(theirs, text))


def test_with_the_mode_it_is_an_error(local: LocalServer) -> None:
    with local.connect() as c:
        for text in SETUP:
            rows(c, text)
        found: list[Any] = [code(c, text) for text in SELECTS[:3]]
        assert found == [3065] * 3
