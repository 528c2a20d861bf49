"""SET time_zone to a name, compared with MariaDB: values around changes of the clock, keys, ranges, writes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

ZONES = Path("/usr/share/zoneinfo")
TOOL = shutil.which("mariadb-tzinfo-to-sql")
STATEMENTS = (
    "CREATE TABLE z (id INT PRIMARY KEY, t TIMESTAMP NULL, d DATETIME, KEY (t))",
    "INSERT INTO z VALUES (1, '2024-07-01 12:00:00', '2024-07-01 12:00:00'), (2, '2024-01-01 12:00:00', "
    "'2024-01-01 12:00:00'), (3, '2024-03-31 03:30:00', NULL), (4, NULL, '2024-10-27 04:00:00')",
    "SELECT * FROM z ORDER BY id", "SELECT id FROM z WHERE t = '2024-07-01 12:00:00'",
    "SELECT id FROM z WHERE t > '2024-03-01 00:00:00' ORDER BY id", "SELECT id, t FROM z ORDER BY t DESC, id LIMIT 2",
    "UPDATE z SET t = d WHERE id IN (1, 4)", "UPDATE z SET t = '2024-08-01 00:30:00' WHERE id = 2",
    "SELECT * FROM z ORDER BY id", "SELECT MAX(t), MIN(t) FROM z",
    "SELECT FROM_UNIXTIME(0), FROM_UNIXTIME(1720000000), FROM_UNIXTIME(1720000000, '%H:%i'), "
    "UNIX_TIMESTAMP('2024-07-03 11:46:40'), UNIX_TIMESTAMP('2024-01-01')",
    "SELECT id, UNIX_TIMESTAMP(d) FROM z WHERE UNIX_TIMESTAMP(d) > 1710000000 ORDER BY id",
    "DELETE FROM z WHERE id = 4", "SELECT COUNT(*) FROM z", "SET time_zone = '+00:00'",
    "SELECT * FROM z ORDER BY id", "SET time_zone = '+05:30'", "SELECT * FROM z ORDER BY id",
    "SELECT FROM_UNIXTIME(86400), UNIX_TIMESTAMP('1970-01-02 05:30:00')",
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path / "noria")
    yield found
    found.close()


@needs_mariadb
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_outcomes_are_mariadbs(server: LocalServer, tmp_path: Path, zone: str) -> None:
    assert TOOL is not None and ZONES.is_dir(), "Debian's mariadb-client and tzdata"
    mariadb = MariaDb(tmp_path)
    try:
        with mariadb.connect("mysql") as c:
            made = subprocess.run([TOOL, str(ZONES / zone), zone], capture_output=True, text=True, check=True).stdout
            for text in map(str.strip, made.split(";")):
                if text.startswith(("INSERT", "SET @time_zone_id")):
                    rows(c, text)
        with server.connect() as ours, mariadb.connect() as theirs:
            rows(theirs, f"SET time_zone = '{zone}'")
            rows(ours, f"SET time_zone = '{zone}'")
            for text in STATEMENTS:
                assert rows(ours, text) == rows(theirs, text), text
    finally:
        mariadb.close()


def test_the_clock_is_the_zones(server: LocalServer) -> None:
    with server.connect() as c:
        for zone in ("Europe/London", "Asia/Kolkata", "America/New_York"):
            rows(c, f"SET time_zone = '{zone}'")
            assert rows(c, "SELECT @@time_zone") == [(zone,)]
            now = rows(c, "SELECT NOW()")[0][0]
            assert abs((datetime.now(ZoneInfo(zone)).replace(tzinfo=None) - now).total_seconds()) < 60
        assert code(c, "SET time_zone = 'Mars/Phobos'") == code(c, "SET time_zone = '../etc/passwd'") == 1298


def test_sessions_of_several_zones_share_no_reply(server: LocalServer) -> None:
    with server.connect() as utc, server.connect() as berlin:
        rows(utc, "CREATE TABLE z (id INT PRIMARY KEY, t TIMESTAMP)")
        rows(utc, "INSERT INTO z VALUES (1, '2024-07-01 12:00:00')")
        rows(berlin, "SET time_zone = 'Europe/Berlin'")
        for _ in range(4):
            assert rows(utc, "SELECT t FROM z WHERE id = 1") == [(datetime(2024, 7, 1, 12),)]
            assert rows(berlin, "SELECT t FROM z WHERE id = 1") == [(datetime(2024, 7, 1, 14),)]
            assert rows(utc, "SELECT FROM_UNIXTIME(0)") == [(datetime(1970, 1, 1),)]
            assert rows(berlin, "SELECT FROM_UNIXTIME(0)") == [(datetime(1970, 1, 1, 1),)]
