"""NO_AUTO_VALUE_ON_ZERO: a 0 is a value of an AUTO_INCREMENT column, in rows of every form.  Without the mode it
requests a number.  Beside MariaDB, with one worker and with three."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from e2e.local import LocalServer
from e2e.mariadb import MariaDb, needs_mariadb

STATEMENTS = (
    "INSERT INTO a VALUES (0, 'zero'), (NULL, 'numbered'), (9, 'nine'), (NULL, 'after nine')",
    "INSERT INTO a (s) VALUES ('numbered')", "INSERT INTO a VALUES ('0', 'a duplicate')",
    "REPLACE INTO a VALUES (0, 'new')",
    "INSERT INTO a VALUES (0, 'x') ON DUPLICATE KEY UPDATE s = CONCAT(s, '!')", "INSERT IGNORE INTO a VALUES (0, 'y')",
    "DELETE FROM a WHERE id = 0", "INSERT INTO a SELECT 0, 'selected'", "UPDATE a SET id = 70 WHERE id = 0",
    "SET sql_mode = 'STRICT_ALL_TABLES'", "UPDATE a SET id = 0 WHERE id = 70", "INSERT INTO a VALUES (0, 'a number')",
)


@needs_mariadb
@pytest.mark.parametrize("workers", [1, 3])
def test_beside_mariadb(tmp_path: Path, workers: int) -> None:
    (tmp_path / "maria").mkdir()
    with closing(MariaDb(tmp_path / "maria")) as maria, maria.connect("zero") as theirs, closing(
            LocalServer(tmp_path / "data", workers=workers)) as local, local.connect() as mine:
        for connection in (theirs, mine):
            outcome(connection, "SET sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO'")
            outcome(connection, "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20))")
        for text in STATEMENTS:
            assert (text, outcome(mine, text)) == (text, outcome(theirs, text))
            assert (text, kept(mine)) == (text, kept(theirs))


def test_long_statements(tmp_path: Path) -> None:
    """A text of many rows has a reader of its own."""
    rows = ", ".join(f"({n}, 'row {n}')" for n in range(3_000))
    with closing(LocalServer(tmp_path / "data")) as local, local.connect() as c:
        outcome(c, "CREATE TABLE a (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20))")
        outcome(c, "SET sql_mode = 'NO_AUTO_VALUE_ON_ZERO'")
        assert outcome(c, f"INSERT INTO a VALUES {rows}") == 3_000
        assert outcome(c, "SELECT MIN(id), MAX(id), COUNT(*) FROM a") == [(0, 2_999, 3_000)]


def outcome(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            affected = cursor.execute(text)
            return list(cursor.fetchall()) if cursor.description else affected
        except connection.Error as e:
            return f"error {e.args[0]}"


def kept(connection: Any) -> Any:
    """The rows, by their texts: numbers that were generated may have gaps."""
    return [(n if n == 0 else "n", s) for n, s in outcome(connection, "SELECT id, s FROM a ORDER BY id")]
