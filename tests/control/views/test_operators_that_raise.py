"""An operator that raises costs the views below it, until they are built again; over the embedded database."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from control.databases import ask, each_worker
from noria.client.api import Database
from noria.core.errors import SqlError
from noria.dataflow.ops.stateful.aggregate import Aggregate
from noria.dataflow.ops.stateless.project import Project

TABLES = ("CREATE TABLE t (id INT PRIMARY KEY, k INT, b BIGINT)", "INSERT INTO t VALUES (1, 1, 5), (2, 2, 6)",
          "CREATE VIEW sums AS SELECT k, SUM(b) AS b FROM t GROUP BY k",
          "CREATE VIEW plain AS SELECT id, b FROM t WHERE id = ?",
          "CREATE VIEW twice AS SELECT k, 2 * b AS b FROM t WHERE k = ?")
pytestmark = pytest.mark.one_worker("its operators are broken, and its clock is turned")


@pytest.fixture
def breaks(monkeypatch: pytest.MonkeyPatch) -> Callable[[type, str], Callable[[], None]]:
    """A method raises until the function that this gives is called."""
    def broken(operator: type, method: str) -> Callable[[], None]:
        def raises(*args: Any) -> None:
            raise KeyError("a defect")

        patched = pytest.MonkeyPatch()
        patched.setattr(operator, method, raises)
        request_end.append(patched.undo)
        return patched.undo

    request_end: list[Callable[[], None]] = []
    yield broken
    for undo in request_end:
        undo()


def engine(db: Database) -> Any:
    (worker,) = each_worker(db)
    return worker.engine


def shown(db: Database, view: str) -> tuple[str, str]:
    result = db.sql("SHOW NORIA VIEWS")
    row = next(r for r in result.rows if r[0] == view)
    return row[result.columns.index("State")], row[result.columns.index("Why")]


def error_of(db: Database, text: str) -> SqlError:
    with pytest.raises(SqlError) as raised:
        db.sql(text)
    return raised.value


def test_a_full_view_is_out_of_service_and_comes_back(
        db: Database, breaks: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert sorted(db.sql("SELECT * FROM sums").rows) == [(1, 5), (2, 6)] and db.view("plain").lookup(1) == [(1, 5)]
    mend = breaks(Aggregate, "tick")
    assert db.sql("INSERT INTO t VALUES (3, 1, 7)").affected == 1
    assert db.view("plain").lookup(3) == [(3, 7)] and db.sql("SELECT b FROM t WHERE id = 3").rows == [(7,)]
    error = error_of(db, "SELECT * FROM sums")
    assert error.code == 1105 and "KeyError: 'a defect'" in error.message and "W0.1.1" in error.message
    state, why = shown(db, "sums")
    assert state == "out of service" and "a defect" in why
    assert ask(db, "stats")["out_of_service"] == 1
    for i in range(4, 40):
        assert db.sql(f"INSERT INTO t VALUES ({i}, 1, 1)").affected == 1
        assert "a defect" in error_of(db, "SELECT * FROM sums").message
    assert sum("a defect" in r.getMessage() for r in caplog.records) == 1, "not a line for each failure"
    mend()
    later(db)
    assert sorted(db.sql("SELECT * FROM sums").rows) == [(1, 48), (2, 6)]
    assert shown(db, "sums")[0] == "full" and ask(db, "stats")["out_of_service"] == 0
    db.sql("DELETE FROM t WHERE id = 3")
    assert sorted(db.sql("SELECT * FROM sums").rows) == [(1, 41), (2, 6)]
    ask(db, "validate")


def later(db: Database) -> None:
    """The next look at the clock is two minutes later."""
    made = engine(db)
    clock = made.clock
    made.clock = lambda: clock() + 120 * 10**9


def test_a_failure_is_tried_again_later_and_later(db: Database, breaks: Any) -> None:
    db.sql("SELECT * FROM sums")
    breaks(Aggregate, "tick")
    made, now = engine(db), [10**12]
    made.clock = lambda: now[0]
    db.sql("INSERT INTO t VALUES (3, 1, 7)")
    tries = []
    for second in range(300):
        now[0] = 10**12 + second * 10**9
        before = made.outages.total
        ask(db, "stats")
        ask(db, "stats")
        if made.outages.total > before:
            tries.append(second)
    waits = [b - a for a, b in pairwise(tries)]
    assert waits[:6] == sorted(waits[:6]) and waits[0] <= 2 and waits[-1] >= 60 and len(tries) < 14


def test_a_partial_view_is_derived_again_when_it_is_read(db: Database, breaks: Any) -> None:
    assert db.view("twice").lookup(1) == [(1, 10)]
    mend = breaks(Project, "map")
    assert db.sql("INSERT INTO t VALUES (3, 1, 7)").affected == 1
    with pytest.raises(SqlError, match="Internal error"):
        db.view("twice").lookup(1)
    mend()
    assert sorted(db.view("twice").lookup(1)) == [(1, 10), (1, 14)]
    ask(db, "validate")


def test_a_view_whose_first_state_fails_comes_when_it_can(db: Database, breaks: Any) -> None:
    mend = breaks(Aggregate, "tick")
    engine(db).builds.at_once_rows = -1
    assert "a defect" in error_of(db, "SELECT * FROM sums").message
    db.sql("INSERT INTO t VALUES (3, 1, 7)")
    mend()
    later(db)
    ask(db, "stats")
    assert sorted(db.sql("SELECT * FROM sums").rows) == [(1, 12), (2, 6)]
