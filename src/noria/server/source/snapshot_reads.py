"""Reads of Spark's source: all tasks of one execution read one snapshot.

    plan    the columns, and the division of the table among tasks: ranges of keys at each worker
    rows    a task's piece as an Arrow stream, read by another process
    held    the path of the snapshot, for a task on this host that may read the files itself

A DataFrame is planned once and may be executed often.  Its tasks name the read after the DataFrame and the execution.
The first task makes the server take a snapshot; the others share it.  The pieces cover all possible keys, so they fit
any snapshot.

Keeps true: one name stands for one snapshot for ever.  A task gets error 1412 if its read has ended or belongs to an
earlier life of the server, never rows of another snapshot.  A read ends SOURCE_IDLE_S after its last task.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from noria import __version__
from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import (
    BAD_FIELD,
    NO_SUCH_TABLE,
    NOT_SUPPORTED_YET,
    OUT_OF_RESOURCES,
    TABLE_DEF_CHANGED,
    TRUNCATED_WRONG_VALUE_FOR_FIELD,
)
from noria.core.limits import (
    BACKUP_LINE_S,
    SOURCE_ENDED,
    SOURCE_IDLE_S,
    SOURCE_PIECE_ROWS,
    SOURCE_QUERY_FILES,
    SOURCE_READS,
)
from noria.core.types import Field, TableDef
from noria.core.values import arrow_type
from noria.server.bulk.job_directories import remove_directory
from noria.server.bulk.snapshots import Snapshots
from noria.server.source.scanners import Scanners
from noria.sql.commands import BatchQuery
from noria.storage.format.catalog import table_to_json
from noria.storage.format.encoding import key_parts_of_arrow, pack_keys
from noria.storage.offline.snapshot import KeyRange, read_tables, split
from noria.storage.tables.shards import shards_of


class SourcePlanner(Protocol):
    """The parts of the server that reads call."""

    def table(self, name: str) -> TableDef | None: ...

    def query(self, kind: str, text: str, database: str = "") -> BatchQuery:
        """Return the query for a SELECT (kind "query") in this database, or for all rows of a view (kind "view")."""

    async def export(self, batch: BatchQuery, checkpoint: str, out: Path, files: int) -> None: ...


class _OpenRead:
    """One open read.  users: the number of tasks that read now.  tables: those of the snapshot, by id.

    place: the directory of a query's exported rows; None for a table.  stack: closes and removes all of it.
    """

    def __init__(self) -> None:
        self.stack = AsyncExitStack()
        self.users = 0
        self.timer: asyncio.TimerHandle | None = None
        self.checkpoint = ""
        self.tables: dict[int, TableDef] = {}
        self.place: Path | None = None
        self.ready: asyncio.Task[None]


class SnapshotReads:
    """The reads of Spark's source (see the module).  life: a random name for this life of the server."""

    def __init__(self, planner: SourcePlanner, snapshots: Snapshots, directory: Path):
        self._planner, self._snapshots, self._directory = planner, snapshots, directory
        self.life = secrets.token_hex(8)
        self._scanners = Scanners()
        self._open: OrderedDict[str, _OpenRead] = OrderedDict()  # by last use, the latest at the end
        self._ended: OrderedDict[str, None] = OrderedDict()

    async def close(self) -> None:
        for name in list(self._open):
            await self._end(name)
        await self._scanners.close()

    # ------------------------------------------------------------ planning
    async def plan(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the columns and the pieces, one for each task.  `pieces`: the wanted number; 0: only the columns."""
        tasks = int(request.get("pieces", 0))
        found: dict[str, Any] = {"life": self.life, "version": __version__, "pieces": []}
        if "table" not in request:
            kind = "view" if "view" in request else "query"
            fields = self._planner.query(kind, str(request[kind]), str(request.get("database", ""))).fields
            found["pieces"] = [{"file": n} for n in range(min(max(tasks, 1), SOURCE_QUERY_FILES))]
            return {**found, "columns": [_shown(f) for f in fields], "key": []}
        table = self._planner.table(str(request["table"]))
        if table is None:
            raise unknown_table(str(request["table"]))
        if tasks:
            async with self._snapshots.use() as checkpoint:
                found["pieces"] = await asyncio.to_thread(_key_ranges, checkpoint, table, tasks,
                                                          request.get("bounds") or {})
        return {**found, "table_id": table.table_id, "key": [table.columns[c].name for c in table.primary_key],
                "columns": [_shown(table.columns[c].field) for c in table.shown]}

    # ------------------------------------------------------------ tasks
    async def rows(self, request: dict[str, Any]) -> AsyncIterator[bytes]:
        """Yield the rows of a task's piece as an Arrow stream, in frames."""
        async with self._used(request) as read:
            async for frame in self._scanners.rows(self._wanted(read, request)):
                yield frame

    async def held(self, request: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """Yield the request with which a task reads the files itself, then a line each BACKUP_LINE_S until it hangs
        up."""
        async with self._used(request) as read:
            yield self._wanted(read, request)
            while True:
                await asyncio.sleep(BACKUP_LINE_S)
                yield {"held": True}

    def _wanted(self, read: _OpenRead, request: dict[str, Any]) -> dict[str, Any]:
        """Return the request for `storage/offline/scanning.py`."""
        skip = int(request.get("skip", 0))
        if read.place is not None:
            return {"parquet": str(read.place / f"{int(request['file'])}.parquet"), "columns": request["columns"],
                    "skip": skip}
        table = read.tables.get(int(request["table_id"]))
        if table is None:
            raise SqlError(*NO_SUCH_TABLE, f"Table '{request['table']}' is gone since this DataFrame was made")
        positions = {c.name: i for i, c in enumerate(table.columns) if not c.dropped}
        if missing := [c for c in request["columns"] if c not in positions]:
            raise SqlError(*BAD_FIELD, f"Column '{missing[0]}' of table {table.name} is gone since this DataFrame "
                                       f"was "
                                       "made: load it again")
        return {"checkpoint": shards_of(read.checkpoint)[int(request["worker"])], "table": table_to_json(table),
                "columns": [positions[c] for c in request["columns"]], "first": request.get("first"),
                "end": request.get("end"), "skip": skip}

    # ------------------------------------------------------------ the life of a read
    @asynccontextmanager
    async def _used(self, request: dict[str, Any]) -> AsyncIterator[_OpenRead]:
        name = str(request["read"])
        if request.get("life") != self.life:
            raise SqlError(*TABLE_DEF_CHANGED,
                           "the server was started again since this DataFrame was made: load it again")
        if name in self._ended:
            raise SqlError(*TABLE_DEF_CHANGED,
                           f"this read is over: no task of it has asked for {SOURCE_IDLE_S} s, or there "
                           f"were more than {SOURCE_READS}, and its snapshot is gone. Run the action "
                           "again; keep what is used for long with DataFrame.persist or as Parquet")
        read = self._open.get(name)
        if read is None:
            read = await self._begun(name, request)
        self._open.move_to_end(name)
        read.users += 1
        if read.timer is not None:
            read.timer.cancel()
        try:
            await asyncio.shield(read.ready)
            yield read
        except BaseException:
            if read.ready.done() and (read.ready.cancelled() or read.ready.exception() is not None):
                self._open.pop(name, None)  # another attempt may succeed
            raise
        finally:
            read.users -= 1
            if not read.users:
                loop = asyncio.get_running_loop()
                read.timer = loop.call_later(SOURCE_IDLE_S, lambda: loop.create_task(self._end(name)))

    async def _begun(self, name: str, request: dict[str, Any]) -> _OpenRead:
        if len(self._open) >= SOURCE_READS:
            idle = next((n for n, r in self._open.items() if not r.users), None)
            if idle is None:
                raise SqlError(*OUT_OF_RESOURCES,
                               f"{SOURCE_READS} reads of Spark's source are under way: try again when "
                               f"one "
                               "of them is done")
            asyncio.get_running_loop().create_task(self._end(idle))
        read = self._open[name] = _OpenRead()
        read.ready = asyncio.create_task(self._prepare(read, request))
        return read

    async def _prepare(self, read: _OpenRead, request: dict[str, Any]) -> None:
        try:
            read.checkpoint = await read.stack.enter_async_context(self._snapshots.use())
            if "table" in request:
                held = await asyncio.to_thread(read_tables, shards_of(read.checkpoint)[0])
                read.tables = {t.table_id: t for t in held.values()}
                return
            kind = "view" if "view" in request else "query"
            place = self._directory / f"read-{secrets.token_hex(8)}"
            read.stack.callback(remove_directory, place)
            query = self._planner.query(kind, str(request[kind]), str(request.get("database", "")))
            await self._planner.export(query, read.checkpoint, place, int(request["files"]))
            read.place = place
        except BaseException:
            await read.stack.aclose()
            raise

    async def _end(self, name: str) -> None:
        read = self._open.pop(name, None)
        if read is None:
            return
        self._ended[name] = None
        if len(self._ended) > SOURCE_ENDED:
            self._ended.popitem(last=False)
        if read.timer is not None:
            read.timer.cancel()
        read.ready.cancel()
        await asyncio.wait([read.ready])
        await read.stack.aclose()


def _shown(field: Field) -> dict[str, Any]:
    return {"name": field.name, "type": field.type.sql(), "nullable": field.nullable}


def _key_ranges(checkpoint: str, table: TableDef, tasks: int, bounds: dict[str, list[str]]) -> list[dict[str, Any]]:
    """Return ranges of keys that cover the table at every worker, or its keys within the bounds.  They fit any
    snapshot."""
    shards = shards_of(checkpoint)
    held = {t.table_id: t for t in read_tables(shards[0]).values()}.get(table.table_id, table)
    each = -(-tasks // len(shards))
    least = max((_key(held, v) for v in bounds.get("least", ())), default=None)
    end = min((_after(_key(held, v)) for v in bounds.get("most", ())), default=None)
    ranges = [(w, _within(some, least, end)) for w, shard in enumerate(shards)
              for some in split(shard, held, each, SOURCE_PIECE_ROWS)]
    return [{"worker": w, "first": some.first and some.first.hex(), "end": some.end and some.end.hex()}
            for w, some in ranges if some.first is None or some.end is None or some.first < some.end]


def _within(some: KeyRange, least: bytes | None, end: bytes | None) -> KeyRange:
    return KeyRange(least if some.first is None or (least is not None and least > some.first) else some.first,
                    end if some.end is None or (end is not None and end < some.end) else some.end)


def _after(key: bytes) -> bytes:
    """Return the least key that follows all keys with this prefix."""
    return (int.from_bytes(key, "big") + 1).to_bytes(len(key) + 1, "big").removeprefix(b"\0")


def _key(table: TableDef, text: str) -> bytes:
    """Return the prefix of the keys whose first key column has this value.  Raises SqlError for a text column."""
    column = table.columns[table.primary_key[0]]
    try:
        value = pa.array([text]).cast(arrow_type(column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SqlError(*TRUNCATED_WRONG_VALUE_FOR_FIELD, f"'{text}' is no value of the column {column.name}") from None
    if column.type.is_text or column.type.is_listed:
        raise SqlError(*NOT_SUPPORTED_YET, f"the column {column.name} is no number or date, by which a range of keys "
                                           f"could be told")
    (key,) = pack_keys(key_parts_of_arrow([value], [column.type]))
    return key
