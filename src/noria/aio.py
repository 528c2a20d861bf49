"""The Python API for asyncio: the classes of `noria.client` with coroutines.

    async with await noria.aio.connect("http://127.0.0.1:8080") as db:
        rows = await db.view("votecount").lookup(1)

Keeps true: no call blocks the event loop.  Each call runs in a thread of the loop's executor, which limits the number
of concurrent calls.  If a running call is cancelled, the server completes it and its result is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from os import PathLike
from types import TracebackType
from typing import Any

import pyarrow as pa

from noria import client
from noria.client import Result, api
from noria.client.api import Changes
from noria.client.rows import Rows


async def connect(url: str = "http://127.0.0.1:8080", database: str = "") -> Database:
    """Connect to a server, as `noria.connect` does."""
    return Database(await asyncio.to_thread(client.connect, url, database))


async def open(path: str | PathLike[str], memory_limit: int | None = None, workers: int = 1, *,
               database: str = "") -> Database:
    """Open an embedded database, as `noria.open` does."""
    return Database(await asyncio.to_thread(client.open, path, memory_limit, workers, database=database))


async def _next(found: Iterator[Changes]) -> Changes | None:
    return await asyncio.to_thread(next, found, None)


async def _changes(begin: Callable[[str], Iterator[Changes]], since: str) -> AsyncGenerator[Changes]:
    """Yield changes without an end.

    When the caller stops, the feed is closed after the next message.  The server sends one every few seconds.
    """
    found = await asyncio.to_thread(begin, since)
    asked = asyncio.ensure_future(_next(found))
    try:
        while (some := await asyncio.shield(asked)) is not None:
            yield some
            asked = asyncio.ensure_future(_next(found))
    finally:
        if asked.done():
            _close(found)
        else:
            asked.add_done_callback(lambda _: _close(found))


def _close(found: Iterator[Changes]) -> None:
    close = getattr(found, "close", None)
    if close is not None:
        with contextlib.suppress(Exception):  # nobody reads the feed
            close()


class Database:
    """A server's or an embedded database, and an asynchronous context manager that closes it."""

    def __init__(self, database: api.Database):
        self._database = database

    def __repr__(self) -> str:
        return repr(self._database)

    async def sql(self, text: str, parameters: Sequence[Any] = ()) -> Result:
        """Run one statement.  Each `?` is replaced by the next parameter."""
        return await asyncio.to_thread(self._database.sql, text, parameters)

    def table(self, name: str) -> Table:
        return Table(self._database.table(name))

    def view(self, name: str) -> View:
        return View(self._database.view(name))

    async def close(self) -> None:
        await asyncio.to_thread(self._database.close)

    async def __aenter__(self) -> Database:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self.close()


class Table:
    """A base table: `noria.client.Table` with coroutines."""

    def __init__(self, table: api.Table):
        self._table, self.name = table, table.name

    def __repr__(self) -> str:
        return repr(self._table)

    async def insert(self, rows: Rows, columns: Sequence[str] | None = None, on_duplicate: str = "error") -> int:
        return await asyncio.to_thread(self._table.insert, rows, columns, on_duplicate)

    async def update(self, key: Any, **changes: Any) -> int:
        return await asyncio.to_thread(lambda: self._table.update(key, **changes))

    async def delete(self, key: Any) -> int:
        return await asyncio.to_thread(self._table.delete, key)

    def changes(self, since: str = "start") -> AsyncGenerator[Changes]:
        return _changes(self._table.changes, since)


class View:
    """A view: `noria.client.View` with coroutines."""

    def __init__(self, view: api.View):
        self._view, self.name = view, view.name

    def __repr__(self) -> str:
        return repr(self._view)

    async def lookup(self, key: Any = (), **columns: Any) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(lambda: self._view.lookup(key, **columns))

    async def lookup_many(self, keys: pa.Table | pa.Array | Sequence[Any]) -> pa.Table:
        return await asyncio.to_thread(self._view.lookup_many, keys)

    def changes(self, since: str = "start") -> AsyncGenerator[Changes]:
        return _changes(self._view.changes, since)


__all__ = ["Database", "Table", "View", "connect", "open"]
