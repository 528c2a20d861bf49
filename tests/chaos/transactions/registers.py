"""Clients of registers, whose history the checker judges: lists are rows of `lists`, sets are the rows of a key in
`items`.  They read tables and views, plainly and FOR UPDATE, append, use savepoints and roll back.

Keeps true: between two checks no key is used that was used before the first one.  So a check needs only the
transactions since the last one, and the registers' final values, which are read while all clients pause.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from chaos.transactions.session import LEVELS, TransactionClient
from chaos.workload.clients import Failure, World
from e2e.serving import execute, rows
from histories.direct import Anomaly
from histories.history import (
    Append,
    History,
    Key,
    Operation,
    Outcome,
    Read,
    Transaction,
    Undo,
    list_key,
    set_key,
)
from histories.levels import broken, seen

MADE = (
    "CREATE TABLE lists (k INT PRIMARY KEY, v TEXT NOT NULL)",
    "CREATE TABLE items (value INT PRIMARY KEY, k INT NOT NULL, n INT NOT NULL, KEY (k))",
    "CREATE VIEW list_of AS SELECT k, v FROM lists WHERE k = ?",
    "CREATE VIEW set_of AS SELECT k, value FROM items WHERE k = ?",
    "CREATE VIEW sets AS SELECT k, GROUP_CONCAT(value ORDER BY value) AS vs, COUNT(*) AS c FROM items WHERE k = ?"
    " GROUP BY k",
    "CREATE VIEW both_of AS SELECT l.k AS k, l.v AS v, i.value AS value FROM lists l LEFT JOIN items i ON i.k = l.k"
    " WHERE l.k = ?",
)
KEYS, TURNS, EPOCHS = 4, 120, 100  # keys at a time, transactions with them, and how many such times between two checks
CLIENTS = 6


class Registers:
    """What all clients share: the history since the last check."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers, self._statements, self._values = itertools.count(1), itertools.count(1), itertools.count(1)
        self._done: list[Transaction] = []
        self._first, self._begun = 0, 0
        self.transactions = 0
        self.seen: dict[str, int] = {}

    def begin(self) -> tuple[int, range]:
        """A transaction's number, and its keys."""
        with self._lock:
            self._begun += 1
            at = self._first + min(self._begun // TURNS, EPOCHS - 1) * KEYS
            return next(self._numbers), range(at, at + KEYS)

    def value(self) -> int:
        return next(self._values)

    def statement(self) -> int:
        return next(self._statements)

    def add(self, transaction: Transaction) -> None:
        with self._lock:
            self._done.append(transaction)

    def rows(self) -> str:
        """The statement that makes the next keys."""
        return "INSERT INTO lists VALUES " + ", ".join(
            f"({k}, '')" for k in range(self._first, self._first + KEYS * EPOCHS))

    def next(self, connection: Any) -> None:
        """All keys are new from now on."""
        self._done, self._begun, self._first = [], 0, self._first + KEYS * EPOCHS
        for text in (f"DELETE FROM lists WHERE k < {self._first}", f"DELETE FROM items WHERE k < {self._first}",
                     self.rows()):
            execute(connection, text)

    def history(self, connection: Any) -> History:
        """The transactions so far, closed by what is there while nobody writes."""
        used = range(self._first, self._first + (min(self._begun // TURNS, EPOCHS - 1) + 1) * KEYS)
        lists = {k: values_of(v) for k, v in rows(connection, "SELECT k, v FROM lists") if k in used}
        sets: dict[int, list[int]] = {k: [] for k in used}
        for k, value in rows(connection, "SELECT k, value FROM items ORDER BY value"):
            if k in used:
                sets[k].append(value)
        self._views(connection, lists, sets)
        final: dict[Key, tuple[int, ...]] = {list_key(f"list {k}"): v for k, v in lists.items()}
        final |= {set_key(f"set {k}"): tuple(v) for k, v in sets.items()}
        return History(sorted(self._done, key=lambda t: t.number), final)

    @staticmethod
    def _views(connection: Any, lists: dict[int, tuple[int, ...]], sets: dict[int, list[int]]) -> None:
        for k, want in lists.items():
            [(_, v)] = rows(connection, f"SELECT k, v FROM list_of WHERE k = {k}")
            both = rows(connection, f"SELECT v, value FROM both_of WHERE k = {k}")
            found = rows(connection, f"SELECT vs, c FROM sets WHERE k = {k}")
            of = sorted(r[1] for r in rows(connection, f"SELECT k, value FROM set_of WHERE k = {k}"))
            ok = (values_of(v) == want == values_of(both[0][0]) and of == sets[k]
                  and sorted(r[1] for r in both if r[1] is not None) == sets[k]
                  and [(values_of(vs), c) for vs, c in found] == ([(tuple(sets[k]), len(sets[k]))] if sets[k] else []))
            if not ok:
                raise Failure(f"views of {k} when nobody writes: {v}, {both}, {found}, {of}; the tables have "
                              f"{want}, {sets[k]}")

    def check(self, connection: Any, several: bool) -> None:
        history = self.history(connection)
        found: list[Anomaly] = broken(history, several)
        if found:
            raise Failure(f"{len(found)} anomalies that the levels do not allow; the first ones:\n"
                          + "\n".join(map(str, found[:5])))
        self.transactions += len(history.transactions)
        for name, count in seen(history).items():
            self.seen[name] = self.seen.get(name, 0) + count


def values_of(text: str | None) -> tuple[int, ...]:
    return tuple(int(v) for v in (text or "").split(",") if v)


class RegisterClient(TransactionClient):
    """One transaction after the other."""

    _sessions = itertools.count()

    def __init__(self, world: World, shared: Registers, number: int):
        super().__init__(world, f"registers {number}")
        self._shared, self._session = shared, next(self._sessions)
        self._keys = range(1)
        self._operations: list[Operation] = []
        self._saved: int | None = None
        self._began = self._ended = 0.0

    def connected(self) -> None:
        self._session = next(self._sessions)

    def turn(self) -> None:
        self._settings_first()
        number, self._keys = self._shared.begin()
        self._operations, self._saved = [], None
        single = self.chance.random() < 0.2  # a statement without a transaction has no snapshot of all workers
        level = LEVELS[0] if single else self.chance.choice(LEVELS)
        self._began = time.monotonic()
        session = self._session
        outcome = self.alone(level, self._one) if single else self.within(level, self._some)
        ended = time.monotonic()
        if single and outcome is Outcome.OK and self._ended:
            ended = self._ended
        t = Transaction(number, tuple(self._operations), outcome, session, self._began, ended, level)
        self._shared.add(t)
        self.world.journal.counts[f"transactions {outcome.value}"] += 1
        if outcome is Outcome.UNKNOWN:
            self._settle(t)
        self.world.stop.wait(self.chance.random() * 0.01)

    def _settings_first(self) -> None:
        """Connect, so that a transaction is of one session."""
        self.patiently("connect", self.way, lambda: self.ask("SELECT 1"))

    def _settle(self, transaction: Transaction) -> None:
        """Wait until none of its rows is locked by it."""
        for a in transaction.appends:
            k = a.key.name.rpartition(" ")[2]
            if a.key.name.startswith("set"):
                self.settled(f"INSERT INTO items VALUES ({a.value}, {k}, 0)")
            else:
                self.settled(f"UPDATE lists SET v = 'settled' WHERE k = {k}")

    def commit(self) -> None:
        self._began = time.monotonic()
        super().commit()

    # ------------------------------------------------------------ statements
    def _one(self) -> None:
        self._began, self._ended = time.monotonic(), 0.0
        self._read(False) if self.chance.random() < 0.5 else self._append(False)

    def _some(self) -> bool:
        chance = self.chance
        for _ in range(chance.randint(1, 6)):
            what = chance.random()
            if what < 0.45:
                self._read(True)
            elif what < 0.85:
                self._append(True)
            elif self._saved is None:
                self.say("SAVEPOINT here")
                self._saved = len(self._operations)
            elif what < 0.95:
                self.say("ROLLBACK TO here")
                kept, undone = self._operations[: self._saved], self._operations[self._saved :]
                self._operations = [*kept, *(replace(o, undone=True) if isinstance(o, Append) else o for o in undone),
                                    Undo()]
            else:
                self.say("RELEASE SAVEPOINT here")
                self._saved = None
        return chance.random() < 0.88

    def _read(self, within: bool) -> None:
        k, chance = self.chance.choice(self._keys), self.chance
        locks = within and chance.random() < 0.25
        lock = chance.choice(("FOR UPDATE", "FOR UPDATE", "LOCK IN SHARE MODE")) if locks else ""
        what = chance.randrange(6 if not lock else 3)
        began = time.monotonic()
        found: list[tuple[Key, tuple[int, ...]]]
        if what == 0:
            some = sorted(chance.sample(list(self._keys), 2))
            text = f"SELECT k, v FROM lists WHERE k IN ({some[0]}, {some[1]}) ORDER BY k {lock}"
            found = [(list_key(f"list {n}"), values_of(v)) for n, v in self.ask(text)]
        elif what == 1:
            [(v,)] = self.ask(f"SELECT v FROM lists WHERE k = {k} {lock}")
            found = [(list_key(f"list {k}"), values_of(v))]
        elif what == 2:
            found = [(set_key(f"set {k}"), tuple(sorted(r[0] for r in self.ask(
                f"SELECT value FROM items WHERE k = {k} {lock}"))))]
        else:
            found = list(self._by_view(what, k))
        ended, statement = time.monotonic(), self._shared.statement()
        self._ended = ended
        self._operations += [Read(key, values, bool(lock), statement, began, ended) for key, values in found]

    def _by_view(self, what: int, k: int) -> Iterator[tuple[Key, tuple[int, ...]]]:
        if what == 3:
            [(v,)] = self.ask(f"SELECT v FROM list_of WHERE k = {k}")
            yield list_key(f"list {k}"), values_of(v)
        elif what == 4:
            found = self.ask(f"SELECT vs FROM sets WHERE k = {k}")
            yield set_key(f"set {k}"), values_of(found[0][0] if found else "")
        else:
            both = self.ask(f"SELECT v, value FROM both_of WHERE k = {k}")
            yield list_key(f"list {k}"), values_of(both[0][0])
            yield set_key(f"set {k}"), tuple(sorted(r[1] for r in both if r[1] is not None))

    def _append(self, within: bool) -> None:
        k, value, chance = self.chance.choice(self._keys), self._shared.value(), self.chance
        what = chance.random()
        appends = [Append(list_key(f"list {k}"), value)]
        if what < 0.35:
            appends = [Append(set_key(f"set {k}"), value)]
            text = f"INSERT INTO items VALUES ({value}, {k}, {value})"
        elif what < 0.45:
            other = chance.choice([n for n in self._keys if n != k])
            appends.append(Append(list_key(f"list {other}"), value))
            text = f"UPDATE lists SET v = CONCAT(v, ',{value}') WHERE k IN ({k}, {other})"
        elif what < 0.6 and within:
            text = self._computed(k, value)
        else:
            text = f"UPDATE lists SET v = CONCAT(v, ',{value}') WHERE k = {k}"
        before = len(self._operations)
        if not within:
            self._operations += appends  # it may take place without an answer
        affected = self.say(text)
        self._ended = time.monotonic()
        if affected != len(appends):
            raise Failure(f"{self.name}: {affected} rows: {text}")
        self._operations[before:] = appends

    def _computed(self, k: int, value: int) -> str:
        """A value that the client makes of what it has read FOR UPDATE."""
        began = time.monotonic()
        [(v,)] = self.ask(f"SELECT v FROM lists WHERE k = {k} FOR UPDATE")
        self._operations.append(Read(list_key(f"list {k}"), values_of(v), True, self._shared.statement(), began,
                                     time.monotonic()))
        return f"UPDATE lists SET v = '{v},{value}' WHERE k = {k}"
