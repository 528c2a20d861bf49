"""Reads the source's binlog as transactions, in order, in a thread of its own.

    reader ── Transaction(changes, position) ──► queue, bounded by rows ──► follower

A transaction ends with XID or COMMIT.  A large one is split into pieces, and only the last has a position.  A statement
that changes tables is sent alone, and the reader waits until the follower has handled it.

Keeps true: a position is the end of a transaction.  An unknown event ends the reading with `CannotFollow`; none is
skipped.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE, NONE_SOURCE
from pymysqlreplication.event import (
    BeginLoadQueryEvent,
    ExecuteLoadQueryEvent,
    FormatDescriptionEvent,
    GtidEvent,
    MariadbBinLogCheckPointEvent,
    MariadbGtidEvent,
    MariadbGtidListEvent,
    NotImplementedEvent,
    PreviousGtidsEvent,
    QueryEvent,
    RotateEvent,
    StopEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from noria.core.limits import FOLLOW_PIECE_ROWS, FOLLOW_QUEUE_ROWS
from noria.following.address import CannotFollow, SourceAddress
from noria.following.schema import SourceTable
from noria.following.source import BinlogPosition, file_of, place, refusing, shown
from noria.following.statements import StatementMeaning, meaning

logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)  # this module refuses what it warns of

HEARTBEAT_S = 1  # an idle source sends a heartbeat at this interval
SILENT_S = 60  # after this time without even a heartbeat, the connection counts as lost
_BETWEEN = (MariadbGtidListEvent, MariadbBinLogCheckPointEvent, PreviousGtidsEvent, StopEvent)
_HARMLESS = {3, 5, 28, 29, 34, 35, 36, 37, 41, 42, 160, 161, 162, 163, 164}  # events without rows, by their number
_OLD_TIMES = {FIELD_TYPE.TIMESTAMP, FIELD_TYPE.DATETIME, FIELD_TYPE.TIME}
_ZEROS = (NONE_SOURCE.OUT_OF_DATE_RANGE, NONE_SOURCE.OUT_OF_DATETIME_RANGE, NONE_SOURCE.OUT_OF_DATETIME2_RANGE)

Key = tuple[Any, ...]
Row = tuple[Any, ...]


class RowChange(NamedTuple):
    """A changed row.  old_key: the key of the row before; None: inserted.  new_row: the row after; None: deleted."""

    table: str
    old_key: Key | None
    new_row: Row | None


@dataclass
class BinlogEvent:
    """An element of the queue: a transaction or a piece of one, a statement, a new file, or an error.

    `at`: the end of the transaction, None if more pieces follow.  `time`: of its commit, in the source's seconds since
    1970.  `statement`, `meaning`: of a statement; the follower sets `handled` after it.  `created`: the time at which
    a new binlog file was created.  `error`: the reading ended.
    """

    changes: list[RowChange] = field(default_factory=list)
    at: BinlogPosition | None = None
    time: int = 0
    statement: str = ""
    meaning: StatementMeaning | None = None
    created: int = 0
    handled: threading.Event | None = None
    error: Exception | None = None
    nbytes: int = 0

    @property
    def units(self) -> int:
        """Its size for the bounds of queue and commit: one for each change and each kilobyte."""
        return len(self.changes) + (self.nbytes >> 10)


class BinlogReader:
    """The reader.  tables: the followed tables by name; more may be added while the reader waits for a statement.
    created: the time of the file of `start`, 0 if unknown."""

    def __init__(self, address: SourceAddress, server_id: int, start: BinlogPosition, tables: dict[str, SourceTable],
                 created: int):
        self._address, self._tables, self._start, self._created = address, tables, start, created
        self._queue: queue.Queue[BinlogEvent] = queue.Queue()
        self._units, self._taken = 0, threading.Condition()  # in the queue; notified when some leave it
        self._over = threading.Event()
        self._waits: threading.Event | None = None  # the reader waits until this statement was handled
        self._connections: list[Any] = []
        file, position = file_of(start)
        self._stream = BinLogStreamReader(
            {**address.settings(), "read_timeout": SILENT_S}, server_id, log_file=file, log_pos=position,
            resume_stream=True, blocking=True, filter_non_implemented_events=False, slave_heartbeat=HEARTBEAT_S,
            only_schemas=[address.database], enable_logging=False, pymysql_wrapper=self._connect)
        self._thread = threading.Thread(target=self._run, name="binlog", daemon=True)
        self._thread.start()

    def _connect(self, **settings: Any) -> Any:
        """Open the stream's two connections.  A third is refused: the library would resume within a transaction."""
        if len(self._connections) == 2 or self._over.is_set():
            raise ConnectionError("the connection to the source was lost")
        self._connections.append(pymysql.connect(**settings))
        return self._connections[-1]

    def next(self, timeout_s: float) -> BinlogEvent | None:
        """Return the next element, or None after the timeout.  Raises the error that ended the reading."""
        try:
            found = self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None
        if found.error is not None:
            raise found.error
        with self._taken:
            self._units -= 1 + found.units
            self._taken.notify()
        return found

    def close(self) -> None:
        self._over.set()
        if (waits := self._waits) is not None:
            waits.set()
        with self._taken:
            self._taken.notify()
        for connection in self._connections:
            with contextlib.suppress(OSError, AttributeError):  # it is closed already
                connection._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    # ------------------------------------------------------------ the thread
    def _run(self) -> None:
        try:
            with refusing():
                for found in self._transactions():
                    self._waits = found.handled
                    self._put(found)
                    if self._over.is_set():
                        return
                    if found.handled is not None:
                        found.handled.wait()
            raise ConnectionError("the source ended its binlog's stream")
        except Exception as e:
            self._queue.put(BinlogEvent(error=e))

    def _put(self, found: BinlogEvent) -> None:
        with self._taken:
            while self._units >= FOLLOW_QUEUE_ROWS and not self._over.is_set():
                self._taken.wait()
            self._units += 1 + found.units
        self._queue.put(found)

    def _transactions(self) -> Iterator[BinlogEvent]:
        stream, transaction, within = self._stream, BinlogEvent(), False
        for event in stream:
            at = place(stream.log_file, stream.log_pos)
            if isinstance(event, RotateEvent):
                if not within:
                    yield BinlogEvent(at=place(event.next_binlog, event.position), time=event.timestamp)
            elif isinstance(event, FormatDescriptionEvent):
                yield self._file(event, at)
            elif isinstance(event, _BETWEEN):
                if not within:
                    yield BinlogEvent(at=at, time=event.timestamp)
            elif isinstance(event, MariadbGtidEvent | GtidEvent):
                within = True
            elif isinstance(event, TableMapEvent):
                within = True
                self._mapped(event, at)
            elif isinstance(event, RowsEvent):
                before = len(transaction.changes)
                transaction.changes.extend(self._changes(event))
                transaction.nbytes += event.event_size if len(transaction.changes) > before else 0
                if transaction.units >= FOLLOW_PIECE_ROWS:
                    yield replace(transaction, time=event.timestamp)
                    transaction = BinlogEvent()
            elif isinstance(event, XidEvent):
                yield replace(transaction, at=at, time=event.timestamp)
                transaction, within = BinlogEvent(), False
            elif isinstance(event, QueryEvent):
                found = self._said(event, bool(transaction.changes), at)
                if found is None:
                    within = True
                    continue
                yield replace(transaction, at=at, time=event.timestamp) if found.meaning is None else found
                transaction, within = BinlogEvent(), False
            elif isinstance(event, XAPrepareEvent):
                if transaction.changes:
                    raise CannotFollow(f"at {shown(at)} the source prepared an XA transaction, and these are not "
                                       f"followed")
            else:
                _check_known(event, at)

    def _file(self, event: Any, at: BinlogPosition) -> BinlogEvent:
        """Handle the begin or the resumption of a file.  Raises Refused if it is not the file that was followed."""
        if self._created and event.timestamp != self._created:
            raise CannotFollow(f"the source's binlog {file_of(at)[0]} is not the one that was followed: the source "
                               f"was set "
                               "anew (RESET MASTER), or is another server. End this with --release, drop the tables, "
                               "and "
                               "follow anew")
        self._created = 0
        return BinlogEvent(created=event.timestamp,
                           at=BinlogPosition(at.base, at.number if at.number > self._start.number
                                                                      else self._start.number))

    def _said(self, event: Any, has_rows: bool, at: BinlogPosition) -> BinlogEvent | None:
        """Handle a statement.  Returns None if the transaction continues, a Transaction without a meaning at its end,
        or the statement for the follower."""
        text, schema = event.query, event.schema.decode()
        found = meaning(text, schema, self._address.database)
        if found.what == "begin":
            return None
        if found.what in ("commit", "nothing"):
            return BinlogEvent() if found.what == "commit" or not has_rows else None
        if found.what in ("rollback", "xa"):
            if has_rows:
                raise CannotFollow(f"at {shown(at)} the source logged rows and then '{text}', which is not followed")
            return BinlogEvent()
        if found.what == "rows" or has_rows:
            raise CannotFollow(f"at {shown(at)} the source logged a statement instead of rows (a session with another "
                               f"binlog_format): {text[:500]}")
        return BinlogEvent([], at, event.timestamp, text, found, handled=threading.Event())

    def _mapped(self, event: Any, at: BinlogPosition) -> None:
        """Prepare the library for rows of a table.  Raises Refused if its columns differ from the known ones."""
        table = self._tables.get(event.table)
        if event.schema != self._address.database or table is None:
            return
        names = tuple(c.name for c in event.columns)
        if names != table.names:
            raise CannotFollow(f"at {shown(at)} the source's table {table.name} has the columns "
                               f"{', '.join(map(str, names))}"
                               f" and not {', '.join(table.names)}: it was altered, or logged without "
                               f"binlog_row_metadata "
                               "= FULL. End this with --release, drop the tables, and follow anew")
        for column, known in zip(event.columns, table.columns, strict=True):
            if column.type in _OLD_TIMES:
                raise CannotFollow(f"{table.name}.{known.name} is stored as before MySQL 5.6: ALTER TABLE {table.name} "
                                   f"FORCE in the source (mysql56_temporal_format)")
            if known.charset:
                column.character_set_name = known.charset
            if known.kind == "enum":
                column.enum_values = ["", *known.members]
            elif known.kind == "set":
                column.set_values = known.members

    def _changes(self, event: Any) -> Iterator[RowChange]:
        table = self._tables.get(getattr(event, "table", ""))
        if table is None or event.schema != self._address.database:
            return
        if isinstance(event, PartialUpdateRowsEvent):
            raise CannotFollow(f"the source logged a part of a JSON value of {table.name}: SET GLOBAL "
                               "binlog_row_value_options = '', and connect its clients anew")
        key = table.key_places
        for row in event.rows:
            if isinstance(event, WriteRowsEvent):
                yield RowChange(table.name, None, _row(table, row["values"], row["none_sources"]))
            elif isinstance(event, DeleteRowsEvent):
                old_row = _row(table, row["values"], row["none_sources"])
                yield RowChange(table.name, tuple(old_row[k] for k in key), None)
            elif isinstance(event, UpdateRowsEvent):
                old_row = _row(table, row["before_values"], row["before_none_sources"])
                yield RowChange(table.name, tuple(old_row[k] for k in key),
                                _row(table, row["after_values"], row["after_none_sources"]))


def _check_known(event: Any, at: BinlogPosition) -> None:
    if isinstance(event, BeginLoadQueryEvent | ExecuteLoadQueryEvent):
        raise CannotFollow(f"at {shown(at)} the source logged LOAD DATA as a statement (a session with another "
                           "binlog_format), and not its rows")
    if isinstance(event, NotImplementedEvent) and event.packet.event_type not in _HARMLESS:
        raise CannotFollow(f"at {shown(at)} the source's binlog has an event of the unknown kind "
                           f"{event.packet.event_type}. Compressed rows are of such a kind: switch log_bin_compress, "
                           f"or a "
                           "session's binlog_transaction_compression, off and follow anew")


def _row(table: SourceTable, values: dict[str, Any], nones: dict[str, str]) -> Row:
    for name, why in nones.items():
        if why == NONE_SOURCE.EMPTY_SET:
            values[name] = frozenset()
        elif why == NONE_SOURCE.COLS_BITMAP:
            raise CannotFollow(f"the source logged a part of a row of {table.name} (a session with another "
                               "binlog_row_image): changes cannot be applied whole")
        elif why in _ZEROS:
            raise CannotFollow(f"a value of {table.name}.{name} is a date of zeros, which cannot be had here: change "
                               f"it in "
                               "the source to a date or NULL, and follow anew")
    return tuple(values.values())


# ------------------------------------------------------------------ JSON of MySQL
def _json(value: Any) -> Any:
    """Convert a value that Python's JSON encoder does not know."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date | timedelta):
        return str(value)
    raise CannotFollow(f"a JSON value has a {type(value).__name__} in it, which is not followed")


def _texts(value: Any) -> Any:
    """Decode the keys and texts of a JSON value, which the library reads as bytes."""
    if isinstance(value, dict):
        return {_texts(k): _texts(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_texts(v) for v in value]
    return value.decode() if isinstance(value, bytes) else value


_unpacked = BinLogPacketWrapper.read_binary_json


def _json_text(packet: Any, size: int, is_partial: bool) -> str:
    """Read a JSON value as a text.  The library returns None for JSON's null and for SQL's NULL alike."""
    return json.dumps(_texts(_unpacked(packet, size, is_partial)), ensure_ascii=False, default=_json)


BinLogPacketWrapper.read_binary_json = _json_text
