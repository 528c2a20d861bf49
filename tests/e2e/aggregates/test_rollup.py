"""GROUP BY … WITH ROLLUP and GROUPING, beside MariaDB, while rows change."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from e2e.aggregates.beside import asked, beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
QUERIES = (
    "SELECT g, COUNT(*) FROM t GROUP BY g WITH ROLLUP",
    "SELECT g, i, SUM(b), MIN(i), COUNT(DISTINCT u) FROM t GROUP BY g, i WITH ROLLUP",
    "SELECT g + 1, i, u, COUNT(*) FROM t GROUP BY g, i, u WITH ROLLUP",
    "SELECT i, COUNT(*), AVG(d) FROM t WHERE g = 2 GROUP BY i WITH ROLLUP",
    "SELECT COALESCE(g, -1), COUNT(*) AS n FROM t GROUP BY g WITH ROLLUP HAVING n > 2",
    "SELECT g, MAX(f) FROM t GROUP BY g WITH ROLLUP",
    "SELECT i, COUNT(*) FROM t WHERE u IN (1, 2, 3, 4) GROUP BY i WITH ROLLUP",
    "SELECT i, COUNT(*), SUM(b) FROM t WHERE g = 1 GROUP BY i WITH ROLLUP HAVING COUNT(*) > 1",
    "SELECT n FROM (SELECT g, COUNT(*) AS n FROM t GROUP BY g WITH ROLLUP) q WHERE g IS NULL",
)




@pytest.mark.parametrize("workers", [1, 3])
def test_groups_that_change(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        for text in changes(random.Random(30 + workers), 15):
            both.write(text)
            for query in QUERIES:
                if asked(both.theirs, query):
                    both.check(query)


@pytest.mark.parametrize("workers", [1, 3])
def test_grouping_and_order(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    """MariaDB has no GROUPING.  Without ORDER BY, the total of a group follows it."""
    with beside(maria, tmp_path, workers) as both:
        both.write("INSERT INTO t (id, g, i) VALUES (1, 1, 1), (2, 1, 2), (3, 2, 1), (4, NULL, 1), (5, 1, NULL)")
        query = "SELECT g, i, COUNT(*), GROUPING(g), GROUPING(i), GROUPING(g, i) FROM t GROUP BY g, i WITH ROLLUP"
        wanted = [(None, 1, 1, 0, 0, 0), (None, None, 1, 0, 1, 1),
                  (1, None, 1, 0, 0, 0), (1, 1, 1, 0, 0, 0), (1, 2, 1, 0, 0, 0), (1, None, 3, 0, 1, 1),
                  (2, 1, 1, 0, 0, 0), (2, None, 1, 0, 1, 1), (None, None, 5, 1, 1, 3)]
        for one_shot in (False, True):
            with both.server.answering(one_shot=one_shot):
                assert asked(both.ours, query) == wanted
                assert asked(both.ours, "SELECT IF(GROUPING(g), 'all', g) AS x, COUNT(*) FROM t GROUP BY g WITH ROLLUP "
                                        "HAVING GROUPING(g) = 1 OR g = 2 ORDER BY x DESC") == [("all", 5), ("2", 1)]
        assert asked(both.ours, "SELECT GROUPING(i) FROM t GROUP BY g WITH ROLLUP") == 3602
        assert asked(both.ours, "SELECT GROUPING(g) FROM t GROUP BY g") == 1111
        assert asked(both.ours, "SELECT i FROM t GROUP BY g WITH ROLLUP") == 1055
        assert asked(both.ours, "SELECT g FROM t GROUP BY g, g WITH ROLLUP") == 1235


def test_the_total_of_no_rows(maria: MariaDb, tmp_path: Path) -> None:
    """MySQL 8 has it, MariaDB has not."""
    with beside(maria, tmp_path, 1) as both:
        assert both.same_ways("SELECT g, COUNT(*), SUM(i) FROM t GROUP BY g WITH ROLLUP") == [(None, 0, None)]
        query = "SELECT i, COUNT(*), GROUPING(i) FROM t WHERE g = 1 GROUP BY i WITH ROLLUP"
        assert both.same_ways(query) == [(None, 0, 1)]
        assert both.same_ways("SELECT COUNT(*) FROM t WHERE g = 1 GROUP BY i WITH ROLLUP") == [(0,)]
        assert both.same_ways("SELECT COUNT(*) FROM t WHERE g = 1 ORDER BY MAX(i)") == [(0,)]
        both.write("INSERT INTO t (id, g, i) VALUES (1, 1, 7)")
        assert both.same_ways(query) == [(7, 1, 0), (None, 1, 1)]
        both.write("DELETE FROM t")
        assert both.same_ways(query) == [(None, 0, 1)]
