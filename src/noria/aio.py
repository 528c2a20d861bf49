"""The Python API for asyncio: the classes of `noria.client` with coroutines.

    async with await noria.aio.connect("http://127.0.0.1:8080") as db:
        rows = await db.view("votecount").lookup(1)

Keeps true: no call blocks the event loop.  Each call runs in a thread of the loop's executor, which limits the number
of concurrent calls.  If a running call is cancelled, the server completes it and its result is discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from types import TracebackType
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from noria import client
from noria.client import Result, api
from noria.client.api import Changes
from noria.client.rows import Rows
from noria.client.transport import Transport
from noria.client.within import TransactionTransport, begun_by
from noria.core.errors import SqlError

T = TypeVar("T")


class Run(Protocol):
    """Runs a call in a thread."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]: ...


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

    @asynccontextmanager
    async def transaction(self, isolation: str | None = None, read_only: bool = False) -> AsyncGenerator[Transaction]:
        """Begin a transaction; commit it at the end of the block, or roll it back if the block raises.  A call of the
        transaction that was cancelled is completed first."""
        calls = _Calls()
        tx = api.Transaction(await calls.begin(self._database.transport, begun_by(isolation, read_only)))
        try:
            yield Transaction(tx, calls)
        except BaseException:
            with contextlib.suppress(ConnectionError):  # the server rolls it back by itself
                await calls.last(tx.rollback)
            raise
        await calls.run(tx.commit)

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], isolation: str | None = None,
                       read_only: bool = False, tries: int = 10) -> T:
        """Run `await work(tx)` in a transaction, again if that was rolled back because of others, as the synchronous
        `transact` does."""
        for left in reversed(range(tries)):
            try:
                async with self.transaction(isolation, read_only) as tx:
                    return await work(tx)
            except SqlError as e:
                if e.code not in api.REPEATED or not left:
                    raise
        raise ValueError(f"tries is a number from 1, not {tries}")

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


class _Calls:
    """Runs the calls of one transaction in threads, one after the other, also if their callers are cancelled."""

    def __init__(self) -> None:
        self._running: asyncio.Future[Any] | None = None

    async def begin(self, transport: Transport, text: str) -> TransactionTransport:
        """Begin the transaction.  If the caller is cancelled meanwhile, roll it back."""
        loop = asyncio.get_running_loop()
        begun = loop.run_in_executor(None, TransactionTransport, transport, text)
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            begun.add_done_callback(lambda b: b.exception() or loop.run_in_executor(None, b.result().roll_back))
            raise

    async def run(self, call: Callable[[], T]) -> T:
        running = self._running = asyncio.get_running_loop().run_in_executor(None, call)
        return await asyncio.shield(running)

    async def last(self, call: Callable[[], T]) -> T:
        """Run a call after the one that may still be running."""
        if self._running is not None and not self._running.done():
            await asyncio.wait((self._running,))
        return await self.run(call)


class Transaction:
    """An open transaction: `noria.client.Transaction` with coroutines."""

    def __init__(self, transaction: api.Transaction, calls: _Calls):
        self._transaction, self._calls = transaction, calls

    def __repr__(self) -> str:
        return repr(self._transaction)

    async def sql(self, text: str, parameters: Sequence[Any] = ()) -> Result:
        return await self._calls.run(lambda: self._transaction.sql(text, parameters))

    def table(self, name: str) -> Table:
        return Table(self._transaction.table(name), self._calls.run)

    def view(self, name: str) -> View:
        return View(self._transaction.view(name), self._calls.run)

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """Set a savepoint, and roll back to it if the block raises."""
        savepoint = self._transaction.savepoint()
        await self._calls.run(savepoint.__enter__)
        try:
            yield
        except BaseException as e:
            error = e
            await self._calls.last(lambda: savepoint.__exit__(type(error), error, error.__traceback__))
            raise
        await self._calls.run(lambda: savepoint.__exit__(None, None, None))

    async def commit(self) -> None:
        await self._calls.run(self._transaction.commit)

    async def rollback(self) -> None:
        await self._calls.last(self._transaction.rollback)


class Table:
    """A base table: `noria.client.Table` with coroutines.  run: runs a call in a thread."""

    def __init__(self, table: api.Table, run: Run = asyncio.to_thread):
        self._table, self.name, self._run = table, table.name, run

    def __repr__(self) -> str:
        return repr(self._table)

    async def insert(self, rows: Rows, columns: Sequence[str] | None = None, on_duplicate: str = "error") -> int:
        return await self._run(lambda: self._table.insert(rows, columns, on_duplicate))

    async def update(self, key: Any, **changes: Any) -> int:
        return await self._run(lambda: self._table.update(key, **changes))

    async def delete(self, key: Any) -> int:
        return await self._run(lambda: self._table.delete(key))

    def changes(self, since: str = "start") -> AsyncGenerator[Changes]:
        return _changes(self._table.changes, since)


class View:
    """A view: `noria.client.View` with coroutines.  run: runs a call in a thread."""

    def __init__(self, view: api.View, run: Run = asyncio.to_thread):
        self._view, self.name, self._run = view, view.name, run

    def __repr__(self) -> str:
        return repr(self._view)

    async def lookup(self, key: Any = (), **columns: Any) -> list[tuple[Any, ...]]:
        return await self._run(lambda: self._view.lookup(key, **columns))

    async def lookup_many(self, keys: pa.Table | pa.Array | Sequence[Any]) -> pa.Table:
        return await self._run(lambda: self._view.lookup_many(keys))

    def changes(self, since: str = "start") -> AsyncGenerator[Changes]:
        return _changes(self._view.changes, since)


__all__ = ["Database", "Table", "Transaction", "View", "connect", "open"]
