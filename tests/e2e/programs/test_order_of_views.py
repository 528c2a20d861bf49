"""A SELECT from a view without an order of its own shows the rows in the view's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import noria


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    db = noria.open(tmp_path_factory.mktemp("order") / "data")
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, n INT, s VARCHAR(9))")
    db.sql("INSERT INTO t VALUES " + ", ".join(f"({i}, {i % 2}, {i * 7 % 11}, 's{i}')" for i in range(10)))
    db.sql("CREATE VIEW top_ AS SELECT id, n FROM t ORDER BY n DESC, id LIMIT 4")
    db.sql("CREATE VIEW hidden AS SELECT id, s FROM t ORDER BY n DESC")
    yield db
    db.close()


BY_N = sorted(range(10), key=lambda i: -(i * 7 % 11))


@pytest.mark.parametrize(("text", "ids"), [
    ("SELECT id, n FROM top_", BY_N[:4]), ("SELECT id FROM top_ LIMIT 2", BY_N[:2]),
    ("SELECT id FROM top_ AS x WHERE n > 0", BY_N[:4]), ("SELECT * FROM top_", BY_N[:4]),
    ("SELECT id FROM hidden", BY_N), ("SELECT * FROM hidden LIMIT 3", BY_N[:3]),
    ("SELECT id FROM top_ ORDER BY id", sorted(BY_N[:4])), ("SELECT id FROM hidden WHERE s <> 's3'",
                                                            [i for i in BY_N if i != 3])])
def test_the_order_is_the_views(db: Any, text: str, ids: list[int]) -> None:
    assert [r[0] for r in db.sql(text).rows] == ids


def test_what_groups_the_rows_has_no_order(db: Any) -> None:
    assert db.sql("SELECT COUNT(*) FROM top_").rows == [(4,)]
    assert len(db.sql("SELECT * FROM hidden").columns) == 2
    assert sorted(db.sql("SELECT DISTINCT id FROM hidden").rows) == [(i,) for i in range(10)]
    assert len(db.sql("SELECT h.id FROM hidden AS h JOIN t ON t.id = h.id").rows) == 10
