"""DB-API 2.0 (PEP 249) over a server or an embedded database.

    connection = noria.dbapi.connect("data")                      # as noria.open
    connection = noria.dbapi.connect("http://127.0.0.1:8080")     # as noria.connect
    cursor = connection.execute("SELECT title FROM stories WHERE author = ?", ["ann"])

Each statement commits by itself: `commit` and `rollback` find nothing open.  A connection is for one thread at a time.
Errors carry MySQL's number and SQLSTATE: `error.code`, `error.state`.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import pyarrow as pa

import noria
from noria.client import Database, Result
from noria.control.leases import CannotClaim
from noria.core.errors import SqlError

apilevel, threadsafety, paramstyle = "2.0", 1, "qmark"
Row = tuple[Any, ...]


# ---------------------------------------------------------------- errors
class Warning(Exception):
    """Of the standard; none is raised: `Cursor.messages` has a statement's warnings."""


class Error(Exception):
    """code: MySQL's number, state: its SQLSTATE; 0 and "" of what no server said."""

    def __init__(self, message: str, code: int = 0, state: str = ""):
        super().__init__(message)
        self.code, self.state = code, state


class InterfaceError(Error):
    """Of the use of this interface: of what is closed, say."""


class DatabaseError(Error):
    """Of the database."""


class DataError(DatabaseError):
    """A value that its column or function cannot take."""


class OperationalError(DatabaseError):
    """Nothing is wrong with the statement: a timeout, a server that is gone, no memory."""


class IntegrityError(DatabaseError):
    """A constraint is not met."""


class InternalError(DatabaseError):
    """A defect."""


class ProgrammingError(DatabaseError):
    """A table that is not there, a syntax error, a wrong number of parameters."""


class NotSupportedError(DatabaseError):
    """What the database does not do."""


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


# ---------------------------------------------------------------- types
Date, Time, Timestamp, Binary = datetime.date, datetime.time, datetime.datetime, bytes
DateFromTicks = datetime.date.fromtimestamp


def TimeFromTicks(ticks: float) -> datetime.time:
    return datetime.datetime.fromtimestamp(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ticks)


class _Type:
    """Equal to the type codes of a kind."""

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
def connect(database: str, **more: Any) -> Connection:
    """database: a server's address, http[s]://…, or the directory of an embedded database.  more: of `noria.open`."""
    try:
        if database.startswith(("http://", "https://")):
            return Connection(noria.connect(database, **more))
        return Connection(noria.open(database, **more))
    except SqlError as e:
        raise _error(e) from e
    except (ConnectionError, CannotClaim) as e:
        raise OperationalError(str(e)) from e


class Connection:
    """A context manager that closes it."""

    Warning, Error, InterfaceError, DatabaseError = Warning, Error, InterfaceError, DatabaseError
    DataError, OperationalError, IntegrityError, InternalError = (
        DataError, OperationalError, IntegrityError, InternalError)
    ProgrammingError, NotSupportedError = ProgrammingError, NotSupportedError

    def __init__(self, database: Database):
        self._database: Database | None = database

    @property
    def autocommit(self) -> bool:
        return True

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        if not on:
            raise NotSupportedError("transactions of several statements are not supported: each commits by itself")

    @property
    def database(self) -> Database:
        """The same database with tables, views and shared memory.  InterfaceError when it is closed."""
        if self._database is None:
            raise InterfaceError("the connection is closed")
        return self._database

    def cursor(self) -> Cursor:
        self.database  # noqa: B018 - an error of a closed one
        return Cursor(self)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """A cursor that has run the statement."""
        return self.cursor().execute(operation, parameters)

    def commit(self) -> None:
        """What was done is durable already."""
        self.database  # noqa: B018

    def rollback(self) -> None:
        """Nothing is open that could be taken back."""
        self.database  # noqa: B018

    def close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


class Cursor:
    """Runs statements and has the rows of the last one."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.arraysize = 1
        self.description: list[tuple[str, pa.DataType, None, None, None, None, bool]] | None = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self.messages: list[tuple[type[Exception], str]] = []
        self.rownumber: int | None = None
        self._rows: list[Row] = []
        self._is_open = True

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Cursor:
        """Run one statement; `?` takes the parameters in order."""
        self._set(self._run(operation, parameters))
        return self

    def executemany(self, operation: str, seq_of_parameters: Iterable[Sequence[Any]]) -> Cursor:
        """Run the statement with each of the parameters; `rowcount` is of all."""
        result, affected = None, 0
        for parameters in seq_of_parameters:
            result = self._run(operation, parameters)
            affected += result.affected
        if result is not None:
            self._set(result)
            self.rowcount = affected if result.arrow is None else self.rowcount
        else:
            self.description, self.rowcount = None, 0
        return self

    def _run(self, operation: str, parameters: Sequence[Any]) -> Result:
        database = self._database()
        if isinstance(parameters, Mapping | str | bytes):
            raise ProgrammingError("parameters are a sequence, one for each `?`")
        try:
            return database.sql(operation, parameters)
        except SqlError as e:
            raise _error(e) from e
        except ConnectionError as e:
            raise OperationalError(str(e)) from e

    def _set(self, result: Result) -> None:
        rows = result.arrow
        self.description = None if rows is None else [
            (f.name, f.type, None, None, None, None, f.nullable) for f in rows.schema]
        self._rows, self.rownumber = result.rows, None if rows is None else 0
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
        """As many rows as `size`, or `arraysize`, if there are as many."""
        start = self._left()
        found = self._rows[start: start + (self.arraysize if size is None else size)]
        self.rownumber = start + len(found)
        return found

    def fetchall(self) -> list[Row]:
        return self.fetchmany(len(self._rows))

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """Types are taken from the values."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Values come whole."""

    def close(self) -> None:
        self._is_open = False
        self._rows = []

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


__all__ = ["BINARY", "DATETIME", "NUMBER", "ROWID", "STRING", "Binary", "Connection", "Cursor", "DataError",
           "DatabaseError", "Date", "DateFromTicks", "Error", "IntegrityError", "InterfaceError",
           "InternalError", "NotSupportedError", "OperationalError", "ProgrammingError", "Time", "TimeFromTicks",
           "Timestamp", "TimestampFromTicks", "Warning", "apilevel", "connect", "paramstyle", "threadsafety"]
