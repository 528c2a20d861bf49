"""A real server that other hosts can reach: its first administrator, restarts, a front end that is killed."""

from __future__ import annotations

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pymysql
import pytest

from e2e.serving import Served, until

pytestmark = pytest.mark.spark


def connect(server: Served, user: str, password: str) -> Any:
    return pymysql.connect(host="127.0.0.1", port=server.mysql_port, user=user, password=password, autocommit=True,
                           ssl_disabled=True)


def answer(connection: Any, text: str) -> Any:
    with connection.cursor() as cursor:
        try:
            cursor.execute(text)
        except pymysql.err.MySQLError as e:
            return e.args[0]
        return list(cursor.fetchall())


def front_ends(server: Served) -> list[int]:
    with urllib.request.urlopen(f"{server.url}/health") as found:
        pids: list[int] = json.loads(found.read())["front_end_pids"]
        return pids if all(pids) else []


def test_the_first_administrator(tmp_path: Path) -> None:
    server = Served(tmp_path / "data", "--http-host", "0.0.0.0", "--front-ends", "2")
    password = server.password
    assert password is not None and len(password) >= 20
    assert password not in server.log()
    with pytest.raises(pymysql.err.OperationalError, match="1045"):
        connect(server, "root", "")
    root = connect(server, "root", password)
    for text in ("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)",
                 "CREATE USER app IDENTIFIED BY 'word'", "GRANT SELECT ON shop.* TO app"):
        assert answer(root, text) == []
    text = "SELECT id FROM shop.t WHERE id = 1"
    clients = [connect(server, "app", "word") for _ in range(6)]
    for app in clients * 3:
        assert answer(app, text) == [(1,)]
    killed = front_ends(server)[0]
    os.kill(killed, signal.SIGKILL)
    until("another front end serves", lambda: front_ends(server) and killed not in front_ends(server))
    clients = [connect(server, "app", "word") for _ in range(6)]
    for app in clients * 3:
        assert answer(app, text) == [(1,)]
    answer(connect(server, "root", password), "REVOKE SELECT ON shop.* FROM app")
    assert {answer(app, text) for app in clients} == {1142}, "at every front end, at once"
    server.stop()
    server.start()
    assert server.password is None, "it is printed once"
    assert answer(connect(server, "root", password), text) == [(1,)]
    assert answer(connect(server, "app", "word"), text) == 1142
    server.stop()
