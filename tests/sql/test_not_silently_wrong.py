"""What the original Noria got silently wrong: each must be right here, or refused loudly.

Run through the SQL front end and the reference; the incremental kernels have tests of their own.
"""

from __future__ import annotations

from typing import Any

import pytest

from noria.core.errors import SqlError
from noria.sql.commands import CreateView, Select, as_batch
from noria.sql.parse import bind, parse, prepare
from reference import mir_reference
from sql.catalogs import DictCatalog

SCHEMA = ("CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, s VARCHAR(20))",
          "CREATE TABLE u (a INT, b INT, c INT)", "CREATE TABLE prices (id INT PRIMARY KEY, price INT)")
ROWS: dict[str, list[tuple[Any, ...]]] = {
    "t": [(1, 1, 1, "x"), (2, 1, None, "X"), (3, None, 2, "y"), (4, 2, 2, None)],
    "u": [(1, 1, 10), (1, 2, 20), (2, 2, 30), (None, None, 40)],
    "prices": [(1, 123)]}


def rows(query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    catalog = DictCatalog(*SCHEMA)
    command = bind(prepare(query, catalog), parameters)
    assert isinstance(command, Select)
    batch = as_batch(command)
    return [r[: batch.visible] for r in mir_reference.run(batch.plan, ROWS)]


def refused(query: str) -> str:
    with pytest.raises(SqlError) as e:
        parse(f"CREATE VIEW v AS {query}", DictCatalog(*SCHEMA))
    assert e.value.code == 1235
    return e.value.message


def test_having_counts() -> None:
    assert rows("SELECT a, COUNT(*) FROM t GROUP BY a HAVING COUNT(*) > 1") == [(1, 2)]


def test_distinct_is_distinct() -> None:
    assert sorted(map(str, rows("SELECT DISTINCT a FROM t"))) == ["(1,)", "(2,)", "(None,)"]


def test_avg_is_there() -> None:
    assert [str(r[0]) for r in rows("SELECT AVG(b) FROM t")] == ["1.6667"]


def test_like_between_and_offset() -> None:
    assert rows("SELECT id FROM t WHERE s LIKE 'x%'") == [(1,), (2,)]
    assert rows("SELECT id FROM t WHERE id BETWEEN 2 AND 3") == [(2,), (3,)]
    assert rows("SELECT id FROM t ORDER BY id LIMIT 2 OFFSET 1") == [(2,), (3,)]


def test_joins_on_several_columns() -> None:
    assert rows("SELECT t.id, c FROM t JOIN u ON t.a = u.a AND t.b = u.b") == [(1, 10), (4, 30)]


def test_joins_on_no_equality_and_right_joins() -> None:
    assert rows("SELECT t.id, c FROM t JOIN u ON t.a > u.a") == [(4, 10), (4, 20)]
    assert rows("SELECT t.id, c FROM t LEFT JOIN u ON t.a > u.a AND c > 10") == [
        (1, None), (2, None), (3, None), (4, 20)]
    assert rows("SELECT t.id, c FROM t RIGHT JOIN u ON t.a = u.a AND t.b = u.b WHERE t.id IS NULL") == [
        (None, 20), (None, 40)]


def test_a_range_is_no_equality() -> None:
    assert rows("SELECT id FROM t WHERE id > ?", 2) == [(3,), (4,)]


def test_in_list_is_not_dropped() -> None:
    assert rows("SELECT id FROM t WHERE id IN (1, 4)") == [(1,), (4,)]


def test_brackets_are_not_dropped() -> None:
    assert rows("SELECT id FROM t WHERE (a = 1) AND (b = 1 AND (id > 0))") == [(1,)]


def test_union_is_distinct_and_union_all_is_not() -> None:
    assert len(rows("SELECT a FROM t UNION SELECT a FROM t")) == 3
    assert len(rows("SELECT a FROM t UNION ALL SELECT a FROM t")) == 8


def test_or_gives_a_row_once() -> None:
    assert rows("SELECT id FROM t WHERE a = 1 OR b = 1") == [(1,), (2,)]


def test_nulls_are_three_valued() -> None:
    assert rows("SELECT id FROM t WHERE b = b") == [(1,), (3,), (4,)]
    assert rows("SELECT id FROM t WHERE NOT (b = 1)") == [(3,), (4,)]
    assert rows("SELECT id FROM t WHERE b = NULL") == []
    assert rows("SELECT id FROM t WHERE b NOT IN (1, NULL)") == []
    assert rows("SELECT t.id FROM t JOIN u ON t.a = u.a AND t.b = u.b AND t.a IS NULL") == []


def test_count_of_a_column_skips_nulls() -> None:
    assert rows("SELECT COUNT(b), COUNT(*) FROM t") == [(3, 4)]


def test_a_group_without_rows_is_gone() -> None:
    assert rows("SELECT a, COUNT(*) FROM t WHERE id > 9 GROUP BY a") == []
    assert rows("SELECT COUNT(*), SUM(a) FROM t WHERE id > 9") == [(0, None)]


def test_order_by_without_limit_orders() -> None:
    assert rows("SELECT id FROM t ORDER BY b DESC, id DESC") == [(4,), (3,), (1,), (2,)]


def test_views_show_what_was_selected() -> None:
    """No parameter columns, no key of ours."""
    for query in ("SELECT 2*price FROM prices WHERE id = ?", "SELECT 2*price FROM prices"):
        (command,) = parse(f"CREATE VIEW v AS {query}", DictCatalog(*SCHEMA))
        assert isinstance(command, CreateView)
        assert [f.name for f in command.view.fields] == ["2*price"]
    assert rows("SELECT 2*price FROM prices WHERE id = ?", 1) == [(246,)]


def test_sums_of_any_number() -> None:
    assert rows("SELECT SUM(a + 0.5) FROM t WHERE a IS NOT NULL")[0][0] == 5.5


def test_nested_arithmetic() -> None:
    assert rows("SELECT (price + 1) * (2 - price) / 4 FROM prices")[0][0] == -3751


def test_writes_take_any_condition() -> None:
    catalog = DictCatalog(*SCHEMA)
    parse("UPDATE t SET a = 1 WHERE s LIKE 'x%' OR b > 3", catalog)
    parse("DELETE FROM u WHERE c + 1 > 3", catalog)
