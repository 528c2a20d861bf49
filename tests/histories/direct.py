"""Anomalies that a single read or register shows, without a graph."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from histories.history import Append, History, Key, Kind, Outcome, Read, Transaction, Undo, Value, external

ABORTED_READ = "aborted read"
INTERMEDIATE_READ = "intermediate read"
PART = "part of a transaction"  # an intermediate read of rows that may be at several workers
SESSION = "own session's writes"
INTERNAL = "own writes"
NON_REPEATABLE = "non-repeatable read"
PHANTOM = "phantom"
LOST = "lost append"
DUPLICATED = "duplicated append"
INVENTED = "invented value"
TORN = "torn transaction"
INCOMPATIBLE = "incompatible orders"


@dataclass(frozen=True)
class Anomaly:
    """`reader`: the number of the transaction that read it, if one did."""

    name: str
    text: str
    reader: int | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


def direct(history: History) -> Iterator[Anomaly]:
    """All of them."""
    for transaction in history.transactions:
        yield from _own_writes(transaction)
        yield from _changed(transaction)
        for read in transaction.reads:
            yield from _values(history, transaction, read)
            yield from _order(history, transaction, read)
    yield from _sessions(history)
    yield from _final(history)
    yield from _kept(history)


def _values(history: History, transaction: Transaction, read: Read) -> Iterator[Anomaly]:
    """Values that nobody may read: of nobody, twice, of a transaction that failed, or undone."""
    for value in set(read.values):
        if read.values.count(value) > 1:
            yield Anomaly(DUPLICATED, f"{value} twice in {read} of {transaction}", transaction.number)
    for value in external(transaction, read):
        yield from _value(history, read.key, value, f"{read} of {transaction}", transaction.number)
    yield from _intermediate(history, transaction, read)


def _value(history: History, key: Key, value: Value, where: str, reader: int | None) -> Iterator[Anomaly]:
    writer = history.writer.get((key, value))
    if writer is None:
        yield Anomaly(INVENTED, f"nobody has appended {value}: {where}", reader)
    elif writer.number not in history.committed:
        yield Anomaly(ABORTED_READ, f"{value} in {where}, of {writer}", reader)
    elif all((a.key, a.value) != (key, value) for a in writer.appends):
        yield Anomaly(ABORTED_READ, f"{value} in {where}, which is undone in {writer}", reader)


def _intermediate(history: History, transaction: Transaction, read: Read) -> Iterator[Anomaly]:
    """Some of what another transaction appends to the key, but not all."""
    found = set(external(transaction, read))
    for writer in {w.number: w for v in found if (w := history.writer.get((read.key, v))) is not None}.values():
        missing = [a for a in writer.appends if a.key == read.key and a.value not in found]
        if missing:
            name = INTERMEDIATE_READ if read.key.kind is Kind.LIST else PART
            yield Anomaly(name, f"{read} of {transaction}, without {missing[0]} of {writer}",
                          transaction.number)


def _own_writes(transaction: Transaction) -> Iterator[Anomaly]:
    """A read has just what its transaction has appended until then, in its order and at the end."""
    own: dict[Key, list[Append]] = {}
    for o in transaction.operations:
        if isinstance(o, Append):
            own.setdefault(o.key, []).append(o)
        elif isinstance(o, Undo):
            own = {k: [a for a in some if not a.undone] for k, some in own.items()}
        else:
            mine = [a.value for a in own.get(o.key, ())]
            if o.key.kind is Kind.LIST:
                others = len(external(transaction, o))
                right = list(o.values[others:]) == mine or not mine
                right = right and len(o.values) == others + len(mine)
            else:
                right = set(o.values) - set(external(transaction, o)) == set(mine)
            if not right:
                yield Anomaly(INTERNAL, f"{o}, where {mine} are its own, in {transaction}", transaction.number)


def _changed(transaction: Transaction) -> Iterator[Anomaly]:
    """Plain reads of a key that the transaction has not changed between them."""
    last: dict[Key, Read] = {}
    for o in transaction.operations:
        if isinstance(o, Append):
            last.pop(o.key, None)
        elif isinstance(o, Undo):
            last.clear()
        elif not o.locking:
            before = last.get(o.key)
            if before is not None and sorted(before.values) != sorted(o.values):
                name = NON_REPEATABLE if o.key.kind is Kind.LIST else PHANTOM
                yield Anomaly(name, f"{before}, then {o}, in {transaction}", transaction.number)
            last[o.key] = o


def _order(history: History, transaction: Transaction, read: Read) -> Iterator[Anomaly]:
    """A list only grows at its end."""
    if read.key.kind is Kind.LIST:
        found = external(transaction, read)
        mine = set(read.values) - set(found)
        mine |= {o.value for o in transaction.operations if isinstance(o, Append) and o.key == read.key}
        order = [v for v in history.order.get(read.key, ()) if v not in mine]
        if list(found) != order[: len(found)]:
            yield Anomaly(INCOMPATIBLE, f"{read} of {transaction}; the order is {list(history.order[read.key])}",
                          transaction.number)


def _final(history: History) -> Iterator[Anomaly]:
    for key, values in history.final.items():
        for value in set(values):
            if values.count(value) > 1:
                yield Anomaly(DUPLICATED, f"{value} twice in the final {key} = {list(values)}")
        for value in values:
            yield from _value(history, key, value, f"the final {key}", None)


def _kept(history: History) -> Iterator[Anomaly]:
    """What was acknowledged is in the end there, and a transaction is there as a whole."""
    ends = {(k, v) for k, values in history.final.items() for v in values}
    for t in history.transactions:
        if t.number in history.committed:
            missing = [a for a in t.appends if a.key in history.final and (a.key, a.value) not in ends]
            if missing and t.outcome is Outcome.OK:
                yield Anomaly(LOST, f"{', '.join(map(str, missing))} of {t}")
            elif missing:
                yield Anomaly(TORN, f"{', '.join(map(str, missing))} of {t} are not there")


def _sessions(history: History) -> Iterator[Anomaly]:
    """A session reads what it had committed before the transaction began."""
    written: dict[tuple[int, Key], set[Value]] = {}
    for t in history.transactions:
        for read in t.reads:
            missing = written.get((t.session, read.key), set()).difference(read.values)
            if missing:
                yield Anomaly(SESSION, f"{sorted(missing)} of session {t.session}: {read} of {t}", t.number)
        if t.outcome is Outcome.OK:
            for a in t.appends:
                written.setdefault((t.session, a.key), set()).add(a.value)
