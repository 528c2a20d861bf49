"""Histories of real servers without faults: each keeps its levels, and READ COMMITTED does not keep REPEATABLE READ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from chaos.transactions.registers import CLIENTS, MADE, RegisterClient, Registers
from chaos.workload.clients import Text, World
from chaos.workload.journal import Journal
from e2e.local import LocalServer
from e2e.mariadb import INSTALLED, MariaDb
from e2e.serving import execute, until
from histories.history import History
from histories.levels import READ_COMMITTED, REPEATABLE_READ, broken, seen

TRANSACTIONS = 400


class Direct(Text):
    """A client of a server in this process, or on a socket."""

    def __init__(self, world: World, connect: Callable[[], Any]):
        super().__init__(world)
        self._connect = connect

    def _connection(self) -> Any:
        if self._open is None:
            self._open = self._connect()
        return self._open


def recorded(connect: Callable[[], Any], directory: Path, views: bool = True, enough: int = TRANSACTIONS) -> History:
    """The history of some clients until they have done enough.  views: has the server views with parameters?"""
    directory.mkdir(exist_ok=True)
    journal = Journal(directory / "journal.jsonl")
    shared, world = Registers(), World(SimpleNamespace(mysql_port=0), 1, journal, directory)
    connection = connect()
    for text in MADE:
        execute(connection, text if views else text.replace(" WHERE k = ?", "").replace(" WHERE l.k = ?", ""))
    execute(connection, shared.rows())
    clients = [RegisterClient(world, shared, n) for n in range(CLIENTS)]
    for client in clients:
        client.way = Direct(world, connect)
        client.start()
    world.running.set()
    try:
        until("enough transactions", lambda: world.failures or sum(c.done for c in clients) > enough, 200)
    finally:
        world.stop.set()
        for client in clients:
            client.join(60)
        world.proxy.close()
    assert not world.failures, world.failures[0]
    return shared.history(connection)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_database_in_this_process(tmp_path: Path, workers: int) -> None:
    server = LocalServer(tmp_path / "data", workers=workers)

    def connect() -> Any:
        return pymysql.connect(host="127.0.0.1", port=server.mysql.address[1], user="root", autocommit=True,
                               client_flag=CLIENT.FOUND_ROWS, ssl_disabled=True)

    try:
        history = recorded(connect, tmp_path)
    finally:
        server.close()
    assert not [str(a) for a in broken(history, workers > 1)]
    assert seen(history)


@pytest.mark.mariadb
@pytest.mark.skipif(not INSTALLED, reason="Debian's MariaDB server is not installed")
def test_innodb(tmp_path: Path) -> None:
    """In some history READ COMMITTED is weaker; clients that rarely meet need a longer one."""
    for tries in range(6):
        place = tmp_path / str(tries)
        place.mkdir()
        server = MariaDb(place)
        try:
            history = recorded(server.connect, place / "history", views=False, enough=TRANSACTIONS << tries)
        finally:
            server.close()
        assert not [str(a) for a in broken(history)]
        stronger = [replace(t, level=REPEATABLE_READ) for t in history.transactions if t.level == READ_COMMITTED]
        others = [t for t in history.transactions if t.level != READ_COMMITTED]
        if broken(History(sorted([*stronger, *others], key=lambda t: t.number), history.final)):
            return
    raise AssertionError("READ COMMITTED kept REPEATABLE READ")
