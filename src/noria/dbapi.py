"""DB-API 2.0 (PEP 249) over a server or an embedded database.

    connection = noria.dbapi.connect("data")                      # like noria.open
    connection = noria.dbapi.connect("http://127.0.0.1:8080")     # like noria.connect
    cursor = connection.execute("SELECT title FROM stories WHERE author = ?", ["ann"])

* The first statement begins a transaction, which lasts until `commit` or `rollback`.  With `autocommit` each statement
  commits by itself.  A definition commits at once.
* A transaction that the database has rolled back, after a deadlock or an idle time, raises OperationalError once.  The
  next statement begins another one.
* A connection is for one thread at a time.  All connections of a process to a directory share one database, which is
  closed with the last of them.
* `executemany` sends an INSERT of `VALUES (?, …)` as statements of many rows.
* Errors have MySQL's number and SQLSTATE: `error.code`, `error.state`.
"""

from __future__ import annotations

import datetime
import itertools
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from noria import client
from noria.client import Database, Result, Transaction
from noria.control.processes.leases import CannotClaim
from noria.core.errors import SqlError
from noria.core.errors.codes import CLIENT_INTERACTION_TIMEOUT, LOCK_DEADLOCK
from noria.storage.rocks.errors import StoreError

apilevel, threadsafety, paramstyle = "2.0", 1, "qmark"
Row = tuple[Any, ...]
_ENDS = {c.number for c in (LOCK_DEADLOCK, CLIENT_INTERACTION_TIMEOUT)}  # errors after which a transaction is no more


# ---------------------------------------------------------------- errors
class Warning(UserWarning):
    """The class of the warnings in `Cursor.messages`.  They are not raised."""


class Error(Exception):
    """The base of all errors.  code, state: MySQL's number and SQLSTATE; 0 and "" if the database did not report it."""

    def __init__(self, message: str, code: int = 0, state: str = ""):
        super().__init__(message)
        self.code, self.state = code, state


class InterfaceError(Error):
    """A wrong use of this interface, for example of a closed connection."""


class DatabaseError(Error):
    """The base of all errors from the database."""


class DataError(DatabaseError):
    """A value that does not fit its column or function."""


class OperationalError(DatabaseError):
    """An error that the statement did not cause: a timeout, a lost server, a lack of memory."""


class IntegrityError(DatabaseError):
    """A violated constraint."""


class InternalError(DatabaseError):
    """A defect of the database."""


class ProgrammingError(DatabaseError):
    """A missing table, a syntax error, or a wrong number of parameters."""


class NotSupportedError(DatabaseError):
    """A feature that the database does not have."""


_CLASSES: dict[type[DatabaseError], frozenset[int]] = {
    IntegrityError: frozenset((1022, 1048, 1062, 1169, 1216, 1217, 1364, 1451, 1452, 1557, 3819, 4025)),
    DataError: frozenset((1264, 1265, 1292, 1365, 1366, 1367, 1406, 1411, 1441, 1525, 1690, 3140, 3141)),
    ProgrammingError: frozenset((1007, 1008, 1046, 1049, 1050, 1051, 1052, 1054, 1055, 1060, 1061, 1064, 1065, 1066,
                                 1072, 1091, 1109, 1136, 1146, 1176, 1210, 1222, 1248, 1305, 1318, 1327, 1347, 1582,
                                 1583)),
    NotSupportedError: frozenset((1235, 1295, 1286, 1289)),
    InternalError: frozenset((1105,)),
}


def _error(e: SqlError) -> DatabaseError:
    kind = next((c for c, codes in _CLASSES.items() if e.code in codes), OperationalError)
    return kind(f"({e.code}) {e.message}", e.code, e.state)


@contextmanager
def _errors() -> Iterator[None]:
    """Raise this module's errors instead of the client's."""
    try:
        yield
    except SqlError as e:
        raise _error(e) from e
    except ConnectionError as e:
        raise OperationalError(str(e)) from e


# ---------------------------------------------------------------- types
Date, Time, Timestamp, Binary = datetime.date, datetime.time, datetime.datetime, bytes
DateFromTicks = datetime.date.fromtimestamp


def TimeFromTicks(ticks: float) -> datetime.time:
    return datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ticks)


class _Type:
    """A type object of PEP 249, which equals all type codes of its kind."""

    def __init__(self, name: str):
        self._name = name

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, pa.DataType) and _kind(other) is self)

    def __hash__(self) -> int:
        return hash(self._name)

    def __repr__(self) -> str:
        return self._name


STRING, BINARY, NUMBER, DATETIME, ROWID = map(_Type, ("STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"))


def _kind(kind: pa.DataType) -> _Type:
    if pa.types.is_temporal(kind):
        return DATETIME
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return BINARY
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return NUMBER if is_number or pa.types.is_boolean(kind) else STRING


# ---------------------------------------------------------------- connections
def connect(database: str, *, found_rows: bool = False, autocommit: bool = False, isolation: str | None = None,
            **more: Any) -> Connection:
    """Connect to a server or open an embedded database.  Raises OperationalError if that fails.

    `database`: a server's address, http[s]://…, or the directory of an embedded database.  `found_rows`: `rowcount` of
    an UPDATE also counts the rows that it finds and leaves unchanged.  `autocommit`, `isolation`: those of the
    connection.  `more`: arguments of `noria.open`.
    """
    try:
        if database.startswith(("http://", "https://")):
            opened = client.connect(database, **more)
            return Connection(opened, opened.close, found_rows, autocommit, isolation)
        return Connection(*_embedded(os.path.realpath(database), more), found_rows, autocommit, isolation)
    except SqlError as e:
        raise _error(e) from e
    except (ConnectionError, CannotClaim, StoreError) as e:
        raise OperationalError(str(e)) from e


@dataclass
class _Embedded:
    """An embedded database and its number of connections."""

    database: Database
    options: dict[str, Any]
    connections: int = 0


_embedded_databases: dict[str, _Embedded] = {}  # of this process, by directory
_opening = threading.Lock()


def _embedded(place: str, options: dict[str, Any]) -> tuple[Database, Callable[[], None]]:
    """Open the database of a directory, or share the open one.  Return it and the function that ends this use.

    Raises InterfaceError if it is open with other options.
    """
    with _opening:
        found = _embedded_databases.get(place)
        if found is None:
            found = _embedded_databases[place] = _Embedded(client.open(place, **options), options)
        elif found.options != options:
            raise InterfaceError(f"{place} is open in this process with other options: {found.options or 'none'}")
        found.connections += 1

    def close() -> None:
        with _opening:
            found.connections -= 1
            if found.connections == 0:
                del _embedded_databases[place]
                found.database.close()

    return found.database, close


class Connection:
    """A connection, and a context manager that closes it.

    isolation: the level of its next transactions, READ COMMITTED for example; None: the database's default.
    """

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError, InternalError = (
        DataError, OperationalError, IntegrityError, InternalError)
    ProgrammingError, NotSupportedError = ProgrammingError, NotSupportedError

    def __init__(self, database: Database, close: Callable[[], None], found_rows: bool = False,
                 autocommit: bool = False, isolation: str | None = None):
        self._database: Database | None = database
        self._transaction: Transaction | None = None
        self._close, self.found_rows = close, found_rows
        self._autocommit, self.isolation = autocommit, isolation

    @property
    def autocommit(self) -> bool:
        """Whether each statement commits by itself.  Setting it commits the open transaction."""
        return self._autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self.commit()
        self._autocommit = on

    @property
    def database(self) -> Database:
        """The database as an object of `noria.client`.  Raises InterfaceError if the connection is closed."""
        return self._opened()

    def _opened(self) -> Database:
        if self._database is None:
            raise InterfaceError("the connection is closed")
        return self._database

    def cursor(self) -> Cursor:
        self._opened()
        return Cursor(self)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement and return its cursor."""
        return self.cursor().execute(operation, parameters)

    def run(self, operation: str, parameters: Sequence[Any]) -> Result:
        """Run one statement, within the connection's transaction."""
        with _errors():
            if self._autocommit:
                return self.database.sql(operation, parameters, found_rows=self.found_rows)
            if self._transaction is None or not self._transaction.is_open:
                self._transaction = self.database.begin(self.isolation)
            try:
                return self._transaction.sql(operation, parameters, found_rows=self.found_rows)
            except SqlError as e:
                if e.code in _ENDS:
                    self._transaction = None
                raise

    def commit(self) -> None:
        """Commit the transaction, if there is one.  Raises OperationalError if it is lost."""
        transaction = self._taken()
        if transaction is not None:
            with _errors():
                transaction.commit()

    def rollback(self) -> None:
        """Roll the transaction back, if there is one."""
        transaction = self._taken()
        if transaction is not None:
            with _errors():
                transaction.rollback()

    def _taken(self) -> Transaction | None:
        """The open transaction, which is no longer the connection's."""
        self._opened()
        transaction, self._transaction = self._transaction, None
        return transaction

    def close(self) -> None:
        """Close the connection.  Its transaction is rolled back."""
        if self._database is not None:
            with suppress(Error):  # a server that is gone has rolled it back
                self.rollback()
            self._database = None
            self._close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


_INSERT = re.compile(r"\s*(?:INSERT|REPLACE)\b[^?'\"]*\bVALUES\s*(\((?:\s*\?\s*,)*\s*\?\s*\))\s*"
                     r"(?:ON\s+DUPLICATE\b[^?]*)?;?\s*", re.IGNORECASE)
_TOGETHER_ROWS, _TOGETHER_VALUES = 500, 10_000  # the most of one INSERT


def _together(operation: str, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the statements that run an operation with each of these parameters; rows of an INSERT are combined."""
    found = _INSERT.fullmatch(operation)
    if found is None:
        yield from ((operation, row) for row in rows)
        return
    width, (start, end) = found[1].count("?"), found.span(1)
    left, size = iter(rows), max(1, min(_TOGETHER_ROWS, _TOGETHER_VALUES // width))
    while some := list(itertools.islice(left, size)):
        if any(isinstance(row, Mapping | str | bytes) or len(row) != width for row in some):
            yield from ((operation, row) for row in some)  # the wrong row raises an error
        else:
            text = operation[:start] + ", ".join([found[1]] * len(some)) + operation[end:]
            yield text, [value for row in some for value in row]


class Cursor:
    """Runs statements, and holds the rows of the last one."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.arraysize = 1
        self.description: list[tuple[str, pa.DataType, None, None, None, None, bool]] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.messages: list[tuple[type[Exception], str]] = []
        self.rownumber: int | None = None
        self._rows: list[Row] = []
        self._arrow: pa.Table | None = None
        self._is_open = True

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement.  Each `?` is replaced by the next parameter."""
        self._set(self._run(operation, parameters))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Sequence[Any]]) -> Cursor:
        """Run the statement with each of the parameters.  `rowcount` is the sum.

        One statement has many rows of an INSERT; if it fails, it writes none of them.
        """
        result, affected = None, 0
        for text, parameters in _together(operation, seq_of_parameters):
            result = self._run(text, parameters)
            affected += result.affected
        if result is not None:
            self._set(result)
            self.rowcount = affected if result.arrow is None else self.rowcount
        else:
            self.description, self.rowcount = None, 0
        return self

    def _run(self, operation: str, parameters: Sequence[Any]) -> Result:
        self._database()
        if isinstance(parameters, Mapping | str | bytes):
            raise ProgrammingError("parameters are a sequence, one for each `?`")
        return self.connection.run(operation, parameters)

    def _set(self, result: Result) -> None:
        rows = result.arrow
        self.description = None if rows is None else [
            (f.name, f.type, None, None, None, None, f.nullable) for f in rows.schema]
        self._rows, self._arrow, self.rownumber = result.rows, rows, None if rows is None else 0
        self.rowcount = result.affected if rows is None else len(result.rows)
        self.lastrowid = result.last_insert_id or None
        self.messages = [(Warning, f"{level} {code}: {text}") for level, code, text in result.warnings]

    def _database(self) -> Database:
        if not self._is_open:
            raise InterfaceError("the cursor is closed")
        return self.connection.database

    def _left(self) -> int:
        self._database()
        if self.rownumber is None:
            raise ProgrammingError("no statement with rows was executed")
        return self.rownumber

    def fetchone(self) -> Row | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Return the next rows, at most `size` or, by default, `arraysize`."""
        start = self._left()
        found = self._rows[start: start + (self.arraysize if size is None else size)]
        self.rownumber = start + len(found)
        return found

    def fetchall(self) -> list[Row]:
        return self.fetchmany(len(self._rows))

    def fetch_arrow_table(self) -> pa.Table:
        """Return the remaining rows as an Arrow table, which pandas, Polars and DuckDB can read without copies."""
        start = self._left()
        assert self._arrow is not None, "a statement with rows has them as Arrow"
        self.rownumber = len(self._rows)
        return self._arrow.slice(start)

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Do nothing: parameters have the types of their values."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Do nothing: values are never cut."""

    def close(self) -> None:
        self._is_open = False
        self._rows, self._arrow = [], None

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


__all__ = ["BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Binary", "Connection", "Cursor", "DataError",
           "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError", "InterfaceError",
           "InternalError", "NotSupportedError", "OperationalError", "ProgrammingError", "Time", "TimeFromTicks",
           "Timestamp", "TimestampFromTicks", "Warning", "apilevel", "connect", "paramstyle", "threadsafety"]
