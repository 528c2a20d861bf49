"""Reads a feed: the changes between two watermarks, or all rows as of one.

A read is one SQLite transaction.  It sees the feed at one moment, however long it takes, and never delays the worker.
The file is synced before its rows are returned, so a power failure cannot undo them.

Keeps true: `rows(at)` is the sum of all changes up to `at`, whatever changed since.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.errors import SqlError
from noria.core.errors.codes import QUERY_TIMEOUT
from noria.core.limits import ERROR_CODE, FEED_PAGE_ROWS, FEED_READ_S, NULL_CODE
from noria.core.symbols import NO_SYMBOLS
from noria.core.types import Field
from noria.core.values import arrow_type, bytes_of, to_arrow
from noria.feeds.layout import Row, Watermark, columns, connect, types_text

SIGN, WATERMARK, TIME = "_sign", "_watermark", "_time"
CHECKPOINT_BYTES = 4 * 2**20  # of SQLite's WAL: a reader then checkpoints it


@dataclass(frozen=True)
class FeedRange:
    """The range of a feed: it has the changes after `oldest`, up to `newest`."""

    oldest: Watermark
    newest: Watermark


class ChangesExpired(Exception):
    """The feed does not have these changes; the message says why."""


class FeedFile:
    """A feed for reading; each read has its own connection.  fields: those of its rows."""

    def __init__(self, path: Path, fields: Sequence[Field]):
        self._path, self._fields = path, tuple(fields)
        self._synced = -1  # a hash of the WAL's size and time at the last sync

    @property
    def fields(self) -> tuple[Field, ...]:
        return self._fields

    # -------------------------------------------------------------- state
    def state(self) -> FeedRange | None:
        """Return the feed's range; None until its first tick is complete."""
        if not self._path.exists():
            return None
        with self._reading() as db:
            return self._state(db)

    def _state(self, db: sqlite3.Connection) -> FeedRange | None:
        try:
            incarnation, fields = db.execute("SELECT incarnation, fields FROM about").fetchone() or ("", "")
            oldest, newest = db.execute("SELECT min(n), max(n) FROM ticks").fetchone()
        except sqlite3.OperationalError:  # the file has no tables yet
            return None
        if newest is None or fields != types_text(self._fields):
            return None
        return FeedRange(Watermark(incarnation, oldest), Watermark(incarnation, newest))

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        db = connect(self._path)
        try:
            db.execute("PRAGMA query_only = 1")
            db.execute("BEGIN")
            yield db
        finally:
            with suppress(sqlite3.Error):
                db.close()

    def _known(self, db: sqlite3.Connection, at: Watermark) -> FeedRange:
        state = self._state(db)
        if state is None or state.oldest.incarnation != at.incarnation:
            raise ChangesExpired(f"watermark {at} is of another life of the feed: it was made anew")
        if at.n < state.oldest.n:
            raise ChangesExpired(f"what came after watermark {at} is not kept any more: the oldest is {state.oldest}")
        if at.n > state.newest.n:
            raise ChangesExpired(f"watermark {at} has not been yet: the newest is {state.newest}")
        return state

    # -------------------------------------------------------------- reading
    def changes(self, after: Watermark, until: Watermark | None = None) -> Generator[pa.RecordBatch, None, None]:
        """Yield the changes in (after, until], in order; without `until`, up to the newest.

        Raises `ChangesExpired`, or SqlError 3024 after FEED_READ_S.
        """
        with self._reading() as db:
            newest = self._known(db, after).newest
            end = newest if until is None else until
            self._known(db, end)
            self._sync()
            yield from _bounded(self._batches(db, after, end))
        self._tidy()

    def _batches(self, db: sqlite3.Connection, after: Watermark, until: Watermark) -> Iterator[pa.RecordBatch]:
        tick = "(SELECT min(n) FROM ticks WHERE ticks.n >= log.n)"
        found = db.execute(f"SELECT {columns(len(self._fields))}, weight, {tick} FROM log WHERE n > ? AND n <= ? "
                           "ORDER BY n", (after.n, until.n))
        times: dict[int, int] = {}
        while rows := found.fetchmany(FEED_PAGE_ROWS):
            first, last = rows[0][-1], rows[-1][-1]
            times.update(db.execute("SELECT n, at FROM ticks WHERE n BETWEEN ? AND ?", (first, last)))
            ticks = [r[-1] for r in rows]
            yield self._batch([r[:-1] for r in rows], [f"{after.incarnation}.{n}" for n in ticks],
                              [times[n] for n in ticks])

    def rows(self, at: Watermark) -> Generator[pa.RecordBatch, None, None]:
        """Yield all rows as of a watermark.  Raises `ChangesExpired`, or SqlError 3024 after FEED_READ_S."""
        with self._reading() as db:
            self._known(db, at)
            self._sync()
            width = len(self._fields)
            named = columns(width)
            later: dict[Row, int] = {}
            for *row, weight in db.execute(f"SELECT {named}, weight FROM log WHERE n > ?", (at.n,)):
                later[tuple(row)] = later.get(tuple(row), 0) + weight
            time_of = db.execute("SELECT max(at) FROM ticks WHERE n <= ?", (at.n,)).fetchone()[0]
            yield from _bounded(self._as_of(db, at, {r: w for r, w in later.items() if w}, time_of))
        self._tidy()

    def _as_of(self, db: sqlite3.Connection, at: Watermark, later: dict[Row, int], time_of: int
               ) -> Iterator[pa.RecordBatch]:
        width = len(self._fields)
        found = db.execute(f"SELECT {columns(width)}, published FROM content WHERE published <> 0")
        while rows := found.fetchmany(FEED_PAGE_ROWS):
            if later:
                rows = [(*r[:-1], r[-1] - later.pop(r[:-1], 0)) for r in rows]
                rows = [r for r in rows if r[-1]]
            yield self._batch(rows, [str(at)] * len(rows), [time_of] * len(rows))
        gone = [(*row, -w) for row, w in later.items()]
        if gone:
            yield self._batch(gone, [str(at)] * len(gone), [time_of] * len(gone))

    # -------------------------------------------------------------- Arrow
    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*(pa.field(f.name, arrow_type(f.type)) for f in self._fields), pa.field(SIGN, pa.int64()),
                          pa.field(WATERMARK, pa.string()), pa.field(TIME, pa.timestamp("us", "UTC"))])

    def _batch(self, rows: Sequence[Sequence[Any]], marks: list[str], times: list[int]) -> pa.RecordBatch:
        shown = list(zip(*rows, strict=True)) or [()] * (len(self._fields) + 1)
        arrays = [_array(c, f) for c, f in zip(shown, self._fields, strict=False)]
        arrays += [pa.array(shown[-1], pa.int64()), pa.array(marks, pa.string()),
                   pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    # -------------------------------------------------------------- the file
    def _sync(self) -> None:
        """Sync SQLite's WAL, unless it is unchanged since the last sync."""
        with suppress(FileNotFoundError), open(f"{self._path}-wal", "rb") as f:
            at = os.fstat(f.fileno())
            if (seen := hash((at.st_size, at.st_mtime_ns))) != self._synced:
                os.fdatasync(f.fileno())
                self._synced = seen

    def _tidy(self) -> None:
        """Checkpoint a large WAL, so that the worker need not."""
        with suppress(FileNotFoundError, sqlite3.Error):
            if os.path.getsize(f"{self._path}-wal") > CHECKPOINT_BYTES:
                db = connect(self._path)
                try:
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                finally:
                    db.close()


def _array(values: Sequence[int | str], field: Field) -> pa.Array:
    if field.type.is_text:
        texts = pa.array([v if isinstance(v, str) else None for v in values], pa.large_string())
        return bytes_of(texts) if field.type.is_bytes else texts
    codes = np.array(values, np.int64)
    return to_arrow(np.where(codes == ERROR_CODE, NULL_CODE, codes), field.type, NO_SYMBOLS).cast(
        arrow_type(field.type))


def _bounded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    end = time.monotonic() + FEED_READ_S
    for batch in batches:
        yield batch
        if time.monotonic() > end:
            raise SqlError(*QUERY_TIMEOUT, f"reading the feed took longer than {FEED_READ_S} s: read smaller parts")
