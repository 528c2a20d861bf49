"""What each isolation level promises, of a history: the anomalies that it must not have.

Keeps true: what is promised is what docs/explanation/consistency.md says, no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from histories.direct import NON_REPEATABLE, PART, PHANTOM, Anomaly, direct
from histories.graph import cycles, graph_of
from histories.history import History, Transaction
from histories.moments import Cut, keys, snapshots, statements, whole

SERIALIZABLE, REPEATABLE_READ, READ_COMMITTED = "SERIALIZABLE", "REPEATABLE READ", "READ COMMITTED"


@dataclass(frozen=True)
class Promise:
    """`cut`: how a transaction may fall apart.  `allowed`: names of anomalies of single reads."""

    cut: Cut
    allowed: frozenset[str] = frozenset()


PROMISES: Mapping[str, Promise] = {
    SERIALIZABLE: Promise(whole),
    REPEATABLE_READ: Promise(snapshots),
    READ_COMMITTED: Promise(statements, frozenset({NON_REPEATABLE, PHANTOM})),
}
IN_PARTS = Promise(keys, frozenset({NON_REPEATABLE, PHANTOM, PART}))  # READ COMMITTED over several workers


def broken(history: History, several: bool = False, clock: bool = True) -> list[Anomaly]:
    """What the levels of the transactions do not allow.  `several`: workers.  `clock`: is a commit visible to all as
    soon as it is acknowledged?"""
    promises = {t.number: _promise(t, several) for t in history.transactions}
    found = [a for a in direct(history) if a.reader is None or a.name not in promises[a.reader].allowed]
    moments = [m for t in history.transactions for m in promises[t.number].cut(history, t)]
    return [*found, *cycles(graph_of(history, moments, clock))]


def _promise(transaction: Transaction, several: bool) -> Promise:
    level = transaction.level or SERIALIZABLE
    return IN_PARTS if several and level == READ_COMMITTED else PROMISES[level]


def seen(history: History) -> Counter[str]:
    """How often each anomaly happened, allowed or not: transactions as a whole, without the clock."""
    moments = [m for t in history.transactions for m in whole(history, t)]
    return Counter(a.name for a in (*direct(history), *cycles(graph_of(history, moments, False))))
