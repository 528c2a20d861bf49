"""The rows that commits removed and added since the oldest open snapshot, so that a snapshot can be read.

A snapshot is a position in the sequence of commits.  A transaction reads the tables' current rows, less what was
committed after its snapshot, plus its own rows.

Keeps true: without an open snapshot nothing is recorded.  The memory is bounded: beyond HISTORY_ROWS the oldest
commits are forgotten, and a snapshot that needs them is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError, definition_changed
from noria.core.errors.codes import TABLE_DEF_CHANGED
from noria.core.limits import HISTORY_ROWS
from noria.storage.tables.table import Changed


class _Commit(NamedTuple):
    position: int
    changed: Changed

    @property
    def rows(self) -> int:
        return len(self.changed[0]) + len(self.changed[2])


class History:
    """See the module.  position: the number of commits so far that were recorded."""

    def __init__(self) -> None:
        self.position = 0
        self._snapshots: dict[str, int] = {}  # by transaction
        self._kept: dict[str, int] = {}  # by transaction: it may ask for later commits, without a snapshot
        self._commits: dict[str, deque[_Commit]] = {}  # by table, in order
        self._order: deque[tuple[int, str]] = deque()  # positions and tables of all commits
        self._rows = 0
        self._forgotten = 0  # the position of the last commit that was forgotten for want of memory
        self._replaced: dict[str, int] = {}  # tables that changed in another way, and the position at that time

    def __bool__(self) -> bool:
        """Whether commits are to be recorded."""
        return bool(self._snapshots or self._kept)

    def open(self, transaction: str) -> None:
        """Open a snapshot of this moment for the transaction, unless it has one."""
        self._snapshots.setdefault(transaction, self.position)

    def keep(self, transaction: str) -> None:
        """Keep what is committed from now on, until the transaction ends."""
        self._kept.setdefault(transaction, self.position)

    def has(self, transaction: str) -> bool:
        return transaction in self._snapshots

    def has_others(self, transactions: Collection[str]) -> bool:
        """True if a snapshot is open that is not of these transactions."""
        return len(self._snapshots) > sum(t in self._snapshots for t in transactions)

    def close(self, transaction: str) -> None:
        """Close the transaction's snapshot, and forget the commits that no snapshot needs."""
        had = self._kept.pop(transaction, None)
        if self._snapshots.pop(transaction, None) is None and had is None:
            return
        if not self:
            self._commits.clear()
            self._order.clear()
            self._replaced.clear()
            self._rows = self._forgotten = 0
            return
        oldest = min(*self._snapshots.values(), *self._kept.values(), self.position)
        while self._order and self._order[0][0] <= oldest:
            self._forget()

    def record(self, changed: Mapping[str, Changed]) -> None:
        """Record the rows of one commit, by table."""
        self.position += 1
        for table, rows in changed.items():
            commit = _Commit(self.position, rows)
            self._commits.setdefault(table, deque()).append(commit)
            self._order.append((self.position, table))
            self._rows += commit.rows
        while self._rows > HISTORY_ROWS:
            self._forgotten = self._forget()

    def _forget(self) -> int:
        """Forget the oldest commit to a table; return its position."""
        position, table = self._order.popleft()
        self._rows -= self._commits[table].popleft().rows
        if not self._commits[table]:
            del self._commits[table]
        return position

    def replaced(self, table: str) -> None:
        """Record that the table's rows changed in bulk, or its definition: no open snapshot can read it any more."""
        if self:
            self.position += 1
            self._replaced[table] = self.position

    def since(self, transaction: str, table: str) -> list[Changed]:
        """What was committed to the table after the transaction's snapshot.

        Raises SqlError 1412 if that is not known any more.
        """
        snapshot = self._snapshots[transaction]
        if snapshot < self._forgotten:
            raise SqlError(*TABLE_DEF_CHANGED, f"The snapshot is too old: more than {HISTORY_ROWS} rows were written "
                                               "since, please retry transaction")
        return [c.changed for c in self._commits.get(table, ()) if c.position > snapshot]

    def later(self, position: int, table: str) -> list[tuple[int, Changed]] | None:
        """What was committed to the table after a position, each with its own; None if that is not known any more."""
        if position < self._forgotten or self._replaced.get(table, 0) > position:
            return None
        return [(c.position, c.changed) for c in self._commits.get(table, ()) if c.position > position]

    def check(self, transaction: str, table: str) -> None:
        """Raise SqlError 1412 if the table was replaced after the transaction's snapshot."""
        if self._replaced.get(table, 0) > self._snapshots.get(transaction, self.position):
            raise definition_changed()

    def held(self) -> Iterator[Codes]:
        """The codes of all recorded rows, whose texts must not be freed."""
        for commits in self._commits.values():
            for commit in commits:
                yield from commit.changed[1]
                yield from commit.changed[3]


def undone(changes: list[Changed], kept: frozenset[bytes], width: int) -> list[Batch]:
    """The deltas that take these changes back, but not those of rows whose keys are in `kept`."""
    parts = []
    for removed_keys, removed, added_keys, added in changes:
        for keys, codes, weight in ((removed_keys, removed, 1), (added_keys, added, -1)):
            if keys and kept:
                rows = [n for n, key in enumerate(keys) if key not in kept]
                codes = np.ascontiguousarray(codes[:, rows]) if len(rows) < len(keys) else codes
            if codes.shape[1]:
                parts.append(Batch.of(codes.reshape(width, -1), weight))
    return parts
