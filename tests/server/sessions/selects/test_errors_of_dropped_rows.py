"""A condition with a parameter may drop rows after their columns were computed. Errors in dropped rows are nobody's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria import SqlError
from noria.client.api import Database

BIG = 9_000_000_000_000_000_000
SELECTS: tuple[tuple[str, tuple[Any, ...], list[Any]], ...] = (
    ("SELECT (SELECT n FROM u) FROM t WHERE NOT g BETWEEN 1 AND ?", (9,), []),
    ("SELECT id, v * v FROM t WHERE s LIKE ? ORDER BY id", ("a%",), [(1, 4), (3, 9)]),
    ("SELECT id, v * v FROM t WHERE g = ? AND s LIKE ? ORDER BY id", (1, "a%"), [(1, 4)]),
    ("SELECT id, v * v FROM t WHERE g IN (?, ?) AND s LIKE ? ORDER BY id DESC", (1, 2, "a%"), [(3, 9), (1, 4)]),
    ("SELECT id, v * v FROM t WHERE g > ? AND s LIKE ?", (1, "a%"), [(3, 9)]),
    ("SELECT SUM(v * v) FROM t WHERE s LIKE ?", ("a%",), [(13,)]),
    ("SELECT g, SUM(v * v) FROM t WHERE s LIKE ? GROUP BY g ORDER BY g", ("a%",), [(1, 4), (2, 9)]),
)
WRONG = (("SELECT id, v * v FROM t WHERE s LIKE ?", ("b%",), 1690),
         ("SELECT (SELECT n FROM u) FROM t WHERE s LIKE ?", ("a%",), 1242))


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with noria.open(tmp_path / "data") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT NOT NULL, v BIGINT NOT NULL, s VARCHAR(9) NOT NULL)")
        db.sql("CREATE TABLE u (n INT PRIMARY KEY)")
        db.table("t").insert([(1, 1, 2, "ab"), (2, 1, BIG, "bc"), (3, 2, 3, "ac"), (4, 2, BIG, "bd")])
        db.table("u").insert([(1,), (2,)])
        yield db


def asked(db: Any, text: str, values: tuple[Any, ...]) -> list[Any]:
    return list(db.sql(text, values).rows)


@pytest.mark.parametrize("one_shots", [0, 10**6], ids=["views", "one-shots"])
@pytest.mark.parametrize(("text", "values", "rows"), SELECTS, ids=[t for t, _, _ in SELECTS])
def test_a_dropped_row_has_no_error(db: Database, one_shots: int, text: str, values: tuple[Any, ...], rows: list[Any]
                                    ) -> None:
    db.transport.executor.program.adhoc_views.policy._one_shots = one_shots
    for _ in range(3):
        assert asked(db, text, values) == rows
    db.sql("INSERT INTO t VALUES (5, 3, ?, 'bz')", (BIG,))
    assert asked(db, text, values) == rows
    with db.transaction() as within:
        within.sql("INSERT INTO t VALUES (6, 3, ?, 'by')", (BIG,))
        assert asked(within, text, values) == rows
    with db.transaction() as within:
        assert asked(within, text, values) == rows
        db.sql("INSERT INTO t VALUES (7, 1, ?, 'bx')", (BIG,))
        assert asked(within, text, values) == rows


@pytest.mark.parametrize("one_shots", [0, 10**6], ids=["views", "one-shots"])
@pytest.mark.parametrize(("text", "values", "code"), WRONG)
def test_a_row_that_is_left_has_its_error(db: Database, one_shots: int, text: str, values: tuple[Any, ...], code: int
                                          ) -> None:
    db.transport.executor.program.adhoc_views.policy._one_shots = one_shots
    for _ in range(3):
        with pytest.raises(SqlError) as error:
            asked(db, text, values)
        assert error.value.code == code


def test_a_view_with_such_a_parameter(db: Database) -> None:
    db.sql("CREATE VIEW squares AS SELECT id, v * v AS q FROM t WHERE s LIKE ?")
    assert sorted(db.view("squares").lookup("a%")) == [(1, 4), (3, 9)]
    with pytest.raises(SqlError, match="out of range"):
        db.view("squares").lookup("b%")
