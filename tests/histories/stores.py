"""Simulated stores, one for each rule that may be missing, and random clients of them.

`Store` keeps the rules of a database with row locks.  Each rule can be left out by its name, so that the checker can be
seen to find what then happens.

Keeps true: a seed decides everything.  No time passes but the store's own count of steps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from histories.history import (
    Append,
    History,
    Key,
    Kind,
    Operation,
    Outcome,
    Read,
    Transaction,
    Undo,
    Value,
    Values,
    list_key,
    set_key,
)
from histories.levels import REPEATABLE_READ, SERIALIZABLE

KEYS = (*(list_key(f"list {n}") for n in range(4)), *(set_key(f"set {n}") for n in range(2)))
RULES = frozenset({"row locks", "hide what is not committed", "undo", "whole commits", "durable", "once", "one copy"})


@dataclass
class Open:
    """A transaction under way."""

    session: int
    level: str
    number: int
    operations: list[Operation] = field(default_factory=list)
    own: list[tuple[Key, Value]] = field(default_factory=list)
    locks: set[Key] = field(default_factory=set)
    snapshot: int | None = None
    saved: int | None = None  # len(own) at the savepoint


class Refused(Exception):
    """Another transaction has the lock."""


class Store:
    """`without`: the rule that is left out."""

    def __init__(self, without: str = ""):
        assert not without or without in RULES
        self._without = without
        self.commits: list[list[tuple[Key, Value]]] = []
        self.open: list[Open] = []

    def committed(self, key: Key, until: int | None = None) -> Values:
        return tuple(v for commit in self.commits[:until] for k, v in commit if k == key)

    def _keeps(self, rule: str) -> bool:
        return self._without != rule

    def lock(self, t: Open, key: Key) -> None:
        if self._keeps("row locks"):
            if any(key in other.locks for other in self.open if other is not t):
                raise Refused
            t.locks.add(key)

    def read(self, t: Open, key: Key, locking: bool) -> Values:
        own = tuple(v for k, v in t.own if k == key)
        if t.level == SERIALIZABLE:
            self.lock(t, key)
        if locking and key.kind is Kind.LIST:
            self.lock(t, key)
        elif t.level == REPEATABLE_READ and not locking:
            if t.snapshot is None:
                t.snapshot = len(self.commits)
            if key.kind is Kind.SET or not own:
                return self.committed(key, self._copy(t, key, t.snapshot)) + own
        others = () if self._keeps("hide what is not committed") else tuple(
            v for o in self.open if o is not t for k, v in o.own if k == key)
        return self.committed(key, self._copy(t, key, None)) + others + own

    def _copy(self, t: Open, key: Key, until: int | None) -> int | None:
        """With a second copy that lags behind, of half of the keys to each session, another one answers."""
        if self._keeps("one copy") or (KEYS.index(key) + t.session) % 2:
            return until
        return max(0, (len(self.commits) if until is None else until) - 2)

    def append(self, t: Open, key: Key, value: Value) -> None:
        if key.kind is Kind.LIST or t.level == SERIALIZABLE:
            self.lock(t, key)
        t.own.append((key, value))

    def undo(self, t: Open) -> None:
        assert t.saved is not None
        if self._keeps("undo"):
            del t.own[t.saved :]

    def commit(self, t: Open, chance: random.Random) -> None:
        self.open.remove(t)
        if not self._keeps("row locks") and len(t.own) > 1:
            chance.shuffle(t.own)
            for one in t.own:  # between those of others
                self.commits.insert(chance.randrange(max(0, len(self.commits) - 3), len(self.commits) + 1), [one])
        elif not self._keeps("whole commits"):
            self.commits += [[one] for one in t.own[: len(t.own) // 2]]
        elif self._keeps("durable") or chance.random() < 0.9:
            self.commits.append(t.own)
            if not self._keeps("once") and chance.random() < 0.1:
                self.commits.append(t.own)

    def rollback(self, t: Open) -> None:
        self.open.remove(t)
        if not self._keeps("undo"):
            self.commits.append(t.own)


def play(seed: int, level: str, without: str = "", sessions: int = 4, steps: int = 600, locking: bool = True
         ) -> History:
    """A history of random clients, who take turns.  `locking`: some of their reads are FOR UPDATE."""
    chance, store = random.Random(f"{seed} {level} {without}"), Store(without)
    done, current = list[Transaction](), dict[int, Open]()
    numbers = iter(range(10**9))
    for now in range(steps):
        session = chance.randrange(sessions)
        t = current.get(session)
        if t is None:
            t = current[session] = Open(session, level, next(numbers))
            store.open.append(t)
        try:
            outcome = _step(store, t, chance, numbers, now, locking)
        except Refused:
            outcome = Outcome.FAILED
            store.rollback(t)
        if outcome is not None:
            del current[session]
            done.append(Transaction(t.number, tuple(t.operations), outcome, session, now, now + 0.5, level))
    done.sort(key=lambda t: t.number)
    for t in store.open:
        done.append(Transaction(t.number, tuple(t.operations), Outcome.FAILED, t.session, level=level))
    return History(done, {key: store.committed(key) for key in KEYS})


def _step(store: Store, t: Open, chance: random.Random, values: Iterator[int], now: int, locking: bool
          ) -> Outcome | None:
    """One statement.  The outcome, if it ends the transaction."""
    drawn, key = chance.random(), chance.choice(KEYS)
    if drawn < 0.40:
        for_update = locking and drawn < 0.08
        t.operations.append(Read(key, store.read(t, key, for_update), for_update, -1, now, now + 0.5))
    elif drawn < 0.72:
        value = next(values)
        store.append(t, key, value)
        t.operations.append(Append(key, value))
    elif drawn < 0.76 and t.saved is None:
        t.saved = len(t.own)
    elif drawn < 0.80 and t.saved is not None:
        kept = set(t.own[: t.saved])
        store.undo(t)
        t.operations = [replace(o, undone=True) if isinstance(o, Append) and (o.key, o.value) not in kept else o
                        for o in t.operations]
        t.operations.append(Undo())
    elif drawn < 0.94:
        store.commit(t, chance)
        return Outcome.UNKNOWN if chance.random() < 0.05 else Outcome.OK
    elif drawn < 0.97:
        store.rollback(t)
        return Outcome.FAILED
    return None
