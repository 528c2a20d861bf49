"""The state of a feed's reader node: within each tick, before it is acknowledged, it writes the changes to the log.

Keeps true (`layout.py`): the log has exactly the changes of the rows at each tick.  If a worker ends between its commit
and the log's, the two differ.  The next worker fills `content.kept` while it rebuilds the rows like any full state.  It
then searches `content` in slices for rows whose `kept` and `published` differ, and logs the differences.  All of them
are one tick; until then readers have the old rows.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from noria.core.batch import Batch, Codes
from noria.core.errors import SqlError
from noria.core.errors.codes import DISK_FULL
from noria.core.limits import (
    ERROR_CODE,
    FEED_AWAITING_ROWS,
    FEED_CACHE_BYTES,
    FEED_KEPT_ROWS,
    FEED_KEPT_S,
    FEED_LOOK_S,
    FEED_SLICE_ROWS,
    FEED_WAL_BYTES,
    NULL_CODE,
)
from noria.core.symbols import Symbols
from noria.core.types import Field
from noria.feeds.layout import TEXT_ERROR, TEXT_NULL, Row, columns, connect, feed_path, made, types_text

Changes = list[tuple[Row, int]]


def now_micros() -> int:
    return time.time_ns() // 1000


class FeedWriter:
    """Implements `dataflow.graph.protocols.ViewState`: a full state without a key."""

    full = True

    def __init__(self, directory: FeedDirectory, name: str, fields: Sequence[Field]):
        self.name, self._directory, self._fields = name, directory, tuple(fields)
        self._texts = [f.type.is_text for f in self._fields]
        self._awaiting: Changes = []  # not written yet, because a write failed (the disk was full)
        self._cursor: Row | None = None  # the last row of `content` that was searched for differences
        self._live = self._looking = False
        self._rows, self._due = 0, 0.0
        self._path = feed_path(directory.path, name.lower())
        try:
            self._db = self._opened(self._path)
        except sqlite3.Error as e:
            raise _unwritten(self.name, e) from None
        self._prepare(len(self._fields))

    # -------------------------------------------------------------- the file
    def _prepare(self, width: int) -> None:
        named, marks, life = columns(width), ", ".join("?" * width), self._life
        same, now = " AND ".join(f"c{i} = ?" for i in range(width)), f"IIF(life = {life}, kept, 0)"
        add = (f"INSERT INTO content ({named}, published, kept, life) VALUES ({marks}, {{}}, {life}) ON CONFLICT DO "
               f"UPDATE SET published = published + excluded.published, kept = {now} + excluded.kept, life = {life}")
        self._keep, self._publish = add.format("0, ?"), add.format("?, 0")
        self._both = add.format(f"?{width + 1}, ?{width + 1}")
        self._sweep = f"DELETE FROM content WHERE {same} AND published = 0 AND {now} = 0"
        self._log = f"INSERT INTO log (weight, {named}) VALUES (?, {marks})"
        self._next = f"SELECT {named}, published, {now} FROM content {{}} ORDER BY {named} LIMIT {FEED_SLICE_ROWS}"
        self._after = f"WHERE ({named}) > ({marks})"

    def _opened(self, path: Path) -> sqlite3.Connection:
        """Open the file if it has these columns and was complete once, else make a new one."""
        about = types_text(self._fields)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(2):
            db = prepared(path)
            try:
                if db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
                    with _transaction(db):
                        made(db, len(self._fields))
                        db.execute("INSERT INTO about VALUES (?, ?, 0, ?)", (secrets.token_hex(8), about, self.name))
                fields, = db.execute("SELECT fields FROM about").fetchone()
                self._first = db.execute("SELECT 1 FROM ticks LIMIT 1").fetchone() is None
                begun = db.execute("SELECT 1 FROM content LIMIT 1").fetchone() is not None
                if fields == about and not (self._first and begun):
                    db.execute("UPDATE about SET life = life + 1")
                    self._life: int = db.execute("SELECT life FROM about").fetchone()[0]
                    return db
            except sqlite3.DatabaseError as e:
                if isinstance(e, sqlite3.OperationalError):  # a full disk, a missing directory
                    db.close()
                    raise
            db.close()  # other columns, never complete, or no database: make a new file
            remove(path)
        raise AssertionError(f"a new file {path} is not as it was made")

    # -------------------------------------------------------------- changes
    def apply(self, delta: Batch) -> None:
        changes = self._changes(delta)
        if not changes:
            return
        try:
            self._written(self._awaiting + changes)
            self._awaiting = []
        except sqlite3.Error as e:
            self._awaiting += changes
            if len(self._awaiting) > FEED_AWAITING_ROWS:
                raise _unwritten(self.name, e) from None
        self._rows += sum(w for _, w in changes)

    def _written(self, changes: Changes) -> None:
        """Write changes to `kept`.  Also publish those of rows behind the cursor, or all if the feed is live or new."""
        published = changes if self._live or self._first else [c for c in changes if self._is_behind(c[0])]
        with _transaction(self._db):
            self._db.executemany(self._both, [(*row, w) for row, w in published])
            if len(published) < len(changes):
                rest = [c for c in changes if not self._is_behind(c[0])]
                self._db.executemany(self._keep, [(*row, w) for row, w in rest])
            if not self._first:  # a new feed's readers begin with `content`, not with the log
                self._log_changes(published)
            if self._live:
                self._tick()
            self._db.executemany(self._sweep, [row for row, w in changes if w < 0])

    def _log_changes(self, changes: Changes) -> None:
        self._db.executemany(self._log, [(w, *row) for row, w in changes])

    def _tick(self) -> None:
        """Mark the end of the log as the end of a tick."""
        self._db.execute("INSERT OR IGNORE INTO ticks SELECT max(n), ? FROM log HAVING max(n) IS NOT NULL",
                         (now_micros(),))

    def _is_behind(self, row: Row) -> bool:
        return self._cursor is not None and _order(row) <= _order(self._cursor)

    def _changes(self, delta: Batch) -> Changes:
        shown = [self._shown(codes, text) for codes, text in zip(delta.columns, self._texts, strict=True)]
        net: dict[Row, int] = {}
        for row, weight in zip(zip(*shown, strict=True), delta.weights.tolist(), strict=True):
            net[row] = net.get(row, 0) + weight
        return [c for c in net.items() if c[1]]

    def _shown(self, codes: Codes, text: bool) -> list[Any]:
        if not text:
            return list(codes.tolist())
        bad = codes == ERROR_CODE
        texts = self._directory.symbols.texts(np.where(bad, NULL_CODE, codes)).to_pylist()
        return [t if t is not None else TEXT_ERROR if b else TEXT_NULL
                for t, b in zip(texts, bad.tolist(), strict=True)]

    def activate(self) -> None:
        """The rows are complete: a new feed is published with its first tick; any other is searched for differences."""
        if self._live or self._looking:
            return
        if not self._first:
            self._looking = True
            return
        with _transaction(self._db):
            self._db.execute("INSERT INTO ticks VALUES (0, ?)", (now_micros(),))
        self._first, self._live = False, True

    def tidy(self) -> bool:
        """Do a slice of deferred work.  Returns whether more is left."""
        try:
            if self._awaiting:
                self._written(self._awaiting)
                self._awaiting = []
            if self._looking:
                self._look()
                return True
            return self._live and self._let_go()
        except sqlite3.Error:  # a full disk: a later call tries again
            return False

    def _look(self) -> None:
        """Search the next slice of `content` for differences, and publish them.  The last slice ends the tick."""
        width = len(self._fields)
        where, args = ("", ()) if self._cursor is None else (self._after, self._cursor)
        found = self._db.execute(self._next.format(where), args).fetchall()
        other = [(row[:width], row[-1] - row[-2]) for row in found if row[-1] != row[-2]]
        over = len(found) < FEED_SLICE_ROWS
        with _transaction(self._db):
            self._db.executemany(self._publish, [(*row, w) for row, w in other])
            self._log_changes(other)
            self._db.executemany(self._sweep, [row for row, _ in other])
            if over:
                self._tick()
        self._cursor = None if over else found[-1][:width]
        self._looking, self._live = not over, over

    def _let_go(self) -> bool:
        """Delete a slice of the expired log, but never the last tick.  Returns whether more is left."""
        if time.monotonic() < self._due:
            return False
        if (wal := self._path.with_name(self._path.name + "-wal")).exists() and wal.stat().st_size > FEED_WAL_BYTES:
            self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # no reader has done it
        newest = self._db.execute("SELECT max(n) FROM ticks").fetchone()[0]
        before, kept = now_micros() - FEED_KEPT_S * 1_000_000, newest - FEED_KEPT_ROWS
        first = self._db.execute(f"SELECT n, at FROM ticks ORDER BY n LIMIT {FEED_SLICE_ROWS}").fetchall()
        old = [n for n, at in first if (at < before or n <= kept) and n < newest]
        with _transaction(self._db):
            if len(old) > 1:  # the last of them becomes the oldest watermark
                self._db.execute("DELETE FROM ticks WHERE n < ?", (old[-1],))
            gone = self._db.execute("DELETE FROM log WHERE n <= (SELECT min(n) FROM ticks) AND n < "
                                    f"(SELECT min(n) FROM log) + {FEED_SLICE_ROWS}").rowcount
        if len(old) > 1 or gone > 0:
            return True
        self._due = time.monotonic() + FEED_LOOK_S
        return False

    # -------------------------------------------------------------- lookups
    def rows(self, keys: Codes) -> tuple[Batch, Codes]:
        width, count = len(self._fields), keys.shape[1]
        found = self._db.execute(f"SELECT {columns(width)}, kept FROM content WHERE life = {self._life} AND kept <> 0"
                                 ).fetchall()
        shown = list(zip(*found, strict=True)) or [()] * (width + 1)
        codes = [self._codes(list(c), text) for c, text in zip(shown, self._texts, strict=False)]
        batch = Batch(np.ascontiguousarray(np.stack(codes)), np.array(shown[-1], np.int64))
        return (Batch(np.tile(batch.columns, count), np.tile(batch.weights, count)),
                np.repeat(np.arange(count), len(batch)))

    def _codes(self, values: list[Any], text: bool) -> Codes:
        if not text:
            return np.array(values, np.int64)
        codes = self._directory.symbols.intern_many(
            pa.array([None if isinstance(v, int) else v for v in values], pa.large_string()))
        return np.where([v == TEXT_ERROR and isinstance(v, int) for v in values], ERROR_CODE, codes)

    def missing(self, keys: Codes) -> npt.NDArray[np.bool_]:
        return np.zeros(keys.shape[1], np.bool_)

    def present(self) -> Codes:
        return np.empty((0, 1), np.int64)

    def present_count(self) -> int:
        return 1

    def coldest(self, keys: int) -> tuple[Codes, Codes, Codes]:
        none = np.empty(0, np.int64)
        return np.empty((0, 0), np.int64), none, none

    def memory(self) -> int:
        return FEED_CACHE_BYTES

    def __len__(self) -> int:
        return self._rows

    def held(self) -> Iterator[Codes]:
        """Return no codes: the file has the texts themselves."""
        return iter(())

    # -------------------------------------------------------------- life
    def fill(self, keys: Codes, rows: Batch) -> None:
        raise AssertionError(f"feed {self.name} is full: it is not filled")

    def evict(self, keys: Codes) -> int:
        raise AssertionError(f"feed {self.name} is full: nothing of it is evicted")

    def begin_tick(self, tick: int) -> None:
        """Do nothing: `apply` writes a delta in one transaction."""

    def end_tick(self, tick: int) -> None:
        """Do nothing, as in `begin_tick`."""

    def expect(self, rows: int, keys: int) -> None:
        """Do nothing: a file needs no space in advance."""

    def rename(self, name: str) -> None:
        path = feed_path(self._directory.path, name.lower())
        self._db.close()
        remove(path)
        for end in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._path.with_name(self._path.name + end).rename(path.with_name(path.name + end))
        self.name, self._path, self._db = name, path, prepared(path)

    def drop(self) -> None:
        """Close the file and keep it for another state of the feed.  The server removes the file of a dropped feed."""
        self._db.close()
        self._directory.feeds.discard(self)


@dataclass(eq=False)
class FeedDirectory:
    """The feeds of one worker."""

    path: Path
    symbols: Symbols
    feeds: set[FeedWriter] = field(default_factory=set)

    def create(self, name: str, fields: Sequence[Field]) -> FeedWriter:
        feed = FeedWriter(self, name, fields)
        self.feeds.add(feed)
        return feed

    def tidy(self) -> bool:
        """Do a slice of each feed's deferred work.  Returns whether more is left."""
        more = [feed.tidy() for feed in self.feeds]
        return any(more)


def prepared(path: Path) -> sqlite3.Connection:
    """Open the file so that a commit does not sync.  A reader syncs the rows that it returns.  A worker that rebuilds
    the rows finds the changes that a power failure undid."""
    db = connect(path)
    for setting in ("journal_mode = WAL", "synchronous = NORMAL", "wal_autocheckpoint = 0",
                    f"cache_size = -{FEED_CACHE_BYTES // 1024}"):
        db.execute(f"PRAGMA {setting}")
    return db


def remove(path: Path) -> None:
    """Delete a feed's files, if they exist."""
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _order(row: Row) -> list[tuple[bool, Any]]:
    """Return a sort key with SQLite's order of rows: numbers before texts."""
    return [(isinstance(v, str), v) for v in row]


def _unwritten(name: str, e: Exception) -> SqlError:
    return SqlError(*DISK_FULL, f"the changes of feed {name} could not be written ({e}): make room on its disk")
