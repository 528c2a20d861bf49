"""Statements and clients of a real server that run on threads of their own while the test goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pymysql

from e2e.serving import Served, execute


def patient(served: Served) -> Any:
    """A connection that waits for first states as long as a busy machine needs after a crash."""
    return served.connect(init_command="SET max_execution_time = 270000", read_timeout=280)


class Statement(threading.Thread):
    """One statement on a connection of its own, under way until `outcome`."""

    def __init__(self, served: Served, text: str):
        super().__init__()
        self.connection = patient(served)
        self.number = self.connection.thread_id()
        self.error: BaseException | None = None
        self.text = text
        self.start()

    def run(self) -> None:
        try:
            execute(self.connection, self.text)
        except pymysql.err.MySQLError as e:
            self.error = e

    def outcome(self) -> BaseException | None:
        self.join(120)
        assert not self.is_alive()
        self.connection.close()
        return self.error


@contextmanager
def clients(served: Served, *works: Callable[[Any, int], object]) -> Iterator[None]:
    """Each does its work again and again, on a connection of its own; none of it fails."""
    done, failures = threading.Event(), []

    def client(work: Callable[[Any, int], object]) -> None:
        with served.connect() as c:
            for n in range(100_000):
                if done.is_set():
                    return
                try:
                    work(c, n)
                except pymysql.err.MySQLError as e:
                    failures.append(e)

    threads = [threading.Thread(target=client, args=(work,)) for work in works]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        done.set()
        for t in threads:
            t.join()
    assert failures == []
