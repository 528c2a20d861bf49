"""Without ONLY_FULL_GROUP_BY, a column that is neither grouped nor determined by the groups has some value of its
group: the one of ANY_VALUE, in a view and in a one-shot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.aggregates.beside import Beside, asked, beside
from e2e.mariadb import MariaDb, needs_mariadb

pytestmark = needs_mariadb
QUERIES = (
    ("SELECT g, i FROM t GROUP BY g", 1055),
    ("SELECT g, i + 1, COUNT(*) FROM t GROUP BY g", 1055),
    ("SELECT * FROM t GROUP BY g", 1055),
    ("SELECT i, COUNT(*) FROM t", 1140),
    ("SELECT s, SUM(i) FROM t WHERE g = 2", 1140),
    ("SELECT g FROM t GROUP BY g ORDER BY i", 1055),
    ("SELECT g, COUNT(*) FROM t GROUP BY g HAVING MAX(i) > i", 1055),
    ("SELECT g, u, RANK() OVER (ORDER BY u, g) FROM t GROUP BY g", 1055),
    ("SELECT g, (SELECT COUNT(*) FROM t x WHERE x.i = t.i) FROM t GROUP BY g", 1235),
    ("SELECT n FROM (SELECT g, i AS n FROM t GROUP BY g) q", 1055),
)


def any_of(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize("workers", [1, 3])
def test_some_value_of_each_group(maria: MariaDb, tmp_path: Path, workers: int) -> None:
    with beside(maria, tmp_path, workers) as both:
        both.write("INSERT INTO t (id, g, i, u, s) VALUES (1, 1, 5, 1, 'b'), (2, 1, 4, 2, 'a'), (3, 2, 7, 3, NULL), "
                   "(4, NULL, 1, 4, 'c'), (5, 2, 9, 5, 'x')")
        for query, code in QUERIES:
            assert asked(both.ours, query) == code, query
        free = set_mode(both, "STRICT_TRANS_TABLES")
        for query, _ in QUERIES:
            assert isinstance(both.same_ways(query), list), query
        assert any_of(both.same_ways("SELECT g, i, s FROM t GROUP BY g")) == any_of(
            [(None, 1, "c"), (1, 4, "a"), (2, 7, "x")])
        assert both.same_ways("SELECT s, SUM(i) FROM t WHERE g = 2") == [("x", 16)]
        assert both.same_ways("SELECT s, SUM(i) FROM t WHERE g = 77") == [(None, None)]
        assert both.same_ways("SELECT g + i FROM t WHERE g = 1 GROUP BY g") == [(5,)]
        both.write("DELETE FROM t WHERE id = 2")
        assert both.same_ways("SELECT i FROM t WHERE g = 1 GROUP BY g") == [(5,)]
        # the mode is the session's: texts of others mean what they meant, also when both are known
        other = both.server.connect()
        for query, code in QUERIES * 2:
            assert asked(other, query) == code, query
            assert isinstance(asked(free, query), list), query
        other.close()
        set_mode(both, "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES")
        assert asked(both.ours, QUERIES[0][0]) == 1055


def set_mode(both: Beside, mode: str) -> Any:
    assert asked(both.ours, f"SET SESSION sql_mode = '{mode}'") == []
    return both.ours


def test_what_is_determined_is_as_it_is(maria: MariaDb, tmp_path: Path) -> None:
    """Functionally dependent columns are those of the row itself, in either mode."""
    with beside(maria, tmp_path, 2) as both:
        both.write("INSERT INTO t (id, g, i, s) VALUES (1, 1, 5, 'b'), (2, 1, NULL, 'a')")
        asked(both.theirs, "SET sql_mode = ''")  # MariaDB does not see what a key determines
        for mode in ("ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES", "STRICT_TRANS_TABLES", ""):
            set_mode(both, mode)
            both.check("SELECT id, i, s, COUNT(*) FROM t GROUP BY id")
            both.check("SELECT a.id, a.s, COUNT(b.id) FROM t a JOIN t b ON a.g = b.g GROUP BY a.id")


def test_statements_of_other_kinds(maria: MariaDb, tmp_path: Path) -> None:
    """INSERT … SELECT and prepared statements follow the mode.  A named view must say ANY_VALUE, because its text means
    the same in every session."""
    with beside(maria, tmp_path, 1) as both:
        both.write("INSERT INTO t (id, g, i) VALUES (1, 1, 5), (2, 1, 4), (3, 2, 7)")
        assert asked(both.ours, "CREATE TABLE w (g INT, i INT)") == []
        assert asked(both.ours, "INSERT INTO w SELECT g, i FROM t GROUP BY g") == 1055
        set_mode(both, "")
        assert asked(both.ours, "INSERT INTO w SELECT g, i FROM t GROUP BY g") == []
        assert any_of(asked(both.ours, "SELECT * FROM w")) == [(1, 4), (2, 7)]
        assert asked(both.ours, "PREPARE p FROM 'SELECT g, i FROM t WHERE id < ? GROUP BY g'") == []
        assert asked(both.ours, "SET @n = 2") == [] and asked(both.ours, "EXECUTE p USING @n") == [(1, 5)]
        assert asked(both.ours, "CREATE VIEW v AS SELECT g, i FROM t GROUP BY g") == 1055
        assert asked(both.ours, "CREATE VIEW v AS SELECT g, ANY_VALUE(i) AS i FROM t GROUP BY g") == []
        assert any_of(asked(both.ours, "SELECT * FROM v")) == [(1, 4), (2, 7)]
        assert len(asked(both.ours, "EXPLAIN SELECT g, i FROM t GROUP BY g")) > 0
        assert "`" not in asked(both.ours, "SHOW CREATE VIEW v")[0][1]


def test_databases_and_front_ends(maria: MariaDb, tmp_path: Path) -> None:
    """A session's mode holds in every database, and at front ends that answer known texts themselves."""
    with beside(maria, tmp_path, 1, front_ends=2) as both:
        c, strict = both.ours, both.server.connect()
        for text in ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, g INT, i INT)",
                     "INSERT INTO shop.t VALUES (1, 1, 8), (2, 1, 6)", "INSERT INTO t (id, g, i) VALUES (1, 1, 5)",
                     "SET sql_mode = ''"):
            assert asked(c, text) == [], text
        query = "SELECT i FROM t WHERE g = 1 GROUP BY g"
        for _ in range(5):
            assert asked(c, query) == [(5,)]
            assert asked(strict, query) == 1055
        assert asked(c, "USE shop") == [] and asked(strict, "USE shop") == []
        for _ in range(5):
            assert asked(c, query) == [(6,)]
            assert asked(strict, query) == 1055
        assert asked(c, "SET sql_mode = 'ONLY_FULL_GROUP_BY'") == []
        assert asked(c, query) == 1055
        assert asked(c, "SET sql_mode = ''") == [] and asked(c, "DROP DATABASE shop") == []
        assert asked(c, query) == 1046
        strict.close()
