"""SELECT without FROM as a part of queries, in a server whose two workers are processes: constants reach each of them,
and are there again after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.serving import execute, rows, serving

pytestmark = pytest.mark.long

PROGRAM = ("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1), (2, 1), (3, 2), (4, 7)",
           "CREATE MATERIALIZED VIEW every AS SELECT id, a FROM t UNION ALL SELECT 0, -1",
           "CREATE VIEW named AS SELECT t.id, q.name FROM t JOIN (SELECT 1 AS a, 'one' AS name UNION ALL "
           "SELECT 2, 'two') q ON q.a = t.a WHERE q.name = ?")


def test_constants_are_on_one_of_several_workers_and_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "data", *PROGRAM, workers="2") as server:
        for _ in range(2):
            with server.connect() as c:
                assert sorted(rows(c, "SELECT * FROM every")) == [(0, -1), (1, 1), (2, 1), (3, 2), (4, 7)]
                assert sorted(rows(c, "SELECT id FROM named WHERE name = 'one'")) == [(1,), (2,)]
                assert sorted(rows(c, "SELECT 1 UNION ALL SELECT COUNT(*) FROM t")) == [(1,), (4,)]
                execute(c, "INSERT INTO t VALUES (9, 2)")
                assert sorted(rows(c, "SELECT id FROM named WHERE name = 'two'")) == [(3,), (9,)]
                execute(c, "DELETE FROM t WHERE id IN (SELECT 9 UNION SELECT 10)")
                assert rows(c, "SELECT id FROM named WHERE name = 'two'") == [(3,)]
            server.stop()
            server.start()
