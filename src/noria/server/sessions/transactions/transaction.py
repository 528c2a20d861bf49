"""A session's transaction: BEGIN … COMMIT, autocommit=0, savepoints, isolation levels.

    BEGIN ──► nothing is sent ──► the first write, or the first read of a snapshot ──► the workers have a part
    SELECT ──► views, while they have the rows that the transaction must see; else a one-shot over its own rows

Keeps true: a transaction that was rolled back, by a deadlock or a lost worker, tells its client once (1213), and the
session is then outside it.  A SELECT of a transaction never shows rows of its snapshot's future.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from noria.core.errors import NotCommitted, SqlError
from noria.core.errors.codes import (
    CANT_CHANGE_TX_CHARACTERISTICS,
    CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
    LOCK_DEADLOCK,
    SP_DOES_NOT_EXIST,
)
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.dataflow.messages.packets import SessionWrites, Wrote
from noria.runtime.transactions.open_transaction import OpenTransaction
from noria.server.answering.statements import CachedStatement
from noria.server.outcomes import EARLIEST, ResultSet
from noria.server.sessions.transactions.transaction_service import Lenient, TransactionService
from noria.sql import commands as sql

A = TypeVar("A")


class SessionTransaction:
    """See the module.  variables: the session's.  next_read_only, next_isolation: of SET TRANSACTION, for the next one.

    owner: the session's number.  open: after BEGIN.  unchecked: a SELECT may read views without asking
    `must_bypass_views`.

    counts: the transaction must count the tables that it reads (`note_read`).  keepable: kept replies may answer.
    """

    def __init__(self, service: TransactionService, variables: Mapping[str, Any], owner: int):
        self._service, self._variables, self._owner = service, variables, owner
        self.open = False
        self.next_read_only: bool | None = None
        self.next_isolation: str | None = None
        self.written: SessionWrites = {}  # what the last commit wrote
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._read_only: bool | None = None  # None: the session's variable decides
        self._isolation: str | None = None
        self._parts: OpenTransaction | None = None
        self._savepoints: dict[str, Mapping[int, int]] = {}
        self.unchecked = self.keepable = True
        self.counts = self._has_read = False
        self.noted: set[str] = set()  # the views with readers that it has read

    # ------------------------------------------------------------ state
    @property
    def active(self) -> bool:
        """True if a statement now belongs to a transaction."""
        return self.open or not self._variables["autocommit"]

    @property
    def reads_snapshot(self) -> bool:
        """True if the transaction's SELECTs read the snapshot of the first one."""
        return self._level in ("REPEATABLE-READ", "SERIALIZABLE")

    @property
    def _level(self) -> str:
        return str(self._isolation or self.next_isolation or self._variables["transaction_isolation"])

    @property
    def has_parts(self) -> bool:
        """True if the transaction has written, locked or seen something."""
        return self._parts is not None

    @property
    def has_begun(self) -> bool:
        """True if others may have to wait for the transaction's end."""
        return self._parts is not None or self._has_read

    @property
    def work(self) -> int:
        """The number of the transaction's requests at the workers."""
        return 0 if self._parts is None else sum(self._parts.done.values())

    def note_read(self, tables: Iterable[str]) -> None:
        """Note that the transaction has read these tables."""
        self._has_read = True
        self._service.locks.note_read(self._owner, (name.lower() for name in tables))

    def note_answer(self, compiled: CachedStatement) -> None:
        """Note, in a transaction, what a SELECT has read in shared memory."""
        view, reader = compiled.view, compiled.reader
        if self.counts and view is not None and (reader is None or reader.name not in self.noted):
            self.note_read(self._service.tables(view))
            if reader is not None:
                self.noted.add(reader.name)

    def renew(self) -> None:
        """Decide anew whether SELECTs must be checked, after a change of the session's variables."""
        self.counts = self.active
        self.unchecked = not self.counts or (self._parts is None and not self.reads_snapshot)
        self.keepable = self.unchecked and not self.counts

    def check_write(self) -> None:
        """Raise SqlError 1792 in a read-only transaction."""
        read_only = self._read_only
        if read_only is None:
            read_only = self.next_read_only if self.active else None
        if self._variables["transaction_read_only"] if read_only is None else read_only:
            raise SqlError(*CANT_EXECUTE_IN_READ_ONLY_TRANSACTION,
                           "Cannot execute statement in a READ ONLY transaction.")

    def set_next(self, kept: Mapping[str, Any]) -> None:
        """SET TRANSACTION, for the next transaction.  Raises SqlError 1568 within one."""
        if self.open or self.has_parts:
            raise SqlError(*CANT_CHANGE_TX_CHARACTERISTICS, "Transaction characteristics can't be changed while a "
                                                            "transaction is in progress")
        self.next_read_only = kept.get("transaction_read_only", self.next_read_only)
        self.next_isolation = kept.get("transaction_isolation", self.next_isolation)

    # ------------------------------------------------------------ statements
    async def run(self, command: sql.Transaction) -> None:
        """Run a statement about transactions.  Raises SqlError 1213 if it was rolled back, 1305."""
        if command.what == "begin":
            await self.commit()
            self._start(command.read_only)
            if command.snapshot and self.reads_snapshot:
                await self._service.coordinator.open_snapshot(self._its_parts())
        elif command.what in ("commit", "rollback"):
            level, read_only = self._isolation, self._read_only
            if command.what == "commit":
                await self.commit()
            else:
                self.abandon()
            if command.chain:
                self._start(read_only)
                self._isolation = level
                self.renew()
        elif command.what == "savepoint":
            self._savepoints.pop(command.name, None)
            if self.active:
                self._savepoints[command.name] = {} if self._parts is None else self._parts.mark()
        else:
            await self._to_savepoint(command)

    def begin_at_once(self, command: sql.Transaction) -> bool:
        """Run a BEGIN for which nothing is to be committed and no worker is asked.  False: use `run`."""
        if command.what != "begin" or command.snapshot or self.open or self.has_parts:
            return False
        self._start(command.read_only)
        return True

    def _start(self, read_only: bool | None) -> None:
        self._forget_reads()
        self.open = True
        self._take_next(read_only)
        self.renew()

    def _take_next(self, read_only: bool | None) -> None:
        """Fix the transaction's characteristics: those of SET TRANSACTION, or else the session's."""
        self._isolation = self.next_isolation or str(self._variables["transaction_isolation"])
        if read_only is None:
            read_only = self.next_read_only
        self._read_only = bool(self._variables["transaction_read_only"]) if read_only is None else read_only
        self.next_isolation = self.next_read_only = None

    async def _to_savepoint(self, command: sql.Transaction) -> None:
        if command.name not in self._savepoints:
            raise SqlError(*SP_DOES_NOT_EXIST, f"SAVEPOINT {command.name} does not exist")
        names = list(self._savepoints)
        at = names.index(command.name)
        back = command.what == "rollback to"
        if back and self._parts is not None:
            try:
                await self._service.coordinator.back_to(self._parts, self._savepoints[command.name])
            except SqlError as e:
                raise self.abandon_on_deadlock(e) from None
        for later in names[at + back :]:
            del self._savepoints[later]

    async def commit(self, idempotency_key: str = "") -> None:
        """Commit, if anything is to be committed, and leave the transaction.  idempotency_key: as in `Write`.  Raises
        SqlError 1213 if it was rolled back instead."""
        parts = self._parts
        self._leave()
        if parts is not None:
            try:
                wrote: Wrote = await self._service.coordinator.commit(parts, idempotency_key)
            except SqlError as e:
                raise NotCommitted(e.code, e.state, e.message) from None
            self.written = wrote.session_writes

    def abandon(self) -> None:
        """Roll back: forget what the transaction has done, and leave it.  Nothing waits for the workers."""
        parts = self._parts
        self._leave()
        if parts is not None:
            self._service.coordinator.end(parts)

    def _forget_reads(self) -> None:
        self.noted.clear()
        if self._has_read:
            self._has_read = False
            self._service.locks.forget_reads(self._owner)

    def _leave(self) -> None:
        self._forget_reads()
        self.open = False
        self._begin_anew()
        self.renew()

    def _its_parts(self) -> OpenTransaction:
        if self._parts is None:
            if not self.open:  # autocommit=0: the transaction begins here
                self._take_next(None)
            self._parts = self._service.coordinator.begin(self._level == "SERIALIZABLE", self._owner)
            self.unchecked = self.keepable = False
        return self._parts

    def abandon_on_deadlock(self, error: SqlError) -> SqlError:
        """The error, after which the session is outside a transaction that was rolled back."""
        if error.code == LOCK_DEADLOCK.number:
            self.abandon()
        return error

    # ------------------------------------------------------------ writes and reads
    async def write(self, command: Insert | Update | Delete, offset: timedelta) -> WriteResult:
        """Run a write within the transaction."""
        try:
            return await self._service.stage(self._its_parts(), command, offset,
                                             float(self._variables["innodb_lock_wait_timeout"]),
                                             bool(self._variables["foreign_key_checks"]))
        except SqlError as e:
            raise self.abandon_on_deadlock(e) from None

    async def write_in_parts(self, command: Update | Delete, offset: timedelta) -> WriteResult:
        """As `write` and `write_alone`, for an UPDATE or DELETE that scans a large table."""
        wait_s, checks = float(self._variables["innodb_lock_wait_timeout"]), bool(self._variables["foreign_key_checks"])
        return await self._run(lambda t: self._service.stage_in_parts(t, command, offset, wait_s, checks))

    async def write_selected(self, command: sql.SelectedWrite, found: ResultSet | None, offset: timedelta,
                             lenient: Lenient) -> tuple[WriteResult, int]:
        """As `TransactionService.stage_selected`, within the transaction or as one of its own."""
        wait_s, checks = float(self._variables["innodb_lock_wait_timeout"]), bool(self._variables["foreign_key_checks"])
        return await self._run(lambda t: self._service.stage_selected(t, command, found, offset, wait_s, checks,
                                                                           lenient))

    async def _run(self, run: Callable[[OpenTransaction], Awaitable[A]]) -> A:
        """Run a statement within the transaction, or as one of its own."""
        if not self.active:
            result, self.written = await self._service.alone(run, self._owner)
            return result
        try:
            return await run(self._its_parts())
        except SqlError as e:
            raise self.abandon_on_deadlock(e) from None

    def checked(self, command: Insert | Update | Delete) -> Insert | Update | Delete | None:
        """The write as a worker can run it by itself, with the FOREIGN KEYs that it must keep.  None: use
        `write_alone`, which checks them."""
        keys = self._service.foreign_keys
        if not self._variables["foreign_key_checks"] or not keys.concerns(command):
            return command
        return keys.with_parents(command)

    async def write_alone(self, command: Insert | Update | Delete, offset: timedelta) -> WriteResult:
        """Run a write that concerns FOREIGN KEYs, and that belongs to no transaction."""
        wait_s = float(self._variables["innodb_lock_wait_timeout"])
        result, self.written = await self._service.alone(
            lambda t: self._service.stage(t, command, offset, wait_s, True), self._owner)
        return result

    async def select_locking(self, command: sql.LockingSelect) -> ResultSet:
        """Answer SELECT … FOR UPDATE or FOR SHARE.  Without a transaction its locks end with it."""
        wait_s, coordinator = float(self._variables["innodb_lock_wait_timeout"]), self._service.coordinator
        if not self.active:
            own = coordinator.begin(owner=self._owner)
            try:
                return await self._service.lock(own, command, wait_s)
            finally:
                coordinator.end(own)
        try:
            return await self._service.lock(self._its_parts(), command, wait_s)
        except SqlError as e:
            raise self.abandon_on_deadlock(e) from None

    def must_bypass_views(self, compiled: CachedStatement) -> bool:
        """True if a SELECT must not read views now, or if that is not known yet."""
        if self._parts is None or (self._parts.snapshot is None and self.reads_snapshot):
            return not self.unchecked
        view = compiled.view
        if self._parts.reads is not None:
            return True  # `select` notes what it reads
        return view is None or self._service.must_bypass_views(self._parts, view)

    @property
    def kept_tick(self) -> int:
        """The tick of the snapshot, if the transaction has changed nothing and kept replies may answer it, or
        EARLIEST."""
        parts = self._parts
        if parts is None or parts.tables or parts.reads is not None or not self.reads_snapshot:
            return EARLIEST
        tick = self._service.coordinator.tick_of(parts, ())
        return EARLIEST if tick is None else tick

    def tick_of(self, compiled: CachedStatement) -> int | None:
        """The tick of the snapshot, if a SELECT may read the rows of views that have not changed since."""
        if self._parts is None or self._parts.reads is not None or not self.reads_snapshot or compiled.view is None:
            return None
        return self._service.tick_of(self._parts, compiled.view)

    async def select_first(self, compiled: CachedStatement, values: Sequence[Any]) -> ResultSet | None:
        """Open the snapshot if no SELECT has read it yet, and answer one from shared memory.  None: use `select`."""
        if self.unchecked or not self.reads_snapshot or (self._parts is not None and self._parts.snapshot is not None):
            return None
        try:
            await self._service.coordinator.open_snapshot(self._its_parts())
        except SqlError as e:
            raise self.abandon_on_deadlock(e) from None
        tick = self.tick_of(compiled)
        return None if tick is None else self._service.select_as_of(compiled, values, tick)

    def is_outdated(self, command: sql.Select) -> bool:
        """True if the tables were written since the snapshot, so that an answer of views or Spark may be too new."""
        return self._parts is not None and self._parts.snapshot is not None and self._service.is_apart(
            self._parts, command)

    async def select(self, command: sql.Select) -> ResultSet | None:
        """Answer a SELECT within the transaction; None if it may read views as without a transaction."""
        if self.unchecked:
            return None
        try:
            if self.reads_snapshot:
                await self._service.coordinator.open_snapshot(self._its_parts())
            if self._parts is None:
                return None
            self._service.note(self._parts, command)
            return await self._service.select(self._parts, command)
        except SqlError as e:
            raise self.abandon_on_deadlock(e) from None
