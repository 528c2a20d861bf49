"""Writes of Spark's source: tasks stage their rows here, and the driver requests one commit.

    part      stage some rows of a task, as a Parquet file
    commit    write the named parts, as statements or as one load
    drop      remove the parts of a write

If a task runs twice, `commit` names the parts of one run only.  A write has a scope and a number: those of a stream are
its query and its batch.  The commit of the rows also stores the scope's last number (`packets.Write.idempotency_key`).
So a commit does nothing if it is repeated, because its answer was lost or Spark began the batch again.

Plain INSERTs are one commit: a statement or, for many rows, a load.  Writes that replace, update, ignore or delete rows
by their key run in pieces, and the last piece stores the number.  Repeated from the start, they have the same result.

Keeps true: at most one commit of a scope runs.  It continues if its client disconnects, and the next one waits."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from math import log2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from noria.core.errors import SqlError, no_table
from noria.core.errors.codes import BAD_FIELD, NOT_SUPPORTED_YET, OUT_OF_RESOURCES, UNKNOWN_ERROR
from noria.core.expressions.column_ranges import MAX_POINTS
from noria.core.expressions.expr import Col
from noria.core.identifiers import quote_identifier
from noria.core.limits import (
    LOCK_WAIT_S,
    ONCE_KEPT,
    SOURCE_KEYS,
    SOURCE_STATEMENT_ROWS,
    SOURCE_WRITE_S,
    SOURCE_WRITES,
)
from noria.core.statements import NEW, Delete, Insert
from noria.core.types import TableDef
from noria.core.values import python_values
from noria.dataflow.messages.packets import Inspect, Write
from noria.runtime.link.link import Link
from noria.server.answering.executor import Executor
from noria.server.answering.followed_tables import written_by
from noria.server.arrow import plain
from noria.server.bulk.jobs import BulkJobs
from noria.server.bulk.merging import refuse_scattered
from noria.server.source.checked_writes import CheckedWrites

ONCE = "once:"
FOLLOW = "follow"
ON = ("error", "ignore", "replace", "update", "delete")
_ID = re.compile(r"[0-9a-f]{32}")
_UNNAMED = "load.cli-"  # the scope of a load named by its own command: forgotten after the reply
_SCOPE = re.compile(r"[\w.-]{1,100}")
Run = Callable[[str], Awaitable[object]]  # a statement of SQL


class _Staged:
    """The directory of one write's parts, and the timer that removes them."""

    def __init__(self, place: Path):
        self.place = place
        self.timer: asyncio.TimerHandle | None = None


class StagedWrites:
    """The writes of Spark's source, and loads with a name (see the module).  run: runs a statement of SQL.

    checked: writes tables with FOREIGN KEYs; None: such tables are refused."""

    def __init__(self, executor: Executor, bulk: BulkJobs, link: Link, directory: Path, run: Run,
                 checked: CheckedWrites | None = None):
        self._executor, self._bulk, self._link, self._run, self._checked = executor, bulk, link, run, checked
        self._directory = directory
        self._staged: dict[str, _Staged] = {}
        self._loading = set[str]()  # scopes of running loads
        self._commits: dict[str, asyncio.Task[dict[str, Any]]] = {}  # running ones, by scope

    # ------------------------------------------------------------ parts
    async def part(self, write: str, body: bytes) -> dict[str, Any]:
        """Store some rows and return the name of the part for `commit`.  body: Parquet."""
        staged = self._of(write)
        name = secrets.token_hex(16)
        await asyncio.to_thread(_kept, staged.place / f"{name}.parquet", body)
        return {"part": name}

    def _of(self, write: str) -> _Staged:
        if not _ID.fullmatch(write):
            raise SqlError(*UNKNOWN_ERROR, f"'{write[:50]}' is no write's name: 32 digits, hexadecimal")
        staged = self._staged.get(write)
        if staged is None:
            if len(self._staged) >= SOURCE_WRITES:
                raise SqlError(*OUT_OF_RESOURCES, f"{SOURCE_WRITES} writes of Spark's source are under way: try again "
                                                  f"when one "
                                                  "of them is done")
            staged = self._staged[write] = _Staged(self._directory / f"write-{write}")
            staged.place.mkdir(mode=0o700)
        if staged.timer is not None:
            staged.timer.cancel()
        staged.timer = asyncio.get_running_loop().call_later(SOURCE_WRITE_S, self._drop_staged, write)
        return staged

    def _drop_staged(self, write: str) -> None:
        staged = self._staged.pop(write, None)
        if staged is not None:
            if staged.timer is not None:
                staged.timer.cancel()
            asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, staged.place, True)

    async def close(self) -> None:
        """Remove all parts, because the server stops.  Clients must write them again to its successor."""
        for staged in self._staged.values():
            if staged.timer is not None:
                staged.timer.cancel()
            await asyncio.to_thread(shutil.rmtree, staged.place, True)
        self._staged.clear()

    async def drop(self, write: str) -> dict[str, Any]:
        """End a write: remove its parts and, if it is its own scope, forget that it was committed."""
        self._drop_staged(write)
        done = await self._done(write)
        if done:
            await self._link.change(Write((), forget=tuple(done)))
        return {"dropped": True}

    # ------------------------------------------------------------ commit
    async def commit(self, write: str, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Commit parts and yield steps.  The last has `rows`, `rejected` and `again`: it was committed before."""
        scope = str(request.get("scope") or write)
        if not _SCOPE.fullmatch(scope):
            raise SqlError(*UNKNOWN_ERROR, f"'{scope[:50]}' is no scope of a write: up to 100 letters, digits, _ . "
                                           f"and -")
        while (task := self._commits.get(scope)) is not None:
            yield {"step": "waiting for the same writer's last commit"}
            await asyncio.wait([task])
        with written_by(follower_of(scope)):
            task = self._commits[scope] = asyncio.ensure_future(self._committed(write, scope, request))
        task.add_done_callback(lambda _: self._commits.pop(scope, None))
        yield {"step": "committing"}
        yield {"step": "done", **await asyncio.shield(task)}

    async def _committed(self, write: str, scope: str, request: dict[str, Any]) -> dict[str, Any]:
        batch, done = int(request.get("batch", 0)), await self._done(scope)
        if any(int(name.rpartition("/")[2]) >= batch for name in done):
            return {"rows": 0, "rejected": 0, "again": True}
        program = self._executor.program
        named = program.catalog.resolved(str(request["table"]))
        table = program.table(named)
        if table is None:
            raise no_table(named, program.view(named) is not None)
        files = [self._file(write, str(p)) for p in request["parts"]]
        await self._executor.locks.admit(None, (table.name,), True, LOCK_WAIT_S)
        if request.get("overwrite"):
            await self._run(f"TRUNCATE TABLE {program.catalog.databases.full(table.name)}")
        name = f"{ONCE}{scope}/{batch}"
        report = await self._applied(table, files, str(request.get("on", "error")), request.get("max_rejects"), name)
        await self._forget(done)
        await asyncio.to_thread(_removed, files)
        return {**report, "again": False}

    def _file(self, write: str, part: str) -> str:
        staged = self._staged.get(write)
        path = None if staged is None or not _ID.fullmatch(part) else staged.place / f"{part}.parquet"
        if path is None or not path.exists():
            raise SqlError(*UNKNOWN_ERROR, "rows of this write are not here (any more): the server was started again, "
                                           "or "
                                           f"nothing was heard of the write for {SOURCE_WRITE_S} s; write again")
        return str(path)

    async def _applied(self, table: TableDef, files: list[str], on: str, max_rejects: int | None, name: str
                       ) -> dict[str, Any]:
        if on not in ON:
            raise SqlError(*UNKNOWN_ERROR, f"\"on\" is one of {', '.join(ON)}, not '{on}'")
        if on in ("update", "delete") and not table.primary_key:
            raise SqlError(*UNKNOWN_ERROR, f"table {table.name} has no primary key, so there is no row to {on} by it")
        rows = await asyncio.to_thread(_rows, files)
        if rows and (max_rejects is not None or (on == "error" and rows > SOURCE_STATEMENT_ROWS)):
            if on != "error":
                raise SqlError(*NOT_SUPPORTED_YET, f"bad rows cannot be set aside (maxRejects) where rows are to {on}: "
                                                   f"leave out "
                                                   "one of the two")
            return await self._loaded(table, files, max_rejects or 0, name)
        refuse_scattered(table, rows, on)
        left = rows
        for batch in await asyncio.to_thread(lambda: _batches(files, most_rows(table, on))):
            left -= batch.num_rows
            await self._write(self.statement(table, batch, on), name if not left else "")
        if not rows:
            await self._link.change(Write((), idempotency_key=name))
        return {"rows": rows, "rejected": 0}

    async def _loaded(self, table: TableDef, files: list[str], max_rejects: int, name: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        request = {"table": self._executor.program.catalog.databases.full(table.name), "files": files,
                   "format": "parquet", "max_rejects": max_rejects, "once": name}
        async for step in self._bulk.load(request):
            last = step
        if not last["rows"]:
            await self._link.change(Write((), idempotency_key=name))
        return {"rows": last["rows"], "rejected": last["rejected"], "examples": list(last["examples"])}

    def statement(self, table: TableDef, rows: pa.RecordBatch, on: str) -> Insert | Delete:
        """Return the statement that writes these rows.  on: one of `ON`."""
        if on == "delete":
            return self._delete(table, rows)
        columns = tuple(_position(table, n) for n in rows.schema.names)
        rows = pa.RecordBatch.from_arrays([plain(pa.chunked_array([c]), n).combine_chunks() for c, n in zip(
            rows.columns, rows.schema.names, strict=True)], names=rows.schema.names)
        if on != "update":
            return Insert(table.name, columns, rows, on)
        changed = [c for c in columns if c not in table.primary_key]
        assignments = tuple((c, Col(f.type, f.nullable, NEW + c)) for c in changed for f in (table.columns[c],))
        return Insert(table.name, columns, rows, "update" if changed else "ignore", assignments)

    def _delete(self, table: TableDef, rows: pa.RecordBatch) -> Delete:
        names = [table.columns[c].name for c in table.primary_key]
        found = {n.lower(): python_values(c) for n, c in zip(rows.schema.names, rows.columns, strict=True)}
        if missing := [n for n in names if n.lower() not in found]:
            raise SqlError(*UNKNOWN_ERROR, f"to delete rows of {table.name} by its primary key, the column "
                                           f"{missing[0]} must be "
                                           "there")
        keys = list(zip(*(found[n.lower()] for n in names), strict=True))
        each = [_padded(list(dict.fromkeys(column))) for column in zip(*keys, strict=True)]
        terms = [f"{quote_identifier(n)} IN ({', '.join('?' * len(v))})" for n, v in zip(names, each, strict=True)]
        values = [v for column in each for v in column]
        if len(names) > 1:  # the IN lists allow all combinations, of which only these keys are meant
            one = " AND ".join(f"{quote_identifier(n)} = ?" for n in names)
            keys = _padded(keys)
            terms.append("(" + " OR ".join([f"({one})"] * len(keys)) + ")")
            values += [v for key in keys for v in key]
        named = self._executor.program.catalog.databases.full(table.name)
        text = f"DELETE FROM {named} WHERE " + " AND ".join(terms)
        command = self._executor.statements.prepare(text).bind(values)
        assert isinstance(command, Delete)
        return command

    async def _write(self, statement: Insert | Delete, idempotency_key: str) -> int:
        """Run a statement and return the number of affected rows."""
        await self._executor.locks.admit(None, (statement.table,), True, LOCK_WAIT_S)
        if self._checked is not None and self._executor.program.foreign_keys.concern(statement.table):
            return await self._written_checked(self._checked, statement, idempotency_key)
        self._executor.program.foreign_keys.refuse_unchecked(statement.table)
        done = self._executor.submit(statement, idempotency_key=idempotency_key)
        await asyncio.wait((done,))
        result = self._executor.result_of(done)
        await self._executor.catch_up(self._executor.written(done))
        return result.affected

    async def _written_checked(self, checked: CheckedWrites, statement: Insert | Delete, idempotency_key: str) -> int:
        affected = await checked.write(statement, idempotency_key)
        if not idempotency_key or affected:
            return affected
        if idempotency_key not in await self._executor.ask(Inspect(0, "remembered names", idempotency_key)):
            await self._link.change(Write((), idempotency_key=idempotency_key))
        return affected

    # ------------------------------------------------------------ loads
    async def load(self, request: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Run `BulkJobs.load` and yield its steps.  A load with a name (`once`) runs only if no earlier one had it."""
        scope = f"load.{request['once']}" if request.get("once") else ""
        if scope and not _SCOPE.fullmatch(scope):
            raise SqlError(*UNKNOWN_ERROR, f"'{scope[5:55]}' is no name of a load: up to 95 letters, digits, _ . and -")
        if scope in self._loading:
            raise SqlError(*UNKNOWN_ERROR, f"a load named '{scope[5:]}' is under way: wait for it")
        self._loading |= {scope} - {""}
        try:
            if scope and await self._done(scope):
                yield {"step": "done", "rows": 0, "rejected": 0, "again": True}
                return
            named = {**request, "once": f"{ONCE}{scope}/0" if scope else ""}
            async for step in self._bulk.load(named, self._run, self._write):
                yield step
            if scope:
                await self._forget([named["once"]] if scope.startswith(_UNNAMED) else [])
        finally:
            self._loading.discard(scope)

    async def loaded(self, name: str) -> str:
        """Return the state of the load of this name: "under way", "done" or "nothing"."""
        scope = f"load.{name}"
        if scope in self._loading:
            return "under way"
        return "done" if _SCOPE.fullmatch(scope) and await self._done(scope) else "nothing"

    # ------------------------------------------------------------ committed writes
    async def _done(self, scope: str) -> list[str]:
        """Return the names of the scope's committed writes (`once:SCOPE/NUMBER`)."""
        found: list[str] = await self._executor.ask(Inspect(0, "remembered names", f"{ONCE}{scope}/"))
        return found

    async def _forget(self, done: list[str]) -> None:
        """Forget these names and, if more than ONCE_KEPT names are stored, one more."""
        every: list[str] = await self._executor.ask(Inspect(0, "remembered names", ONCE))
        much = [n for n in every if n not in done][:1] if len(every) > ONCE_KEPT else []
        if done or much:
            await self._link.change(Write((), forget=(*done, *much)))


def follower_of(scope: str) -> str:
    """Return NAME of a scope `follow.NAME.TABLE`, which a follower's first load has; "" for any other scope.

    >>> follower_of("follow.2c1f.votes"), follower_of("nightly")
    ('2c1f', '')
    """
    first, name, *_ = [*scope.split("."), ""]
    return name if first == FOLLOW else ""


def _kept(path: Path, body: bytes) -> None:
    """Write a part to disk.  Raises SqlError 1105 if it is not Parquet."""
    try:
        pq.read_schema(pa.BufferReader(body))
    except (pa.ArrowException, OSError) as e:
        raise SqlError(*UNKNOWN_ERROR, f"the body is no Parquet file: {str(e)[:200]}") from None
    path.write_bytes(body)


def _removed(files: Sequence[str]) -> None:
    for path in files:
        os.unlink(path)


def _rows(files: Sequence[str]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in files)


def _batches(files: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all files, in the order of the files, in batches of at most `most` rows."""
    tables = [t for t in map(pq.read_table, files) if t.num_rows]
    if not tables:
        return iter(())
    rows = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return iter(rows.to_batches(max_chunksize=most))


def most_rows(table: TableDef, on: str) -> int:
    """Return the maximum number of rows for one statement.  A DELETE by several key columns looks up all combinations
    of their values, of which MAX_POINTS are allowed."""
    if on != "delete":
        return SOURCE_STATEMENT_ROWS
    return min(SOURCE_KEYS, 1 << int(log2(MAX_POINTS) / max(len(table.primary_key), 1)))


def _padded(values: list[Any]) -> list[Any]:
    """Repeat the last value up to a power of two.  So there are few distinct statement texts to parse."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


def _position(table: TableDef, name: str) -> int:
    try:
        return table.position(name)
    except KeyError:
        raise SqlError(*BAD_FIELD, f"there is no column '{name}' in table {table.name}: it has "
                                   f"{', '.join(table.columns[c].name for c in table.shown)}") from None
