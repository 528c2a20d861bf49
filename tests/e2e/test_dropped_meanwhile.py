"""Readers of a table that is dropped, made again and dropped see its rows or error 1146 of the table, nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pymysql

from e2e.local import LocalServer

ROUNDS = 25


def test_readers_are_told_of_the_table(tmp_path: Path) -> None:
    server, done, seen = LocalServer(tmp_path / "data"), threading.Event(), []

    def read(n: int) -> None:
        with server.connect() as c, c.cursor() as cursor:
            while not done.is_set():
                for text in (f"SELECT a FROM t WHERE id = {n}", f"SELECT a FROM t WHERE a + {n} > 0 AND id = 1",
                             "SELECT COUNT(*) FROM t", "SELECT a FROM v"):
                    try:
                        cursor.execute(text)
                        seen.append(cursor.fetchall())
                    except pymysql.err.MySQLError as e:
                        seen.append(e.args)

    readers = [threading.Thread(target=read, args=(n,)) for n in range(3)]
    with server.connect() as c, c.cursor() as cursor:
        for r in readers:
            r.start()
        for _ in range(ROUNDS):
            for text in ("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 1)",
                         "CREATE VIEW v AS SELECT a FROM t", "CREATE OR REPLACE VIEW v AS SELECT id AS a FROM t",
                         "DROP VIEW v", "DROP TABLE t"):
                cursor.execute(text)
        done.set()
        for r in readers:
            r.join()
    server.close()
    fine: list[Any] = [(), ((1,),), ((0,),), (1146, "Table 't' doesn't exist"), (1146, "Table 'v' doesn't exist")]
    assert [s for s in seen if s not in fine] == []
    assert len(seen) > ROUNDS
