"""Writers whose every acknowledged statement the model knows, and readers of every kind.

A writer changes only rows of its own, so it knows at any moment what the views hold for it, and reads them back over
MySQL (text and prepared), HTTP and attached shared memory.  A reader reads keys of everybody and checks what holds of
any state.

Keeps true: an answer is judged at once; an error is a failure unless the fault that is on permits it; a statement that
was answered with an error has not been applied; one without an answer is settled before the writer's next one: a
mark of the same writer, acknowledged over a new connection, comes after whatever was before it.
"""

from __future__ import annotations

import random
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import mysql.connector
import pymysql
from mysql.connector.constants import ClientFlag
from pymysql.constants import CLIENT

import noria
from chaos.proxy import Proxy
from chaos.workload.journal import Journal
from chaos.workload.places import places
from e2e.crash_model import (
    DUPLICATE,
    IDS,
    MOST_OWNERS,
    OWNED,
    VIEWS,
    Model,
    Statement,
    Writer,
    keys_of,
)
from e2e.serving import Served, execute, rows
from noria.core.errors import SqlError

PATIENCE_S = 400  # nobody waits longer for an answer or a connection; a JVM alone takes minutes on a busy machine
LOST = frozenset({2002, 2003, 2006, 2013, 2014, 2055, 1053, 1040, 1077, 1152, 1158, 1160})
NOTHING = 0  # the number of an error that has none: a broken connection
CONVERGE_S = 60  # what other sessions wrote, over several workers, is seen by then
MARKS = ("CREATE TABLE marks (place INT PRIMARY KEY, n BIGINT NOT NULL)",
         "CREATE TABLE turns (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, UNIQUE (n))")
_LITERAL = re.compile(r"'[^']*'|\b\d+\b")


@dataclass(frozen=True)
class Permit:
    """What clients may see while a fault is on: error numbers, lost connections, and over HTTP that the worker is
    away."""

    numbers: frozenset[int] = frozenset()
    lost: bool = False
    away: bool = False


class Failure(AssertionError):
    """The server did what it must not."""


class Away(Exception):
    """An error that is permitted now.  number: of MySQL's, NOTHING for a lost connection."""

    def __init__(self, number: int, text: str):
        super().__init__(f"{number}: {text}")
        self.number = number


@dataclass
class World:
    """What all clients share."""

    server: Served
    seed: int
    journal: Journal
    directory: Path
    workers: int = 1
    fronts: int = 1
    model: Model = field(default_factory=Model)
    permit: Permit = Permit()
    faults: int = 0  # so far
    lost_until: int = 0  # connections of that fault or before it may turn out to be lost
    lock: threading.Lock = field(default_factory=threading.Lock)
    stop: threading.Event = field(default_factory=threading.Event)
    running: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)
    tolerated: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.proxy = Proxy(lambda: self.server.mysql_port)

    def acknowledged(self) -> int:
        return self.journal.counts["acknowledged"]

    def judge(self, who: str, way: Way, error: Exception, what: str, permit: Permit) -> Away:
        """The error as `Away` if it is permitted, now or when the question was asked; a failure else."""
        number, text = number_of(error), str(error)
        lost = number in LOST or (number == NOTHING and is_of_a_line(error))
        for allowed in (permit, self.permit):
            gone = allowed.lost or way.since <= self.lost_until or (allowed.away and is_http(error))
            if (lost and gone) or number in allowed.numbers:
                self.tolerated[f"{number} {type(error).__name__}"] += 1
                self.journal(who, "tolerated", number=number, text=text[:300], statement=what[:300])
                return Away(number, text)
        raise Failure(f"{who}: {error!r} for {what[:500]} while only {self.permit} is permitted") from error


def number_of(error: Exception) -> int:
    if isinstance(error, SqlError):
        return error.code
    if isinstance(error, mysql.connector.Error):
        return int(error.errno) if error.errno and error.errno > 0 else NOTHING
    if isinstance(error, pymysql.err.MySQLError) and error.args and isinstance(error.args[0], int):
        return int(error.args[0])
    return NOTHING


def is_of_a_line(error: Exception) -> bool:
    """An error of a connection, or one that a driver met at the end of one; not of our own code."""
    if isinstance(error, (OSError, EOFError, pymysql.err.MySQLError, mysql.connector.Error)):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "site-packages" in frames[-1].filename


def is_http(error: Exception) -> bool:
    return isinstance(error, (ConnectionError, SqlError))


def plain(found: Any) -> Counter[Any]:
    """Rows as a bag; sums come as decimals."""
    return Counter(tuple(int(v) if isinstance(v, Decimal) else v for v in r) for r in found)


def with_parameters(text: str) -> tuple[str, tuple[Any, ...]]:
    """The same statement with its literals as parameters."""
    found = _LITERAL.findall(text)
    return _LITERAL.sub("?", text), tuple(v[1:-1] if v[0] == "'" else int(v) for v in found)


# ---------------------------------------------------------------- ways to ask
class Way:
    """One kind of client, connected when it is needed."""

    def __init__(self, world: World, straight: bool = False):
        self._world, self._straight = world, straight
        self._open: Any = None
        self.since = 0  # the number of faults when it was connected

    def execute(self, text: str) -> int:
        """Affected rows, matched ones of an UPDATE."""
        raise NotImplementedError

    def rows(self, text: str) -> list[Any]:
        raise NotImplementedError

    def lookup(self, view: str, query: str, key: tuple[Any, ...]) -> list[Any]:
        """The rows of a key of a view, whose query is given too."""
        return self.rows(bound(query, key))

    def number(self) -> int:
        return 0

    @property
    def connection(self) -> object:
        """The one that is open."""
        return self._open

    def close(self) -> None:
        one, self._open = self._open, None
        if one is not None:
            try:
                one.close()
            except Exception:  # it was lost
                return

    @property
    def _port(self) -> int:
        return self._world.server.mysql_port if self._straight else self._world.proxy.port


class Text(Way):
    def _connection(self) -> Any:
        if self._open is None:
            self.since = self._world.faults
            self._open = pymysql.connect(host="127.0.0.1", port=self._port, user="root", autocommit=True,
                                         client_flag=CLIENT.FOUND_ROWS, read_timeout=PATIENCE_S, ssl_disabled=True,
                                         write_timeout=PATIENCE_S, connect_timeout=PATIENCE_S)
        return self._open

    def execute(self, text: str) -> int:
        return execute(self._connection(), text)

    def rows(self, text: str) -> list[Any]:
        return rows(self._connection(), text)

    def number(self) -> int:
        return 0 if self._open is None else int(self._open.thread_id())


class Prepared(Way):
    def _cursor(self) -> Any:
        if self._open is None:
            self.since = self._world.faults
            self._open = mysql.connector.connect(host="127.0.0.1", port=self._port, user="root", autocommit=True,
                                                 use_pure=True, client_flags=[ClientFlag.FOUND_ROWS],
                                                 connection_timeout=PATIENCE_S)
        return self._open.cursor(prepared=True)

    def execute(self, text: str) -> int:
        with closing(self._cursor()) as cursor:
            cursor.execute(*with_parameters(text))
            return int(cursor.rowcount)

    def rows(self, text: str) -> list[Any]:
        with closing(self._cursor()) as cursor:
            cursor.execute(*with_parameters(text))
            return list(cursor.fetchall())

    def number(self) -> int:
        return 0 if self._open is None else int(self._open.connection_id)


class Http(Way):
    def _database(self) -> Any:
        if self._open is None:
            self.since = self._world.faults
            self._open = noria.connect(self._world.server.url)
        return self._open

    def execute(self, text: str) -> int:
        return int(self._database().sql(text).affected)

    def rows(self, text: str) -> list[Any]:
        return list(self._database().sql(text))

    def lookup(self, view: str, query: str, key: tuple[Any, ...]) -> list[Any]:
        return list(self._database().view(view).lookup(key))


class Attached(Http):
    """Shared memory, and HTTP for what is missing there."""

    def __init__(self, world: World, straight: bool = False):
        super().__init__(world, straight)
        self._views: dict[str, Any] = {}

    def lookup(self, view: str, query: str, key: tuple[Any, ...]) -> list[Any]:
        found = self._views.get(view)
        if found is None:
            found = self._views[view] = self._database().view(view).attach()
        return list(found.lookup(key))

    def close(self) -> None:
        self._views.clear()
        super().close()


def bound(query: str, key: tuple[Any, ...]) -> str:
    for value in key:
        query = query.replace("?", f"'{value}'" if isinstance(value, str) else str(value), 1)
    return query


# ---------------------------------------------------------------- threads
class Client(threading.Thread):
    """Runs while the world runs, and parks when it is paused."""

    def __init__(self, world: World, name: str):
        super().__init__(name=name, daemon=True)
        self.world, self.parked, self.done = world, threading.Event(), 0
        self.chance = random.Random(f"{world.seed} {name}")
        self.slowest_s = 0.0

    def run(self) -> None:
        world = self.world
        try:
            while not world.stop.is_set() and not world.failures:
                if not world.running.is_set():
                    self.parked.set()
                    world.running.wait(0.5)
                    continue
                self.parked.clear()
                began = time.monotonic()
                self.turn()
                self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                self.done += 1
        except BaseException as e:
            world.failures.append(e)
        finally:
            self.parked.set()

    def turn(self) -> None:
        raise NotImplementedError

    def patiently(self, what: str, way: Way, act: Callable[[], Any]) -> Any:
        """Again and again while errors are permitted."""
        end = time.monotonic() + PATIENCE_S
        while True:
            permit = self.world.permit
            try:
                return act()
            except (AssertionError, KeyboardInterrupt):
                raise
            except Exception as e:
                self.world.judge(self.name, way, e, what, permit)
                way.close()
            if time.monotonic() > end or self.world.stop.is_set():
                raise Failure(f"{self.name}: not within {PATIENCE_S} s: {what}")
            self.world.stop.wait(0.05)


class Writes(Client):
    """Random statements on rows of its own."""

    def __init__(self, world: World, owner: int):
        super().__init__(world, f"writer {owner}")
        self.owner = owner
        self._statements = Writer(owner, random.Random(f"{world.seed} statements {owner}"))
        self.way: Way = Prepared(world) if owner % 2 else Text(world)
        self._readers = (self.way, Text(world), Http(world), Attached(world))
        self._marks, self._places = 0, places(1_000 * owner, world.workers)
        self._over: object = None  # the connection that had the last answer

    def turn(self) -> None:
        self._write(self._statements.statement())
        if self.chance.random() < 0.25:
            self._read_back()

    def _write(self, statement: Statement) -> None:
        permit = self.world.permit
        try:
            affected: int | None = self.way.execute(statement.text)
        except AssertionError:
            raise
        except Exception as e:
            if number_of(e) != DUPLICATE:
                self._without_answer(statement, e, permit)
                return
            affected = None
        with self.world.lock:
            want = self.world.model.apply(statement)
        self._over = self.way.connection
        self.world.journal(self.name, "acknowledged", affected=affected, statement=statement.text)
        if affected != want:
            raise Failure(f"{self.name}: {affected} rows affected, the model says {want}: {statement.text}")

    def _without_answer(self, statement: Statement, error: Exception, permit: Permit) -> None:
        number = self.world.judge(self.name, self.way, error, statement.text, permit).number
        if number == NOTHING or number in LOST:
            self.way.close()
        found = self.patiently("settle " + statement.text, self.way, self._settle)
        with self.world.lock:
            model = self.world.model
            without, whole = model.of(self.owner), model.would_be(statement, self.owner)
            if found not in (without, whole):
                raise Failure(f"{self.name}: neither with nor without {statement.text} ({error!r})\n"
                              f"found: {found}\nwithout: {without}\nwith: {whole}")
            applied = found != without
            if applied:
                model.apply(statement)
        what = "refused" if number != NOTHING and number not in LOST else "unanswered"
        self.world.journal(self.name, f"{what}, {'applied' if applied else 'not applied'}", number=number,
                           statement=statement.text)
        if what == "refused" and applied and "read back" not in str(error):
            raise Failure(f"{self.name}: applied, though answered with {error!r}: {statement.text}")

    def _settle(self) -> dict[str, Counter[Any]]:
        """The tables, after all that was sent before: what waits at any worker comes before a statement of all of them,
        and INSERTs that all workers are asked for go in their order."""
        self._marks += 1
        if self.world.workers > 1:
            number = self._marks * MOST_OWNERS + self.owner
            self.way.execute(f"INSERT INTO turns VALUES ({number}, {number})")
        self.way.execute(f"REPLACE INTO marks VALUES {', '.join(f'({p}, {self._marks})' for p in self._places)}")
        return {t: plain(self.way.rows(f"SELECT * FROM {t} WHERE owner = {self.owner}")) for t in OWNED}

    def _read_back(self) -> None:
        """What nobody else changes must be as the model says, whoever is asked: at once, or of several workers, by
        another session than wrote it, soon."""
        name = self.chance.choice(("lefts", "tags", "coded"))
        way, query = self.chance.choice(self._readers), VIEWS[name][0]
        end = time.monotonic() + CONVERGE_S
        while (found := self._found(way, name, query)) is not None:
            with self.world.lock:
                want = self.world.model.rows(bound(query, (self.owner,)))
            if found == want:
                self.world.journal.counts["read back"] += 1
                return
            own = way is self.way and way.connection is self._over
            if self.world.workers == 1 or own or time.monotonic() > end:
                raise Failure(f"{self.name}: {name} by {type(way).__name__} ({'own' if own else 'another'} session) is "
                              f"not what was acknowledged\ntoo much: {found - want}\nmissing: {want - found}")
            self.world.journal.counts["read back later"] += 1
            self.world.stop.wait(0.01)

    def _found(self, way: Way, name: str, query: str) -> Counter[Any] | None:
        permit = self.world.permit
        try:
            return plain(way.lookup(name, query, (self.owner,)))
        except AssertionError:
            raise
        except Exception as e:
            self.world.judge(self.name, way, e, f"{type(way).__name__} {name}", permit)
            way.close()
            return None


class Reads(Client):
    """Keys of everybody, in one way."""

    def __init__(self, world: World, way: Way):
        super().__init__(world, f"reader {type(way).__name__}")
        self._way = way

    def turn(self) -> None:
        name = self.chance.choice(list(VIEWS))
        keys = keys_of(MOST_OWNERS)
        key = tuple(self.chance.choice(keys[column]) for column in VIEWS[name][1])
        permit = self.world.permit
        try:
            found = self._way.lookup(name, VIEWS[name][0] if key else f"SELECT * FROM {name}", key)
        except AssertionError:
            raise
        except Exception as e:
            self.world.judge(self.name, self._way, e, f"{name} {key}", permit)
            self._way.close()
            self.world.stop.wait(0.05)
            return
        if not holds(name, key, found):
            raise Failure(f"{self.name}: {name} for {key} can never be {found}")
        self.world.journal.counts["read"] += 1
        self.world.stop.wait(0.002)


def holds(name: str, key: tuple[Any, ...], found: list[Any]) -> bool:
    """What is true of these rows whatever the tables hold: above all, that they are rows of this key."""
    if name == "by_tag":
        return all(r[3] == key[0] for r in found) and len({r[:2] for r in found}) == len(found)
    if name == "totals":
        return all(r[3] <= r[4] and r[1] * r[3] <= r[2] <= r[1] * r[4] for r in found) and _distinct(found)
    if name == "tags":
        return all(0 <= r[3] < IDS and r[1] >= 1 for r in found) and _distinct(found)
    if name == "joined":
        return all(r[1] == key[0] for r in found)
    if name == "by_code":
        return all(r[2] == key[0] for r in found)
    return True if name == "lefts" else _distinct(found)


def _distinct(found: list[Any]) -> bool:
    """One row for each group."""
    return len({r[0] for r in found}) == len(found)
