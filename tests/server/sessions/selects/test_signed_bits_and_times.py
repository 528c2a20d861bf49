"""CAST of operations on bits to SIGNED, DATE_FORMAT of a TIME, TIME + INTERVAL, and bytes in SELECT, beside MariaDB: by
views and by one-shots."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb
from e2e.statements.asking import code, rows

STATEMENTS = (
    "CREATE TABLE n (id INT PRIMARY KEY, a BIGINT, b BIGINT, t TIME(6), s TIME, d VARBINARY(9))",
    "INSERT INTO n VALUES (1, -42, 56, '12:30:15.002345', '-01:30:00', 0xFF00), (2, 42, -1, '838:59:59', NULL, 'a'), "
    "(3, NULL, 3, '-25:00:00.5', '00:00:00', 0x27FE27)",
)
SELECTS = (
    "id, CONVERT(a & 56, SIGNED), CONVERT(a | b, SIGNED), CAST(a ^ b AS SIGNED), CONVERT(~a, SIGNED) FROM n",
    "id, CAST(a << 2 AS SIGNED), CAST((a | 1) & ~b AS SIGNED), CAST(~(a << 3) ^ -1 AS SIGNED) FROM n",
    "id, CAST(a >> 2 AS SIGNED), CAST(a << 64 AS SIGNED), CAST(b >> 0 AS SIGNED) FROM n",
    "id FROM n WHERE CAST(a | 3 AS SIGNED) < 0", "CAST(-1 | 0 AS SIGNED), CAST(~0 AS SIGNED)",
    "id, CHAR(a + 243 USING utf16), CHAR(201 USING utf16), CHAR(8364 USING utf16) FROM n WHERE id = 1",
    "id, CHAR(195, 137 USING utf8mb4), HEX(CHAR(201, 77 USING binary)), CHAR(233, 7 USING utf16) FROM n",
    "SUM(CAST(a & b AS SIGNED)) FROM n", "id, CAST(a & 18446744073709551615 AS SIGNED) FROM n",
    "DATE_FORMAT(t, '%H:%i:%s.%f %k %h %p %T %r%%'), CAST(DATE_FORMAT(TIME(t), '%H:00:00') AS TIME) FROM n "
    "WHERE id = 1",
    "DATE_FORMAT(TIME'10:11:12', '%H.%i')",
    "id, s + INTERVAL 90 MINUTE, s - INTERVAL 1 SECOND, t + INTERVAL 250 MICROSECOND FROM n WHERE id <> 2",
    "id, s + INTERVAL '1:30' HOUR_MINUTE, t - INTERVAL NULL SECOND FROM n WHERE id <> 2",
    "id FROM n WHERE d = _binary '\udcff\\0'", "id FROM n WHERE d = '\udcff\\0' OR d = '\udcfe'",
    "id FROM n WHERE d IN (_binary '\\'\udcfe\\'')",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalServer, Any, Any]]:
    place = tmp_path_factory.mktemp("bits")
    with closing(MariaDb(place)) as maria, closing(LocalServer(place / "noria")) as local, local.connect() as ours, \
            maria.connect() as theirs:
        for text in STATEMENTS:
            assert rows(ours, text) == rows(theirs, text), text
        yield local, ours, theirs


def sent(connection: Any, text: str) -> list[Any]:
    """The rows of a statement with bytes, in any order."""
    with connection.cursor() as cursor:
        cursor.execute(text.encode("utf-8", "surrogateescape"))
        return sorted(cursor.fetchall(), key=repr)


@needs_mariadb
@pytest.mark.parametrize("one_shot", [False, True])
def test_selects_are_mariadbs(both: tuple[LocalServer, Any, Any], one_shot: bool) -> None:
    local, ours, theirs = both
    with local.answering(one_shot):
        for text in SELECTS:
            assert sent(ours, f"SELECT {text}") == sent(theirs, f"SELECT {text}"), text


@needs_mariadb
def test_bytes_in_an_update(both: tuple[LocalServer, Any, Any]) -> None:
    _, ours, theirs = both
    for text in ("UPDATE n SET d = _binary '\udcfe\udc80' WHERE d = _binary 'a'", "SELECT id, d FROM n",
                 "DELETE FROM n WHERE d = _binary\"\udcfe\udc80\"", "SELECT COUNT(*) FROM n"):
        assert sent(ours, text) == sent(theirs, text), text


def test_a_time_of_more_than_a_day_is_formatted_as_one_of_today(tmp_path: Path) -> None:
    """MySQL adds it to today; MariaDB prints 838 hours."""
    with closing(LocalServer(tmp_path / "noria")) as local, local.connect() as c:
        for text in STATEMENTS:
            rows(c, text)
        assert rows(c, "SELECT DATE_FORMAT(t, '%H:%i:%s.%f'), DATE_FORMAT(s, '%k') FROM n ORDER BY id") == [
            ("12:30:15.002345", "22"), ("22:59:59.000000", None), ("22:59:59.500000", "0")]


def test_what_depends_on_today_or_is_beyond_is_refused(tmp_path: Path) -> None:
    with closing(LocalServer(tmp_path / "noria")) as local, local.connect() as c:
        rows(c, STATEMENTS[0])
        for text in ("DATE_FORMAT(t, '%Y-%H')", "t + INTERVAL 1 DAY", "DATE_FORMAT(t, d)"):
            assert code(c, f"SELECT {text} FROM n") == 1235, text
        assert code(c, "SELECT CHAR(201 USING latin1)") == 1235
        rows(c, "INSERT INTO n (id, a) VALUES (1, 1)")
        assert code(c, "SELECT CAST(a << 63 AS SIGNED) FROM n") == 1690
