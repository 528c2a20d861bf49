"""Views that are defined anew while readers of every kind read them.

A random program replaces a view, or drops and creates it, with another key, type of key, columns, order and limit; the
table under it stays as it is.  Keeps true: each answer is that of a definition that was in force between the reader's
question and its answer; after the last change every reader gives the last one's.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import mysql.connector
import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest
from mysql.connector import Error as ConnectorError

import noria
from e2e.local import LocalServer
from e2e.serving import Served
from noria.client import Database
from noria.core.errors import SqlError

# No value of a column equals one of another.
COLUMNS = ("i", "s", "m", "d", "b")
ROWS = [(n, f"s{n % 7}", Decimal(7 * (n % 9) + 7) / 100, (n % 5) + 1000.5, 10**12 + n % 11) for n in range(1, 41)]
TABLE = "CREATE TABLE a (i INT PRIMARY KEY, s VARCHAR(20), m DECIMAL(6,2), d DOUBLE, b BIGINT)"
WRONG_SQL = (SqlError, pymysql.Error, ConnectorError)


@dataclass(frozen=True)
class Definition:
    """None of a key: there is no view."""

    key: str
    columns: tuple[str, ...]
    order: tuple[str, bool] | None = None
    limit: int | None = None

    @staticmethod
    def draw(random: random.Random) -> Definition:
        columns = random.sample(COLUMNS, random.randint(2, 5))
        key = random.choice(columns)
        order = (random.choice(columns), random.random() < 0.5) if random.random() < 0.5 else None
        return Definition(key, tuple(columns), order, random.choice([None, 2]) if order else None)

    def text(self, verb: str) -> str:
        order = f" ORDER BY {self.order[0]}{' DESC' * self.order[1]}" if self.order else ""
        limit = f" LIMIT {self.limit}" if self.limit else ""
        return f"{verb} VIEW v AS SELECT {', '.join(self.columns)} FROM a WHERE {self.key} = ?{order}{limit}"

    def agrees(self, answer: Any, column: str, value: Any, ordered: bool) -> bool:
        """Can this be the answer to a lookup of a value of a column?  A SELECT from the view need not be ordered."""
        if isinstance(answer, Exception):
            return column != self.key  # a value of another type, or a column that is not there
        if column != self.key:
            return not answer or self.limit is not None or column in self.columns
        rows = [tuple(r[COLUMNS.index(c)] for c in self.columns) for r in ROWS if r[COLUMNS.index(column)] == value]
        if self.limit is not None:
            at = self.columns.index(self.order[0])
            wanted = sorted(rows, key=lambda r: r[at], reverse=self.order[1])[:self.limit]
            if not all(r in rows for r in answer) or sorted(r[at] for r in answer) != sorted(r[at] for r in wanted):
                return False
        elif sorted(answer) != sorted(rows):
            return False
        if not ordered or self.order is None:
            return True
        by = [r[self.columns.index(self.order[0])] for r in answer]
        return by == sorted(by, reverse=self.order[1])


class Gone:
    """Between DROP and CREATE."""

    def agrees(self, answer: Any, column: str, value: Any, ordered: bool) -> bool:
        return isinstance(answer, Exception)


class History:
    """What was in force when: a change is in force from when it is begun, the one before until it is done."""

    def __init__(self, first: Definition):
        self.spans: list[tuple[float, float, Any]] = [(0.0, float("inf"), first)]
        self.last = first

    @contextlib.contextmanager
    def change(self, to: Any) -> Iterator[None]:
        self.spans.append((time.monotonic(), float("inf"), to))
        yield
        start, _, was = self.spans[-2]
        self.spans[-2] = (start, time.monotonic(), was)
        self.last = to

    def between(self, start: float, end: float) -> list[Any]:
        return [d for since, until, d in list(self.spans) if since <= end and until >= start]


Read = Callable[[str, Any], list[tuple[Any, ...]]]


class Readers:
    """Every way to read, on threads of their own."""

    def __init__(self, connect: Callable[[], Any], connector: Callable[[], Any], database: Callable[[], Database]):
        self.connect, self.connector, self.database = connect, connector, database
        self.wrong: list[str] = []
        self.answers = 0
        self.held: list[Any] = []
        self.stop = threading.Event()

    def kinds(self) -> dict[str, Callable[[], Read]]:
        return {"text": self._text, "prepared": self._prepared, "table": self._table, "api": self._api,
                "api many": self._api_many, "attached": self._attached, "attached many": self._attached_many}

    def _text(self) -> Read:
        cursor = self.connect().cursor()

        def read(column: str, value: Any) -> list[tuple[Any, ...]]:
            cursor.execute(f"SELECT * FROM v WHERE {column} = {_literal(value)}")
            return list(cursor.fetchall())

        return read

    def _prepared(self) -> Read:
        connection = self.connector()
        self.held.append(connection)  # its cursors do not hold it
        cursors = {c: connection.cursor(prepared=True) for c in COLUMNS}

        def read(column: str, value: Any) -> list[tuple[Any, ...]]:
            cursors[column].execute(f"SELECT * FROM v WHERE {column} = ?", (value,))
            return list(cursors[column].fetchall())

        return read

    def _table(self) -> Read:
        """A SELECT from the table, which the view answers while it holds its rows: never another answer."""
        cursor = self.connect().cursor()

        def read(column: str, value: Any) -> list[tuple[Any, ...]]:
            cursor.execute(f"SELECT i, s, m, d, b FROM a WHERE {column} = {_literal(value)}")
            return list(cursor.fetchall())

        return read

    def _api(self) -> Read:
        db = self.database()
        return lambda column, value: db.view("v").lookup(value)

    def _api_many(self) -> Read:
        db = self.database()
        return lambda column, value: _tuples(db.view("v").lookup_many([value]))

    def _attached(self) -> Read:
        view = self.database().view("v").attach()
        return lambda column, value: view.lookup(value)

    def _attached_many(self) -> Read:
        """Of more keys than the one whose rows are compared: they are at several workers."""
        view = self.database().view("v").attach()

        def read(column: str, value: Any) -> list[tuple[Any, ...]]:
            found = view.lookup_many([value, *(r[COLUMNS.index(column)] for r in ROWS[:6])])
            return _tuples(found.filter(pc.equal(found["__key"], 0)))

        return read

    def run(self, kind: str, history: History, seed: int) -> threading.Thread:
        read, chance = self.kinds()[kind](), random.Random(seed)

        def loop() -> None:
            while not self.stop.is_set():
                self.ask(kind, read, history, chance)

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    def ask(self, kind: str, read: Read, history: History, chance: random.Random, column: str | None = None) -> None:
        last = history.last
        asked = column or (last.key if isinstance(last, Definition) and chance.random() < 0.8
                           else chance.choice(COLUMNS))
        value = chance.choice(ROWS)[COLUMNS.index(asked)]
        start = time.monotonic()
        answer: Any
        try:
            answer = read(asked, value)
        except WRONG_SQL as e:
            answer = e
        except Exception as e:
            self.wrong.append(f"{kind} of {asked} = {value}: {e!r}")
            return
        end = time.monotonic()
        allowed: list[Any] = history.between(start, end)
        if kind == "table":
            allowed = [Definition(asked, COLUMNS)]
        self.answers += 1
        ordered = kind not in ("text", "prepared", "table")
        if not any(d.agrees(answer, asked, value, ordered) for d in allowed):
            self.wrong.append(f"{kind} of {asked} = {value}: {answer!r}, where one of {allowed} was in force")


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*(c.to_pylist() for c in table.drop_columns("__key").columns), strict=True))


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value)


def play(readers: Readers, seed: int, changes: int) -> None:
    chance = random.Random(seed)
    admin = readers.connect().cursor()
    admin.execute(TABLE)
    admin.execute("INSERT INTO a VALUES " + ", ".join(str((i, s, float(m), d, b)) for i, s, m, d, b in ROWS))
    history = History(Definition.draw(chance))
    admin.execute(history.last.text("CREATE"))
    threads = [readers.run(kind, history, seed + n) for n, kind in enumerate(readers.kinds())]
    try:
        for _ in range(changes):
            threading.Event().wait(chance.choice([0, 0.002, 0.02]))  # readers come at every moment of a change
            to = Definition.draw(chance)
            if chance.random() < 0.3:
                with history.change(Gone()):
                    admin.execute("DROP VIEW v")
                with history.change(to):
                    admin.execute(to.text("CREATE"))
            else:
                with history.change(to):
                    admin.execute(to.text("CREATE OR REPLACE"))
            if readers.wrong:
                break
    finally:
        readers.stop.set()
        for thread in threads:
            thread.join()
    for kind, reader in readers.kinds().items():
        read = reader()
        for _ in range(20):
            readers.ask(kind, read, history, chance, history.last.key)
    assert not readers.wrong, f"seed {seed}: " + "\n".join(readers.wrong[:5])
    assert readers.answers > 10 * changes


@pytest.mark.parametrize("seed", range(2))
def test_every_answer_is_of_a_definition_that_was_in_force(tmp_path: Path, seed: int) -> None:
    server = LocalServer(tmp_path / "data")
    try:
        play(Readers(server.connect, server.connector, lambda: Database(server.embedded)), seed, 40)
    finally:
        server.close()


@pytest.mark.long
@pytest.mark.spark
def test_across_processes_too(tmp_path: Path) -> None:
    server = Served(tmp_path / "data")
    try:
        play(Readers(server.connect, lambda: mysql.connector.connect(
            host="127.0.0.1", port=server.mysql_port, user="root", autocommit=True, use_pure=True, ssl_disabled=True),
            lambda: noria.connect(server.url)), 7, 100)
    finally:
        server.close()


@pytest.mark.parametrize("key", ["m", "d", "s"])
@pytest.mark.parametrize("verb", ["CREATE OR REPLACE", "DROP"])
def test_a_view_whose_key_changes_its_type_answers(tmp_path: Path, key: str, verb: str) -> None:
    with noria.open(tmp_path / "data") as db:
        db.sql(TABLE)
        db.table("a").insert(ROWS)
        db.sql("CREATE VIEW v AS SELECT i, s, m, d FROM a WHERE i = ?")
        shared = db.view("v").attach()
        assert db.view("v").lookup(1) == shared.lookup(1) == db.sql("SELECT * FROM v WHERE i = 1").rows
        if verb == "DROP":
            db.sql("DROP VIEW v")
            verb = "CREATE"
        db.sql(f"{verb} VIEW v AS SELECT i, s, m, d FROM a WHERE {key} = ?")
        at = COLUMNS.index(key)
        rows = [r[:4] for r in ROWS if r[at] == ROWS[0][at]]
        value = ROWS[0][at]
        for found in (db.sql(f"SELECT * FROM v WHERE {key} = {_literal(value)}").rows,
                      db.sql(f"SELECT i, s, m, d FROM a WHERE {key} = {_literal(value)}").rows,
                      db.view("v").lookup(value), shared.lookup(value), _tuples(shared.lookup_many([value])),
                      db.view("v").attach().lookup(value)):
            assert sorted(found) == rows


def test_a_kept_reply_goes_with_the_meaning_of_its_text(tmp_path: Path) -> None:
    """Another view answered it, which is still there."""
    server = LocalServer(tmp_path / "data")
    try:
        cursor = server.connect().cursor()
        cursor.execute(TABLE)
        cursor.execute("INSERT INTO a VALUES (1, 's1', 0.07, 1.5, 2)")
        for columns, row in (("i, m", (1, Decimal("0.07"))), ("s, m", ("s1", Decimal("0.07")))):
            cursor.execute(f"CREATE OR REPLACE VIEW v AS SELECT {columns} FROM a WHERE i = ?".replace(
                "s, m FROM a WHERE i", "s, m FROM a WHERE s"))
            for _ in range(4):
                cursor.execute("SELECT * FROM v WHERE m = 0.07")
                assert list(cursor.fetchall()) == [row]
    finally:
        server.close()
