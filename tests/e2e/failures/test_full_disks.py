"""A server whose data directory, then whose run directory is on a small disk that others fill: statements are refused
whole with error 1021, nothing acknowledged is lost, and with space again it goes on, without a new start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from disks import occupy, small_disk
from e2e.serving import Served, execute, rows, serving

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(600)]
DISK_FULL = 1021
ROWS = 200


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """For the data and for the run directory: 96 MB each."""
    with (small_disk(tmp_path_factory.mktemp("d"), 96) as data, small_disk(tmp_path_factory.mktemp("r"), 96) as run):
        yield data, run


@pytest.fixture(scope="module")
def served(disks: tuple[Path, Path]) -> Iterator[Served]:
    with serving(disks[0] / "data", "CREATE TABLE t (id INT PRIMARY KEY, part INT NOT NULL, body TEXT)",
                 "CREATE VIEW bodies AS SELECT id, part, body FROM t WHERE part = ?",
                 "CREATE MATERIALIZED VIEW parts AS SELECT part, COUNT(*) AS n FROM t GROUP BY part",
                 run_root=disks[1]) as server:
        yield server


def body(id: int) -> str:
    return f"{id:08d}" * 100


def insert(connection: Any, part: int) -> None:
    """ROWS rows of about a kilobyte, all or none."""
    ids = range(part * ROWS, (part + 1) * ROWS)
    values = ", ".join(f"({i}, {part}, '{os.urandom(50).hex()}{body(i)}')" for i in ids)
    assert execute(connection, f"INSERT INTO t VALUES {values}") == ROWS


def check(connection: Any, acknowledged: set[int]) -> None:
    assert dict(rows(connection, "SELECT part, n FROM parts")) == dict.fromkeys(acknowledged, ROWS)
    for part in sorted(acknowledged)[:3] + sorted(acknowledged)[-3:]:
        found = rows(connection, f"SELECT id, body FROM bodies WHERE part = {part}")
        assert {i for i, text in found if text.endswith(body(i))} == set(range(part * ROWS, (part + 1) * ROWS))


def fill(connection: Any, acknowledged: set[int], tries: int) -> pymysql.err.MySQLError | None:
    """Write until it is refused."""
    for _ in range(tries):
        part = max(acknowledged, default=-1) + 1
        try:
            insert(connection, part)
        except pymysql.err.MySQLError as e:
            return e
        acknowledged.add(part)
    return None


def read_unread(connection: Any, part: int) -> None:
    """A key that nobody has read yet: its rows, or that there is no room for them."""
    try:
        assert len(rows(connection, f"SELECT id, body FROM bodies WHERE part = {part}")) == ROWS
    except pymysql.err.MySQLError as e:
        assert e.args[0] == DISK_FULL, e


@pytest.mark.parametrize("which", ["data", "run"])
def test_a_full_directory(served: Served, disks: tuple[Path, Path], which: str) -> None:
    worker = served.pid("worker")
    with served.connect() as connection:
        acknowledged = {r[0] for r in rows(connection, "SELECT part FROM parts")}
        assert fill(connection, acknowledged, 3) is None
        check(connection, acknowledged)
        others = disks[which == "run"] / "others"
        occupy(others)
        error = fill(connection, acknowledged, 400)
        print(f"{which}: {len(acknowledged)} parts, then {error!r}")
        assert error is not None and error.args[0] == DISK_FULL and "Disk full" in error.args[1], error
        again = fill(connection, acknowledged, 3)
        assert again is not None and again.args[0] == DISK_FULL, "it stays refused"
        assert rows(connection, "SELECT COUNT(*) FROM t WHERE part = 0") == [(ROWS,)], "reads go on"
        read_unread(connection, max(acknowledged))
        assert served.process.poll() is None
        others.unlink()
        assert fill(connection, acknowledged, 3) is None, "with space again writes go on"
        check(connection, acknowledged)
        if which == "data":
            assert served.pid("worker") == worker, "without a new start"
    assert served.health()["worker"] == "up"


def test_everything_is_there_after_a_restart(served: Served) -> None:
    with served.connect() as connection:
        acknowledged = {r[0] for r in rows(connection, "SELECT part FROM parts")}
    served.kill("worker", "jvm", "driver", "front")
    served.start()
    with served.connect() as connection:
        check(connection, acknowledged)
    served.stop()
