"""What one row cannot be evaluated for is an error of whoever reads that row, and of nobody else; over the embedded
database."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria
from control.databases import ask, readers
from noria.client.api import Database
from noria.core.errors import SqlError

LARGE = 2**63 - 1
TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, k INT, b BIGINT)", "INSERT INTO t VALUES (1, 1, 5), (2, 2, 6)",
          f"INSERT INTO t VALUES (3, 3, {LARGE})")


def error_of(db: Database, text: str) -> int:
    with pytest.raises(SqlError) as raised:
        db.sql(text)
    return raised.value.code


@pytest.mark.parametrize("expression", ["ROUND(b, -19)", "PERIOD_ADD(202001, b)"])
def test_a_query_that_fails_does_not_become_a_view(db: Database, expression: str) -> None:
    text = f"SELECT id, {expression} FROM t WHERE k = 3"
    assert [error_of(db, text) for _ in range(6)] == [1690] * 6
    assert not readers(db)
    assert db.sql(f"INSERT INTO t VALUES (4, 3, {LARGE})").affected == 1
    assert db.sql("DELETE FROM t WHERE k = 3").affected == 2
    db.sql("INSERT INTO t VALUES (3, 3, 5)")
    for _ in range(6):
        assert len(db.sql(text).rows) == 1
    assert readers(db), "it does when it has an answer"


def test_a_row_that_cannot_be_evaluated_costs_its_readers_only(db: Database, path: Path) -> None:
    db.sql("DELETE FROM t WHERE id = 3")
    db.sql("CREATE VIEW v AS SELECT k, PERIOD_ADD(202001, b) AS p FROM t WHERE k = ?")
    db.sql("CREATE VIEW s AS SELECT COUNT(*) AS n, MAX(PERIOD_ADD(202001, b)) AS p FROM t")
    assert db.view("v").lookup(1) == [(1, 202006)] and db.sql("SELECT * FROM s").rows == [(2, 202007)]
    assert db.sql(f"INSERT INTO t VALUES (3, 1, {LARGE})").affected == 1
    assert db.view("v").lookup(2) == [(2, 202007)]
    with pytest.raises(SqlError, match="out of range"):
        db.view("v").lookup(1)
    assert error_of(db, "SELECT * FROM s") == 1690
    assert error_of(db, "UPDATE t SET b = PERIOD_ADD(202001, b)") == 1690
    ask(db, "validate")
    db.close()
    again = noria.open(str(path))
    try:
        with pytest.raises(SqlError, match="out of range"):
            again.view("v").lookup(1)
        again.sql("DELETE FROM t WHERE id = 3")
        assert again.view("v").lookup(1) == [(1, 202006)]
        assert again.sql("SELECT * FROM s").rows == [(2, 202007)]
        ask(again, "validate")
    finally:
        again.close()
