"""LOCK TABLES: decides which session may read and write a table, and who waits.  Rejects writes to followed tables.

    LOCK TABLES ──► pending ──► no conflicting lock ──► no transaction and no statement uses the tables ──► held
    a write     ──► waits for locks of others, also for pending ones, unless its transaction has begun before them
    a read      ──► waits for WRITE locks of others

Keeps true: while a session holds a lock, no other writes the table; nothing of an earlier write is under way.  While
it holds a WRITE lock, no other reads the table, and no open transaction has read it.  A session holds the locks of its
last LOCK TABLES until UNLOCK TABLES, BEGIN, or its end.  Pending locks hold nothing.

Nothing here polls: whoever ends something for which others wait calls `wake`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_WAIT_TIMEOUT, TABLE_NOT_LOCKED, TABLE_NOT_LOCKED_FOR_WRITE
from noria.dataflow.transactions.locks import deadlock
from noria.dataflow.transactions.wait_graph import Weight
from noria.runtime.transactions.deadlock_watch import Deadlocks
from noria.server.answering.followed_tables import Followed

Tables = Mapping[str, bool]  # by name in small letters: for WRITE?
Use = tuple[str, Hashable]  # a table, and the session that uses or locks it; None if that is unknown
ExclusiveAccess = Callable[[Sequence[str], float], AbstractAsyncContextManager[None]]


class TableLocks:
    """The locks of all sessions.  holder: a session's number; None for reads and writes without a session.

    busy: True while a table is locked, or is about to be.  reads_wait: likewise, for WRITE.

    on_reads_wait: called when reads_wait changes.  readers_know: waits until every front end knows it.  granted: how
    many LOCK TABLES for WRITE there were.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, Tables] = {}
        self._pending: dict[Hashable, Tables] = {}  # in order of their LOCK TABLES
        self._read: dict[Hashable, set[str]] = {}  # by session: the tables that its open transaction has read
        self._woken: asyncio.Future[None] | None = None
        self.busy = self.reads_wait = False
        self.granted = 0
        self.on_reads_wait: Callable[[bool], None] = lambda wait: None
        self.readers_know: Callable[[], Awaitable[None]] = _at_once
        self.followed, self.deadlocks = Followed(), Deadlocks()

    @property
    def waits(self) -> int:
        """The number of sessions that wait, also for locks of GET_LOCK."""
        return len(self.deadlocks)

    def holds(self, holder: Hashable) -> bool:
        return holder in self._held

    # ------------------------------------------------------------ LOCK TABLES, UNLOCK TABLES
    async def lock(self, holder: Hashable, tables: Sequence[tuple[str, bool]], wait_s: float,
                   uses: Callable[[Tables], Iterator[Use]], exclusive_access: ExclusiveAccess) -> None:
        """Replace the holder's locks by these, as (table, for WRITE?).  After a SqlError the holder has none.

        uses: yields the tables that running statements use so that the locks must wait.  exclusive_access: waits for
        transactions that have changed or locked the tables, and keeps others from it.  Raises SqlError 1205 after
        wait_s, and 1213.
        """
        self.unlock(holder)
        wanted: dict[str, bool] = {}
        for name, write in tables:
            wanted[name.lower()] = write or wanted.get(name.lower(), False)
        self._pending[holder] = wanted
        self._look_anew()
        loop = asyncio.get_running_loop()
        late = loop.time() + wait_s

        def conflicts() -> Iterator[Use]:
            yield from self._conflicts(holder, wanted)
            yield from self._reads(holder, {name for name, write in wanted.items() if write})
            yield from uses(wanted)

        try:
            if self.reads_wait:
                await self.readers_know()
            while True:
                await self._until(holder, Weight.DEFINITION, conflicts, late)
                async with exclusive_access(sorted(wanted), max(late - loop.time(), 0.0)):
                    if next(conflicts(), None) is None:
                        self._held[holder] = wanted
                        self.granted += any(wanted.values())
                        return
        finally:
            del self._pending[holder]
            self._look_anew()

    def _conflicts(self, holder: Hashable, wanted: Tables) -> Iterator[Use]:
        """The tables that another lock, or an earlier LOCK TABLES, keeps the holder from locking."""
        for other, tables in self._others(holder, True):
            for name, write in wanted.items():
                if name in tables and (write or tables[name]):
                    yield name, other

    def _others(self, holder: Hashable, earlier: bool) -> Iterable[tuple[Hashable, Tables]]:
        """The locks of others.  earlier: also those that wait, up to the holder's own."""
        yield from ((other, held) for other, held in self._held.items() if other != holder)
        for other, pending in self._pending.items() if earlier else ():
            if other == holder:
                return
            yield other, pending

    def unlock(self, holder: Hashable) -> None:
        if self._held.pop(holder, None) is not None:
            self._look_anew()

    def _look_anew(self) -> None:
        """Let those that wait look again."""
        self.busy = bool(self._held or self._pending)
        wait = any(True in some.values() for some in (*self._held.values(), *self._pending.values()))
        if wait != self.reads_wait:
            self.reads_wait = wait
            self.on_reads_wait(wait)
        self.wake()

    def wake(self) -> None:
        """Let those that wait look again: a statement, a transaction or a change has ended."""
        if self._woken is not None:
            if not self._woken.done():
                self._woken.set_result(None)
            self._woken = None

    async def _until(self, holder: Hashable, weight: Weight, conflicts: Callable[[], Iterator[Use]], late: float,
                     work: int = 0) -> None:
        """Wait until there is no conflict.  Raises SqlError 1205 at the time `late`, and 1213 to end a deadlock."""
        if next(conflicts(), None) is None:
            return
        loop = asyncio.get_running_loop()
        with self.deadlocks.waiting(holder, weight, lambda: {other for _, other in conflicts()}, work) as stop:
            while (found := next(conflicts(), None)) is not None:
                if stop.done():
                    raise deadlock()
                if self._woken is None:
                    self._woken = loop.create_future()
                left = late - loop.time()
                if left <= 0:
                    raise _in_use(found[0])
                await asyncio.wait((self._woken, stop), timeout=left, return_when=asyncio.FIRST_COMPLETED)

    # ------------------------------------------------------------ what transactions have read
    def note_read(self, holder: Hashable, tables: Iterable[str]) -> None:
        """Note that the holder's open transaction has read the tables."""
        known = self._read.get(holder)
        if known is None:
            known = self._read[holder] = set()
        known.update(tables)

    def forget_reads(self, holder: Hashable) -> None:
        """Note that the transaction has ended."""
        if self._read.pop(holder, None) is not None:
            self.wake()

    def _reads(self, holder: Hashable, tables: Collection[str]) -> Iterator[Use]:
        for other, read in self._read.items() if tables else ():
            if other != holder and not read.isdisjoint(tables):
                yield next(name for name in tables if name in read), other

    def readers(self, holder: Hashable, tables: Iterable[str]) -> dict[Hashable, set[str]]:
        """The open transactions of others that have read one of the tables by now, for `until_readers_end`."""
        return {other: self._read[other] for _, other in self._reads(holder, {name.lower() for name in tables})}

    def still_reads(self, holder: Hashable, read: set[str]) -> bool:
        """True if the transaction of `readers` is still open."""
        return self._read.get(holder) is read

    async def until_readers_end(self, holder: Hashable, readers: Mapping[Hashable, set[str]], wait_s: float) -> None:
        """Wait until these transactions have ended.  Raises SqlError 1205 and 1213."""
        def conflicts() -> Iterator[Use]:
            return ((next(iter(read)), other) for other, read in readers.items() if self.still_reads(other, read))

        await self._until(holder, Weight.DEFINITION, conflicts, asyncio.get_running_loop().time() + wait_s)

    # ------------------------------------------------------------ statements
    async def admit(self, holder: Hashable, tables: Collection[str], write: bool, wait_s: float, begun: bool = False,
                    weight: Weight = Weight.STATEMENT, work: int = 0, also: Collection[str] = ()) -> None:
        """Wait until the holder may read or write the tables.  begun: its transaction has read, changed or locked
        something.  LOCK TABLES may wait for that, so the holder waits only for locks that are held.  also: tables that
        it reads besides.

        Raises SqlError 1099 and 1100 for a holder of locks, 1205 after wait_s, and 1213 to end a deadlock, for which
        work is how much the transaction has done.
        """
        for name in tables if write else ():
            self.check_own(holder, name)
        if not self.busy:
            return
        if holder in self._held:
            for name in also if write else (*tables, *also):
                self._check_locked(holder, name)
            return
        names = {name.lower(): False for name in also} | {name.lower(): write for name in tables}

        def conflicts() -> Iterator[Use]:
            for other, locked in self._others(holder, not begun):
                for name, writes in names.items():
                    if name in locked and (writes or locked[name]):
                        yield name, other

        await self._until(holder, weight, conflicts, asyncio.get_running_loop().time() + wait_s, work)

    def check(self, holder: Hashable, table: str) -> None:
        """Raise SqlError if the holder must not write the table now."""
        self.check_own(holder, table)
        if any(table.lower() in held for _, held in self._others(holder, False)):
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


async def _at_once() -> None:
    """Wait for no process: a server with a single front end answers all reads by itself."""


def _in_use(name: str) -> SqlError:
    return SqlError(*LOCK_WAIT_TIMEOUT, f"Lock wait timeout exceeded; try restarting transaction: another session uses "
                                        f"or has locked table '{name}'")


def _locked(name: str) -> SqlError:
    return SqlError(*LOCK_WAIT_TIMEOUT, f"Lock wait timeout exceeded; try restarting transaction: another session has "
                                        f"locked table '{name}' by LOCK TABLES")
