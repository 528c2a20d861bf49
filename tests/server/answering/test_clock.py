"""The time in statements: one for all of a statement, none in what a worker gets."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from noria.core.expressions.functions import uses_clock
from noria.core.statements import Insert, Update
from noria.server.answering.clock import timed
from noria.sql.commands import SessionDependent
from noria.sql.expressions.clock import SOME_MOMENT
from noria.sql.parse import parse
from sql.catalogs import DictCatalog

NOW = datetime(2026, 1, 30, 23, 30, 15, 678901)
CATALOG = DictCatalog(
    "CREATE TABLE t (id INT PRIMARY KEY, v INT, c DATETIME DEFAULT CURRENT_TIMESTAMP, "
    "u TIMESTAMP(3) DEFAULT NOW(3) ON UPDATE NOW(3), d DATE)")
TABLE = CATALOG.table("t")


def at(text: str, offset: timedelta = timedelta()) -> Any:
    (statement,) = parse(text, CATALOG)
    assert isinstance(statement, Insert | Update) and TABLE is not None
    return timed(statement, TABLE, NOW, offset)


def test_defaults_are_cut_not_rounded() -> None:
    made = at("INSERT INTO t (id, v) VALUES (1, 2), (2, 3)")
    assert made.columns == (0, 1, 2, 3)
    assert {r[2:] for r in made.rows} == {(NOW.replace(microsecond=0), NOW.replace(microsecond=678000))}
    assert at("INSERT INTO t (id, c) VALUES (1, DEFAULT)").rows[0][1] == NOW.replace(microsecond=0)


def test_values_see_one_time() -> None:
    made = at("INSERT INTO t VALUES (1, UNIX_TIMESTAMP(), NOW() - INTERVAL 1 DAY, NOW(6), CURDATE())")
    assert made.rows == ((1, int(NOW.replace(tzinfo=UTC).timestamp()), datetime(2026, 1, 29, 23, 30, 15), NOW,
                          date(2026, 1, 30)),)


def test_the_session_s_clock_is_not_utc_s() -> None:
    made = at("INSERT INTO t (id, d) VALUES (1, CURDATE())", timedelta(hours=2))
    assert made.rows == ((1, date(2026, 1, 31), datetime(2026, 1, 31, 1, 30, 15), NOW.replace(microsecond=678000)),)


def test_on_update_comes_with_every_change() -> None:
    made = at("UPDATE t SET v = 3 WHERE c < NOW()")
    assert [column for column, _ in made.assignments] == [1, 3]
    assert str(made.assignments[1][1]) == f"if(nseq(#1, 3), #3, {NOW.replace(microsecond=678000)})"
    assert not uses_clock(made.where)
    assert [column for column, _ in at("UPDATE t SET u = NULL").assignments] == [3]


def test_a_select_has_the_time_as_a_parameter() -> None:
    (timed_select,) = parse("SELECT v FROM t WHERE c > NOW() - INTERVAL 1 HOUR AND d = CURDATE()", CATALOG)
    assert isinstance(timed_select, SessionDependent) and [f.name for f in timed_select.fields] == ["v"]
    first, second = (timed_select.at(SOME_MOMENT._replace(utc=NOW + timedelta(seconds=n))) for n in (0, 5))
    assert first.view.plan == second.view.plan and first != second


@pytest.mark.parametrize("text", ["CREATE VIEW w AS SELECT NOW() FROM t",
                                  "CREATE VIEW w AS SELECT v FROM t WHERE c < NOW()"])
def test_views_have_no_clock(text: str) -> None:
    with pytest.raises(SqlError) as e:
        parse(text, CATALOG)
    assert e.value.code == 1235


def test_end_to_end(tmp_path: Any) -> None:
    db = noria.open(tmp_path)
    db.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT, c DATETIME DEFAULT NOW(), u DATETIME(6) ON UPDATE NOW(6))")
    db.sql("INSERT INTO t (id, v) VALUES (1, 1), (2, 2)")
    assert db.sql("SELECT id FROM t WHERE c > NOW() - INTERVAL 1 MINUTE AND u IS NULL ORDER BY id").rows == [(1,), (2,)]
    db.sql("UPDATE t SET v = 2")  # changes one of the two
    assert db.sql("SELECT id FROM t WHERE u > NOW() - INTERVAL ? MINUTE", [1]).rows == [(1,)]
    with pytest.raises(SqlError) as e:
        db.sql("UPDATE t SET v = v / (id - 1)")
    assert e.value.code == 1365
    assert db.sql("SELECT v / (id - 1) FROM t WHERE id = 1").rows == [(None,)]
    db.close()
