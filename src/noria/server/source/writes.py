"""Writes of Spark's source: tasks stage their rows here, the driver has them committed, once.

    part      some rows of a task, in Parquet, kept in a file
    commit    the parts that count, as statements or as one load
    drop      what nobody wants any more

A task that runs twice leaves parts that nobody names in `commit`.  A write has a scope and a number (of a stream the
query and the batch).  What was done last of a scope is remembered in the commit of its rows (`packets.Write.once`),
so that a commit that comes again, because its answer was lost or Spark began the batch anew, does nothing.

Plain INSERTs are one commit: a statement, or of many rows a load.  What replaces, updates, ignores or deletes rows by
their key is done in pieces, of which the last one is remembered: done again from the start they come to the same.

Keeps true: of one scope one commit is under way; it goes on when its asker hangs up, and the next one to ask for it
waits. """

from __future__ import annotations

import asyncio
import os
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from math import log2
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from noria.core.errors import SqlError, no_table
from noria.core.expressions.expr import Col
from noria.core.expressions.points import MAX_POINTS
from noria.core.limits import ONCE_KEPT, SOURCE_KEYS, SOURCE_STATEMENT_ROWS, SOURCE_WRITE_S, SOURCE_WRITES
from noria.core.statements import NEW, Delete, Insert
from noria.core.types import TableDef
from noria.dataflow.messages.packets import Ask, Write
from noria.runtime.link.link import Link
from noria.server.answering.executor import Executor
from noria.server.answering.followed import written_by
from noria.server.arrow import plain
from noria.server.bulk.jobs import Bulk

ONCE = "once:"
FOLLOW = "follow"
ON = ("error", "ignore", "replace", "update", "delete")
_ID = re.compile(r"[0-9a-f]{32}")
_UNNAMED = "load.cli-"  # of a load that only its own command asks for: forgotten when that was told
_SCOPE = re.compile(r"[\w.-]{1,100}")
Run = Callable[[str], Awaitable[object]]  # a statement of SQL


class _Staged:
    """The parts of one write, and when it is given up."""

    def __init__(self, place: Path):
        self.place = place
        self.timer: asyncio.TimerHandle | None = None


class Writes:
    def __init__(self, executor: Executor, bulk: Bulk, link: Link, directory: Path, run: Run):
        self._executor, self._bulk, self._link, self._run = executor, bulk, link, run
        self._directory = directory
        self._staged: dict[str, _Staged] = {}
        self._loading = set[str]()  # scopes of loads that are under way
        self._commits: dict[str, asyncio.Task[dict[str, Any]]] = {}  # under way, by scope

    # ------------------------------------------------------------ parts
    async def part(self, write: str, body: bytes) -> dict[str, Any]:
        """Keep some rows; the name under which `commit` takes them."""
        staged = self._of(write)
        name = secrets.token_hex(16)
        await asyncio.to_thread(_kept, staged.place / f"{name}.parquet", body)
        return {"part": name}

    def _of(self, write: str) -> _Staged:
        if not _ID.fullmatch(write):
            raise SqlError(1105, "HY000", f"'{write[:50]}' is no write's name: 32 digits, hexadecimal")
        staged = self._staged.get(write)
        if staged is None:
            if len(self._staged) >= SOURCE_WRITES:
                raise SqlError(1041, "HY000", f"{SOURCE_WRITES} writes of Spark's source are under way: try again "
                                              f"when one "
                                              "of them is done")
            staged = self._staged[write] = _Staged(self._directory / f"write-{write}")
            staged.place.mkdir(mode=0o700)
        if staged.timer is not None:
            staged.timer.cancel()
        staged.timer = asyncio.get_running_loop().call_later(SOURCE_WRITE_S, self._give_up, write)
        return staged

    def _give_up(self, write: str) -> None:
        staged = self._staged.pop(write, None)
        if staged is not None:
            if staged.timer is not None:
                staged.timer.cancel()
            asyncio.get_running_loop().run_in_executor(None, shutil.rmtree, staged.place, True)

    async def close(self) -> None:
        """The server stops: what waited to be committed is written again by whoever asks the next one."""
        for staged in self._staged.values():
            if staged.timer is not None:
                staged.timer.cancel()
            await asyncio.to_thread(shutil.rmtree, staged.place, True)
        self._staged.clear()

    async def drop(self, write: str) -> dict[str, Any]:
        """The write is over: its parts go, and that it was done is forgotten (of a scope of its own)."""
        self._give_up(write)
        done = await self._done(write)
        if done:
            await self._link.change(Write((), forget=tuple(done)))
        return {"dropped": True}

    # ------------------------------------------------------------ commit
    async def commit(self, write: str, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Lines while it is under way, the last with `rows` and `rejected`; `again`: it had been done before."""
        scope = str(request.get("scope") or write)
        if not _SCOPE.fullmatch(scope):
            raise SqlError(1105, "HY000", f"'{scope[:50]}' is no scope of a write: up to 100 letters, digits, _ . "
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
        table = self._executor.program.table(str(request["table"]))
        if table is None:
            raise no_table(str(request["table"]), self._executor.program.view(str(request["table"])) is not None)
        files = [self._file(write, str(p)) for p in request["parts"]]
        self._executor.locks.check(None, table.name)
        if request.get("overwrite"):
            await self._run(f"TRUNCATE TABLE {_quoted(table.name)}")
        name = f"{ONCE}{scope}/{batch}"
        report = await self._applied(table, files, str(request.get("on", "error")), request.get("max_rejects"), name)
        await self._forget(done)
        await asyncio.to_thread(_removed, files)
        return {**report, "again": False}

    def _file(self, write: str, part: str) -> str:
        staged = self._staged.get(write)
        path = None if staged is None or not _ID.fullmatch(part) else staged.place / f"{part}.parquet"
        if path is None or not path.exists():
            raise SqlError(1105, "HY000", "rows of this write are not here (any more): the server was started again, "
                                          "or "
                                          f"nothing was heard of the write for {SOURCE_WRITE_S} s; write again")
        return str(path)

    async def _applied(self, table: TableDef, files: list[str], on: str, max_rejects: int | None, name: str
                       ) -> dict[str, Any]:
        if on not in ON:
            raise SqlError(1105, "HY000", f"\"on\" is one of {', '.join(ON)}, not '{on}'")
        if on in ("update", "delete") and not table.primary_key:
            raise SqlError(1105, "HY000", f"table {table.name} has no primary key, so there is no row to {on} by it")
        rows = await asyncio.to_thread(_rows, files)
        if rows and (max_rejects is not None or (on == "error" and rows > SOURCE_STATEMENT_ROWS)):
            if on != "error":
                raise SqlError(1235, "42000", f"bad rows cannot be set aside (maxRejects) where rows are to {on}: "
                                              f"leave out "
                                              "one of the two")
            return await self._loaded(table, files, max_rejects or 0, name)
        left = rows
        for piece in await asyncio.to_thread(lambda: _pieces(files, most_rows(table, on))):
            left -= piece.num_rows
            await self._write(self.statement(table, piece, on), name if not left else "")
        if not rows:
            await self._link.change(Write((), once=name))
        return {"rows": rows, "rejected": 0}

    async def _loaded(self, table: TableDef, files: list[str], max_rejects: int, name: str) -> dict[str, Any]:
        last: dict[str, Any] = {}
        request = {"table": table.name, "files": files, "format": "parquet", "max_rejects": max_rejects, "once": name}
        async for step in self._bulk.load(request):
            last = step
        if not last["rows"]:
            await self._link.change(Write((), once=name))
        return {"rows": last["rows"], "rejected": last["rejected"], "examples": list(last["examples"])}

    def statement(self, table: TableDef, rows: pa.RecordBatch, on: str) -> Insert | Delete:
        """What these rows are to do: `ON`."""
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
        found = {n.lower(): c.to_pylist() for n, c in zip(rows.schema.names, rows.columns, strict=True)}
        if missing := [n for n in names if n.lower() not in found]:
            raise SqlError(1105, "HY000", f"to delete rows of {table.name} by its primary key, the column "
                                          f"{missing[0]} must be "
                                          "there")
        keys = list(zip(*(found[n.lower()] for n in names), strict=True))
        each = [_padded(list(dict.fromkeys(column))) for column in zip(*keys, strict=True)]
        terms = [f"{_quoted(n)} IN ({', '.join('?' * len(v))})" for n, v in zip(names, each, strict=True)]
        values = [v for column in each for v in column]
        if len(names) > 1:  # rows are found by what each column may be, and these are the ones that are meant
            one = " AND ".join(f"{_quoted(n)} = ?" for n in names)
            keys = _padded(keys)
            terms.append("(" + " OR ".join([f"({one})"] * len(keys)) + ")")
            values += [v for key in keys for v in key]
        text = f"DELETE FROM {_quoted(table.name)} WHERE " + " AND ".join(terms)
        command = self._executor.statements.prepare(text).bind(values)
        assert isinstance(command, Delete)
        return command

    async def _write(self, statement: Insert | Delete, once: str) -> int:
        """How many rows it affected."""
        self._executor.locks.check(None, statement.table)
        done = self._executor.submit(statement, once=once)
        await asyncio.wait((done,))
        result = self._executor.result_of(done)
        await self._executor.catch_up(self._executor.written(done))
        return result.affected

    # ------------------------------------------------------------ loads
    async def load(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Steps of `Bulk.load`.  A load that has a name (`once`) and was done under it is not done again."""
        scope = f"load.{request['once']}" if request.get("once") else ""
        if scope and not _SCOPE.fullmatch(scope):
            raise SqlError(1105, "HY000", f"'{scope[5:55]}' is no name of a load: up to 95 letters, digits, _ . and -")
        if scope in self._loading:
            raise SqlError(1105, "HY000", f"a load named '{scope[5:]}' is under way: wait for it")
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
        """What became of a load of this name, for who does not know: "under way", "done" or "nothing"."""
        scope = f"load.{name}"
        if scope in self._loading:
            return "under way"
        return "done" if _SCOPE.fullmatch(scope) and await self._done(scope) else "nothing"

    # ------------------------------------------------------------ what was done
    async def _done(self, scope: str) -> list[str]:
        found: list[str] = await self._executor.ask(Ask(0, "once", f"{ONCE}{scope}/"))
        return found

    async def _forget(self, done: list[str]) -> None:
        """What was done before of this scope; and if there are too many scopes, one of them."""
        every: list[str] = await self._executor.ask(Ask(0, "once", ONCE))
        much = [n for n in every if n not in done][:1] if len(every) > ONCE_KEPT else []
        if done or much:
            await self._link.change(Write((), forget=(*done, *much)))


def follower_of(scope: str) -> str:
    """The follower whose first rows a write has: `follow.NAME.TABLE`; "" of any other write.

    >>> follower_of("follow.2c1f.votes"), follower_of("nightly")
    ('2c1f', '')
    """
    first, name, *_ = [*scope.split("."), ""]
    return name if first == FOLLOW else ""


def _kept(path: Path, body: bytes) -> None:
    """A part on disk, if it is Parquet."""
    try:
        pq.read_schema(pa.BufferReader(body))
    except (pa.ArrowException, OSError) as e:
        raise SqlError(1105, "HY000", f"the body is no Parquet file: {str(e)[:200]}") from None
    path.write_bytes(body)


def _removed(files: Sequence[str]) -> None:
    for path in files:
        os.unlink(path)


def _rows(files: Sequence[str]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in files)


def _pieces(files: Sequence[str], most: int) -> Iterator[pa.RecordBatch]:
    """The rows of all files, in the order of the files, so many at a time."""
    tables = [t for t in map(pq.read_table, files) if t.num_rows]
    if not tables:
        return iter(())
    whole = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return iter(whole.to_batches(max_chunksize=most))


def most_rows(table: TableDef, on: str) -> int:
    """Of one statement: a key of several columns is looked for among all combinations of their values."""
    if on != "delete":
        return SOURCE_STATEMENT_ROWS
    return min(SOURCE_KEYS, 1 << int(log2(MAX_POINTS) / max(len(table.primary_key), 1)))


def _padded(values: list[Any]) -> list[Any]:
    """To a power of two, with the last one again: there are few texts then, which are parsed once."""
    return values + values[-1:] * ((1 << (len(values) - 1).bit_length()) - len(values))


def _position(table: TableDef, name: str) -> int:
    try:
        return table.position(name)
    except KeyError:
        raise SqlError(1054, "42S22", f"there is no column '{name}' in table {table.name}: it has "
                                      f"{', '.join(table.columns[c].name for c in table.shown)}") from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
