"""`noria.open(path)`: a database inside this process, with the same API.

The worker's core, the executor and the program run on an event loop in their own thread.  Without Spark, a query that
needs it is refused.  Keeps true: one process at a time has the directory open.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError
from math import inf
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from noria.client.transport import StatementAnswer
from noria.control.processes.leases import Claim
from noria.control.program import Program
from noria.core.errors import no_table
from noria.core.limits import DEFAULT_MEMORY_BYTES, MAX_EXECUTION_MS, OFF_LOOP_ROWS
from noria.runtime.cluster.cluster_link import ClusterLink
from noria.runtime.link.inprocess import InProcessLink
from noria.runtime.link.link import Link
from noria.runtime.worker.worker_main import WorkerConfig, feeds_dir, views_dir
from noria.server.access.access import Access
from noria.server.access.store import AccountStore
from noria.server.answering.executor import Executor
from noria.server.feeding import FeedMessage, Feeds, feed_messages
from noria.server.outcomes import Ok, ResultSet
from noria.server.rows import arrow_rows
from noria.server.run_directory import make_run_dir, remove_run_dir
from noria.server.sessions.held_transactions import Caller
from noria.server.sessions.inspect.inspection import about_table, about_view
from noria.server.sessions.sessions import Sessions
from noria.server.source.follows import records
from noria.sql.text.databases import named_in
from noria.storage.tables.shards import check_workers
from noria.views.reader import attach

T = TypeVar("T")
REPLY_BYTES = 0  # kept replies are MySQL packets, which are not used here


class EmbeddedTransport:
    """The transport to a database in this process.  memory_limit: in bytes, for all workers together.

    Its parts are `link`, `program`, `executor`, `sessions` and `feeds`.  Use them on its loop, with `run`.
    """

    def __init__(self, path: str | PathLike[str], memory_limit: int | None = None, workers: int = 1, *,
                 database: str = ""):
        self.database = database
        self._claim = Claim(Path(path).absolute())
        self.place = str(self._claim.data_dir)
        try:
            epoch = self._claim.next_epoch()
            self.run_dir = make_run_dir(self._claim.data_dir)
        except BaseException:
            self._claim.release()
            raise
        limit = DEFAULT_MEMORY_BYTES if memory_limit is None else memory_limit
        config = WorkerConfig(0, workers, "", self._claim.data_dir, self.run_dir, epoch,
                              memory_limit=limit // workers, spark=False, warm=False)
        self._closing = False
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="noria", daemon=True)
        self._thread.start()
        try:
            check_workers(self._claim.data_dir, workers)
            self.run(self._start(config))
        except BaseException:
            self._end()
            raise

    async def _start(self, config: WorkerConfig) -> None:
        links = [InProcessLink(config.for_worker(w)) for w in range(config.workers)]
        for link in links if config.workers > 1 else ():
            link.others = links
        self.link: Link = links[0] if config.workers == 1 else ClusterLink(links, config.epoch)
        self.program = Program(self.link, hold_ms=MAX_EXECUTION_MS)
        self.link.on_hello = self.program.welcome
        self.executor = Executor(
            self.program, self.link,
            lambda w: attach(str(views_dir(self.run_dir, w, config.workers)), OFF_LOOP_ROWS), None, REPLY_BYTES)
        access = Access(AccountStore(self._claim.data_dir))
        access.begin("root", None, False)
        self.sessions = Sessions(self.executor, access)
        self.sessions.held.idle_s = inf  # its clients are in this process: `with` ends their transactions
        self.feeds = Feeds(self.program, feeds_dir(config), self.sessions.run)
        await self.link.start()
        await self.link.up()
        await records(self.executor)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run this on the loop of the database and return its result.  Raises ConnectionError once it is closed."""
        if not self._thread.is_alive():
            work.close()
            raise ConnectionError("the database is closed")
        try:
            return asyncio.run_coroutine_threadsafe(work, self.loop).result()
        except CancelledError:
            if not self._closing:
                raise
            raise ConnectionError("the database is closed") from None

    # ------------------------------------------------------------ the API's requests
    def sql(self, text: str, parameters: list[Any], found_rows: bool = False, transaction: str | None = None
            ) -> StatementAnswer:
        if transaction is None:
            outcomes, token = self.run(self.sessions.run(text, parameters, found_rows, self.database)), None
        else:
            outcomes, token = self.run(self.sessions.held.run(self._caller(transaction), text, parameters,
                                                                found_rows))
        last = outcomes[-1]
        if isinstance(last, ResultSet):
            return StatementAnswer(arrow_rows(last.fields, last.rows), 0, 0, tuple(last.warnings), token)
        assert isinstance(last, Ok)
        return StatementAnswer(None, last.affected, last.last_insert_id, tuple(last.warnings), token)

    def begin(self, text: str) -> str:
        _, token = self.run(self.sessions.held.run(self._caller(None), text, []))
        assert token is not None, "the statements begin a transaction"
        return token

    def roll_back(self, transaction: str) -> None:
        async def left() -> None:
            self.sessions.held.leave(self._caller(transaction))

        self.run(left())

    def insert(self, table: str, rows: pa.Table, on_duplicate: str, transaction: str | None = None) -> int:
        return self.run(self.sessions.held.insert(self._caller(transaction), named_in(self.database, table), rows,
                                                    on_duplicate))

    def lookup(self, view: str, keys: pa.Table, transaction: str | None = None) -> pa.Table:
        return self.run(self.sessions.held.lookup(self._caller(transaction), named_in(self.database, view), keys))

    def _caller(self, transaction: str | None) -> Caller:
        return Caller(token=transaction, database=self.database)

    def describe(self, kind: str, name: str) -> dict[str, Any]:
        return self.run(self._described(kind, named_in(self.database, name)))

    async def _described(self, kind: str, name: str) -> dict[str, Any]:
        """Describe a table or view.  This runs on the loop, which never sees a half-changed program."""
        name = self.program.catalog.resolved(name)
        if kind == "views":
            view = self.program.view(name)
            if view is not None:
                return about_view(view, self.program.reader_now(view))
        else:
            table = self.program.table(name)
            if table is not None:
                return about_table(table, self.program.catalog.databases)
        raise no_table(name, kind == "tables" and self.program.view(name) is not None)

    def changes(self, name: str, since: str) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        feed = self.run(self.feeds.named(named_in(self.database, name)))
        messages = feed_messages(feed, self.run(feed.at(since)), since == "start")
        return self._batches(messages, self.run(anext(messages)), pa.RecordBatch.from_pylist([], feed.file.schema))

    def _batches(self, messages: AsyncGenerator[FeedMessage], first: FeedMessage, empty: pa.RecordBatch
                 ) -> Iterator[tuple[pa.RecordBatch, dict[str, str]]]:
        one = first
        try:
            while True:
                yield empty if one.batch is None else one.batch, one.about
                one = self.run(anext(messages))
        finally:
            if self._thread.is_alive():
                self.run(messages.aclose())

    def attachment(self) -> dict[str, Any]:
        workers = self.link.workers
        paths = [str(views_dir(self.run_dir, w, workers)) for w in range(workers)]
        return {"path": paths[0], "paths": paths, "by": self.link.routes.all_by()}

    def close(self) -> None:
        if self._thread.is_alive():
            self._closing = True
            self.run(self.feeds.close())
            self.run(self.link.close())
            self.run(_cancelled())
            self._end()

    def _end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        remove_run_dir(self.run_dir)
        self._claim.release()


async def _cancelled() -> None:
    """Cancel all other tasks of this loop, for example the build of a view, and wait for their end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
