"""Histories: what the clients of a store did, what they were answered, and when.

A register holds values in the order of their appends (`Kind.LIST`), or without an order (`Kind.SET`: rows that share a
key).  No value is appended to a key twice, so a read names the transactions that it saw.

Keeps true: a history is data.  It can be written by hand, by a simulated store or by clients of a server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

Value = int
Values = tuple[Value, ...]
EVER = float("inf")


class Kind(Enum):
    LIST = "list"
    SET = "set"


class Key(NamedTuple):
    kind: Kind
    name: str

    def __str__(self) -> str:
        return self.name


def list_key(name: str) -> Key:
    return Key(Kind.LIST, name)


def set_key(name: str) -> Key:
    return Key(Kind.SET, name)


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"  # no answer to the commit


@dataclass(frozen=True)
class Read:
    """One register's values.  `locking`: SELECT … FOR UPDATE.  `statement`: reads of one statement share a number."""

    key: Key
    values: Values
    locking: bool = False
    statement: int = -1
    began: float = 0.0
    ended: float = EVER

    def __str__(self) -> str:
        return f"{self.key}{' for update' if self.locking else ''} = {list(self.values)}"


@dataclass(frozen=True)
class Append:
    """`undone`: ROLLBACK TO SAVEPOINT came after it."""

    key: Key
    value: Value
    undone: bool = False

    def __str__(self) -> str:
        return f"{self.key} += {self.value}{', undone' if self.undone else ''}"


@dataclass(frozen=True)
class Undo:
    """ROLLBACK TO SAVEPOINT: the appends before it that are `undone` are gone from here on."""

    def __str__(self) -> str:
        return "rollback to savepoint"


Operation = Read | Append | Undo


@dataclass(frozen=True)
class Transaction:
    """`began`, `ended`: of its commit, which is when its writes take place.  `session`: transactions of one session are
    in the order of their numbers."""

    number: int
    operations: tuple[Operation, ...]
    outcome: Outcome = Outcome.OK
    session: int = 0
    began: float = 0.0
    ended: float = EVER
    level: str = ""

    @property
    def appends(self) -> Iterator[Append]:
        """Those that the commit is to make."""
        return (o for o in self.operations if isinstance(o, Append) and not o.undone)

    @property
    def reads(self) -> Iterator[Read]:
        return (o for o in self.operations if isinstance(o, Read))

    def __str__(self) -> str:
        return f"T{self.number} ({self.outcome.value}, session {self.session}): {'; '.join(map(str, self.operations))}"


@dataclass(frozen=True)
class History:
    """`final`: each register when all clients had ended; it closes the history."""

    transactions: Sequence[Transaction]
    final: Mapping[Key, Values] = field(default_factory=dict)

    @cached_property
    def writer(self) -> dict[tuple[Key, Value], Transaction]:
        """Who appends a value, whatever became of it."""
        return {(o.key, o.value): t for t in self.transactions for o in t.operations if isinstance(o, Append)}

    @cached_property
    def seen(self) -> frozenset[tuple[Key, Value]]:
        """The values that anybody else than their writer has read."""
        read = ((r.key, v, t) for t in self.transactions for r in t.reads for v in r.values)
        return frozenset((k, v) for k, v, t in read if self.writer.get((k, v)) is not t) | frozenset(
            (k, v) for k, values in self.final.items() for v in values)

    @cached_property
    def committed(self) -> frozenset[int]:
        """The numbers of the transactions that took place.  One without an answer did if somebody saw a value of it."""
        return frozenset(t.number for t in self.transactions if t.outcome is Outcome.OK or (
            t.outcome is Outcome.UNKNOWN and any((a.key, a.value) in self.seen for a in t.appends)))

    @cached_property
    def order(self) -> dict[Key, Values]:
        """Of each register its versions: the final values, or the longest values that were read."""
        found = dict(self.final)
        for t in self.transactions:
            for r in t.reads:
                if r.key not in self.final:
                    others = external(t, r)
                    if len(others) > len(found.get(r.key, ())):
                        found[r.key] = others
        return found


def external(transaction: Transaction, read: Read) -> Values:
    """The values of a read that others have appended."""
    own = {o.value for o in transaction.operations if isinstance(o, Append) and o.key == read.key}
    return tuple(v for v in read.values if v not in own)
