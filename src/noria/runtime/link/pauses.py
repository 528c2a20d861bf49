"""Pauses changes of all tables or of one, and tracks the writes under way by table. Call `Pauses.of` and
`Pauses.submit`.

Keeps true: paused changes keep their order and can be cancelled. A change is routed when its pause ends, by the
state of that moment.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from noria.core.errors import interrupted
from noria.core.statements import tables_written
from noria.dataflow.messages.packets import Ingest, Write
from noria.runtime.link.change_queue import Change

ALL = ""  # no table has this name


class Pauses:
    """The paused changes. `begin`: called with each change that need not wait."""

    def __init__(self, begin: Callable[[Change, asyncio.Future[Any]], None]):
        self._begin = begin
        self._why = Counter[str]()  # by table, or ALL: reasons to wait
        self._waiting: list[tuple[Change, asyncio.Future[Any]]] = []

    def __bool__(self) -> bool:
        return bool(self._why)

    def submit(self, change: Change, future: asyncio.Future[Any]) -> None:
        if self._why and (self._why[ALL] or any(self._why[t] for t in _written(change))):
            self._waiting.append((change, future))
        else:
            self._begin(change, future)

    def cancel(self, future: asyncio.Future[Any]) -> bool:
        """Cancel a paused change. Returns whether it was paused."""
        paused = [w for w in self._waiting if w[1] is future]
        for w in paused:
            self._waiting.remove(w)
            future.set_exception(interrupted())
        return bool(paused)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        """Pause the writes of a table, or all changes (ALL)."""
        self._why[what] += 1
        try:
            yield
        finally:
            self._why[what] -= 1
            self._why += Counter()  # removes zero counts
            waiting, self._waiting = self._waiting, []
            for change, future in waiting:
                if not future.done():
                    self.submit(change, future)


class TableWrites:
    """The writes under way, by table."""

    def __init__(self) -> None:
        self._of: dict[str, set[asyncio.Future[Any]]] = {}
        self.on_end: Callable[[], None] | None = None  # called when a write has ended

    def __contains__(self, table: str) -> bool:
        return table in self._of

    def add(self, table: str, write: asyncio.Future[Any]) -> None:
        self._of.setdefault(table, set()).add(write)
        write.add_done_callback(lambda _: self._ended(table, write))

    def _ended(self, table: str, write: asyncio.Future[Any]) -> None:
        self._of[table].discard(write)
        if not self._of[table]:
            del self._of[table]
        if self.on_end is not None:
            self.on_end()

    def tables(self) -> set[str]:
        """The tables with writes under way."""
        return set(self._of)

    async def over(self, tables: Iterable[str]) -> None:
        """Wait until no write of these tables is under way."""
        names = tuple(tables)
        while waited := {w for name in names for w in self._of.get(name, ())}:
            await asyncio.wait(waited)


def _written(change: Change) -> Iterator[str]:
    if isinstance(change, Write):
        yield from (t for s in change.statements for t in tables_written(s))
    elif isinstance(change, Ingest):
        yield change.table
