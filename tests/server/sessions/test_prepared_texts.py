"""PREPARE, EXECUTE and DEALLOCATE PREPARE as statements of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from server.sessions.connection import Connection


@pytest.fixture
def a(tmp_path: Path) -> Iterator[Any]:
    with noria.open(tmp_path / "data") as opened:
        opened.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT)")
        opened.sql("INSERT INTO t VALUES (1, 1), (2, 1), (3, 2)")
        yield Connection(opened)


def test_a_select_is_executed_with_variables(a: Any) -> None:
    a.sql("PREPARE p FROM 'SELECT id FROM t WHERE g = ? AND id >= ? ORDER BY id'")
    a.sql("SET @g = 1, @least = 2")
    assert a.rows("EXECUTE p USING @g, @least") == [(2,)]
    a.sql("SET @least = 0")
    assert a.rows("EXECUTE P USING @g, @least") == [(1,), (2,)], "names have no case"
    assert a.rows("EXECUTE p USING @never, @g") == []
    assert a.code("EXECUTE p") == a.code("EXECUTE p USING @g") == 1210


def test_writes_and_definitions(a: Any) -> None:
    a.sql("SET @text = 'INSERT INTO t VALUES (?, ?)', @id = 9, @g = 1")
    a.sql("PREPARE w FROM @text")
    a.sql("BEGIN")
    assert a.sql("EXECUTE w USING @id, @g").affected == 1 and a.rows("SELECT g FROM t WHERE id = 9") == [(1,)]
    a.sql("ROLLBACK")
    assert a.rows("SELECT g FROM t WHERE id = 9") == []
    a.sql("PREPARE d FROM 'CREATE TABLE made (a INT)'")
    a.sql("EXECUTE d")
    assert a.code("EXECUTE d") == 1050 and a.rows("SHOW TABLES LIKE 'made'") == [("made",)]


def test_a_statement_is_planned_again_after_a_change(a: Any) -> None:
    a.sql("PREPARE p FROM 'SELECT * FROM t WHERE id = 1'")
    a.sql("ALTER TABLE t ADD COLUMN s VARCHAR(5) DEFAULT 'x'")
    assert a.rows("EXECUTE p") == [(1, 1, "x")]
    a.sql("DROP TABLE t")
    assert a.code("EXECUTE p") == 1146


def test_a_statement_belongs_to_its_session_until_it_is_deallocated(a: Any) -> None:
    a.sql("PREPARE p FROM 'SELECT 1'")
    a.sql("PREPARE p FROM 'SELECT 2'")
    assert a.rows("EXECUTE p") == [(2,)]
    a.sql("DEALLOCATE PREPARE p")
    assert a.code("EXECUTE p") == a.code("DROP PREPARE p") == a.code("DEALLOCATE PREPARE p") == 1243
    a.sql("PREPARE p FROM 'SELECT 3'")
    a.session.reset()
    assert a.code("EXECUTE p") == 1243


@pytest.mark.parametrize("text, code", [
    ("PREPARE p FROM 'SELECT nope FROM t'", 1054), ("PREPARE p FROM 'SELECT 1; SELECT 2'", 1064),
    ("PREPARE p FROM 'EXECUTE q'", 1235), ("PREPARE p FROM @never", 1064), ("PREPARE p FROM SELECT 1", 1064),
    ("EXECUTE p USING 1", 1064), ("PREPARE p FROM ''", 1065), ("DEALLOCATE p", 1064)])
def test_errors_are_those_of_prepare(a: Any, text: str, code: int) -> None:
    a.sql("PREPARE p FROM 'SELECT 1'")
    assert a.code(text) == code
    if text.startswith("PREPARE p FROM '"):
        assert a.code("EXECUTE p") == 1243, "a failed PREPARE forgets the statement of this name"


def test_a_session_has_a_bounded_number_of_statements(a: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.server.sessions.own_statements.MYSQL_STATEMENTS", 2)
    a.sql("PREPARE p FROM 'SELECT 1'")
    a.sql("PREPARE q FROM 'SELECT 1'")
    assert a.code("PREPARE r FROM 'SELECT 1'") == 1461 and a.code("PREPARE q FROM 'SELECT 2'") == 0
    monkeypatch.setattr("noria.server.sessions.own_statements.TEXT_CHARACTERS", 30)
    assert a.code("PREPARE q FROM 'SELECT 2 + 2 + 2 + 2 + 2'") == 1461 and a.code("PREPARE q FROM 'SELECT 2'") == 0
