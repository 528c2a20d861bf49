"""Statements of several sessions, some of which wait in threads for others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pymysql
import pytest


def run(connection: Any, *statements: str) -> list[tuple[Any, ...]]:
    """The rows of the last statement."""
    rows: list[tuple[Any, ...]] = []
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
            rows = list(cursor.fetchall())
    return rows


def refused(connection: Any, statement: str) -> int:
    with pytest.raises(pymysql.MySQLError) as e:
        run(connection, statement)
    return int(e.value.args[0])


class Waiting:
    """A statement that runs in a thread, because it waits for others."""

    def __init__(self, connection: Any, statement: str):
        self.error: int | None = None
        self.rows: list[tuple[Any, ...]] = []
        self._thread = threading.Thread(target=self._run, args=(connection, statement))
        self._thread.start()

    def _run(self, connection: Any, statement: str) -> None:
        try:
            self.rows = run(connection, statement)
        except pymysql.MySQLError as e:
            self.error = int(e.args[0])

    def waits(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> int | None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        return self.error


def until(holds: Callable[[], bool]) -> None:
    """Ask again until it holds; each question is a round trip."""
    for _ in range(10_000):
        if holds():
            return
    raise AssertionError("it never held")


def cut(connection: Any) -> None:
    """End a connection as the loss of its client does."""
    connection._sock.shutdown(2)
