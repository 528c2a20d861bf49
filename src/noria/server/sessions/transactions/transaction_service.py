"""Statements within a transaction: staged writes, and SELECTs that no view can answer because of it.

A SELECT of tables that the transaction has changed, or of a snapshot older than the views, is a one-shot.  It reads the
tables' rows plus those that only this transaction has.  With one worker, a view still has the rows of a snapshot that
no later tick has published.

Keeps true: such a SELECT is exact, or an error that says why it cannot be answered within the transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from noria.core.errors import SqlError, interrupted, not_supported
from noria.core.errors.codes import (
    CHECK_CONSTRAINT_VIOLATED,
    DUP_ENTRY,
    LOCK_DEADLOCK,
    LOCK_WAIT_TIMEOUT,
    NO_REFERENCED_ROW_2,
    QUERY_TIMEOUT,
    ROW_IS_REFERENCED_2,
)
from noria.core.expressions.expr import Col, Expr
from noria.core.expressions.functions import call
from noria.core.expressions.key_condition import with_keys
from noria.core.limits import DENSE_KEYS, LOCK_WAIT_S
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.core.types import TableDef
from noria.dataflow.messages.packets import SessionWrites
from noria.plan.lookups import Range
from noria.plan.mir import Base, Filter, Project, tables_of
from noria.plan.optimizer import optimize
from noria.plan.read_errors import is_evaluation_error
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.rows_read import rows_of_lookup, rows_read
from noria.plan.view import ViewDef
from noria.runtime.link.change_queue import WorkerUnavailable
from noria.runtime.routing.write_routing import Key
from noria.runtime.transactions.client_transactions import ClientTransactions
from noria.runtime.transactions.open_transaction import OpenTransaction
from noria.server.answering import time_zone
from noria.server.answering.bounded_cache import BoundedCache
from noria.server.answering.executor import Executor
from noria.server.answering.keys import key_of, looked_up, range_of
from noria.server.answering.result_finish import ResultFinish, no_rows
from noria.server.answering.statements import CachedStatement
from noria.server.outcomes import ResultSet
from noria.server.rows import off_loop
from noria.server.sessions.transactions.prior_rows import ViewOfRows, patched, view_of_rows
from noria.server.sessions.transactions.selected_parts import parts_of
from noria.sql import commands as sql

A = TypeVar("A")
ALONE_TRIES = 10  # of a write without a transaction, before its client gets error 1213
FILLS_BESIDE = 4  # views that are filled at the same time for transactions to come
FILLED_KEYS = 64  # at most, each time
KEYS_AT_ONCE, COMPOSITE_KEYS_AT_ONCE = 500, 100  # that a part of a large UPDATE or DELETE writes
LOCKED_AT_ONCE = 1_000  # rows that one request locks, between other work
LOCKING_ROUNDS = 100  # how often a locking SELECT is repeated while others add rows that it finds

_IGNORED = {e.number for e in (DUP_ENTRY, ROW_IS_REFERENCED_2, NO_REFERENCED_ROW_2, CHECK_CONSTRAINT_VIOLATED)}


class WarningList(Protocol):
    def add(self, warning: SqlError) -> None: ...
    def begin_anew(self) -> None: ...


class Lenient(Protocol):
    """How a statement goes on after the error of one of its parts (`modes/lenient_writes.py`).

    ignore: an error of a row that IGNORE leaves as it is becomes one of the warnings.
    """

    ignore: bool

    @property
    def warnings(self) -> WarningList: ...

    def again(self, command: Insert | Update | Delete, error: SqlError) -> Insert | Update | Delete | None:
        """Return the part to try after this error, or None if the error stands."""


class TransactionService:
    """See the module."""

    def __init__(self, executor: Executor):
        self.coordinator, self.locks = ClientTransactions(executor.staging, "t"), executor.locks
        self._executor, self._reads, self._recent = executor, executor.reads, executor.staging.recent
        self.foreign_keys = executor.program.foreign_keys.checks(self.coordinator)
        self._filling: dict[str, asyncio.Task[None]] = {}  # by view
        self._sparse: BoundedCache[bool] = BoundedCache()  # ranges of views that stay incomplete in shared memory
        self._tables: dict[int, tuple[ViewDef, frozenset[str]]] = {}

    async def stage(self, transaction: OpenTransaction, statement: Insert | Update | Delete, offset: timedelta,
                    wait_s: float, checks: bool, utc: datetime | None = None) -> WriteResult:
        """Run a write within the transaction.  offset: how far the session's clock is ahead of UTC.  checks: keep
        FOREIGN KEYs.  utc: the statement's time; None: now."""
        timed = self._executor.at_its_time(statement, offset, utc)
        await self.before_writing(transaction)
        if checks and self.foreign_keys.concerns(statement):
            return await self.foreign_keys.stage(transaction, timed, wait_s)
        return await self.coordinator.stage(transaction, timed, wait_s)

    async def stage_in_parts(self, transaction: OpenTransaction, statement: Update | Delete, offset: timedelta,
                             wait_s: float, checks: bool) -> WriteResult:
        """Run an UPDATE or DELETE of a large table within the transaction: find the keys of its rows in slices, between
        other work, and write some keys at a time.

        Raises SqlError 1235 for a table without a primary key, or if the statement sets a column of it.
        """
        timed = self._executor.at_its_time(statement, offset)
        assert isinstance(timed, Update | Delete)
        table = self._executor.program.table(timed.table)
        assert table is not None, "at_its_time raises for an unknown table"
        moves = isinstance(timed, Update) and any(at in table.primary_key for at, _ in timed.assignments)
        if moves or not table.primary_key:
            raise not_supported("in a transaction, an UPDATE or DELETE that scans so large a table, and "
                                "that sets its primary key or finds none",
                                "run it without a transaction, or give a condition on an index")
        select = _keys_of(table, timed.where)
        assert select.view is not None
        found = await self._latest(transaction, select)
        at_once = KEYS_AT_ONCE if len(table.primary_key) == 1 else COMPOSITE_KEYS_AT_ONCE

        def parts() -> Iterator[Update | Delete]:
            for at in range(0, len(found.rows), at_once):
                some = with_keys(table, table.primary_key, [tuple(row) for row in found.rows[at : at + at_once]])
                yield timed._replace(where=some if timed.where is None else call("and", some, timed.where))

        return await self._stage_each(transaction, parts(), offset, wait_s, checks)

    async def _latest(self, transaction: OpenTransaction, select: sql.Select) -> ResultSet:
        """The last commits' rows of a SELECT, which the transaction notes as read."""
        if select.view is None:
            raise not_supported("in a transaction, this SELECT", "Spark answers it, and sees the last commits only")
        mark = await self._marked(transaction)
        found = await self._read(transaction, select, select.view, True)
        self.note(transaction, select, mark)
        return found

    async def _stage_each(self, transaction: OpenTransaction, parts: Iterable[Insert | Update | Delete],
                          offset: timedelta, wait_s: float, checks: bool, lenient: Lenient | None = None
                          ) -> WriteResult:
        """Run the parts of one statement within the transaction: all of them or none.  lenient: to which errors."""
        before, affected, matched, first_id, row_id = transaction.mark(), 0, 0, 0, 0
        utc = datetime.now(UTC).replace(tzinfo=None)  # one time for the whole statement
        try:
            for part in parts:
                again: Insert | Update | Delete | None = part
                while again is not None:
                    try:
                        result = await self.stage(transaction, again, offset, wait_s, checks, utc)
                        again = None
                    except SqlError as e:
                        if lenient is None:
                            raise
                        again = lenient.again(part, e) if again is part else None
                        if again is None:
                            if not lenient.ignore or e.code not in _IGNORED:
                                raise
                            lenient.warnings.add(e)
                            result = WriteResult(matched=1)
                affected, matched = affected + result.affected, matched + result.matched
                first_id, row_id = first_id or result.last_insert_id, result.row_id or row_id
        except SqlError:
            if transaction.lost is None:
                await self.coordinator.back_to(transaction, before)
            raise
        except BaseException:  # stopped at a moment at which nothing can be undone
            self.coordinator.lose(transaction, interrupted())
            raise
        return WriteResult(affected, first_id, matched, row_id=row_id)

    async def stage_selected(self, transaction: OpenTransaction, command: sql.SelectedWrite, found: ResultSet | None,
                             offset: timedelta, wait_s: float, checks: bool, lenient: Lenient
                             ) -> tuple[WriteResult, int]:
        """Run a write of rows that a SELECT finds, within the transaction.  found: the rows, if they are known.  Return
        also their number."""
        lenient.warnings.begin_anew()  # an earlier try may have left some
        select = command.select
        if isinstance(select, sql.LockingSelect):
            if offset:
                select = replace(select, select=time_zone.in_utc(select.select, offset))
            found = await self.lock(transaction, select, wait_s)
            if offset and any(f.type.timestamp for f in found.fields):
                raise not_supported("a write that finds TIMESTAMPs in a session whose time_zone is not UTC",
                                    "SET time_zone = '+00:00' first")
        elif found is None:
            assert isinstance(select, sql.Select), "the rows of a SELECT without FROM are known"
            found = await self._latest(transaction, select)
            found = time_zone.shown(found, offset) if offset else found
        rows = await off_loop(list, found.rows)
        parts = parts_of(command, found.fields, rows)
        return await self._stage_each(transaction, parts, offset, wait_s, checks, lenient), len(rows)

    async def alone(self, run: Callable[[OpenTransaction], Awaitable[A]], owner: int) -> tuple[A, SessionWrites]:
        """Run a statement as a transaction of its own; return its result and its commit.  owner: the session's number.

        It is tried again if its transaction is lost with a worker, or to end a deadlock.
        """
        for tries in range(ALONE_TRIES):
            single = self.coordinator.begin(owner=owner)
            try:
                result = await run(single)
                return result, (await self.coordinator.commit(single)).session_writes
            except SqlError as e:
                if e.code != LOCK_DEADLOCK.number or tries == ALONE_TRIES - 1:
                    raise
            finally:
                self.coordinator.end(single)
        raise AssertionError("the last try returns or raises")

    async def over(self, table: TableDef) -> None:
        """Wait until the transactions have ended that have changed or locked the table or a parent of it."""
        names = {table.name, *(key.parent for key in table.foreign_keys)}
        async with self.coordinator.exclusive_access(sorted(names), LOCK_WAIT_S):
            pass

    def tables(self, view: ViewDef) -> frozenset[str]:
        """The base tables below a view."""
        known = self._tables.get(id(view))
        if known is None or known[0] is not view:
            if len(self._tables) >= 1_000:
                self._tables.clear()
            known = self._tables[id(view)] = view, frozenset(tables_of(view.plan))
        return known[1]

    def must_bypass_views(self, transaction: OpenTransaction, view: ViewDef) -> bool:
        """True if the transaction must not read the views that have these rows."""
        return self.coordinator.must_bypass_views(transaction, self.tables(view)) or (
            transaction.snapshot is not None and self._executor.lags(view))

    def tick_of(self, transaction: OpenTransaction, view: ViewDef) -> int | None:
        """See `ClientTransactions.tick_of`."""
        return self.coordinator.tick_of(transaction, self.tables(view))

    def select_as_of(self, compiled: CachedStatement, values: Sequence[Any], tick: int) -> ResultSet | None:
        """Answer a SELECT of one key, or of a range of few, at the end of an earlier tick of the only worker, from
        shared memory.  None if a later tick has published the rows, or if they are not there."""
        view = compiled.view
        assert view is not None
        reader = self._executor.reader_of(compiled, view)
        if reader is None or self._executor.program.first_states.is_unfilled(reader):
            return None
        rows = self._noted(reader, compiled.through, tick)
        if not compiled.one_key:
            return self._range_as_of(compiled, values, reader, tick, rows)
        shape, key_values = compiled.bind_lookup(values)
        try:
            key = key_of(key_values, view.key_fields)
            if key is None:
                return ResultSet(shape.shown, shape.apply([]))
            through = compiled.through
            if through is not None and not through.same_key:
                (key,), through = through.of([key])
            if rows is not None and (prior := self._recent.before(rows.table.name, key[0], tick)) is not None:
                before = [] if prior[0] is None else [rows.shown(prior[0], reader.visible, through)]
                return ResultSet(shape.shown, shape.apply(before))
            found = self._reads.local(reader, key, True, through)
        except SqlError:  # of the last commits; the snapshot may have other rows
            return None
        if found is None or found.version is None or found.version.tick > (tick if rows is None else self._recent.last):
            return None
        self._executor.selects += 1
        return ResultSet(shape.shown, shape.apply(found.rows), (), found.version)

    def fill_beside(self, compiled: CachedStatement, values: Sequence[Any]) -> None:
        """Fill the keys of a SELECT in its view, for later transactions, while nobody waits for it.

        Otherwise a table that is written all the time would only be read by one-shots, which fill nothing.
        """
        view = compiled.view
        reader = None if view is None else self._executor.reader_of(compiled, view)
        if reader is None or self.coordinator.workers > 1:
            return
        if compiled.through is not None and not compiled.through.same_key:
            return
        if reader.name in self._filling or len(self._filling) >= FILLS_BESIDE:
            return
        self._filling[reader.name] = task = asyncio.ensure_future(self._filled(compiled, values, reader))
        task.add_done_callback(lambda done: self._filling.pop(reader.name))

    async def _filled(self, compiled: CachedStatement, values: Sequence[Any], reader: ViewDef) -> None:
        """Fill the keys, unless they are present.  Ignore errors: nobody has asked for these rows."""
        select = compiled.select(values)
        with suppress(SqlError, WorkerUnavailable):
            keys, nulls, key_range = looked_up(select.lookups, reader.key_fields)
            if key_range is not None:
                await self._filled_range(reader, *key_range)
            elif keys and self._reads.local_keys(reader, keys, nulls) is None:
                await self._reads.fetch_keys(reader, keys[:FILLED_KEYS], nulls)

    async def _filled_range(self, reader: ViewDef, low: int, high: int) -> None:
        """Fill a range of few codes, once if that leaves it incomplete: no row has some of its codes then."""
        name = f"{reader.name} {low} {high}"
        if high - low >= DENSE_KEYS or self._sparse.get(name) or self._is_dense(reader, low, high):
            return
        await self._reads.fetch_range(reader, low, high, None)
        if not self._is_dense(reader, low, high):
            self._sparse.put(name, True)

    def _is_dense(self, reader: ViewDef, low: int, high: int) -> bool:
        return self._reads.local_range(reader, low, high, counts=False) is not None

    def _noted(self, reader: ViewDef, through: ReadThrough | None, tick: int) -> ViewOfRows | None:
        """The view's derivation from rows of its table, if all changes of these rows since a snapshot are noted."""
        rows = None if through is not None and (through.checks or through.bound) else view_of_rows(reader)
        return rows if rows is not None and self._recent.reaches(tick, rows.table.name) else None

    def _range_as_of(self, compiled: CachedStatement, values: Sequence[Any], reader: ViewDef, tick: int,
                     noted: ViewOfRows | None) -> ResultSet | None:
        select = compiled.select(values)
        view, first = select.view, select.lookups[0] if select.lookups else None
        if view is None or not isinstance(first, Range):
            return None
        shape, key_range = ResultFinish.of(view, select.columns), range_of(first, reader.key_fields[0])
        if key_range is None:
            return None
        through, as_of = compiled.through, tick if noted is None else self._recent.last
        try:
            rows = self._reads.local_range(reader, *key_range, through, as_of)
            if rows is None:
                return None
            if noted is not None:
                prior = self._recent.between(noted.table.name, *key_range, tick)
                rows = patched(rows, key_range[0], prior, noted, through)
            result = ResultSet(shape.shown, shape.rows_of(rows))
        except SqlError:  # perhaps of a row that the SELECT drops
            return None
        self._executor.selects += 1
        return result

    def is_apart(self, transaction: OpenTransaction, select: sql.Select) -> bool:
        """True if neither views nor Spark have just the rows that the transaction must see."""
        if select.view is not None:
            return self.must_bypass_views(transaction, select.view)
        assert select.batch is not None, "a SELECT has a view or a plan for Spark"
        return self.coordinator.must_bypass_views(transaction, tables_of(select.batch.plan))

    async def select(self, transaction: OpenTransaction, select: sql.Select) -> ResultSet | None:
        """Answer a SELECT; None if the views have just the rows that the transaction must see."""
        if not self.is_apart(transaction, select):
            return None
        if select.view is None:
            raise not_supported("in a transaction that has changed its tables, or whose snapshot is older than they "
                                "are, this SELECT", "Spark answers it, and sees the last commits only")
        return await self._read(transaction, select, select.view)

    async def before_writing(self, transaction: OpenTransaction) -> None:
        """Let the workers note what a SERIALIZABLE transaction's writes read."""
        if transaction.reads is not None and not transaction.reads.marks:
            await self.coordinator.mark_reads(transaction)

    @staticmethod
    def note(transaction: OpenTransaction, select: sql.Select, mark: int | None = None) -> None:
        """Note what a SELECT reads.  mark: of the moment at which it reads; None: it reads the snapshot."""
        reads, view = transaction.reads, select.view
        if reads is None:
            return
        if view is None:
            assert select.batch is not None, "a SELECT has a view or a plan for Spark"
            found = rows_read(select.batch.plan)
        else:
            try:
                found = rows_of_lookup(view, *looked_up(select.lookups, view.key_fields))
            except SqlError:  # values that are no keys: Spark answers
                found = rows_read(view.plan)
        for table, terms in found:
            reads.note(table, terms, reads.snapshot if mark is None else mark)

    async def _read(self, transaction: OpenTransaction, select: sql.Select, view: ViewDef, latest: bool = False
                    ) -> ResultSet:
        """Answer a SELECT by a one-shot.  latest: read the last commits, not the snapshot."""
        tables = self.tables(view)
        shape = ResultFinish.of(view, select.columns)
        keys, nulls, key_range = looked_up(select.lookups, view.key_fields)
        if not keys and key_range is None:
            return await shape.result_of(no_rows(view.plan.fields), self._reads.room.lease())
        within = self.coordinator.within(transaction, tables, latest)
        try:
            return await shape.result_of(*await self._reads.one_shot(view, keys, nulls, key_range, within))
        except SqlError as e:
            if view.after is not None and is_evaluation_error(e):
                whole = sql.in_one_plan(select)
                assert whole.view is not None
                return await self._read(transaction, whole, whole.view, latest)
            if e.code == LOCK_DEADLOCK.number:
                self.coordinator.end(transaction)
            elif e.code == QUERY_TIMEOUT.number:
                raise SqlError(e.code, e.state, f"{e.message}: a SELECT in a transaction reads the tables themselves, "
                                                "once the transaction or a later commit has changed them") from None
            raise

    # ------------------------------------------------------------ FOR UPDATE, FOR SHARE
    async def lock(self, transaction: OpenTransaction, select: sql.LockingSelect, wait_s: float) -> ResultSet:
        """Answer a SELECT of the last commits, whose rows the transaction then has locked.

        The SELECT is repeated until it finds no row that is not locked.  Raises SqlError 1205, 3572 and 1213.
        """
        held: list[set[Key]] = [set() for _ in select.locked]
        if select.how == "skip":
            self._note_locking(transaction, select, await self._marked(transaction))
            return await self._lock_free(transaction, select, held)
        for _ in range(LOCKING_ROUNDS):
            mark = await self._marked(transaction)
            rows, answer = await self._keyed(transaction, select.select, select)
            if select.grouped is not None:
                assert select.grouped.view is not None
                grouped = await self._read(transaction, select.grouped, select.grouped.view, True)
                rows = (await self._keyed(transaction, select.select, select))[0]
                answer = grouped if answer is None else answer
            if not await self._take(transaction, select, held, rows, wait_s):
                assert answer is not None
                self._note_locking(transaction, select, mark)
                return answer
        raise SqlError(*LOCK_WAIT_TIMEOUT, "Lock wait timeout exceeded; try restarting transaction: others went on "
                                           "adding rows that this SELECT finds")

    async def _marked(self, transaction: OpenTransaction) -> int:
        """Mark the moment of a read of the last commits, if the transaction is SERIALIZABLE."""
        return -1 if transaction.reads is None else await self.coordinator.mark_reads(transaction)

    def _note_locking(self, transaction: OpenTransaction, select: sql.LockingSelect, mark: int) -> None:
        for one in (select.select, select.grouped):
            if one is not None:
                self.note(transaction, one, mark)

    async def _keyed(self, transaction: OpenTransaction, select: sql.Select, of: sql.LockingSelect
                     ) -> tuple[list[list[Key]], ResultSet | None]:
        """The keys of each row, by locked table; and the rows without them, unless they are only keys."""
        assert select.view is not None
        found = await self._read(transaction, select, select.view, True)
        rows, visible = list(found.rows), of.visible
        keys = [[tuple(row[visible + t.at : visible + t.at + len(t.table.primary_key)]) for row in rows]
                for t in of.locked]
        if of.grouped is not None:
            return keys, None
        return keys, replace(found, fields=found.fields[:visible], rows=[row[:visible] for row in rows])

    async def _take(self, transaction: OpenTransaction, select: sql.LockingSelect, held: list[set[Key]],
                    keys: list[list[Key]], wait_s: float) -> bool:
        """Lock these rows.  Returns whether one was not locked before."""
        more = False
        for locked, mine, some in zip(select.locked, held, keys, strict=True):
            new = [key for key in dict.fromkeys(some) if key not in mine and None not in key]
            for at in range(0, len(new), LOCKED_AT_ONCE):
                some_new = new[at : at + LOCKED_AT_ONCE]
                await self.coordinator.lock_rows(transaction, locked.table, some_new, locked.exclusive, select.how,
                                                 wait_s)
                mine.update(some_new)
                more = True
        return more

    async def _lock_free(self, transaction: OpenTransaction, select: sql.LockingSelect, held: list[set[Key]]
                         ) -> ResultSet:
        """SKIP LOCKED: the first rows, in order, that nobody else has locked."""
        view = select.select.view
        assert view is not None
        first, count = view.offset, view.limit
        every = replace(select.select, view=replace(view, limit=None, offset=0))
        refused: list[set[Key]] = [set() for _ in select.locked]
        while True:
            keys, answer = await self._keyed(transaction, every, select)
            assert answer is not None
            rows = list(answer.rows)
            free = [n for n in range(len(rows)) if not any(k[n] in no for k, no in zip(keys, refused, strict=True))]
            chosen = free[first:] if count is None else free[first : first + count]
            again = False
            for locked, mine, no, some in zip(select.locked, held, refused, keys, strict=True):
                new = [k for k in dict.fromkeys(some[n] for n in chosen) if k not in mine and None not in k]
                if new:
                    found = await self.coordinator.lock_rows(transaction, locked.table, new, locked.exclusive, "skip",
                                                             0.0)
                    no.update(found)
                    mine.update(set(new).difference(found))
                    again = True
            if not again:
                return replace(answer, rows=[rows[n] for n in chosen])


def _keys_of(table: TableDef, where: Expr | None) -> sql.Select:
    """The SELECT of the primary keys of the rows that meet a condition."""
    base = Base(table)
    rows = base if where is None else Filter(base, where)
    columns = tuple(Col(base.fields[c].type, base.fields[c].nullable, c) for c in table.primary_key)
    plan = optimize(Project(rows, columns, tuple(base.fields[c].name for c in table.primary_key)))
    return sql.Select(ViewDef("select", plan, (), len(columns), adhoc=True))
