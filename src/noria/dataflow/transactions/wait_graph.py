"""Who waits for whom, over locks of every kind: LOCK TABLES, GET_LOCK, definitions and rows.  Pure.

A *party* is a session, or a transaction of no session.  It waits for one resource at a time, until no other party
blocks it.  A wait has a function that returns these *blockers*, because they change.

Keeps true: after `begin`, and after the victims that it returned have ended their waits, no cycle of the graph's own
waits exists.  Only a new wait can close a cycle: a party that becomes a blocker without waiting closes none.  Waits for
rows are known at the workers; `victims` looks for cycles through them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from noria.dataflow.transactions.locks import cycle_of

Party = Hashable


class Weight(IntEnum):
    """What a wait is worth, as in MySQL: a deadlock ends the wait of the least weight."""

    STATEMENT = 1
    USER_LOCK = 2
    DEFINITION = 3


class Wait(NamedTuple):
    """One wait.  work: of two waits of one weight, that of the party with less work is ended."""

    weight: Weight
    work: int
    blockers: Callable[[], Iterable[Party]]


class RowWait(NamedTuple):
    """A wait for a lock at a worker.  ends: the wait can be ended with an error."""

    weight: Weight
    work: int
    blockers: Collection[Party]
    ends: bool = True


class WaitGraph:
    """See the module."""

    def __init__(self) -> None:
        self._waits: dict[Party, Wait] = {}
        self._victims: set[Party] = set()  # those whose waits are about to end

    def __len__(self) -> int:
        return len(self._waits)

    def __contains__(self, party: Party) -> bool:
        return party in self._waits

    def __iter__(self) -> Iterator[Party]:
        return iter(self._waits)

    def blockers(self) -> set[Party]:
        """The parties for whom others wait, and that do not wait themselves."""
        return {b for wait in self._waits.values() for b in wait.blockers() if b not in self._waits}

    def begin(self, party: Party, wait: Wait) -> list[Party]:
        """Begin a wait.  Return the parties whose waits must end, because it closes cycles: the victims."""
        if party in self._waits:
            raise ValueError(f"{party!r} waits already")
        self._waits[party] = wait
        return self._ended(party, {}, self._victims)

    def end(self, party: Party) -> None:
        del self._waits[party]
        self._victims.discard(party)

    def cycles(self, rows: Mapping[Party, RowWait]) -> Iterator[tuple[Party, ...]]:
        """For each wait of the graph, a cycle through it; none if it is in no cycle.  rows: the waits at workers."""
        for party in self._waits:
            if cycle := cycle_of(party, lambda p: self._of(p, rows, self._victims)):
                yield cycle

    def victims(self, rows: Mapping[Party, RowWait], among: Collection[Party]) -> list[Party]:
        """The parties whose waits must end, so that none of the graph's own waits is in a cycle.  among: only waits of
        these parties count, and are ended."""
        ended = self._victims.union(p for p in (*self._waits, *rows) if p not in among)
        victims: list[Party] = []
        for party in self._waits:
            victims += self._ended(party, rows, ended)
        self._victims.update(p for p in victims if p in self._waits)
        return victims

    def _ended(self, party: Party, rows: Mapping[Party, RowWait], ended: set[Party]) -> list[Party]:
        """End waits until no cycle goes through the party.  ended: the waits that do not count any more."""
        victims: list[Party] = []
        while party not in ended and (cycle := cycle_of(party, lambda p: self._of(p, rows, ended))):
            victims.append(min((p for p in cycle if self._ends(p, rows)), key=lambda p: self._worth(p, rows)))
            ended.add(victims[-1])
        return victims

    def _of(self, party: Party, rows: Mapping[Party, RowWait], ended: Collection[Party]) -> Iterable[Party]:
        if party in ended:
            return ()
        own = self._waits.get(party)
        own_blockers = () if own is None else own.blockers()
        row_blockers = rows[party].blockers if party in rows else ()
        return (*own_blockers, *row_blockers)

    def _ends(self, party: Party, rows: Mapping[Party, RowWait]) -> bool:
        return party in self._waits or rows[party].ends

    def _worth(self, party: Party, rows: Mapping[Party, RowWait]) -> tuple[Weight, int]:
        wait = self._waits.get(party) or rows[party]
        return wait.weight, wait.work
