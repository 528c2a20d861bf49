"""Subqueries that use outer columns elsewhere than in their WHERE, and columns of the query after the next one, beside
MariaDB: while rows change, as views and as one-shots."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from e2e.aggregates.beside import TABLE, beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

U = "CREATE TABLE u (id INT PRIMARY KEY, g INT, i INT, s VARCHAR(9), KEY (g))"
QUERIES = (
    "SELECT t.id, (SELECT COUNT(CASE WHEN u.i > t.i THEN 1 END) FROM u WHERE u.g = t.g) FROM t",
    "SELECT t.id, (SELECT SUM(u.i + t.i) FROM u) FROM t",
    "SELECT t.id, (SELECT u.i + t.i FROM u WHERE u.id = t.id) FROM t",
    "SELECT t.id, (SELECT CONCAT(t.s, u.s) FROM u WHERE u.g = t.g ORDER BY u.id LIMIT 1) FROM t",
    "SELECT t.id, (SELECT t.i FROM u WHERE u.id = 3) FROM t",
    "SELECT t.id, (SELECT MAX(u.i) FROM u WHERE u.g = t.g HAVING MAX(u.i) > t.i) FROM t",
    "SELECT t.id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.g IN (SELECT w.g FROM u w WHERE w.i >= t.i))",
    "SELECT t.id FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND NOT EXISTS (SELECT 1 FROM u w WHERE "
    "w.g = u.g AND w.id > u.id AND w.i <> t.i))",
    "SELECT t.id, (SELECT MAX(u.i) FROM u WHERE u.g = t.g AND u.id <= (SELECT MAX(w.id) FROM u w WHERE w.g = u.g AND "
    "w.i < t.i + 3)) FROM t",
    "SELECT t.id FROM t WHERE t.i IN (SELECT u.i FROM u WHERE u.id IN (SELECT w.id FROM u w WHERE w.s IN (SELECT x.s "
    "FROM u x WHERE x.g = t.g)))",
    "SELECT t.id FROM t JOIN u ON u.id = t.id WHERE EXISTS (SELECT 1 FROM u w WHERE w.i + u.i > t.i)",
    "SELECT t.g, COUNT(*) FROM t WHERE (SELECT COUNT(*) FROM u WHERE IF(t.i > 0, u.g = t.g, u.i = t.i)) > 0 "
    "GROUP BY t.g",
)


@pytest.fixture(scope="module")
def maria(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    with closing(MariaDb(tmp_path_factory.mktemp("maria"))) as found:
        yield found


@needs_mariadb
@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_change(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    chance = random.Random(workers)
    with beside(maria, tmp_path, workers, (TABLE, U)) as both:
        for text in changes(chance, 8):
            both.write(text)
            rows = ", ".join(f"({n}, {chance.choice((1, 2, 3, 'NULL'))}, {chance.choice((-3, 0, 2, 7, 'NULL'))}, "
                             f"{chance.choice(('NULL', repr('a'), repr('B')))})" for n in chance.sample(range(9), 3))
            both.write(f"REPLACE INTO u VALUES {rows}")
            for query in QUERIES:
                both.check(query)


@needs_mariadb
def test_what_a_left_join_extends_is_refused(maria: MariaDb, tmp_path: Path) -> None:
    with beside(maria, tmp_path, 1, (TABLE, U)) as both:
        assert both.same_ways("SELECT t.id, (SELECT SUM(w.i > u.i) FROM u w) FROM t LEFT JOIN u ON u.id = t.i") == 1235
