"""The rows before recent commits of the only worker, so that the front end reads snapshots without asking the worker.

    OpenSnapshot's answer ──► opened: from here on
    Wrote.prior ──► note ──► by table and key: (tick, row before)
    a snapshot's row ──► `before`: the row before the first commit after the snapshot; else the view's current row

Keeps true: `reaches(tick)` is True only if each row change after this tick, up to the tick `last`, is noted. A commit
that does not follow the last noted one clears the record. The memory is bounded: the oldest commits are dropped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Any, NamedTuple

from noria.dataflow.messages.packets import PriorRows

MOST_ROWS, MOST_CHARACTERS = 4_096, 2**22  # that are noted at the same time

Row = tuple[Any, ...]


class _Versions(NamedTuple):
    """The noted changes of one key: the ticks of the commits, ascending, and the row before each."""

    ticks: list[int]
    rows: list[Row | None]


class RecentChanges:
    """See the module. `last`: the tick of the last noted commit, or a later one without further commits."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all: rows may have changed in a way that is not noted."""
        self.last, self._position = -1, -1
        self._from = 0  # changes after this tick are noted
        self._tables: dict[str, dict[int, _Versions]] = {}
        self._unknown: dict[str, int] = {}  # tables with a change whose rows are not noted, and its last tick
        self._order: deque[tuple[int, str, int]] = deque()  # tick, table and key of each noted row
        self._characters = 0  # of their texts

    def opened(self, tick: int, position: int) -> None:
        """Note that a snapshot was opened after this tick, when the worker had recorded `position` commits."""
        if position != self._position:
            self.clear()
            self._from, self._position = tick, position
        self.last = max(self.last, tick)

    def note(self, prior: PriorRows | None) -> None:
        """Note a commit. None: no snapshot needs it, or its rows are not known."""
        if prior is None:
            if self.last >= 0:
                self.clear()
            return
        if prior.position != self._position + 1 or prior.tick <= self.last:
            self.clear()
            self._from = prior.tick
        self.last, self._position = prior.tick, prior.position
        for name, rows in prior.tables.items():
            if rows is None:
                self._unknown[name] = prior.tick
                continue
            table = self._tables.setdefault(name, {})
            for key, row in rows:
                versions = table.get(key)
                if versions is None:
                    versions = table[key] = _Versions([], [])
                versions.ticks.append(prior.tick)
                versions.rows.append(row)
                self._order.append((prior.tick, name, key))
                self._characters += _characters(row)
        while len(self._order) > MOST_ROWS or self._characters > MOST_CHARACTERS:
            self._drop()

    def _drop(self) -> None:
        self._from, name, key = self._order.popleft()
        table = self._tables[name]
        versions = table[key]
        self._characters -= _characters(versions.rows[0])
        del versions.ticks[0], versions.rows[0]
        if not versions.ticks:
            del table[key]

    def reaches(self, tick: int, table: str) -> bool:
        """Whether all changes of the table's rows after this tick are noted."""
        return self._from <= tick <= self.last and self._unknown.get(table, -1) <= tick

    def before(self, table: str, key: int, tick: int) -> tuple[Row | None] | None:
        """The row that the key had at the end of this tick, which is None if there was none. No tuple if no later
        commit has changed it."""
        versions = self._tables.get(table, {}).get(key)
        if versions is None or versions.ticks[-1] <= tick:
            return None
        return (versions.rows[bisect_right(versions.ticks, tick)],)

    def between(self, table: str, low: int, high: int, tick: int) -> dict[int, Row | None]:
        """As `before`, for the keys from low to high that a later commit has changed."""
        noted, found = self._tables.get(table, {}), dict[int, Row | None]()
        keys = range(low, high + 1)
        for key in (filter(noted.__contains__, keys) if len(keys) < len(noted) else filter(keys.__contains__, noted)):
            versions = noted[key]
            if versions.ticks[-1] > tick:
                found[key] = versions.rows[bisect_right(versions.ticks, tick)]
        return found


def _characters(row: Row | None) -> int:
    return 0 if row is None else sum(len(value) for value in row if type(value) is str)
