"""Shapes are learnt from what their first text gave, and from nothing that the program has left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

import noria
from noria.core.limits import FIRST_STATEMENTS
from noria.server.answering.statements import Statements


@pytest.fixture
def db(tmp_path: Path):
    with noria.open(tmp_path / "d") as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        db.sql("INSERT INTO t VALUES (1, 10), (2, 20), (3, 30)")
        yield db


def statements(db: noria.Database) -> Statements:
    return db.transport.executor.statements


def rows(db: noria.Database, text: str) -> list[tuple[object, ...]]:
    return sorted(db.sql(text).rows)


def test_the_second_text_of_a_shape_is_not_parsed(db: noria.Database) -> None:
    before = statements(db).parsed
    assert rows(db, "SELECT a FROM t WHERE id = 1") == [(10,)]
    assert statements(db).parsed == before + 1
    assert rows(db, "SELECT a FROM t WHERE id = 2") == [(20,)]  # its shape is
    assert rows(db, "SELECT a FROM t WHERE id = 3") == [(30,)]
    assert statements(db).parsed == before + 2
    assert not statements(db)._firsts


def test_a_literal_that_decides_is_no_parameter(db: noria.Database) -> None:
    assert rows(db, "SELECT a, 1 + 1 FROM t WHERE id = 1") == [(10, 2)]
    assert rows(db, "SELECT a, 2 + 1 FROM t WHERE id = 2") == [(20, 3)]
    assert rows(db, "SELECT a, 3 + 1 FROM t WHERE id = 3") == [(30, 4)]
    assert db.sql("SELECT a, 4 + 1 FROM t WHERE id = 3").columns == ("a", "4 + 1")
    assert statements(db).known("SELECT a, 2 + 1 FROM t WHERE id = 2") is None


def test_what_came_before_a_change_of_the_table_is_not_learnt_from(db: noria.Database) -> None:
    assert rows(db, "SELECT * FROM t WHERE id = 1") == [(1, 10)]
    db.sql("ALTER TABLE t ADD COLUMN b INT NOT NULL DEFAULT 7")
    assert rows(db, "SELECT * FROM t WHERE id = 2") == [(2, 20, 7)]
    assert statements(db).known("SELECT * FROM t WHERE id = 3") is None, "this was the first one again"
    assert rows(db, "SELECT * FROM t WHERE id = 3") == [(3, 30, 7)]
    assert statements(db).known("SELECT * FROM t WHERE id = 3") is not None


def test_what_was_learnt_before_a_change_is_learnt_again(db: noria.Database) -> None:
    for n in (1, 2):
        rows(db, f"SELECT * FROM t WHERE id = {n}")
    assert statements(db).known("SELECT * FROM t WHERE id = 3") is not None
    db.sql("ALTER TABLE t DROP COLUMN a")
    assert statements(db).known("SELECT * FROM t WHERE id = 3") is None
    assert [rows(db, f"SELECT * FROM t WHERE id = {n}") for n in (1, 2, 3)] == [[(1,)], [(2,)], [(3,)]]


def test_a_view_of_just_this_range_is_found_by_the_second_text(db: noria.Database) -> None:
    assert rows(db, "SELECT id FROM t WHERE a > 15") == [(2,), (3,)]
    db.sql("CREATE VIEW many AS SELECT id FROM t WHERE a > 25")
    assert rows(db, "SELECT id FROM t WHERE a > 25") == [(3,)]
    told = rows(db, "EXPLAIN SELECT id FROM t WHERE a > 25")
    assert "many" in str(told)


def test_only_so_many_are_kept(db: noria.Database) -> None:
    for n in range(FIRST_STATEMENTS + 3):
        db.transport.executor.statements.parse(f"SELECT a AS x{n} FROM t WHERE id = 1")
    assert len(statements(db)._firsts) == FIRST_STATEMENTS
