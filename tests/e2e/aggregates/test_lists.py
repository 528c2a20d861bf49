"""JSON_ARRAYAGG, JSON_OBJECTAGG and GROUP_CONCAT of several expressions, beside MariaDB."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from e2e.aggregates.beside import beside, changes
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
QUERIES = (
    "SELECT g, JSON_ARRAYAGG(i) FROM t GROUP BY g",
    "SELECT g, JSON_ARRAYAGG(s), COUNT(*) FROM t GROUP BY g",
    "SELECT JSON_ARRAYAGG(u) FROM t WHERE g = 2",
    "SELECT g, JSON_OBJECTAGG(id, i) FROM t GROUP BY g",
    "SELECT JSON_OBJECTAGG(id, s) FROM t WHERE g = 1",
    "SELECT g, GROUP_CONCAT(DISTINCT i, u ORDER BY i, u SEPARATOR ';') FROM t GROUP BY g",
    "SELECT GROUP_CONCAT(DISTINCT i, ':', u ORDER BY i DESC, u) FROM t WHERE g = 2",
    "SELECT g, JSON_ARRAYAGG(u) FROM t WHERE id IN (1, 3, 5, 7) GROUP BY g",
    "SELECT g, GROUP_CONCAT(i, u ORDER BY id), JSON_LENGTH(JSON_ARRAYAGG(f)) FROM t GROUP BY g",
)


@pytest.mark.parametrize("workers", [1, 3])
def test_groups_that_change(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        for text in changes(random.Random(10 + workers), 15):
            both.write(text)
            for query in QUERIES:
                both.check(query)
                both.same_ways(query)


@pytest.mark.parametrize("workers", [1, 3])
def test_equal_pairs_are_one_but_equal_texts_are_two(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    tables = ["CREATE TABLE p (id INT PRIMARY KEY, g INT, b VARCHAR(9), c VARCHAR(9))"]
    with beside(maria, tmp_path, workers, tables) as both:
        both.write("INSERT INTO p VALUES (1, 1, 'a', 'bc'), (2, 1, 'ab', 'c'), (3, 1, 'A', 'bc'), (4, 1, NULL, 'x')")
        query = "SELECT GROUP_CONCAT(DISTINCT b, c SEPARATOR '|') FROM p WHERE g = 1"
        (shown,), = both.same_ways(query)
        assert [t.lower() for t in shown.split("|")] == ["abc", "abc"]
        both.check("SELECT g, LENGTH(GROUP_CONCAT(DISTINCT b, c)), GROUP_CONCAT(DISTINCT CONCAT(b, c)) FROM p "
                   "WHERE id <> 3 GROUP BY g")
        both.write("DELETE FROM p WHERE id = 2")
        assert len(both.same_ways(query)[0][0]) == 3


def test_members_of_documents(maria: MariaDb, tmp_path: Path) -> None:
    """What members are, the order of keys, repeated keys, NULL, and groups without rows."""
    tables = ["CREATE TABLE j (id INT PRIMARY KEY, k VARCHAR(9), d JSON, n DECIMAL(6,2), at DATETIME)"]
    with beside(maria, tmp_path, 1, tables) as both:
        assert both.same_ways("SELECT JSON_ARRAYAGG(k), JSON_OBJECTAGG(k, n) FROM j") == [(None, None)]
        both.write("""INSERT INTO j VALUES (1, 'bb', '{"x": [1]}', 1.50, '2024-01-02 03:04:05'),
                   (2, 'a"', NULL, 2, NULL), (3, 'c', '"t"', NULL, NULL), (4, 'c', '2', 3, NULL)""")
        (shown,), = both.same_ways("SELECT JSON_ARRAYAGG(d) FROM j")
        assert sorted(map(json.dumps, json.loads(shown))) == ['"t"', "2", "null", '{"x": [1]}']
        assert both.same_ways("SELECT JSON_OBJECTAGG(k, n) FROM j WHERE id < 4") == [
            ('{"c": null, "a\\"": 2.0, "bb": 1.5}',)]
        assert both.same_ways("SELECT JSON_OBJECTAGG(k, id) FROM j") == [('{"c": 4, "a\\"": 2, "bb": 1}',)]
        assert both.same_ways("SELECT JSON_EXTRACT(JSON_ARRAYAGG(at), '$[0]') FROM j WHERE id = 1") == [
            ('"2024-01-02 03:04:05"',)]
        both.write("INSERT INTO j VALUES (5, NULL, '1', 1, NULL)")
        assert both.same_ways("SELECT JSON_OBJECTAGG(k, n) FROM j WHERE id > 4") in (1690, 3158)
        assert both.same_ways("SELECT JSON_OBJECTAGG(k, n) FROM j WHERE id = 1") == [('{"bb": 1.5}',)]
