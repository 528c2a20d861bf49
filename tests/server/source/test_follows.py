"""The server's side of `noria follow`: changes of several tables are one commit with the position, done once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import noria
from following.sources import Followed
from noria.core.errors import SqlError
from noria.core.expressions.column_ranges import bounded
from noria.core.limits import FOLLOW_FORGET
from noria.following.address import CannotFollow
from noria.following.target import TargetServer
from noria.server.source.writes import most_rows
from workers import by_default

RECORD = {"name": "n", "n": 0, "source": "mysql://h:3306/d", "tables": {"a": {}, "b": {}}}


@pytest.fixture(params=[1, 3])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Followed]:
    with by_default(request.param), Followed(tmp_path) as local:
        yield local


@pytest.fixture
def follower(target: Followed) -> TargetServer:
    found = TargetServer(target.url, "n")
    assert found.begin() == (None, 0)
    assert found.begin(RECORD) == (RECORD, 0)
    found.sql("CREATE TABLE a (id INT PRIMARY KEY, v INT NOT NULL)")
    found.sql("CREATE TABLE b (k VARCHAR(9), j INT, v VARCHAR(3), PRIMARY KEY (k, j))")
    return found


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def test_several_tables_are_one_commit(target: Followed, follower: TargetServer) -> None:
    many = list(range(2_000))
    assert follower.apply(5, [("a", "replace", rows(id=many, v=many)),
                              ("b", "replace", rows(k=["x", "y"], j=[1, 2], v=["p", None]))])
    assert follower.apply(9, [("a", "delete", rows(id=many[3:])), ("a", "replace", rows(id=[1, 9_999], v=[7, 8])),
                              ("b", "delete", rows(k=["x", "z"], j=[1, 1]))])
    wanted = {"a": [(0, 0), (1, 7), (2, 2), (9_999, 8)], "b": [("y", 2, None)]}
    assert target.rows("ab") == wanted
    for position in (9, 3):
        assert not follower.apply(position, [("a", "delete", rows(id=[0]))])  # it was done before
    with pytest.raises(CannotFollow, match="Data too long for column 'v'"):
        follower.apply(12, [("a", "delete", rows(id=many)), ("b", "replace", rows(k=["q"], j=[1], v=["too long"]))])
    assert target.rows("ab") == wanted
    assert follower.begin()[1] == 9
    assert follower.apply(12, [])
    assert follower.begin()[1] == 12


def test_the_position_outlives_the_server(tmp_path: Path) -> None:
    with by_default(2):
        with Followed(tmp_path) as target:
            follower = TargetServer(target.url, "n")
            follower.begin(RECORD)
            follower.sql("CREATE TABLE a (id INT PRIMARY KEY)")
            for i in range(1, FOLLOW_FORGET + 20):  # some are forgotten meanwhile
                follower.apply(i, [("a", "replace", rows(id=[i]))])
            follower.note({**RECORD, "loaded": True})
        with noria.open(tmp_path / "data") as db, pytest.raises(SqlError, match="read-only: it follows mysql://h:3306/d"):
            db.sql("INSERT INTO a VALUES (0)")
        with Followed(tmp_path) as target:
            with pytest.raises(ConnectionError, match="this run of the follower is over"):
                follower = TargetServer(target.url, "n")
                follower.apply(999, [])
            record, at = follower.begin()
            assert record is not None and record["loaded"] and at == FOLLOW_FORGET + 19
            assert len(target.embedded.run(target.source().follows._names("followed:"))) < FOLLOW_FORGET + 2
            follower.release()
            assert target.embedded.run(target.source().follows._names("follow")) == []
        with Followed(tmp_path) as target:
            assert target.source().follows.all() == []
            target.run("INSERT INTO a VALUES (0)")


def test_one_run_at_a_time(target: Followed, follower: TargetServer) -> None:
    other = TargetServer(target.url, "n")
    other.begin()
    for asked in (lambda: follower.apply(5, []), lambda: follower.note(RECORD), lambda: follower.sql("TRUNCATE a"),
                  lambda: follower.report_progress({})):
        with pytest.raises(ConnectionError, match="this run of the follower is over"):
            asked()
    assert other.apply(5, [])


def test_bodies_that_say_nothing(target: Followed, follower: TargetServer) -> None:
    for path, body in (("apply", b"x"), ("begin", b"{}"), ("note", b'{"run": "r", "record": {"name": "m"}}'),
                       ("sql", b'{"run": "r"}'), ("tell", b'{"run": "r", "told": 1}')):
        kind = "application/vnd.apache.arrow.stream" if path == "apply" else "application/json"
        with pytest.raises(CannotFollow):
            follower._request(f"/follows/n/{path}", body, kind)


def test_rows_that_go_are_found_by_their_keys(target: Followed, follower: TargetServer) -> None:
    """It was a scan of the table for each of 500 keys, minutes for 200,000 rows."""
    writes = target.source().follows._writes
    for name, some in (("a", rows(id=list(range(500)))), ("b", rows(k=["x", "y", "y"], j=[1, 2, 3]))):
        table = target.catalog_table(name)
        assert table is not None
        where = writes.statement(table, some, "delete").where
        assert set(bounded(where, [c.type for c in table.columns])) == set(table.primary_key)
        assert some.num_rows <= most_rows(table, "delete") <= 512


def test_so_many_databases_are_followed(target: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noria.server.source.follows.FOLLOWS", 2)
    for name in ("n", "m", "o"):
        record = {**RECORD, "name": name, "tables": {name: {}}}
        if name != "o":
            TargetServer(target.url, name).begin(record)
            continue
        with pytest.raises(CannotFollow, match="2 databases are followed already"):
            TargetServer(target.url, name).begin(record)


@pytest.mark.parametrize("told", [{"behind_bytes": "many"}, {"rows": True}, {"current_s": "now"}, {"state": []},
                                  {"run": "x"}])
def test_what_is_told_wrongly_harms_nobody(target: Followed, follower: TargetServer, told: dict[str, Any]) -> None:
    """It would stand in /metrics and SHOW, which others read."""
    follower.report_progress({"state": "following", "behind_bytes": 5, "current_s": 1.5})
    with pytest.raises(CannotFollow, match="told"):
        follower.report_progress(told)
