"""Quotients within expressions, beside MariaDB: percentages, averages, sums of quotients, over rows that change.

Comparisons are left out: MySQL compares all digits of a quotient, MariaDB those of its type.  So are sums of quotients
by groups: whether MariaDB rounds each term depends on its plan.
"""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest

from e2e.aggregates.beside import asked, beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
QUERIES = (
    "SELECT id, i / 3 * 3, i / 7 * 100, d / 7 / 7, d / 3 * 3, i % 10 / 3 / 3 / 3, -(i / 3) * 3, ABS(i / 7) * 7 FROM t",
    "SELECT id, i / b, i / d * 100, d / b, b / 7 * 7, (i / 3) % 1, i / 3 DIV 0.5 FROM t",
    "SELECT id, ROUND(i / 3, 6), ROUND(i / 3 * 100, 2), TRUNCATE(i / 7, 7), FLOOR(i / 3 * 3), CEIL(i / 7 * 7), "
    "ROUND(i / 3, -1) FROM t",
    "SELECT id, CAST(i / 3 AS DECIMAL(12, 4)) * 3, CAST(i / 3 AS DECIMAL(16, 6)), CAST(i / 7 * 7 AS SIGNED), "
    "i / 3 + 0e0, CONCAT(i / 3), SQRT(u / 3) FROM t",
    "SELECT id, IF(i > 1, i / 3, 0) * 3, CASE WHEN g = 1 THEN i / 3 WHEN g = 2 THEN d / 7 ELSE 0.5 END * 100, "
    "COALESCE(i / 0, d / 3) * 3, IFNULL(i / 3, 1) * 3, GREATEST(i / 3, d / 3) * 3, LEAST(i / 3, 0.2) * 3 FROM t",
    "SELECT SUM(i) / COUNT(*) * 100, AVG(d) * 3, AVG(i) / 7 * 7, ROUND(AVG(i), 2) FROM t",
    "SELECT g, SUM(i) / COUNT(*) * 100, AVG(d) * 3, AVG(i) / AVG(d), AVG(g = 1) * 100, "
    "AVG(CASE WHEN i > 1 THEN 1 ELSE 0 END) * 100, SUM(IF(i > 1, 1, 0)) / COUNT(*) * 100 FROM t GROUP BY g",
    "SELECT SUM(i / 3), SUM(d / 7), AVG(i / 3), AVG(d / 7), SUM(i / 3) * 3, MIN(i / 3), MAX(i / 3), MAX(i / 3) * 3, "
    "MIN(g / u) * 100, MAX(g * 1000000000 / 3) FROM t",
    "SELECT SUM(i / 7), AVG(i / 7) * 7, SUM(b / 3) / 1000, SUM(i / 3) FROM t WHERE g = 2",
    "SELECT g, AVG(i) * 7 AS a FROM t GROUP BY g ORDER BY a, g",
    "SELECT x * 3 FROM (SELECT g, AVG(i) AS x FROM t GROUP BY g) q",
    "SELECT x * 3 FROM (SELECT g, SUM(i) / COUNT(*) AS x FROM t GROUP BY g) q",
    "WITH q AS (SELECT g, SUM(d) / COUNT(i) AS x FROM t GROUP BY g HAVING x > 1) SELECT x * 3, x + x FROM q",
    "SELECT x * 3 FROM (SELECT DISTINCT i / 7 AS x FROM t) q",
    "SELECT x * 3 FROM (SELECT i / 7 AS x FROM t) q",
    "SELECT COUNT(*), i / 3 FROM t GROUP BY i / 3",
    "SELECT id, i * 100 / COUNT(*) OVER () * 7, SUM(i / 3) OVER (PARTITION BY g) FROM t",
    "SELECT 1 / 3 * 3, 2 / 3 * 100, ROUND(2 / 3 * 100, 3), 1 / 3 / 3 / 3, 10.5 / 0.37 * 100, 7 / 0 * 3, 100 / 3 FROM t",
)


@pytest.mark.parametrize("workers", [1, 3])
def test_rows_that_change(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        for text in changes(random.Random(workers + 7), 12):
            both.write(text)
            for query in QUERIES:
                both.check(query)


def test_writes_store_the_digits_of_their_column(maria: MariaDb, tmp_path: Path) -> None:
    table = ("CREATE TABLE q (id INT PRIMARY KEY, e DECIMAL(18,10) DEFAULT (1 / 7), f DOUBLE, i INT, "
             "r DECIMAL(16,8) AS (f / 3) STORED, p DECIMAL(16,8) AS (i / 7))")
    with beside(maria, tmp_path, 1, (table,)) as both:
        for text in ("INSERT INTO q (id, e, f, i) VALUES (1, 1 / 3, 1 / 3, 10 / 3), (2, 2 / 3 * 3, 1, 2)",
                     "INSERT INTO q (id, i) VALUES (3, 2 / 3 * 3)",
                     "UPDATE q SET e = id / 7, f = id / 7, i = 20 * id / 7 WHERE id = 2",
                     "INSERT INTO q (id) VALUES (1) ON DUPLICATE KEY UPDATE e = i / 7"):
            both.write(text)
            both.check("SELECT * FROM q")


def test_comparisons_see_all_digits(maria: MariaDb, tmp_path: Path) -> None:
    """As MySQL 8 does."""
    with beside(maria, tmp_path, 1) as both:
        both.write("INSERT INTO t (id, g, i, d) VALUES (1, 1, 1, 1), (2, 1, 2, 2.5), (3, 1, 3, 7.77)")
        for condition, ids in (("i / 3 = 0.3333", []), ("i / 3 > 0.3333", [1, 2, 3]), ("i / 3 < 0.6667", [1, 2]),
                               ("i / 3 IN (0.6667, 1)", [3]), ("i / 3 BETWEEN 0.3333 AND 0.66666", [1]),
                               ("i / 3 <=> 0.3333", []), ("i / 3 * 3 = i", [3]), ("i > 10 / 3 * 0.6", [2, 3])):
            query = f"SELECT id FROM t WHERE {condition} ORDER BY id"
            both.check(query, lambda _, ids=ids: [(i,) for i in ids])
        assert asked(both.ours, "SELECT g FROM t GROUP BY g HAVING AVG(d) = 3.7566667") == []
        assert asked(both.ours, "SELECT AVG(d) FROM t") == [(Decimal("3.7566667"),)]
