"""Texts whose parsing or planning doubles with each part are refused before they take long."""

from __future__ import annotations

import pytest

from noria.core.errors import SqlError
from noria.core.limits import MAX_OPEN_JOINS
from sql.catalogs import DictCatalog

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, b INT)"
JOINED = "SELECT t0.id FROM t AS t0"


@pytest.fixture
def catalog() -> DictCatalog:
    made = DictCatalog()
    made.run(TABLE)
    return made


def with_queries(n: int) -> str:
    return ("WITH w0 AS (SELECT id AS a FROM t)" + "".join(
        f", w{i} AS (SELECT x.a FROM w{i - 1} AS x JOIN w{i - 1} AS y ON x.a = y.a)" for i in range(1, n))
        + f" SELECT * FROM w{n - 1} WHERE a = 1")


def test_queries_that_name_each_other_twice(catalog: DictCatalog) -> None:
    catalog.run(with_queries(8))
    for n in (14, 60):
        with pytest.raises(SqlError, match="steps") as refused:
            catalog.run(with_queries(n))
        assert refused.value.code == 1436


@pytest.mark.parametrize("join", ["JOIN", "INNER JOIN", "LEFT JOIN"])
def test_joins_whose_condition_may_come_later(catalog: DictCatalog, join: str) -> None:
    with pytest.raises(SqlError, match=f"more than {MAX_OPEN_JOINS} JOINs"):
        catalog.run(JOINED + "".join(f" {join} t AS t{i}" for i in range(1, 40)) + " WHERE t0.id = 1")


@pytest.mark.parametrize("join", ["JOIN t AS t{0} ON t{0}.id = t0.id", "LEFT JOIN t AS t{0} USING (id)",
                                  "CROSS JOIN t AS t{0}", "JOIN (SELECT id FROM t) AS t{0} ON t{0}.id = t0.id"])
def test_joins_with_their_conditions(catalog: DictCatalog, join: str) -> None:
    joins = "".join(" " + join.format(i) for i in range(1, 20))
    catalog.run(f"SELECT t0.b FROM t AS t0{joins} WHERE t0.id = 1")


def test_few_joins_without_a_condition(catalog: DictCatalog) -> None:
    catalog.run(JOINED + "".join(f" JOIN t AS t{i}" for i in range(1, MAX_OPEN_JOINS + 1)) + " WHERE t0.id = 1")
    catalog.run(JOINED + " JOIN t AS t1 JOIN t AS t2 ON t2.id = t1.id ON t1.id = t0.id")
