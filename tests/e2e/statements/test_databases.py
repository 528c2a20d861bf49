"""Several databases over MySQL's protocol: USE, kept replies, prepared statements, front ends, restarts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
import pytest

from e2e.local import LocalServer
from e2e.statements.asking import code, rows


def connected(server: LocalServer, database: str | None) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.mysql.address[1], user="root", database=database,
                           ssl_disabled=True, autocommit=True)


@pytest.mark.parametrize("front_ends", [1, 2])
def test_two_databases(tmp_path: Path, front_ends: int) -> None:
    server = LocalServer(tmp_path / "data", front_ends=front_ends)
    try:
        with server.connect() as c:
            rows(c, "CREATE DATABASE shop CHARACTER SET utf8mb4")
            rows(c, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
            rows(c, "INSERT INTO t VALUES (1, 10)")
            c.select_db("shop")
            rows(c, "CREATE TABLE t (id INT PRIMARY KEY, n INT)")
            rows(c, "INSERT INTO t VALUES (1, 100)")
            assert rows(c, "SELECT DATABASE()") == [("shop",)]
            assert rows(c, "SHOW TABLES IN noria") == [("t",)]
        the_same_texts(server)
        prepared(server)
        dropped(server)
    finally:
        server.close()
    server = LocalServer(tmp_path / "data", front_ends=front_ends)
    try:
        with connected(server, "shop") as c:
            assert rows(c, "SELECT n FROM t WHERE id = 1") == [(100,)]
            assert rows(c, "SHOW DATABASES") == [("noria",), ("shop",)]
    finally:
        server.close()


def the_same_texts(server: LocalServer) -> None:
    """Kept replies and learnt statements of one database never answer in another."""
    here, shop = connected(server, None), connected(server, "Shop")
    with here, shop:
        for _ in range(6):
            assert rows(here, "SELECT n FROM t WHERE id = 1") == [(10,)]
            assert rows(shop, "SELECT n FROM t WHERE id = 1") == [(100,)]
            assert rows(shop, "SELECT n FROM noria.t WHERE id = 1") == [(10,)]
        for _ in range(3):
            here.select_db("shop")
            assert rows(here, "SELECT n FROM t WHERE id = 1") == [(100,)]
            rows(here, "USE noria")
            assert rows(here, "SELECT n FROM t WHERE id = 1") == [(10,)]
        with pytest.raises(pymysql.err.OperationalError) as e:
            here.select_db("nix")
        assert e.value.args[0] == 1049
        assert rows(here, "SELECT DATABASE()") == [("noria",)]
        with pytest.raises(pymysql.err.OperationalError) as e:
            connected(server, "nix")
        assert e.value.args[0] == 1049


def prepared(server: LocalServer) -> None:
    """A statement keeps the database in which it was prepared."""
    with mysql.connector.connect(host="127.0.0.1", port=server.mysql.address[1], user="root", ssl_disabled=True) as c:
        cursor = c.cursor(prepared=True)
        for _ in range(3):
            cursor.execute("SELECT n FROM t WHERE id = ?", (1,))
            assert cursor.fetchall() == [(10,)]
        other = c.cursor(prepared=True)
        c.database = "shop"
        for _ in range(3):
            other.execute("SELECT n FROM t WHERE id = ?", (1,))
            assert other.fetchall() == [(100,)]
            cursor.execute("SELECT n FROM t WHERE id = ?", (1,))
            assert cursor.fetchall() == [(10,)]


def dropped(server: LocalServer) -> None:
    with connected(server, None) as a, connected(server, "shop") as b:
        rows(a, "CREATE DATABASE gone")
        rows(a, "CREATE TABLE gone.t (id INT PRIMARY KEY, n INT)")
        b.select_db("gone")
        rows(b, "INSERT INTO t VALUES (1, 7)")
        for _ in range(4):
            assert rows(b, "SELECT n FROM t WHERE id = 1") == [(7,)]
        rows(a, "USE gone")
        rows(a, "DROP DATABASE gone")
        assert code(b, "SELECT n FROM t WHERE id = 1") == 1049 and code(a, "SELECT n FROM t WHERE id = 1") == 1046
        assert rows(a, "SELECT DATABASE()") == [(None,)] and rows(a, "SELECT n FROM shop.t") == [(100,)]
