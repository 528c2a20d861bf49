"""Processes of a server are killed while clients write: every acknowledged statement is whole, every other
wholly there or not at all, and views agree with the tables (ACK-DURABLE, READER-CONVERGES).

A client whose server stays must not notice at all: a write that waits for the next worker is applied once.
`NORIA_CRASH_ROUNDS` kills of each kind: two by default, one in CI.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from e2e.crash_model import DUPLICATE, OWNED, TABLES, VIEWS, Model, Statement, Writer, keys_of
from e2e.serving import Served, described, execute, processes_with, rows, serving, until
from seeds import crash_rounds, seed

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]
ROUNDS = crash_rounds()
CLIENTS = 3
KINDS = (("worker",), ("jvm",), ("driver",), ("front",), ("worker", "jvm", "driver", "front"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    views = [f"CREATE VIEW {name} AS {query}" for name, (query, _) in VIEWS.items()]
    with serving(tmp_path_factory.mktemp("crashes") / "data", *TABLES, *views) as server:
        yield server


@dataclass
class Clients:
    """Three of them, each in a thread, until `stop`; a lock keeps the model to one of them at a time."""

    server: Served
    seed: int
    model: Model = field(default_factory=Model)
    acknowledged: int = 0
    unanswered: list[str] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._back = threading.Event()  # the server can be connected to
        self._writers = [Writer(i, random.Random(f"{self.seed} {i}")) for i in range(CLIENTS)]
        self.errors_expected = False
        self._threads: list[threading.Thread] = []

    def go(self) -> None:
        self._stop.clear()
        self._back.set()
        self._threads = [threading.Thread(target=self._run, args=(i, self._connect())) for i in range(CLIENTS)]
        for t in self._threads:
            t.start()

    def stop(self) -> None:
        """All of them have their last answer when this returns."""
        self._stop.set()
        self._back.set()
        for t in self._threads:
            t.join(180)
            assert not t.is_alive(), "a client waits for an answer that does not come"
        if self.failures:
            raise self.failures[0]

    def away(self) -> None:
        self._back.clear()

    def back(self) -> None:
        self._back.set()

    def after(self, statements: int) -> None:
        """Wait until so many more were acknowledged."""
        wanted = self.acknowledged + statements
        until(f"{statements} more statements are acknowledged",
              lambda: self.failures or self.acknowledged >= wanted, 180)
        if self.failures:
            raise self.failures[0]

    def _run(self, owner: int, connection: Any) -> None:
        try:
            while not self._stop.is_set():
                statement = self._writers[owner].statement()
                if not self._one(connection, statement):
                    connection = self._resume(owner, statement)
            connection.close()
        except BaseException as e:
            self.failures.append(e)

    def _connect(self) -> Any:
        return self.server.connect(client_flag=CLIENT.FOUND_ROWS)

    def _one(self, connection: Any, statement: Statement) -> bool:
        """Was it answered?"""
        try:
            got: int | None = execute(connection, statement.text)
        except pymysql.err.IntegrityError as e:
            assert e.args[0] == DUPLICATE, (e, statement)
            got = None
        except (pymysql.err.OperationalError, pymysql.err.InterfaceError, OSError) as e:
            assert self.errors_expected, f"the server was not killed, and yet: {e!r} for {statement.text}"
            return False
        with self._lock:
            want = self.model.apply(statement)
            self.acknowledged += 1
        assert got == want, f"{statement.text}: {got} rows affected, the model says {want}"
        return True

    def _resume(self, owner: int, statement: Statement) -> Any:
        """On the next server: was the statement without an answer applied?"""
        assert self._back.wait(240)
        connection = self._connect()
        found = tables_of(connection, owner)
        with self._lock:
            without, whole = self.model.of(owner), self.model.would_be(statement, owner)
            assert found in (without, whole), (
                f"neither with nor without {statement.text}\nfound: {found}\nwithout: {without}\nwith: {whole}")
            if found != without:
                self.model.apply(statement)
            self.unanswered.append("applied" if found != without else "not applied")
        return connection


def tables_of(connection: Any, owner: int) -> dict[str, Counter[Any]]:
    return {t: Counter(rows(connection, f"SELECT * FROM {t} WHERE owner = {owner}")) for t in OWNED}


def plain(found: list[tuple[Any, ...]]) -> Counter[Any]:
    """Sums come as decimals."""
    return Counter(tuple(int(v) if isinstance(v, Decimal) else v for v in r) for r in found)


def compare(server: Served, model: Model) -> None:
    """Base tables and every view at every key against the model, over MySQL."""
    keys = keys_of(CLIENTS)
    with server.connect() as connection:
        for table in OWNED:
            assert plain(rows(connection, f"SELECT * FROM {table}")) == model.rows(f"SELECT * FROM {table}"), table
        for name, (query, key) in VIEWS.items():
            if not key:
                assert plain(rows(connection, f"SELECT * FROM {name}")) == model.rows(query), name
                continue
            for value in keys[key[0]]:
                text = query.replace("?", f"'{value}'" if isinstance(value, str) else str(value))
                assert plain(rows(connection, text)) == model.rows(text), (name, value)


def test_kills_while_clients_write(served: Served, capfd: pytest.CaptureFixture[str]) -> None:
    number = seed("NORIA_CRASH_SEED")
    chance, clients = random.Random(number), Clients(served, number)
    clients.go()
    try:
        clients.after(30)
        rounds = [k for k in KINDS for _ in range(ROUNDS)]
        chance.shuffle(rounds)
        for victims in rounds:
            one_round(served, clients, chance, victims)
        clients.stop()
    except BaseException:
        with capfd.disabled():
            print(f"\nrepeat with NORIA_CRASH_SEED={number}")
        clients.stop()
        raise
    compare(served, clients.model)
    assert served.get("/health")["worker"] == "up"
    print(f"{clients.acknowledged} acknowledged; without an answer: {Counter(clients.unanswered)}")


def one_round(served: Served, clients: Clients, chance: random.Random, victims: tuple[str, ...]) -> None:
    clients.after(chance.randrange(1, 150))
    started = time.monotonic()
    if "front" in victims:
        clients.away()
        clients.errors_expected = True
        before = processes_with(served.tag)
        served.kill(*victims)
        try:
            until("what the dead server left ends by itself", lambda: not before & processes_with(served.tag), 60)
        except AssertionError as e:
            raise AssertionError(f"{e}; left: {described(before)}") from None
        served.start()
        clients.back()
    else:
        clients.errors_expected = False
        served.kill(*victims)
    clients.after(50)
    print(f"kill {'+'.join(victims)}: writes again after {time.monotonic() - started:.1f} s")
    clients.stop()
    clients.errors_expected = False
    compare(served, clients.model)
    clients.go()


def test_present_keys_are_read_while_the_worker_is_down(served: Served) -> None:
    served.wait_up()
    with served.connect() as connection:
        execute(connection, "REPLACE INTO items VALUES (90, 1, 'mine', 7)")
        text = "SELECT owner, id, n FROM by_tag WHERE tag = 'mine'"
        assert rows(connection, text) == [(90, 1, 7)]
        waiting = Later(served, "SELECT owner, id, n FROM by_tag WHERE tag = 'unread'")
        writing = Later(served, "INSERT INTO items VALUES (90, 2, 'mine', 8)")
        old = served.pid("worker")
        served.kill("jvm")
        until("the front end has noticed", lambda: served.health()["worker"] != "up", 10)
        writing.start()
        waiting.start()
        count, end, started = 0, False, time.monotonic()
        while not end:
            assert rows(connection, text) == [(90, 1, 7)] or served.health()["worker"] == "up"
            count += 1
            end = count % 20 == 0 and served.health()["worker"] == "up"
            assert time.monotonic() - started < 90
        down_s = time.monotonic() - started
        print(f"{count} reads in the {down_s:.1f} s without a worker")
        assert count > 100
        assert writing.result() == [] and waiting.result() == []
        assert served.pid("worker") != old
        assert sorted(rows(connection, text)) == [(90, 1, 7), (90, 2, 8)]


class Later(threading.Thread):
    """A statement in a thread of its own."""

    def __init__(self, server: Served, text: str):
        super().__init__(daemon=True)
        self._connection, self._text = server.connect(), text
        self._result: Any = None

    def run(self) -> None:
        try:
            execute(self._connection, "SET max_execution_time = 90000")  # Spark starts slowly on a busy machine
            self._result = rows(self._connection, self._text)
        except Exception as e:
            self._result = e
        self._connection.close()

    def result(self) -> Any:
        self.join(90)
        assert not self.is_alive()
        return self._result


def test_nothing_is_left_of_it(served: Served) -> None:
    served.stop()
