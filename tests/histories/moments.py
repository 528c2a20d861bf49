"""How a level lets a transaction fall apart into moments, each of which takes place at once.

    whole          one moment                                                    SERIALIZABLE
    snapshots      its plain reads are one moment, everything else another one   REPEATABLE READ as InnoDB has it
    statements     each statement that reads is a moment, everything else one    READ COMMITTED

"Everything else" takes place at the commit: writes, reads of rows that the transaction has locked (FOR UPDATE), and
reads of keys that it has changed.  If the moments can be put into one order that explains all reads, and that agrees
with the clock, the level was kept (`graph.py`).

Keeps true: rows of a set are locked, not the set.  So a locking read of a set is a moment of its own.  ROLLBACK TO
SAVEPOINT may free locks, and a transaction that fails has lost its locks at some time: what it read under them are
moments of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from histories.history import (
    EVER,
    Append,
    History,
    Key,
    Kind,
    Outcome,
    Read,
    Transaction,
    Undo,
    Value,
    Values,
    external,
)


@dataclass
class Moment:
    """What a transaction reads and writes at once, some time between `began` and `ended`.  `alone`: it reads one key,
    and precedes, by the clock, only later reads of the same key."""

    transaction: Transaction
    what: str
    began: float
    ended: float
    reads: list[tuple[Key, Values]] = field(default_factory=list)
    writes: list[tuple[Key, Value]] = field(default_factory=list)
    alone: Key | None = None

    def __str__(self) -> str:
        return f"{self.what} of {self.transaction}"


Cut = Callable[[History, Transaction], Iterable[Moment]]


def whole(history: History, transaction: Transaction) -> Iterator[Moment]:
    """Reads of a transaction that failed are not judged.  What it read of rows that it had changed is known anyway."""
    if transaction.number in history.committed:
        reads = [(r.key, external(transaction, r)) for r in transaction.reads]
        began = min((r.began for r in transaction.reads), default=transaction.began)
        yield Moment(transaction, "all", began, _end(transaction), reads, _writes(transaction))


def snapshots(history: History, transaction: Transaction) -> Iterator[Moment]:
    """The snapshot is that of the first plain read, also if that is of a key that the transaction has changed."""
    loose, commit = _apart(history, transaction)
    plain = [r for r in loose if not r.locking]
    if plain:
        first = next(r for r in transaction.reads if not r.locking)
        yield Moment(transaction, "snapshot", first.began, first.ended,
                     [(r.key, external(transaction, r)) for r in plain])
    yield from _each(transaction, [r for r in loose if r.locking], by_key=False)
    yield from commit


def statements(history: History, transaction: Transaction) -> Iterator[Moment]:
    loose, commit = _apart(history, transaction)
    yield from _each(transaction, loose, by_key=False)
    yield from commit


def keys(history: History, transaction: Transaction) -> Iterator[Moment]:
    """As `statements`, where also each list that a statement reads is a moment of its own: READ COMMITTED over several
    workers.  The rows of a set are at several workers, so a read of it is no moment at all.

    A commit may be visible at one worker and not at another until it is acknowledged.  So what is read of one key says
    nothing about later reads of others.
    """
    loose, commit = _apart(history, transaction)
    yield from _each(transaction, [r for r in loose if r.key.kind is Kind.LIST], by_key=True)
    yield from commit


def _each(transaction: Transaction, reads: Iterable[Read], by_key: bool) -> Iterator[Moment]:
    by: dict[object, Moment] = {}
    for n, r in enumerate(reads):
        group = (r.statement, r.key) if by_key else r.statement
        moment = by.setdefault((group, n if r.statement < 0 else -1), Moment(
            transaction, f"read of {r.key}", r.began, r.ended, alone=r.key if by_key else None))
        moment.reads.append((r.key, external(transaction, r)))
    yield from by.values()


def _apart(history: History, transaction: Transaction) -> tuple[list[Read], list[Moment]]:
    """The reads that are not of the commit's moment; and that moment, if it took place."""
    loose, held = list[Read](), list[Read]()
    alive: list[Append] = []
    for o in transaction.operations:
        changed = {a.key for a in alive}
        if isinstance(o, Append):
            alive.append(o)
        elif isinstance(o, Undo):
            alive = [a for a in alive if not a.undone]
            changed = {a.key for a in alive}
            loose += [replace(r, locking=True) for r in held if r.key not in changed]  # without a lock from here on
            held = [r for r in held if r.key in changed]
        elif o.key.kind is Kind.LIST and (o.locking or o.key in changed):
            held.append(o)
        else:
            loose.append(o)
    if transaction.number not in history.committed:
        return [*loose, *(replace(r, locking=True) for r in held)], []
    moment = Moment(transaction, "commit", transaction.began, _end(transaction),
                    [(r.key, external(transaction, r)) for r in held], _writes(transaction))
    return loose, [moment] if moment.reads or moment.writes else []


def _writes(transaction: Transaction) -> list[tuple[Key, Value]]:
    return [(a.key, a.value) for a in transaction.appends]


def _end(transaction: Transaction) -> float:
    return EVER if transaction.outcome is Outcome.UNKNOWN else transaction.ended
