"""ANALYZE and OPTIMIZE TABLE answer with rows, as clients read them; ANY_VALUE is one value of the group, always the
same one."""

from __future__ import annotations

from pathlib import Path

import noria
from server.sessions.connection import Connection


def test_upkeep_answers_with_a_row_for_each_table(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        a = Connection(db)
        a.sql("CREATE DATABASE shop")
        a.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        a.sql("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        answer = a.sql("ANALYZE TABLE t, shop.t")
        assert [f.name for f in answer.fields] == ["Table", "Op", "Msg_type", "Msg_text"]
        assert answer.rows == [("noria.t", "analyze", "status", "OK"), ("shop.t", "analyze", "status", "OK")]
        assert a.rows("OPTIMIZE NO_WRITE_TO_BINLOG TABLE t") == [("noria.t", "optimize", "status", "OK")]
        assert a.code("ANALYZE TABLE t, nope") == 1146


def test_any_value_of_a_view_and_of_the_same_query(tmp_path: Path) -> None:
    with noria.open(tmp_path / "data") as db:
        a = Connection(db)
        a.sql("CREATE TABLE t (id INT PRIMARY KEY, g INT, s VARCHAR(9), d DATE)")
        a.sql("INSERT INTO t VALUES (1, 1, 'b', NULL), (2, 1, 'a', '2024-01-01'), (3, 2, NULL, NULL)")
        query = "SELECT g, ANY_VALUE(s) AS s, ANY_VALUE(d) AS d, COUNT(*) AS n FROM t GROUP BY g"
        a.sql(f"CREATE VIEW v AS {query}")
        for change in ("DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (4, 2, 'z', NULL)", "UPDATE t SET g = 2"):
            one_shot = a.rows(f"{query} HAVING n > 0 ORDER BY g")
            assert a.rows("SELECT * FROM v ORDER BY g") == one_shot
            for g, s, _, _ in one_shot:
                assert (s,) in a.rows(f"SELECT s FROM t WHERE g = {g}") or s is None
            a.sql(change)
