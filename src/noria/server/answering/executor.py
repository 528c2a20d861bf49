"""The executor: answers the statements of all fronts.

    SELECT → reader view → shared memory → (miss) one upquery → order, limit → rows, and the entry they come from
    write  → one synced commit shared with other clients → visible in the views → acknowledged

Keeps true: a client sees its own acknowledged writes.  One worker publishes them before it acknowledges them; with
several, a session waits in `catch_up`.  If no view can answer a SELECT, Spark answers it over a snapshot, and a warning
in the reply says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

import pyarrow as pa

from noria.control.catalog.view_index import reading
from noria.control.program import Program
from noria.core.errors import (
    SqlError,
    is_redefined,
    not_supported,
    statement_timeout,
    unknown_table,
    view_changed,
)
from noria.core.errors.codes import NOT_SUPPORTED_YET, QUERY_TIMEOUT
from noria.core.limits import LOCK_WAIT_S, MAX_EXECUTION_MS, OFF_LOOP_ROWS, READ_HOLD_MS, VIEW_BINDS
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.core.values import python_values
from noria.dataflow.messages.packets import Done, Inspect, SessionWrites, Write, Wrote
from noria.plan.lookups import Range
from noria.plan.mir import tables_of
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef, first_of
from noria.runtime.cluster import absent_workers
from noria.runtime.link.link import Link
from noria.runtime.transactions.open_transaction import Workers
from noria.server.answering import clock
from noria.server.answering.first_answer import checks_single_values, evaluates_in_order, first_answer
from noria.server.answering.first_state_progress import waits_for
from noria.server.answering.hits import TOUCH_EVERY, KeyLookup, KnownSelect, MissedKey
from noria.server.answering.keys import are_one_key, key_of, keys_of, looked_up, range_of, typed_keys
from noria.server.answering.locks import TableLocks
from noria.server.answering.replies import ReplyCache
from noria.server.answering.result_finish import ResultFinish, as_named, is_of_rows, no_rows, of_all
from noria.server.answering.statements import CachedStatement, Statements, is_one_key
from noria.server.answering.view_lookups import ManyRows, ViewLookups
from noria.server.arrow import arrow_insert
from noria.server.bulk.jobs import BulkJobs
from noria.server.outcomes import ResultSet
from noria.server.rows import arrow_rows, off_loop
from noria.sql import commands as sql
from noria.views.reader import AttachedViews

NOT_MAINTAINED = NOT_SUPPORTED_YET.number  # the error of a rejected view: Spark answers instead
SetState = Callable[[str], None]


class Executor:
    """Answers statements.  bulk: None without Spark; then SELECTs that no view can answer are rejected.

    replies: the kept replies of fronts.  wait_for_front_ends: waits until each has the program's current version.
    kept: returns the bytes of all kept replies and their limit.
    """

    def __init__(self, program: Program, link: Link, attach: Callable[[int], AttachedViews], bulk: BulkJobs | None,
                 reply_bytes: int):
        self.program, self._catalog, self._link, self._bulk = program, program.catalog, link, bulk
        self.staging: Workers = link
        self.reads = ViewLookups(link, attach, MAX_EXECUTION_MS if bulk is None else READ_HOLD_MS)
        self._catalog.on_forget = lambda view: self.reads.forget(view.name)
        self.statements = Statements(self._catalog)
        self.locks = TableLocks()
        link.on_answer(self.locks.wake)
        self.replies = ReplyCache(reply_bytes, self._catalog)
        self.reads.on_forget, self.reads.on_drop = self.replies.forget, self.replies.dropped
        self.writes = self.write_errors = self.spark_queries = self.selects = 0
        self.wait_for_front_ends: Callable[[], Awaitable[None]] = _at_once
        self.kept: Callable[[], tuple[int, int]] = lambda: (self.replies.nbytes, self.replies.limit_bytes)

    # ------------------------------------------------------------ reads
    @checks_single_values
    def select(self, compiled: CachedStatement, values: Sequence[Any], keep: bool, set_state: SetState
               ) -> ResultSet | Awaitable[ResultSet]:
        """Run a SELECT by a lookup of its values.  If its keys are in shared memory, return the result at once.

        keep: return the entry of the result, too.  set_state: called with the state of a statement that waits.
        """
        view = compiled.view
        assert view is not None
        reader = self.reader_of(compiled, view)
        if reader is None or self.program.first_states.is_unfilled(reader):
            return self.select_bound(compiled.select(values), set_state)
        if not compiled.one_key:
            return self._look_up(compiled.select(values), reader, set_state)
        return self._one_key(reader, compiled.through, view, *compiled.bind_lookup(values), keep,
                             lambda: compiled.select(values), set_state)

    @checks_single_values
    async def select_bound(self, select: sql.Select, set_state: SetState) -> ResultSet:
        """Run a bound SELECT.  Make an ad-hoc view if no view answers it, or let Spark answer it."""
        view = select.view
        if view is None:
            self.selects += 1
            return await self._by_spark(sql.as_batch(select), None, set_state)
        wants_one = select.once or self.program.wants_one_shot(view)
        if wants_one and (found := await self._one_shot(select, view, set_state)) is not None:
            return found
        if select.once:
            return await self._by_spark(sql.as_batch(select, "it reads many rows"), view, set_state)
        named = self.program.readerless(view)
        set_state("making an ad-hoc view" if named is None else waits_for(named.name))
        try:
            reader = await self.program.reader(view)
        except SqlError as e:
            if e.code != NOT_MAINTAINED:
                raise
            self.selects += 1
            return await self._by_spark(sql.as_batch(select, e.message), view, set_state)
        return await _awaited(self._look_up(select, reader, set_state))

    @evaluates_in_order
    async def _one_shot(self, select: sql.Select, view: ViewDef, set_state: SetState) -> ResultSet | None:
        """Answer by a one-shot.  None if a worker would have to read too much."""
        shape = ResultFinish.of(view, select.columns)
        try:
            keys, nulls, key_range = looked_up(select.lookups, view.key_fields)
        except SqlError as e:
            self.selects += 1
            return await self._unlike(e, select, set_state)
        set_state("waiting for the worker")
        if not keys and key_range is None:
            self.selects += 1
            return await shape.result_of(no_rows(view.plan.fields), self.reads.room.lease())
        policy, version = self.program.adhoc_views.policy, self.program.version
        try:
            result = await shape.result_of(*await self.reads.one_shot(view, keys, nulls, key_range, None, select.once))
        except SqlError as e:
            if e.code != QUERY_TIMEOUT.number:
                policy.answered(view, version, failed=True)
                raise
            policy.too_much(view, version)
            return None
        policy.answered(view, version, failed=False)
        self.selects += 1
        return result

    @evaluates_in_order
    def _look_up(self, select: sql.Select, reader: ViewDef, set_state: SetState) -> ResultSet | Awaitable[ResultSet]:
        """Answer a bound SELECT of one key, of several keys or of a range from the view that holds its rows."""
        view = select.view
        assert view is not None
        shape, through = ResultFinish.of(view, select.columns), reading(reader, view)
        if is_one_key(select):
            key_values = [a.values[0] for a in select.lookups]
            return self._one_key(reader, through, view, shape, key_values, False, lambda: select, set_state)
        first = select.lookups[0] if select.lookups else None
        if isinstance(first, Range):
            key_range = range_of(first, reader.key_fields[0])
            rows = None if key_range is None else self.reads.local_range(reader, *key_range, through)
            if rows is not None:
                self.selects += 1
                return ResultSet(shape.shown, shape.rows_of(rows))
            fetch = partial(self._fetched_range, reader, through, view, shape, key_range)
            return self._from_worker_or_spark(fetch, reader, lambda: select, set_state)
        self.selects += 1
        try:
            keys, nulls = keys_of(select.lookups, view.key_fields)
        except SqlError as e:
            return self._unlike(e, select, set_state)
        if through is not None:
            keys, through = through.of(keys)
        found = self.reads.local_keys(reader, keys, nulls, through)
        if found is None:
            fetch = partial(self._fetched_several, reader, through, shape, keys, nulls)
            return self._from_worker_or_spark(fetch, reader, lambda: select, set_state)
        return shape.result_of(found) if len(found) > OFF_LOOP_ROWS else ResultSet(shape.shown, shape.rows_of(found))

    def _one_key(self, reader: ViewDef, through: ReadThrough | None, view: ViewDef, shape: ResultFinish,
                 key_values: Sequence[Any], keep: bool, select: Callable[[], sql.Select],
                 set_state: SetState) -> ResultSet | Awaitable[ResultSet]:
        """Answer a SELECT of one key.  key_values: the client's values for the key columns."""
        self.selects += 1
        try:
            key = key_of(key_values, view.key_fields)
        except SqlError as e:
            return self._unlike(e, select(), set_state)
        if key is None:
            return ResultSet(shape.shown, shape.apply([]))
        if through is not None and not through.same_key:
            (key,), through = through.of([key])
        found = self.reads.local(reader, key, keep, through)
        if found is None:
            fetch = partial(self._fetched, reader, through, view, shape, key)
            later = partial(self._from_worker_or_spark, fetch, reader, select, set_state)
            return MissedKey(self.reads, KeyLookup(reader, key, through, shape), later)
        if not view.key:
            self.program.read_many(view, len(found.rows))
        return ResultSet(shape.shown, shape.apply(found.rows), (), found.version)

    def reader_of(self, compiled: CachedStatement, view: ViewDef) -> ViewDef | None:
        """Return the view that holds the answer, or None.  It is looked up again after each change of the program."""
        compiled.uses += 1
        if compiled.generation != self._catalog.generation or compiled.reader is None:
            compiled.answered_by(self._catalog.match(view), self._catalog.generation)
        elif compiled.uses % TOUCH_EVERY == 0:
            self._catalog.touch(compiled.reader)
        return compiled.reader

    def taught(self, compiled: CachedStatement) -> KnownSelect | None:
        """Return the data with which a front end answers the statement from shared memory.  None if it cannot."""
        view, program = compiled.view, self.program
        if not (compiled.direct and compiled.one_key) or view is None or compiled.version != self._catalog.version:
            return None
        reader = self.reader_of(compiled, view)
        if reader is None or (reader.adhoc and program.first_states.is_unfilled(reader)):
            return None
        routes = self._link.routes
        route = routes.route_of(reader.name) if routes.workers > 1 else None
        if route is None and routes.workers > 1:
            return None
        assert isinstance(compiled.command, sql.Select)
        return KnownSelect.of(compiled.number, compiled.version, compiled.command, reader, compiled.through,
                              compiled.plain, compiled.shape, route)

    def has(self, view: str, worker: int, writes: SessionWrites) -> bool:
        """True if the view's shard on this worker has these writes."""
        return self._link.has(worker, view, writes)

    async def _fetched(self, reader: ViewDef, through: ReadThrough | None, view: ViewDef, shape: ResultFinish,
                       key: tuple[Any, ...]) -> ResultSet:
        await self._there(reader)
        found = await self.reads.fetch(reader, key, through)
        if isinstance(found, ManyRows):
            self.program.read_many(view, found.table.num_rows)
            return await shape.result_of(*found)
        return ResultSet(shape.shown, await off_loop(shape.apply, found))

    async def _fetched_several(self, reader: ViewDef, through: ReadThrough | None, shape: ResultFinish,
                               keys: list[tuple[Any, ...]], nulls: bool) -> ResultSet:
        await self._there(reader)
        return await shape.result_of(await self.reads.fetch_keys(reader, keys, nulls, through))

    async def _fetched_range(self, reader: ViewDef, through: ReadThrough | None, view: ViewDef, shape: ResultFinish,
                               key_range: tuple[int, int] | None) -> ResultSet:
        self.selects += 1
        await self._there(reader)
        if key_range is None:
            return ResultSet(shape.shown, shape.rows_of(no_rows(view.plan.fields)))
        return await shape.result_of(*await self.reads.fetch_range(reader, *key_range, first_of(view), through))

    async def _there(self, reader: ViewDef) -> None:
        """Wait for the first state.  If Spark can answer instead of an ad-hoc view, raise SqlError 3024 soon."""
        if not self.program.first_states.is_unfilled(reader):
            return
        hold_s = self.program.patience_s(reader) if reader.adhoc and self._bulk is not None else None
        try:
            await asyncio.wait_for(self.program.first_states.of(reader), hold_s)
        except TimeoutError:
            raise statement_timeout(round((hold_s or 0) * 1000)) from None

    async def _from_worker_or_spark(self, fetch: Callable[[], Awaitable[ResultSet]], reader: ViewDef,
                           select: Callable[[], sql.Select], set_state: SetState) -> ResultSet:
        """Answer by the worker.  If that takes too long for an ad-hoc view, Spark answers instead.  If the view is
        still being filled, both run, and the first answer counts."""
        fills = not reader.adhoc and self.program.first_states.is_unfilled(reader)
        set_state(waits_for(reader.name) if fills else "waiting for the worker")
        try:
            return await fetch()
        except SqlError as e:
            if e.code != QUERY_TIMEOUT.number or not reader.adhoc or self._bulk is None:
                raise
            batch = sql.as_batch(wanted := select(), "its rows take the worker too long to derive")
            filling = self.program.first_states.is_unfilled(reader)
            with self.program.first_states.wanted(reader):
                by_spark = self._by_spark(batch, wanted.view, set_state)
                return await (first_answer(by_spark, self._when_there(reader, fetch)) if filling else by_spark)

    async def _when_there(self, reader: ViewDef, fetch: Callable[[], Awaitable[ResultSet]]) -> ResultSet:
        await self.program.first_states.of(reader)
        return await fetch()

    def _unlike(self, error: SqlError, select: sql.Select, set_state: SetState) -> Awaitable[ResultSet]:
        """Let Spark answer a SELECT by values that are no keys, such as a number for a text column.  Several texts
        equal one number.  The SELECT is rejected if their rows must be grouped or ranked together."""
        view = select.view
        assert view is not None
        together = are_one_key(select.lookups, view.key_fields) or is_of_rows(view)
        if error.code != NOT_MAINTAINED or not together:
            raise error
        return self._by_spark(sql.as_batch(select, error.message), view, set_state)

    async def _by_spark(self, batch: sql.BatchQuery, view: ViewDef | None, set_state: SetState) -> ResultSet:
        if self._bulk is None:
            raise not_supported(f"this SELECT ({batch.reason or 'no view answers it'})",
                                "an embedded database has no Spark: run it with a server")
        self.spark_queries += 1
        set_state("answered by Spark")
        rows = await self._bulk.query(batch, set_state)
        if not rows and view is not None and view.empty_row is not None:
            rows = [view.empty_row[: view.visible]]
        why = f": {batch.reason}" if batch.reason else ""
        warning = ("Warning", NOT_MAINTAINED, f"answered by Spark over a snapshot, not by a view{why}")
        return ResultSet(batch.fields, rows, (warning,))

    async def lookup(self, name: str, keys: pa.Table) -> pa.Table:
        """Return the rows of many keys of a named view as Arrow, with `__key`, the ordinal of each row's key.  Raises
        SqlError 1146 if there is no such view, and 1412 if it was redefined during each of VIEW_BINDS attempts."""
        while True:
            granted = self.locks.granted
            found = await self._lookup(name, keys)
            if granted == self.locks.granted:  # else it may have read what LOCK TABLES … WRITE has hidden meanwhile
                return found

    async def _lookup(self, name: str, keys: pa.Table) -> pa.Table:
        for attempt in range(VIEW_BINDS):
            try:
                return await self._looked_up(name, keys)
            except SqlError as e:
                if not is_redefined(e):
                    raise
            await self.program.wait_until_idle(attempt)
        raise view_changed(name)

    async def _looked_up(self, name: str, keys: pa.Table) -> pa.Table:
        name = self._catalog.resolved(name)
        view = self.program.view(name)
        if view is None or view.internal:
            raise unknown_table(name)
        reader = await self.program.reader_of(view)
        await self.program.first_states.of(reader)
        if self.locks.reads_wait:
            await self.locks.admit(None, tables_of(view.plan), False, LOCK_WAIT_S)
        select = of_all(view, keys.num_columns)
        if view.asks is None:
            keys = typed_keys(keys, view.key_fields)
            through = reading(reader, view)
            if not ResultFinish.of(view, ()).changes_rows and (through is None or through.same_key):
                self.selects += keys.num_rows
                return as_named(view, await self.reads.fetch_table(reader, keys, through))
        ordinals: list[int] = []
        rows: list[Any] = []
        for i, values in enumerate(zip(*map(python_values, keys.columns), strict=True) if keys.num_columns else
                                   [()] * keys.num_rows):
            if view.asks is None:
                key_of(values if view.key else (), view.key_fields)  # raises an error for a value that is no key
            result = await _awaited(self._look_up(sql.bound_select(select, values), reader, lambda state: None))
            rows += result.rows
            ordinals += [i] * len(result.rows)
        return arrow_rows(view.fields, rows).append_column("__key", pa.array(ordinals, pa.int64()))

    # ------------------------------------------------------------ writes
    def submit(self, statement: Insert | Update | Delete, offset: timedelta = timedelta(), idempotency_key: str = "",
               wait_s: float = LOCK_WAIT_S) -> asyncio.Future[Any]:
        """Begin a write and return its future, which is done once the write is durable and visible (`catch_up` waits
        for the other workers).  `result_of` returns its result.  offset: how far the session's clock is ahead of UTC.
        idempotency_key, wait_s: as in `packets.Write`."""
        self.writes += 1
        statements = (self.at_its_time(statement, offset),)
        return self._link.submit(Write(statements, idempotency_key=idempotency_key, wait_s=wait_s))

    def is_by_key(self, compiled: CachedStatement, command: Insert | Update | Delete) -> bool:
        """True if the write goes to `submit`, not to `rewrite`.  Once True, it stays so for all writes of the shape."""
        compiled.by_key = compiled.by_key or not self.program.may_rewrite(command)
        return compiled.by_key

    async def write_by_spark(self, statement: Update | Delete, offset: timedelta, set_state: SetState
                      ) -> asyncio.Future[Any] | None:
        """Let Spark run a write over a large table, and return its done future.  None: the caller must submit it."""
        wrote = await self.program.rewrite(cast(Update | Delete, self.at_its_time(statement, offset)), set_state)
        if wrote is None:
            return None
        self.writes += 1
        await self.wait_for_front_ends()
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        done.set_result(wrote)
        return done

    def submit_together(self, statements: Sequence[Insert | Delete], idempotency_key: str) -> asyncio.Future[Any]:
        """Submit statements without clock functions as one commit, which applies all of them or none."""
        self.writes += len(statements)
        return self._link.submit(Write(tuple(statements), idempotency_key=idempotency_key))

    def give_up(self, write: asyncio.Future[Any]) -> None:
        """Cancel a write unless it is committed.  Its future has the outcome."""
        self._link.cancel(write)

    def result_of(self, done: asyncio.Future[Any]) -> WriteResult:
        """Return the result of a finished write.  Raises its SqlError, or WorkerUnavailable."""
        reply: Wrote = done.result()
        result = reply.results[0]
        if result.error is not None:
            self.write_errors += 1
            raise result.error
        return result

    def written(self, done: asyncio.Future[Any]) -> SessionWrites:
        """Return the writing workers, the numbers and the messages of a finished write, for `catch_up`."""
        return cast(SessionWrites, done.result().session_writes)

    def lacks(self, compiled: CachedStatement, values: Sequence[Any], writes: SessionWrites
              ) -> tuple[str, int | None] | None:
        """Return the view and the worker (None: several) that may lack these writes.  None if no worker lacks them.
        The view is "" if it is unknown which view answers."""
        reader = compiled.reader if compiled.generation == self._catalog.generation else None
        if reader is None:
            return "", None
        if not self._link.routes.depth_of(reader.name):
            return None
        worker = self._worker_of(compiled, reader, values) if compiled.one_key else None
        return None if worker is not None and self._link.has(worker, reader.name, writes) else (reader.name, worker)

    def _worker_of(self, compiled: CachedStatement, reader: ViewDef, values: Sequence[Any]) -> int | None:
        """Return the worker that owns the statement's single key; None if the values are no key."""
        assert compiled.view is not None
        try:
            key = key_of(compiled.bind_lookup(values)[1], compiled.view.key_fields)
        except SqlError:
            return None
        if key is not None and compiled.through is not None and not compiled.through.same_key:
            (key,), _ = compiled.through.of([key])
        return None if key is None else self._link.routes.owner(reader, key)

    def lost_workers(self) -> Callable[[], str]:
        """Return a function that describes the workers that were lost since this call or do not serve, and why."""
        return partial(absent_workers.lost_workers_text, self._link, self._link.losses())

    async def catch_up(self, writes: SessionWrites, view: str = "", worker: int | None = None) -> None:
        """Wait until the view has these writes.  view: "" for all views; worker: None for all workers."""
        await self._link.catch_up(writes, view, worker)

    def lags(self, view: ViewDef) -> bool:
        """True if rows pass between workers on their way to the view that answers."""
        if self._link.routes.workers == 1 or (reader := self._catalog.match(view)) is None:
            return False
        return self._link.routes.depth_of(reader.name) > 0

    def at_its_time(self, statement: Insert | Update | Delete, offset: timedelta, utc: datetime | None = None
                    ) -> Insert | Update | Delete:
        """Return the statement with the current time, or `utc`, in place of clock functions.  Raises SqlError 1146."""
        table = self.program.table(statement.table)
        if table is None:
            raise unknown_table(statement.table)
        if not clock.needs(statement, table, offset):
            return statement
        return clock.timed(statement, table, datetime.now(UTC).replace(tzinfo=None) if utc is None else utc, offset)

    async def insert(self, name: str, rows: pa.Table, on_duplicate: str) -> int:
        """Insert rows of an Arrow table, whose columns are matched by name.  Return the number of affected rows.
        on_duplicate: "error", "replace" or "ignore"."""
        statement = self.insert_of(name, rows, on_duplicate)
        if statement is None:
            return 0
        await self.locks.admit(None, (statement.table,), True, LOCK_WAIT_S)
        self.program.foreign_keys.refuse_unchecked(statement.table)
        done = self.submit(statement)
        await asyncio.wait((done,))
        affected = self.result_of(done).affected
        await self.catch_up(self.written(done))  # no session would wait for this before its next read
        return affected

    def insert_of(self, name: str, rows: pa.Table, on_duplicate: str) -> Insert | None:
        """Return the INSERT of these rows; None without rows."""
        return arrow_insert(self.program, self._catalog.resolved(name), rows, on_duplicate)

    # ------------------------------------------------------------ requests to the worker
    async def ask(self, question: Inspect) -> Any:
        """Return the worker's answer to a question.  Raises WorkerUnavailable while no worker is up."""
        reply: Done = await self._link.ask(question)
        return reply.result()

    async def builds(self) -> list[dict[str, Any]]:
        """Return the builds that run in the background (`Inspect` builds), with Spark's progress on them."""
        found: list[dict[str, Any]] = await self.ask(Inspect(0, "builds"))
        return found if self._bulk is None else self._bulk.furthered(found)

    def stats(self) -> dict[str, Any]:
        kept, limit = self.kept()
        return {
            "reads_total": self.selects + self.replies.hits, "view_hits_total": self.reads.hits,
            "upqueries_total": self.reads.upqueries, "cached_replies_total": self.replies.hits,
            "cached_reply_bytes": kept, "reply_limit_bytes": limit,
            "writes_total": self.writes, "write_errors_total": self.write_errors,
            "commits_total": self._link.stats.groups, "spark_queries_total": self.spark_queries,
            "one_shots_total": self.reads.one_shots, "parsed_total": self.statements.parsed,
            "tables": len(list(self.program.tables())), "views": len(list(self.program.views())),
            "adhoc_views": len(list(self.program.adhoc()))}


async def _at_once() -> None:
    """Wait for no process: a server with a single front end knows its own changes."""


async def _awaited(answer: ResultSet | Awaitable[ResultSet]) -> ResultSet:
    return answer if isinstance(answer, ResultSet) else await answer
