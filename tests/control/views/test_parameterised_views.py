"""Views that aggregate, or have a LIMIT, for each value of their parameters are read in SQL by the names of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import noria
from noria.core.errors import SqlError
from server.sessions.connection import Connection

READS = (  # a SELECT, and the same from the table
    ("SELECT n FROM k WHERE g = {}", "SELECT COUNT(*) AS n FROM t WHERE g = {}"),
    ("SELECT * FROM k WHERE g = {}", "SELECT COUNT(*) AS n, MAX(v) AS most FROM t WHERE g = {}"),
    ("SELECT most AS best, n AS `count` FROM k AS x WHERE {} = x.g", "SELECT MAX(v), COUNT(*) FROM t WHERE g = {}"),
    ("SELECT id FROM top WHERE g = {}", "SELECT id FROM t WHERE g = {} ORDER BY v DESC LIMIT 2"),
    ("SELECT v, id FROM top WHERE g = {}", "SELECT v, id FROM t WHERE g = {} ORDER BY v DESC LIMIT 2"),
    ("SELECT s FROM two WHERE g = {} AND v = 20", "SELECT SUM(id) FROM t WHERE g = {} AND v = 20"),
)


@pytest.fixture(params=[1, 3], ids=["one", "three"])
def db(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    with noria.open(tmp_path / "data", workers=request.param) as opened:
        opened.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT)")
        opened.sql("INSERT INTO t VALUES (1, 1, 10), (2, 1, 20), (3, 1, 30), (4, 2, 20), (5, NULL, 5)")
        opened.sql("CREATE VIEW k AS SELECT COUNT(*) AS n, MAX(v) AS most FROM t WHERE g = ?")
        opened.sql("CREATE VIEW top AS SELECT id, v FROM t WHERE g = ? ORDER BY v DESC LIMIT 2")
        opened.sql("CREATE VIEW two AS SELECT SUM(id) AS s FROM t WHERE g = ? AND v = ?")
        yield opened


@pytest.mark.parametrize("read, table", READS)
def test_a_view_is_read_with_values_for_its_parameters(db: Any, read: str, table: str) -> None:
    a = Connection(db)
    for change in ("INSERT INTO t VALUES (6, 1, 20)", "DELETE FROM t WHERE id = 3", "UPDATE t SET g = 1 WHERE id = 4"):
        for value in ("1", "2", "9", "NULL", "'1'"):
            assert a.rows(read.format(value)) == a.rows(table.format(value)), (read, value)
            if value.isdigit():
                assert a.rows(read.format("?"), int(value)) == a.rows(table.format(value))
        a.sql(change)
    a.sql("BEGIN")
    a.sql("INSERT INTO t VALUES (7, 9, 20)")
    assert a.rows(read.format("9")) == a.rows(table.format("9")), "of the transaction's own rows, too"
    a.sql("ROLLBACK")


def test_the_views_own_reader_answers(db: Any) -> None:
    a = Connection(db)
    for text in ("SELECT n FROM k WHERE g = 1", "SELECT * FROM k WHERE g = 1", "SELECT id FROM top WHERE g = 1"):
        assert a.rows(f"EXPLAIN {text}")[0][0].startswith(f"answered by the view {text.split('FROM ')[1].split()[0]}")
    assert a.sql("SELECT n, most AS m FROM k WHERE g = 1").fields[1].name == "m"


@pytest.mark.parametrize("text", [
    "SELECT n FROM k", "SELECT n + 1 FROM k WHERE g = 1", "SELECT n FROM k WHERE g > 1",
    "SELECT n FROM k WHERE g = 1 OR g = 2",
    "SELECT n FROM k WHERE g = 1 AND n = 2", "SELECT n FROM k WHERE g = 1 AND g = 2", "SELECT s FROM two WHERE g = 1",
    "SELECT n FROM k JOIN t ON t.g = k.n WHERE k.g = 1", "SELECT nope FROM k WHERE g = 1",
    "SELECT n FROM k WHERE y.g = 1",
    "SELECT n FROM k WHERE g = (SELECT MAX(g) FROM t)", "SELECT n FROM k WHERE g = n",
    "SELECT n FROM k WHERE g = 1 LIMIT 1"])
def test_other_reads_say_what_works(db: Any, text: str) -> None:
    with pytest.raises(SqlError, match="with a value for each parameter"):
        db.sql(text)
