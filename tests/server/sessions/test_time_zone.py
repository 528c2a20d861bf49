"""Sessions elsewhere than in UTC: TIMESTAMPs are shown and read in their time, and never computed with in another."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from noria.server.outcomes import Client
from noria.server.sessions.requests import complete


class Elsewhere:
    """A session that keeps its variables from statement to statement, two hours ahead of UTC."""

    def __init__(self, db: Any):
        self._session = db.transport.sessions.connect(Client("root", "noria", 0, "localhost", False))
        self._run = db.transport.run
        self.sql("SET time_zone = '+02:00'")

    def sql(self, text: str) -> Any:
        async def run() -> Any:
            return (await complete(self._session, text, []))[-1]

        return self._run(run())


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Any]:
    opened = noria.open(tmp_path)
    opened.sql("CREATE TABLE t (id INT PRIMARY KEY, ts TIMESTAMP NULL, dt DATETIME, made TIMESTAMP DEFAULT NOW())")
    yield opened
    opened.close()


def test_in_and_out(db: Any) -> None:
    there = Elsewhere(db)
    there.sql("INSERT INTO t (id, ts, dt) VALUES (1, '2026-01-01 01:00:00', '2026-01-01 01:00:00'), (2, NULL, NOW())")
    assert there.sql("SELECT ts, dt FROM t WHERE id = 1").rows == [(datetime(2026, 1, 1, 1), datetime(2026, 1, 1, 1))]
    assert db.sql("SELECT ts, dt FROM t WHERE id = 1").rows == [(datetime(2025, 12, 31, 23), datetime(2026, 1, 1, 1))]
    there.sql("UPDATE t SET ts = '2026-07-01 12:00:00' WHERE id = 1")
    assert db.sql("SELECT ts FROM t WHERE id = 1").rows == [(datetime(2026, 7, 1, 10),)]
    assert there.sql("SELECT MAX(ts) FROM t").rows == [(datetime(2026, 7, 1, 12),)]
    ((made, now),) = there.sql("SELECT made, NOW() FROM t WHERE id = 2").rows
    assert abs(made - now) < timedelta(minutes=1)
    ((stored,),) = db.sql("SELECT made FROM t WHERE id = 2").rows
    assert made - stored == timedelta(hours=2)


def test_rows_are_found_by_a_timestamp_in_the_sessions_time(db: Any) -> None:
    there = Elsewhere(db)
    db.sql("INSERT INTO t (id, ts) VALUES (1, '2026-01-01 00:00:00'), (2, '2026-01-01 01:30:00'), (3, NULL)")
    for where, ids in {"ts = '2026-01-01 02:00:00'": [1], "ts = '2026-01-01 00:00:00'": [], "ts <=> NULL": [3],
                       "ts IN ('2026-01-01 02:00:00', '2026-01-01 03:30:00')": [1, 2],
                       "ts > '2026-01-01 02:00:00'": [2], "ts BETWEEN '2026-01-01' AND '2026-01-01 03:00:00'": [1],
                       "ts < NOW()": [1, 2], "ts >= '2026-01-01 03:30:00'": [2]}.items():
        for _ in range(2):
            assert sorted(row[0] for row in there.sql(f"SELECT id FROM t WHERE {where}").rows) == ids, where
    assert db.sql("SELECT id FROM t WHERE ts = '2026-01-01 00:00:00'").rows == [(1,)]


def test_a_timestamp_literal_is_no_timestamp_column(db: Any) -> None:
    db.sql("INSERT INTO t (id) VALUES (1)")
    text = "SELECT TIMESTAMP'2026-01-01 00:00:00.5' AS a, id FROM t"
    assert Elsewhere(db).sql(text).rows == db.sql(text).rows == [(datetime(2026, 1, 1, 0, 0, 0, 500_000), 1)]


@pytest.mark.parametrize("text", [
    "SELECT id FROM t WHERE ts + INTERVAL 1 DAY > '2026-01-01'", "SELECT HOUR(ts) FROM t",
    "SELECT id FROM t WHERE ts = dt", "SELECT a.id FROM t a JOIN t b ON a.ts = b.dt",
    "DELETE FROM t WHERE ts < NOW()", "UPDATE t SET ts = ts + INTERVAL 1 DAY",
])
def test_what_would_need_the_zone_is_refused(db: Any, text: str) -> None:
    with pytest.raises(SqlError) as e:
        Elsewhere(db).sql(text)
    assert e.value.code == 1235 and "time_zone" in e.value.message
    db.sql(text)


def test_a_column_becomes_a_timestamp_as_of_utc(db: Any) -> None:
    """And back; elsewhere it is refused, as the values there may be those of another zone."""
    db.sql("INSERT INTO t (id, ts, dt) VALUES (1, '2026-01-01 01:00:00', '2026-07-01 12:00:00')")
    for text in ("MODIFY ts DATETIME", "MODIFY dt TIMESTAMP NULL"):
        with pytest.raises(SqlError, match="time_zone"):
            Elsewhere(db).sql(f"ALTER TABLE t {text}")
        db.sql(f"ALTER TABLE t {text}")
    Elsewhere(db).sql("ALTER TABLE t MODIFY id BIGINT")
    assert Elsewhere(db).sql("SELECT ts, dt FROM t").rows == [(datetime(2026, 1, 1, 1), datetime(2026, 7, 1, 14))]
    db.sql("UPDATE t SET ts = '1950-01-01'")
    with pytest.raises(SqlError) as e:
        db.sql("ALTER TABLE t MODIFY ts TIMESTAMP NULL")
    assert e.value.code == 1292
