"""A row of which an evaluation error leaves open whether it is there makes its key's reads fail, and no other's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError

BIG = 2**62


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    db = noria.open(tmp_path_factory.mktemp("errors") / "data")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, a BIGINT, b BIGINT, s VARCHAR(40))")
    db.sql("CREATE TABLE u (id INT PRIMARY KEY, k INT, c BIGINT)")
    db.sql("INSERT INTO t VALUES (1, 1, 1, 1, '[1]'), (2, 1, 2, -5, '[2]'), (3, 2, 3, 3, '[3]')")
    db.sql("INSERT INTO u VALUES (1, 1, 1), (2, 2, 2)")
    yield db
    db.close()


@pytest.fixture
def db(opened: Any) -> Iterator[Any]:
    yield opened
    opened.sql("DELETE FROM t WHERE id = 9")
    opened.sql("DROP VIEW IF EXISTS v, inner_")


def rows(db: Any, text: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(r) for r in db.sql(text).rows), key=repr)


def fails(db: Any, text: str) -> bool:
    try:
        db.sql(text)
    except SqlError as e:
        assert e.code == 1690, e
        return True
    return False


POISON = f"INSERT INTO t VALUES (9, 1, {BIG}, {BIG}, '[9')"
# a query by %s of k, and whether the poisonous row (id 9, k 1) is its matter
KEYED = [
    "SELECT id FROM t WHERE k = %s AND a + b > 0",
    "SELECT k FROM t WHERE k = %s AND a + b > 0",
    "SELECT id, s FROM t WHERE a * b > 2 AND k = %s",
    "SELECT id FROM t WHERE k = %s AND JSON_LENGTH(s) > 0",
    "SELECT id FROM t WHERE k = %s AND NOT a + b > 0",
    "SELECT id FROM t WHERE k = %s AND (a + b > 0 OR id = 77)",
    "SELECT id FROM t WHERE k = %s AND CASE WHEN a + b > 0 THEN 1 ELSE 0 END",
    "SELECT COUNT(*) FROM t WHERE k = %s AND a + b > 0",
    "SELECT COUNT(*), SUM(b) FROM t WHERE k = %s AND a + b > 0",
    "SELECT k, COUNT(*) AS n FROM t WHERE k = %s AND a + b > 0 GROUP BY k HAVING n > 0",
    "SELECT DISTINCT k FROM t WHERE k = %s AND a + b > 0",
    "SELECT id FROM t WHERE k = %s AND a + b > 0 ORDER BY id LIMIT 1",
    "SELECT d.id FROM (SELECT k, id FROM t WHERE a + b > 0) AS d WHERE d.k = %s",
    "SELECT t.id FROM u JOIN t ON t.k = u.k WHERE u.k = %s AND t.a + t.b > u.c",
    "SELECT u.id, t.id FROM u LEFT JOIN t ON t.k = u.k AND t.a + t.b > u.c WHERE u.k = %s",
    "SELECT u.id FROM u LEFT JOIN (SELECT k, id FROM t WHERE a + b > 0) AS d ON d.k = u.k "
    "WHERE u.k = %s AND d.id IS NULL",
    "SELECT id FROM u WHERE k = %s AND EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND t.a + t.b > 0)",
    "SELECT id FROM u WHERE k = %s AND NOT EXISTS (SELECT 1 FROM t WHERE t.k = u.k AND t.a + t.b > 1000)",
    "SELECT id FROM u WHERE k = %s AND c < (SELECT COUNT(*) FROM t WHERE t.k = u.k AND t.a + t.b > 0)",
    "SELECT GROUP_CONCAT(s) FROM t WHERE k = %s AND a + b > 0",
    "SELECT k, SUM(a) AS x FROM t WHERE k = %s GROUP BY k HAVING x + x > 0",
    "SELECT k FROM t WHERE k = %s GROUP BY k HAVING SUM(a) + SUM(a) + SUM(b) > 0",
    "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY id) FROM t WHERE k = %s AND a + b > 0",
    "SELECT id, k FROM t WHERE k = %s AND a + b > 0 UNION ALL SELECT id, k FROM u WHERE k = 7",
]


@pytest.mark.parametrize("text", KEYED)
def test_only_the_key_of_the_poisonous_row_fails_and_only_while_it_is_there(db: Any, text: str) -> None:
    before = [rows(db, text % k) for k in (1, 2)]
    db.sql(POISON)
    assert [fails(db, text % k) for k in (1, 2)] == [True, False], text
    assert rows(db, text % 2) == before[1]
    db.sql("DELETE FROM t WHERE id = 9")
    assert [rows(db, text % k) for k in (1, 2)] == before
    db.sql(POISON)
    assert fails(db, text % 1)
    db.sql("UPDATE t SET a = 0, s = '[]' WHERE id = 9")
    assert not fails(db, text % 1)


KEYLESS = [
    "SELECT id FROM t WHERE a + b > 0",
    "SELECT COUNT(*) FROM t WHERE a + b > 0",
    "SELECT k, COUNT(*) FROM t WHERE a + b > 0 GROUP BY k",
    "SELECT id FROM t WHERE a + b > 0 ORDER BY id LIMIT 1",
    "SELECT d.id FROM (SELECT id FROM t WHERE a + b > 0 ORDER BY id LIMIT 1 OFFSET 1) AS d",
    "SELECT id FROM u WHERE c NOT IN (SELECT k FROM t WHERE a + b > 0)",
    "SELECT k FROM u EXCEPT SELECT k FROM t WHERE a + b > 0",
    "SELECT k FROM u INTERSECT SELECT k FROM t WHERE a + b > 0",
    "SELECT SUM(a) AS x FROM t HAVING x + x > 0",
]


@pytest.mark.parametrize("text", KEYLESS)
def test_a_view_without_a_key_fails_while_one_row_of_it_does(db: Any, text: str) -> None:
    db.sql(f"CREATE VIEW v AS {text}")
    before = rows(db, text)
    db.sql(POISON)
    assert fails(db, text) and fails(db, "SELECT * FROM v")
    db.sql("DELETE FROM t WHERE id = 9")
    assert rows(db, text) == rows(db, "SELECT * FROM v") == before


@pytest.mark.parametrize("where", ["id < 0 AND a + b > 0", "a + b > 0 AND id < 0", "id > 0 OR a + b > 0",
                                   "CASE WHEN id > 0 THEN 1 ELSE a + b > 0 END", "COALESCE(id, a + b) > 0",
                                   "IF(id = 9, 1, a + b > 0)", "a + b > 0 AND NULL"])
def test_what_another_term_decides_tells_nothing(db: Any, where: str) -> None:
    db.sql(POISON)
    assert not fails(db, f"SELECT id FROM t WHERE {where}")


def test_a_condition_with_a_value_after_the_lookup_fails_too(db: Any) -> None:
    text = "SELECT id FROM t WHERE k = %s AND a + b > ?"
    assert db.sql(text % 1, [0]).rows == [(1,)]
    db.sql(POISON)
    with pytest.raises(SqlError, match="out of range"):
        db.sql(text % 1, [0])
    assert db.sql(text % 2, [0]).rows == [(3,)]


def test_a_view_over_a_view_tells_the_errors_of_the_inner_one(db: Any) -> None:
    db.sql("CREATE VIEW inner_ AS SELECT id, k, s FROM t WHERE a + b > 0")
    db.sql(POISON)
    assert fails(db, "SELECT s FROM inner_ WHERE k = 1")
    assert rows(db, "SELECT s FROM inner_ WHERE k = 2") == [("[3]",)]
    assert fails(db, "SELECT COUNT(*) FROM inner_")
