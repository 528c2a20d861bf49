"""Views whose key or order is not selected: each can be read in SQL, or CREATE VIEW warns and says how else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError

ROWS = [(1, 1, 10, "a"), (2, 1, 20, "b"), (3, 2, 30, "c")]


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with noria.open(tmp_path_factory.mktemp("readable") / "data") as opened:
        opened.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT, name VARCHAR(20))")
        for row in ROWS:
            opened.sql("INSERT INTO t VALUES (?, ?, ?, ?)", list(row))
        yield opened


def run(db: Any, text: str) -> tuple[list[tuple[Any, ...]], Any]:
    """Rows and warnings."""
    done = db.transport.run(db.transport.sessions.run(text, []))[-1]
    return list(map(tuple, getattr(done, "rows", ()))), done.warnings


def made(db: Any, text: str) -> Any:
    """A view of this SELECT, alone; the warnings."""
    for name in [v.name for v in db.transport.program.views()]:
        run(db, f"DROP VIEW {name}")
    return run(db, f"CREATE VIEW w AS {text}")[1]


@pytest.mark.parametrize("view", ["name", "DISTINCT name", "name AS x"])
@pytest.mark.parametrize("end", ["", " ORDER BY v", " ORDER BY v LIMIT 5", " LIMIT 5"])
def test_a_key_that_is_not_selected_is_named_in_conditions(db: Any, view: str, end: str) -> None:
    if "DISTINCT" in view and "ORDER" in end:
        with pytest.raises(SqlError, match="ORDER BY clause is not in SELECT list"):
            made(db, f"SELECT {view} FROM t WHERE k = ?{end}")
        return
    assert made(db, f"SELECT {view} FROM t WHERE k = ?{end}") == ()
    assert sorted(run(db, "SELECT * FROM w WHERE k = 1")[0]) == [("a",), ("b",)]
    assert run(db, "SELECT * FROM w AS o WHERE o.k = 2")[0] == [("c",)]
    assert "answered by the view w, looked up by (k)" in str(run(db, "EXPLAIN SELECT * FROM w WHERE k = 2")[0])
    assert sorted(run(db, "SELECT t.id FROM t JOIN w ON w.k = t.k WHERE t.id = 3")[0]) == [(3,)]
    for text in ("SELECT k FROM w", "SELECT * FROM w ORDER BY k", "SELECT * FROM w WHERE v = 10"):
        with pytest.raises(SqlError, match="Unknown column"):
            run(db, text)


@pytest.mark.parametrize(("view", "read", "rows"), [
    ("SELECT name FROM t WHERE k > ?", "SELECT * FROM w WHERE k > 1", [("c",)]),
    ("SELECT name FROM t WHERE k IN (?, ?)", "SELECT * FROM w WHERE k IN (2, 3)", [("c",)]),
    ("SELECT name FROM t WHERE k = ? AND v > ?", "SELECT * FROM w WHERE k = 1", [("a",), ("b",)]),
    ("SELECT COUNT(*) AS n FROM t WHERE k = ? GROUP BY k", "SELECT * FROM w WHERE k = 1", [(2,)]),
])
def test_other_parameters(db: Any, view: str, read: str, rows: list[Any]) -> None:
    assert made(db, view) == ()
    assert sorted(run(db, read)[0]) == rows


@pytest.mark.parametrize(("view", "rows"), [
    ("SELECT name FROM t ORDER BY v DESC", [("c",), ("b",), ("a",)]),
    ("SELECT name FROM t ORDER BY v DESC LIMIT 2", [("c",), ("b",)]),
    ("SELECT name FROM t ORDER BY v DESC LIMIT 10 OFFSET 1", [("b",), ("a",)]),
    ("SELECT name FROM t ORDER BY v + 1, id LIMIT 1", [("a",)]),
    ("SELECT k FROM t GROUP BY k ORDER BY COUNT(*) DESC", [(1,), (2,)]),
    ("SELECT name FROM t WHERE k < 2 ORDER BY v LIMIT 100000", [("a",), ("b",)]),
])
def test_all_rows_of_a_view_are_read_in_the_view_itself(db: Any, view: str, rows: list[Any]) -> None:
    """Not in an ad-hoc view, which would be given up when its reader goes: a named view's filling goes on."""
    assert made(db, view) == ()
    for _ in range(2):
        assert "answered by the view w" in str(run(db, "EXPLAIN SELECT * FROM w")[0])
        assert run(db, "SELECT * FROM w")[0] == run(db, "SELECT * FROM w AS x")[0] == rows
    assert list(db.transport.program.adhoc()) == []


@pytest.mark.parametrize(("view", "code", "why"), [
    ("SELECT v AS k FROM t WHERE k = ?", 1054, "looked up by, column k, which it does not select"),
    ("SELECT name FROM t WHERE k + 1 = ?", 1054, "the expression of parameter 1"),
    ("SELECT COUNT(*) AS n FROM t WHERE k = ?", 1235, "it aggregates for each parameter"),
    ("SELECT name FROM t WHERE k = ? LIMIT ?", 1235, "it has a LIMIT, which applies to each lookup"),
])
def test_what_no_select_can_read_is_a_warning(db: Any, view: str, code: int, why: str) -> None:
    ((level, number, text),) = made(db, view)
    assert (level, number) == ("Warning", code) and why in text and "POST /views/w/lookup" in text


def test_the_warning_arrives(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as opened:
        opened.sql("CREATE TABLE t (k INT, v INT)")
        done = opened.sql("CREATE VIEW w AS SELECT v AS k FROM t WHERE k = ?")
        assert [w[1] for w in done.warnings] == [1054]
        opened.sql("INSERT INTO t VALUES (1, 10)")
        assert [tuple(r) for r in opened.view("w").lookup(1)] == [(10,)]
