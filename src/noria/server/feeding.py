"""Serves feeds (thesis, "Maintaining Downstream Systems"): finds them by name, reads them in threads, awaits changes.

`CREATE FEED name AS SELECT …` makes a feed.  If a client requests the changes of a table or view, the server makes a
feed `NAME@changes` for it, which exists until `DROP FEED`.

Keeps true: a client that follows a feed receives every change once, in order, and each tick whole.  The event loop only
passes batches on.  A feed that was dropped from the program leaves no file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from noria.control.catalog.names import fold
from noria.control.program import Program
from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import (
    BINLOG_PURGED,
    CON_COUNT_ERROR,
    TABLE_EXISTS,
    TOO_LONG_IDENT,
    UNKNOWN_ERROR,
)
from noria.core.limits import FEED_READERS, FEEDS, MAX_NAME_CHARS
from noria.feeds.layout import Watermark, feed_path, watermark
from noria.feeds.reader import ChangesExpired, FeedFile, FeedRange
from noria.feeds.watch import FeedWatcher
from noria.feeds.writer import remove
from noria.plan.view import ViewDef

T = TypeVar("T")
MADE = "@changes"  # suffix of the feeds that are made for a table or view


class Feeds:
    """Finds and makes feeds.  directory: the worker's directory of feed files.  run: runs a SQL statement."""

    def __init__(self, program: Program, directory: Path, run: Callable[[str, list[Any]], Awaitable[object]]):
        self._program, self._directory, self._run = program, directory, run
        self._watch, self._reads = FeedWatcher(directory), 0
        program.view_changes.on_feed_dropped = self._dropped

    async def close(self) -> None:
        await self._watch.close()

    # -------------------------------------------------------------- finding
    async def named(self, name: str) -> ServedFeed:
        """Return the feed of this name, or the feed of the table or view of this name, which is made if necessary.
        Raises SqlError 1146 for an unknown name, and 1105 if there are FEEDS feeds."""
        name = self._program.catalog.resolved(name)
        view = self._program.view(name)
        if view is None or not view.feed:
            view = self._program.view(name + MADE) or await self._made(name)
        return ServedFeed(self, view, feed_path(self._directory, fold(view.name)))

    async def _made(self, name: str) -> ViewDef:
        of = self._program.table(name) or self._program.view(name)
        if of is None:
            raise unknown_table(name)
        made = of.name + MADE
        names = self._program.catalog.databases
        if len(names.bare(made)) > MAX_NAME_CHARS:
            raise SqlError(*TOO_LONG_IDENT, f"'{made}' is too long for a feed's name: CREATE FEED … AS SELECT * FROM … "
                                            "with another one, and ask for that")
        if sum(v.feed for v in self._program.views()) >= FEEDS:
            raise SqlError(*UNKNOWN_ERROR, f"there are {FEEDS} feeds: DROP FEED some")
        try:
            await self._run(f"CREATE FEED {names.full(made)} AS SELECT * FROM {names.full(of.name)}", [])
        except SqlError as e:
            if e.code != TABLE_EXISTS.number:  # else another client has made it meanwhile
                raise
        view = self._program.view(made)
        if view is None:
            raise unknown_table(name)
        return view

    def _dropped(self, name: str) -> None:
        remove(feed_path(self._directory, fold(name)))

    def sweep(self) -> None:
        """Remove the files of feeds that no longer exist."""
        known = {feed_path(self._directory, fold(v.name)).name for v in self._program.views() if v.feed}
        for path in self._directory.glob("*.feed"):
            if path.name not in known:
                remove(path)

    # -------------------------------------------------------------- reading
    async def read(self, batches: Generator[T, None, None]) -> AsyncIterator[T]:
        """Yield batches.  Each is read in a thread, since that may wait for the disk.  Raises SqlError 1040 if
        FEED_READERS reads are running, and 1236 if the changes are no longer stored."""
        if self._reads >= FEED_READERS:
            raise SqlError(*CON_COUNT_ERROR,
                           f"{FEED_READERS} reads of feeds are under way: try again when some are done")
        self._reads += 1
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        except ChangesExpired as e:
            raise gone(e) from None
        finally:
            self._reads -= 1
            with contextlib.suppress(ValueError):  # a cancelled reader may still run in its thread, and ends with it
                batches.close()

    def written(self, path: Path) -> asyncio.Future[None]:
        """Return a future that is done at the next change of a feed's file."""
        return self._watch.listen(path)


class ServedFeed:
    """One feed: its state and its changes."""

    def __init__(self, feeds: Feeds, view: ViewDef, path: Path):
        self._feeds, self._path, self.name = feeds, path, view.name
        self.file = FeedFile(path, view.plan.fields)

    async def state(self) -> FeedRange:
        """Return the feed's oldest and newest watermarks.  Wait until its first state is complete."""
        while True:
            written = self._feeds.written(self._path)
            try:
                if (state := await asyncio.to_thread(self.file.state)) is not None:
                    return state
                await written
            finally:
                written.cancel()

    async def at(self, text: str) -> Watermark:
        """Return the watermark of a text: `start` and `now` are the newest, `oldest` is the oldest stored one."""
        if text in ("start", "now", ""):
            return (await self.state()).newest
        if text == "oldest":
            return (await self.state()).oldest
        found = watermark(text)
        if found is None:
            raise SqlError(*UNKNOWN_ERROR, f"'{text[:100]}' is no watermark: start, now, oldest, or one of the feed's")
        return found

    def changes(self, after: Watermark, until: Watermark | None = None) -> AsyncIterator[pa.RecordBatch]:
        return self._feeds.read(self.file.changes(after, until))

    def rows(self, at: Watermark) -> AsyncIterator[pa.RecordBatch]:
        return self._feeds.read(self.file.rows(at))

    async def follow(self, after: Watermark) -> AsyncIterator[tuple[pa.RecordBatch, Watermark | None]]:
        """Yield all changes as they happen, as batches.  The last batch of one or more ticks has their watermark."""
        while True:
            written = self._feeds.written(self._path)
            try:
                newest = (await self.state()).newest
                if newest.incarnation != after.incarnation:
                    raise gone(ChangesExpired(f"watermark {after} is of another life of the feed: it was made anew"))
                if newest.n > after.n:
                    last: pa.RecordBatch | None = None
                    async for batch in self.changes(after, newest):
                        if last is not None:
                            yield last, None
                        last = batch
                    if last is not None:
                        yield last, newest
                    after = newest
                    continue
                await written
            finally:
                written.cancel()


class FeedMessage(NamedTuple):
    """A message to a client.  kind: rows, whole, changes, or alive; mark: where to continue, at the end of a tick."""

    kind: str
    batch: pa.RecordBatch | None = None
    mark: Watermark | None = None

    @property
    def about(self) -> dict[str, str]:
        return {"kind": self.kind, **({} if self.mark is None else {"watermark": str(self.mark)})}


async def feed_messages(feed: ServedFeed, at: Watermark, rows_first: bool) -> AsyncGenerator[FeedMessage]:
    """Yield the changes of a feed after a watermark, as they happen.  rows_first: yield all rows of that
    moment first."""
    if rows_first:
        async for batch in feed.rows(at):
            yield FeedMessage("rows", batch)
        yield FeedMessage("whole", None, at)
    else:
        async for _ in feed.changes(at, at):  # raises an error if that moment is no longer kept
            pass
        yield FeedMessage("alive")
    async for batch, mark in feed.follow(at):
        yield FeedMessage("changes", batch, mark)


def gone(why: Exception) -> SqlError:
    return SqlError(*BINLOG_PURGED, f"{why}; begin again with since=start, which tells all rows first")


def shown(fields: Iterable[Any]) -> list[dict[str, Any]]:
    """Describe the columns of a feed."""
    return [{"name": f.name, "type": str(f.type), "nullable": f.nullable} for f in fields]
