"""Readers of a table that is dropped, made again and dropped see its rows or error 1146 of the table, nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.local import LocalServer
from noria.core.errors import SqlError, view_changed
from noria.runtime.routing.key_routing import KeyRoutes

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


def test_a_view_is_defined_anew_as_a_known_text_looks_for_its_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                                                                     ) -> None:
    """The statement is planned again."""
    changed: list[SqlError] = []
    server, owner = LocalServer(tmp_path / "data", workers=2), KeyRoutes.owner

    def once(*arguments: Any) -> int:
        if not changed:
            changed.append(view_changed("v"))
            raise changed[0]
        return owner(*arguments)

    with server.connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
        cursor.execute("INSERT INTO t VALUES (1, 1), (2, 4), (3, 9)")
        cursor.execute("CREATE VIEW v AS SELECT id, a FROM t WHERE id = ?")
        for n in (1, 3):
            cursor.execute(f"SELECT a FROM v WHERE id = {n}")
        monkeypatch.setattr(KeyRoutes, "owner", once)
        cursor.execute("SELECT a FROM v WHERE id = 2")
        assert cursor.fetchall() == ((4,),) and changed
    server.close()
