"""LOCK TABLES: decides which session may read and write a table, and who waits.  Rejects writes to followed tables.

    LOCK TABLES ──► pending ──► no conflicting lock ──► no transaction and no statement writes the tables ──► held
    a write     ──► waits for locks of others, also for pending ones, unless its transaction has begun before them
    a read      ──► waits for WRITE locks of others

Keeps true: while a session holds a lock, no other writes the table; nothing of an earlier write is under way.  A
session holds the locks of its last LOCK TABLES until UNLOCK TABLES, BEGIN, or its end.  Pending locks hold nothing, so
sessions that wait for each other's locks do not exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_WAIT_TIMEOUT, TABLE_NOT_LOCKED, TABLE_NOT_LOCKED_FOR_WRITE
from noria.server.answering.followed import Followed

Tables = Mapping[str, bool]  # by name in small letters: for WRITE?


class TableLocks:
    """The locks of all sessions.  holder: identifies a session; None for writes without a session.

    busy: True while a table is locked, or is about to be.  reads_wait: likewise, for WRITE.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, Tables] = {}
        self._pending: dict[Hashable, Tables] = {}  # in order of their LOCK TABLES
        self._woken: asyncio.Future[None] | None = None
        self.busy = self.reads_wait = False
        self.followed = Followed()

    def holds(self, holder: Hashable) -> bool:
        return holder in self._held

    # ------------------------------------------------------------ LOCK TABLES, UNLOCK TABLES
    async def lock(self, holder: Hashable, tables: Sequence[tuple[str, bool]], wait_s: float,
                   written: Callable[[Collection[str], float], Awaitable[None]]) -> None:
        """Replace the holder's locks by these, as (table, for WRITE?).  After a SqlError the holder has none.

        written: waits until no earlier write of the tables is under way.  Raises SqlError 1205 after wait_s.
        """
        self.unlock(holder)
        wanted: dict[str, bool] = {}
        for name, write in tables:
            wanted[name.lower()] = write or wanted.get(name.lower(), False)
        self._pending[holder] = wanted
        self._look_anew()
        loop = asyncio.get_running_loop()
        late = loop.time() + wait_s
        try:
            await self._until(lambda: self._conflict(holder, wanted), late)
            await written(list(wanted), max(late - loop.time(), 0.0))
            self._held[holder] = wanted
        finally:
            del self._pending[holder]
            self._look_anew()

    def _conflict(self, holder: Hashable, wanted: Tables) -> str | None:
        """A table that another lock, or an earlier LOCK TABLES, keeps the holder from locking."""
        for other in self._others(holder, True):
            for name, write in wanted.items():
                if name in other and (write or other[name]):
                    return name
        return None

    def _others(self, holder: Hashable, earlier: bool) -> Iterable[Tables]:
        """The locks of others.  earlier: also those that wait, up to the holder's own."""
        yield from (held for other, held in self._held.items() if other != holder)
        for other, pending in self._pending.items() if earlier else ():
            if other == holder:
                return
            yield pending

    def unlock(self, holder: Hashable) -> None:
        if self._held.pop(holder, None) is not None:
            self._look_anew()

    def _look_anew(self) -> None:
        """Let those that wait look again."""
        self.busy = bool(self._held or self._pending)
        self.reads_wait = any(True in some.values() for some in (*self._held.values(), *self._pending.values()))
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        self._woken = None

    async def _until(self, conflict: Callable[[], str | None], late: float) -> None:
        """Wait until there is no conflict.  Raises SqlError 1205 at the time `late`."""
        loop = asyncio.get_running_loop()
        while (name := conflict()) is not None:
            if self._woken is None:
                self._woken = loop.create_future()
            left = late - loop.time()
            if left <= 0:
                raise _locked(name)
            await asyncio.wait((self._woken,), timeout=left)

    # ------------------------------------------------------------ statements
    async def admit(self, holder: Hashable, tables: Collection[str], write: bool, wait_s: float, begun: bool = False
                    ) -> None:
        """Wait until the holder may read or write the tables.  begun: its transaction has changed or locked something.
        LOCK TABLES may wait for that, so the holder waits only for locks that are held.

        Raises SqlError 1099 and 1100 for a holder of locks, 1205 after wait_s.
        """
        for name in tables if write else ():
            self.check_own(holder, name)
        if not self.busy:
            return
        if holder in self._held:
            for name in () if write else tables:
                self._check_locked(holder, name)
            return
        names = [name.lower() for name in tables]

        def conflict() -> str | None:
            for other in self._others(holder, not begun):
                for name in names:
                    if name in other and (write or other[name]):
                        return name
            return None

        await self._until(conflict, asyncio.get_running_loop().time() + wait_s)

    def check(self, holder: Hashable, table: str) -> None:
        """Raise SqlError if the holder must not write the table now."""
        self.check_own(holder, table)
        if any(table.lower() in held for held in self._others(holder, False)):
            raise _locked(table)

    def check_own(self, holder: Hashable, table: str) -> None:
        """Raise SqlError if the table is followed, or the holder's own locks keep it from writing the table."""
        if self.followed.tables:
            self.followed.check(table)
        if holder in self._held:
            self._check_locked(holder, table)
            if not self._held[holder][table.lower()]:
                raise SqlError(*TABLE_NOT_LOCKED_FOR_WRITE,
                               f"Table '{table}' was locked with a READ lock and can't be updated")

    def _check_locked(self, holder: Hashable, table: str) -> None:
        if table.lower() not in self._held[holder]:
            raise SqlError(*TABLE_NOT_LOCKED, f"Table '{table}' was not locked with LOCK TABLES")


def _locked(name: str) -> SqlError:
    return SqlError(*LOCK_WAIT_TIMEOUT, f"Lock wait timeout exceeded; try restarting transaction: another session has "
                                        f"locked table '{name}' by LOCK TABLES")
