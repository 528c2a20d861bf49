"""Queries a followed database: its settings, its identity, and where its binlog ends.

A *position* is a growing number: the number of the binlog's file times 2^32, plus the offset in it.

    a consistent position    all later SELECTs see the changes before it.  MariaDB: the position of a consistent
                             snapshot.  MySQL: FLUSH TABLES WITH READ LOCK blocks commits for a moment

Keeps true: a setting is refused if it would omit changes, or parts of them, from the binlog.  The error says what to
do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pymysql
from pymysql import err

from noria.core.errors.codes import BAD_DB, BINLOG_PURGED, NO_SUCH_TABLE
from noria.following.address import ANSWER_S, CannotFollow, SourceAddress

IN_FILE = 2**32
_ACCESS = {1045: "the user or the password is wrong", 1044: "the user may not use the database",
           1142: "the user may not SELECT", 1227: "the user lacks a privilege"}
_GRANT = ("GRANT SELECT, RELOAD, REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO the user (MariaDB from 10.5: "
          "REPLICATION CLIENT is called BINLOG MONITOR)")
SETTINGS = {  # required of the source, and what to do if they differ
    "log_bin": ("ON", "start it with --log-bin"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = ROW, and connect its clients anew"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = FULL, and connect its clients anew"),
    "binlog_row_metadata": ("FULL", "SET GLOBAL binlog_row_metadata = FULL (MySQL 8, MariaDB 10.5 and later)"),
}
_UNLESS_THERE = {
    "log_bin_compress": ("OFF", "SET GLOBAL log_bin_compress = OFF, and connect its clients anew"),
    "binlog_transaction_compression": ("OFF", "SET GLOBAL binlog_transaction_compression = OFF, and connect its "
                                              "clients anew"),
    "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = '', and connect its clients anew"),
}


class BinlogPosition(NamedTuple):
    """A position.  base: the name of the binlog's files, without their number."""

    base: str
    number: int


def place(file: str, position: int) -> BinlogPosition:
    """
    >>> place("binlog.000012", 4)
    BinlogPosition(base='binlog', number=51539607556)
    """
    base, _, number = file.rpartition(".")
    return BinlogPosition(base, int(number) * IN_FILE + position)


def file_of(at: BinlogPosition) -> tuple[str, int]:
    """Return the binlog's file and the offset in it."""
    number, position = divmod(at.number, IN_FILE)
    return f"{at.base}.{number:06d}", position


def shown(at: BinlogPosition) -> str:
    file, position = file_of(at)
    return f"{file}:{position}"


def connected(address: SourceAddress) -> Any:
    """Connect to the source, with all texts in UTF-8 and all timestamps in UTC."""
    with refusing():
        connection = pymysql.connect(**address.settings(), database=address.database, read_timeout=ANSWER_S,
                                     autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = ''")
        return connection


@contextmanager
def refusing() -> Iterator[None]:
    """Raise a MySQL error as `CannotFollow` if no retry can help, else as ConnectionError."""
    try:
        yield
    except err.MySQLError as e:
        code, text = (*e.args, "", "")[:2]
        if code in _ACCESS:
            raise CannotFollow(f"the source says: {text}; {_ACCESS[code]}: {_GRANT}") from e
        if code in (BAD_DB.number, NO_SUCH_TABLE.number):
            raise CannotFollow(f"the source says: {text}") from e
        if code == BINLOG_PURGED.number:
            raise _no_binlog(str(text)) from e
        raise ConnectionError(f"the source: {text or e}") from e


def _no_binlog(text: str) -> CannotFollow:
    if "same server_" in text:
        return CannotFollow(f"the source says: {text}. Another replica has the number of this one: give --server-id "
                            f"another")
    return CannotFollow(f"the source does not have its binlog from the remembered position on, or began it anew "
                        f"({text}): "
                        "end this with --release, drop the tables, and follow anew; keep binlogs longer "
                        "(binlog_expire_logs_seconds)")


class SourceConnection:
    """One connection to the source, for queries."""

    def __init__(self, address: SourceAddress):
        self.address = address
        self._connection = connected(address)
        self.is_mariadb = "mariadb" in self._connection.get_server_info().lower()

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def cursor(self) -> Iterator[Any]:
        with refusing(), self._connection.cursor() as cursor:
            yield cursor

    def _row(self, text: str) -> tuple[Any, ...]:
        with self.cursor() as cursor:
            cursor.execute(text)
            return cursor.fetchone() or ()

    def _global(self, name: str) -> str | None:
        row = self._row(f"SHOW GLOBAL VARIABLES LIKE '{name}'")
        return str(row[1]) if row else None

    # ------------------------------------------------------------ settings
    def check(self) -> None:
        for name, (wanted, do) in SETTINGS.items():
            if (has := self._global(name)) is None or has.upper() != wanted:
                raise CannotFollow(f"the source has {name} = {has or 'none'}, and {wanted} is needed: {do}")
        for name, (wanted, do) in _UNLESS_THERE.items():
            if (has := self._global(name)) is not None and has.upper() != wanted:
                raise CannotFollow(f"the source has {name} = {has}, so changes would not be found whole: {do}")
        _, _, only, ignored = (*self._status(), "", "")[:4]
        if only or ignored:
            raise CannotFollow("the source logs some databases only (binlog_do_db, binlog_ignore_db): start it without")

    def identity(self) -> str:
        """Return a text that identifies the server."""
        uuid = None if self.is_mariadb else self._global("server_uuid")
        return uuid or f"server_id {self._global('server_id')}"

    # ------------------------------------------------------------ positions
    def _status(self) -> tuple[Any, ...]:
        try:
            row = self._row("SHOW MASTER STATUS")
        except ConnectionError:  # MySQL 8.4 has another name
            row = self._row("SHOW BINARY LOG STATUS")
        if not row:
            raise CannotFollow(f"the source has no binlog: {SETTINGS['log_bin'][1]}")
        return row

    def end(self) -> BinlogPosition:
        """Return the binlog's present end."""
        file, position = self._status()[:2]
        return place(str(file), int(position))

    def consistent(self) -> BinlogPosition:
        """Return a position such that every later SELECT sees all changes before it."""
        with self.cursor() as cursor:
            if self.is_mariadb:
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
                try:
                    cursor.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
                    found = {str(name).lower(): value for name, value in cursor.fetchall()}
                finally:
                    cursor.execute("ROLLBACK")
                return place(found["binlog_snapshot_file"], int(found["binlog_snapshot_position"]))
            cursor.execute("FLUSH TABLES WITH READ LOCK")
            try:
                return self.end()
            finally:
                cursor.execute("UNLOCK TABLES")

    def behind(self, at: BinlogPosition, end: BinlogPosition) -> int:
        """Return the number of binlog bytes between two positions."""
        first, last = at.number // IN_FILE, end.number // IN_FILE
        if first == last:
            return max(end.number - at.number, 0)
        with self.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            sizes = {place(str(row[0]), 0).number // IN_FILE: int(row[1]) for row in cursor.fetchall()}
        between = sum(size for number, size in sizes.items() if first <= number < last)
        return max(between - at.number % IN_FILE + end.number % IN_FILE, 0)
