"""The executor: statements to answers, for every front (MySQL, HTTP, embedded).

    SELECT → reader view → shared memory → (miss) one upquery → order, limit → reply, kept while the entry stands
    write  → one synced commit shared with other clients → visible in the views → acknowledged

Keeps true: a client sees its own acknowledged writes (they are published before they are acknowledged); what no
view can answer is answered by Spark over a snapshot, and the reply carries a warning that says so and why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa

from noria.control.program import Program
from noria.core.errors import (
    SqlError,
    is_gone,
    not_supported,
    unknown_column,
    unknown_table,
    view_changed,
    wrong_value_count,
)
from noria.core.expressions.casts import number_prefix
from noria.core.limits import MAX_EXECUTION_MS, OFF_LOOP_ROWS, READ_HOLD_MS, VIEW_BINDS
from noria.core.statements import Delete, Insert, Update, WriteResult
from noria.core.types import TableDef
from noria.dataflow.packets import Ask, Done, Write, Wrote
from noria.plan.after import Found
from noria.plan.lookups import Range
from noria.plan.mir import Base, Filter, Join, Mir, Project, UnionAll
from noria.plan.view import Asks, ViewDef
from noria.runtime.link import Link, WorkerGone
from noria.server import clock, inspection
from noria.server.bulk import Bulk
from noria.server.explain import NOT_MAINTAINED, Explainer
from noria.server.http.wire import arrow_rows
from noria.server.keys import are_one_key, key_of, keys_of, range_of
from noria.server.locks import TableLocks
from noria.server.mysql import encode_result
from noria.server.mysql.backend import Client, Encoded, Outcome, ResultSet
from noria.server.reads import Reads, beside, first_of, typed_keys
from noria.server.results import ReplyCache, Shape, no_rows
from noria.server.running import Processes
from noria.server.sessions import Session, run_text
from noria.server.statements import Compiled, Statements, is_one_key
from noria.sql import commands as sql
from noria.sql.statements.database import DATABASE
from noria.views.reader import AttachedViews

TOO_LONG = 3024  # the error of what takes a worker too long or too much
TOUCH_EVERY = 64  # executions between two notes that an ad-hoc view is in use
HTTP_CLIENT = Client("root", DATABASE, 0, "localhost", False, True)


class Executor:
    """Implements `mysql.backend.Backend`.  `bulk` None: no Spark, so what no view can answer is refused."""

    def __init__(self, program: Program, link: Link, attach: Callable[[], AttachedViews], bulk: Bulk | None,
                 reply_bytes: int):
        self.program, self._link, self._bulk = program, link, bulk
        self.reads = Reads(link, attach, MAX_EXECUTION_MS if bulk is None else READ_HOLD_MS)
        program.on_forget = self.reads.forget
        self.statements = Statements(program)
        self.locks = TableLocks()
        self.explainer = Explainer(self)
        self.replies = ReplyCache(reply_bytes, program)
        self.reads.on_forget = self.replies.forget
        self.processes = Processes()
        self.writes = self.write_errors = self.spark_queries = self.selects = 0

    def connect(self, client: Client) -> Session:
        return Session(self, client)

    # ------------------------------------------------------------ reads
    def select(self, compiled: Compiled, values: Sequence[Any], reply_key: Any, binary: bool, deprecate_eof: bool,
               session: Session) -> Outcome | Awaitable[Outcome]:
        """A SELECT that one lookup answers: at once when the key is in shared memory."""
        select = compiled.command
        assert isinstance(select, sql.Select) and select.view is not None
        reader = self._reader_of(compiled, select.view)
        if reader is None:
            return self.select_bound(_bound(compiled, values), session)
        if not compiled.one_key:
            return self._select_several(reader, _bound(compiled, values), session)
        self.selects += 1
        try:
            asked = values if compiled.plain else [a.bind(values).values[0] for a in select.lookups]
            key = key_of(asked, compiled.key_fields)
        except SqlError as e:
            return self._unlike(e, _bound(compiled, values), session)
        shape = compiled.shape
        if shape is None or select.limit is not None or select.offset is not None:
            shape = Shape.of(sql.bound_select(select, values).view or select.view)
        if key is None:
            return ResultSet(shape.shown, shape.apply([]))
        found = self.reads.local(reader, key, reply_key is not None)
        if found is None:
            fetched = self._fetched(reader, shape, key)
            return self._or_by_spark(fetched, reader, lambda: _bound(compiled, values), session)
        rows = shape.apply(found.rows)
        if reply_key is None or found.entry is None:
            return ResultSet(shape.shown, rows)
        packets = encode_result(shape.shown, rows, binary, deprecate_eof, session.status)
        self.replies.put(reply_key, packets, found.entry, found.version)
        return Encoded(packets)

    def _reader_of(self, compiled: Compiled, view: ViewDef) -> ViewDef | None:
        """The view that holds the answer, if there is one already."""
        compiled.uses += 1
        if compiled.generation != self.program.generation or compiled.reader is None:
            compiled.reader, compiled.generation = self.program.match(view), self.program.generation
        elif compiled.uses % TOUCH_EVERY == 0:
            self.program.touch(compiled.reader)
        return compiled.reader

    async def _fetched(self, reader: ViewDef, shape: Shape, key: tuple[Any, ...]) -> ResultSet:
        await self.program.filled(reader)
        return ResultSet(shape.shown, await beside(shape.apply, await self.reads.fetch(reader, key)))

    def _select_several(self, reader: ViewDef, select: sql.Select, session: Session
                        ) -> ResultSet | Awaitable[ResultSet]:
        """A bound SELECT of several keys, or with conditions over what a lookup finds."""
        view = select.view
        assert view is not None
        asked = select.lookups[0] if select.lookups else None
        if isinstance(asked, Range):
            between = range_of(asked, reader.key_fields[0])
            return self._or_by_spark(self._fetched_between(reader, view, between), reader, lambda: select, session)
        try:
            keys, nulls = keys_of(select.lookups, reader.key_fields)
        except SqlError as e:
            return self._unlike(e, select, session)
        self.selects += 1
        shape = Shape.of(view)
        found = self.reads.several(reader, keys, nulls)
        if found is None:
            fetched = self._fetched_several(reader, shape, keys, nulls)
            return self._or_by_spark(fetched, reader, lambda: select, session)
        return _of_several(shape, found) if len(found) > OFF_LOOP_ROWS else ResultSet(shape.shown, shape.rows_of(found))

    async def _fetched_several(self, reader: ViewDef, shape: Shape, keys: list[tuple[Any, ...]], nulls: bool
                               ) -> ResultSet:
        await self.program.filled(reader)
        return await _of_several(shape, await self.reads.fetch_several(reader, keys, nulls))

    async def _fetched_between(self, reader: ViewDef, view: ViewDef, between: tuple[int, int] | None) -> ResultSet:
        self.selects += 1
        shape = Shape.of(view)
        await self.program.filled(reader)
        if between is None:
            return ResultSet(shape.shown, shape.rows_of(no_rows(reader.plan.fields)))
        return await _of_several(shape, await self.reads.between(reader, *between, first_of(view)))

    async def select_bound(self, select: sql.Select, session: Session) -> ResultSet:
        """A SELECT with its values; makes the view that it needs, or has Spark answer it."""
        self.selects += 1
        view = select.view
        if view is None:
            return await self._by_spark(sql.as_batch(select), None, session)
        session.running.state = "making an ad-hoc view"
        try:
            reader = await self.program.reader(view)
        except SqlError as e:
            if e.code != NOT_MAINTAINED:
                raise
            return await self._by_spark(sql.as_batch(select, e.message), view, session)
        if not is_one_key(select):
            return await _settled(self._select_several(reader, select, session))
        shape = Shape.of(view)
        try:
            key = key_of([a.values[0] for a in select.lookups], reader.key_fields)
        except SqlError as e:
            return await self._unlike(e, select, session)
        if key is None:
            return ResultSet(shape.shown, shape.apply([]))
        found = self.reads.local(reader, key, False)
        if found is None:
            return await self._or_by_spark(self._fetched(reader, shape, key), reader, lambda: select, session)
        return ResultSet(shape.shown, shape.apply(found.rows))

    async def _or_by_spark(self, fetched: Awaitable[ResultSet], reader: ViewDef, select: Callable[[], sql.Select],
                           session: Session) -> ResultSet:
        """What the worker derives; of an ad-hoc view that takes it too long or too much, what Spark does."""
        session.running.state = "waiting for the worker"
        try:
            return await fetched
        except SqlError as e:
            if e.code != TOO_LONG or not reader.adhoc or self._bulk is None:
                raise
            wanted = select()
            batch = sql.as_batch(wanted, "its rows take the worker too long to derive")
            return await self._by_spark(batch, wanted.view, session)

    def _unlike(self, error: SqlError, select: sql.Select, session: Session) -> Awaitable[ResultSet]:
        """The answer to a bound SELECT by values that are no keys, such as a number for a text, which several texts
        equal: only where their rows need not be grouped or ranked together."""
        view = select.view
        assert view is not None
        together = are_one_key(select.lookups, view.key_fields) or _is_of_rows(view)
        if error.code != NOT_MAINTAINED or not together:
            raise error
        return self._by_spark(sql.as_batch(select, error.message), view, session)

    async def _by_spark(self, batch: sql.BatchQuery, view: ViewDef | None, session: Session) -> ResultSet:
        if self._bulk is None:
            raise not_supported(f"this SELECT ({batch.reason or 'no view answers it'})",
                                "an embedded database has no Spark: run it with a server")
        self.spark_queries += 1
        session.running.state = "answered by Spark"
        rows = await self._bulk.query(batch, partial(setattr, session.running, "state"))
        if not rows and view is not None and view.empty_row is not None:
            rows = [view.empty_row[: view.visible]]
        why = f": {batch.reason}" if batch.reason else ""
        session.warnings = (("Warning", NOT_MAINTAINED, f"answered by Spark over a snapshot, not by a view{why}"),)
        return ResultSet(batch.fields, rows, warnings=1)

    async def lookup(self, name: str, keys: pa.Table) -> pa.Table:
        """The rows of many keys of a named view as Arrow, with `__key`, the ordinal of each row's key."""
        for _ in range(VIEW_BINDS):
            try:
                return await self._looked_up(name, keys)
            except SqlError as e:
                if not is_gone(e):
                    raise
            await self.program.settled()  # it was dropped, or replaced
        raise view_changed(name)

    async def _looked_up(self, name: str, keys: pa.Table) -> pa.Table:
        view = self.program.view(name)
        if view is None or view.internal:
            raise unknown_table(name)
        self.selects += keys.num_rows
        await self.program.filled(view)
        if view.asks is not None:
            return await self._lookup_asked(view, view.asks, keys)
        if keys.num_columns != max(len(view.key), 1):
            raise SqlError(1210, "HY000", f"the keys have {keys.num_columns} columns and the view has {len(view.key)} "
                                          "parameters")
        shape = Shape.of(view)
        if not shape.changes_rows:
            return await self.reads.many(view, keys)
        typed = typed_keys(keys, view.key_fields)
        asked = list(zip(*(c.to_pylist() for c in typed.columns), strict=True)) if view.key else [()] * keys.num_rows
        answers = [shape.apply(await self._rows_of(view, key)) for key in asked]
        ordinals = [i for i, rows in enumerate(answers) for _ in rows]
        table = arrow_rows(view.fields, [row for rows in answers for row in rows])
        return table.append_column("__key", pa.array(ordinals, pa.int64()))

    async def _lookup_asked(self, view: ViewDef, asks: Asks, keys: pa.Table) -> pa.Table:
        """`lookup` in a view whose parameters are more than its key; each row of `keys` has a value for each."""
        if keys.num_columns != len(asks.names):
            raise SqlError(1210, "HY000", f"the keys have {keys.num_columns} columns and the view has "
                                          f"{len(asks.names)} parameters: {', '.join(asks.names)}")
        select = sql.Select(view, asks.lookups, limit=asks.limit, offset=asks.offset)
        session = Session(self, replace(HTTP_CLIENT, connection_id=self.processes.number()), encoded=False)
        session.close()  # it lives for its warnings only
        ordinals: list[int] = []
        rows: list[Any] = []
        for i, values in enumerate(zip(*(c.to_pylist() for c in keys.columns), strict=True)):
            result = await _settled(self._select_several(view, sql.bound_select(select, values), session))
            rows += result.rows
            ordinals += [i] * len(result.rows)
        return arrow_rows(view.fields, rows).append_column("__key", pa.array(ordinals, pa.int64()))

    async def _rows_of(self, view: ViewDef, values: Sequence[Any]) -> list[Any]:
        key = key_of(values, view.key_fields)
        if key is None:
            return []
        found = self.reads.local(view, key, False)
        return await self.reads.fetch(view, key) if found is None else found.rows

    # ------------------------------------------------------------ writes
    def submit(self, statement: Insert | Update | Delete, offset: timedelta = timedelta()) -> asyncio.Future[Any]:
        """Begin a write of a session so far ahead of UTC; it is durable and visible when the future is done, of which
        `result_of` tells."""
        self.writes += 1
        return self._link.submit(Write((self._at_its_time(statement, offset),)))

    def give_up(self, write: asyncio.Future[Any]) -> None:
        """Ask that a write be given up, if it has not committed; its future tells."""
        self._link.cancel(write)

    def result_of(self, done: asyncio.Future[Any]) -> WriteResult:
        """What became of a write; raises its SqlError, or WorkerGone."""
        reply: Wrote = done.result()
        result = reply.results[0]
        if result.error is not None:
            self.write_errors += 1
            raise result.error
        return result

    def _at_its_time(self, statement: Insert | Update | Delete, offset: timedelta) -> Insert | Update | Delete:
        """The statement with the time where it asks for it."""
        table = self.program.table(statement.table)
        if table is None:
            raise unknown_table(statement.table)
        if not clock.needs(statement, table, offset):
            return statement
        return clock.timed(statement, table, datetime.now(UTC).replace(tzinfo=None), offset)

    async def insert(self, name: str, rows: pa.Table, on_duplicate: str) -> int:
        """Rows as Arrow, columns by name."""
        if on_duplicate not in ("error", "replace", "ignore"):
            raise SqlError(1105, "HY000", f"on_duplicate is error, replace or ignore, not '{on_duplicate}'")
        table = self.program.table(name)
        if table is None:
            raise unknown_table(name)
        columns = tuple(_position(table, c) for c in rows.column_names)
        if len(set(columns)) != len(columns):
            raise wrong_value_count(1)
        if not rows.num_rows:
            return 0
        self.locks.check(None, table.name)
        (batch,) = rows.combine_chunks().to_batches(max_chunksize=rows.num_rows)
        done = self.submit(Insert(table.name, columns, batch, on_duplicate))
        await asyncio.wait((done,))
        return self.result_of(done).affected

    def refuse_zero(self, statement: Insert) -> None:
        """Under NO_AUTO_VALUE_ON_ZERO 0 is no wish for a generated value, and a table takes it for one."""
        table = self.program.table(statement.table)
        at = None if table is None else table.auto_increment
        if at is not None and at in statement.columns:
            place = statement.columns.index(at)
            if any(_is_zero(row[place]) for row in statement.rows):
                raise not_supported("0 in an AUTO_INCREMENT column (NO_AUTO_VALUE_ON_ZERO)", "give it another value")

    # ------------------------------------------------------------ questions
    async def run_sql(self, text: str, parameters: list[Any]) -> tuple[list[Outcome], list[tuple[str, int, str]]]:
        """A text in a session of its own."""
        session = Session(self, replace(HTTP_CLIENT, connection_id=self.processes.number()), encoded=False)
        try:
            outcomes = await run_text(session, text, parameters)
        except WorkerGone as e:
            raise ConnectionError(str(e)) from e
        finally:
            session.close()
        return outcomes, list(session.warnings)

    async def ask(self, question: Ask) -> Any:
        """An answer of the worker."""
        try:
            reply: Done = await self._link.ask(question)
        except WorkerGone as e:
            raise ConnectionError(str(e)) from e
        if reply.error is not None:
            raise reply.error
        return reply.value

    def view_list(self) -> list[dict[str, Any]]:
        views = [*self.program.views(), *self.program.adhoc()]
        return [inspection.view_about(v, self.program) for v in views]

    def stats(self) -> dict[str, Any]:
        return {
            "reads_total": self.selects + self.replies.hits, "view_hits_total": self.reads.hits,
            "upqueries_total": self.reads.upqueries, "cached_replies_total": self.replies.hits,
            "cached_reply_bytes": self.replies.nbytes, "reply_limit_bytes": self.replies.limit_bytes,
            "writes_total": self.writes,
            "write_errors_total": self.write_errors, "commits_total": self._link.stats.groups,
            "spark_queries_total": self.spark_queries,
            "parsed_total": self.statements.parsed, "tables": len(list(self.program.tables())),
            "views": len(list(self.program.views())), "adhoc_views": len(list(self.program.adhoc())),
        }


async def _of_several(shape: Shape, found: pa.Table) -> ResultSet:
    return ResultSet(shape.shown, await beside(shape.rows_of, found))


def _is_of_rows(view: ViewDef) -> bool:
    """Does the view give its rows one by one, or are they grouped again after the lookup?"""
    def every(plan: Mir, kinds: tuple[type[Mir], ...]) -> bool:
        return isinstance(plan, kinds) and all(every(i, kinds) for i in plan.inputs)

    again = view.after is not None and not every(view.after, (Found, Filter, Project))
    return again or every(view.plan, (Base, Filter, Project, Join, UnionAll))


async def _settled(answer: ResultSet | Awaitable[ResultSet]) -> ResultSet:
    return answer if isinstance(answer, ResultSet) else await answer


def _bound(compiled: Compiled, values: Sequence[Any]) -> sql.Select:
    command = compiled.bind(values)
    assert isinstance(command, sql.Select)
    return command


def _is_zero(value: Any) -> bool:
    if isinstance(value, str):
        return number_prefix(value) == 0
    return isinstance(value, (int, float, Decimal)) and value == 0


def _position(table: TableDef, name: str) -> int:
    try:
        return table.position(name)
    except KeyError:
        raise unknown_column(name, "field list") from None


