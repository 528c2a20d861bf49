"""Records when each table was last written. Call `WrittenTables.note` for each change, and `since` for a snapshot.

A reader of an older snapshot may use a view only if no table below the view was written since.

Keeps true: a write counts each time it begins, before a worker has it. If more than MOST_TABLES tables are recorded,
the record is cleared: all tables then count as written at that moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from noria.core.statements import tables_written
from noria.dataflow.messages.packets import (
    AlterTable,
    CreateTable,
    DropTable,
    Ingest,
    Migrate,
    Packet,
    Prepare,
    Write,
)

_NOTHING: tuple[str, ...] = ()
MOST_TABLES = 10_000  # tables that are remembered, dropped ones among them


def tables_of_change(body: Packet) -> Iterable[str]:
    """The tables that a change writes, defines or drops."""
    if isinstance(body, Write | Prepare):
        return [t for s in body.statements for t in tables_written(s)]
    if isinstance(body, Ingest):
        return (body.table,)
    if isinstance(body, Migrate):
        return [s.table if isinstance(s, DropTable) else s.table.name for s in body.steps
                if isinstance(s, AlterTable | CreateTable | DropTable)]
    return _NOTHING


class WrittenTables:
    """See the module. `moment`: grows with each write."""

    def __init__(self) -> None:
        self.moment = 0
        self._last: dict[str, int] = {}
        self._others = 0  # the moment at which all other tables count as written

    def note(self, body: Packet) -> None:
        """Record a change that begins."""
        self.note_tables(tables_of_change(body))

    def note_tables(self, tables: Iterable[str]) -> None:
        """Record a change of these tables that begins."""
        self.moment += 1
        for table in tables:
            self._last[table] = self.moment
        if len(self._last) > MOST_TABLES:
            self._others = self.moment
            self._last.clear()

    def since(self, moment: int, tables: Iterable[str]) -> bool:
        """Whether one of the tables was written after the moment."""
        last = self._last
        return any(last.get(table, self._others) > moment for table in tables)
