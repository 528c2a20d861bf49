"""LOCK TABLES: decides which session may write a table.  Also rejects writes to followed tables.

Nothing waits.  A lock is granted or refused (1205) at once, and a write to a table that another session has locked is
refused, too.  Reads continue, since no view ever shows a part of a write.

Keeps true: a session holds the locks of its last LOCK TABLES until UNLOCK TABLES, BEGIN, or its end.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_WAIT_TIMEOUT, TABLE_NOT_LOCKED, TABLE_NOT_LOCKED_FOR_WRITE
from noria.server.answering.followed import Followed


class TableLocks:
    """The locks of all sessions.  holder: identifies a session; None for writes without a session."""

    def __init__(self) -> None:
        self._held: dict[Hashable, dict[str, bool]] = {}  # holder -> table -> may it write?
        self.followed = Followed()

    def lock(self, holder: Hashable, tables: Sequence[tuple[str, bool]]) -> None:
        """Replace the holder's locks by these, as (table, may it write?).  After a SqlError the holder has none."""
        self._held.pop(holder, None)
        for name, write in tables:
            for held in self._held.values():
                if held.get(name.lower(), False) or (write and name.lower() in held):
                    raise _locked(name)
        if tables:
            self._held[holder] = {name.lower(): write for name, write in tables}

    def unlock(self, holder: Hashable) -> None:
        self._held.pop(holder, None)

    def check(self, holder: Hashable, table: str) -> None:
        """Raise SqlError if the holder must not write the table."""
        if self.followed.tables:
            self.followed.check(table)
        if not self._held:
            return
        name = table.lower()
        own = self._held.get(holder)
        if own is not None and not own.get(name, False):
            if name in own:
                raise SqlError(*TABLE_NOT_LOCKED_FOR_WRITE,
                               f"Table '{table}' was locked with a READ lock and can't be updated")
            raise SqlError(*TABLE_NOT_LOCKED, f"Table '{table}' was not locked with LOCK TABLES")
        if any(name in held for other, held in self._held.items() if other != holder):
            raise _locked(table)


def _locked(table: str) -> SqlError:
    return SqlError(*LOCK_WAIT_TIMEOUT, f"Lock wait timeout exceeded; try restarting transaction: another session has "
                                        f"locked table '{table}' by LOCK TABLES")
