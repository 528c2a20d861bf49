"""The Python API: tables for writes, views for lookups, SQL for everything else.

    db = noria.connect("http://127.0.0.1:8080")      # or noria.open("data") without a server
    db.sql("CREATE TABLE votes (story_id INT, user INT, PRIMARY KEY (story_id, user))")
    db.table("votes").insert([(1, 7), (1, 8)])       # or a pyarrow Table, or a dictionary of columns
    db.view("votecount").lookup(1)                   # [(1, 2)]
    db.view("votecount").lookup_many([1, 2, 3])      # a pyarrow Table

Every write is durable and visible in the views when the call returns; within `with db.transaction() as tx:`, when the
block ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, TypeVar

import pyarrow as pa

from noria.client.attached import SharedView
from noria.client.rows import Rows, array, as_table
from noria.client.transport import StatementAnswer, Transport
from noria.client.within import TransactionTransport, begun_by
from noria.core.errors import SqlError
from noria.core.errors.codes import LOCK_DEADLOCK, LOCK_WAIT_TIMEOUT
from noria.core.identifiers import quote_identifier
from noria.core.values import python_values

T = TypeVar("T")
INSERT_ROWS = 50_000  # of one request; more rows are sent in several requests, each committed by itself
REPEATED = (LOCK_DEADLOCK.number, LOCK_WAIT_TIMEOUT.number)  # the errors after which `transact` begins again


@dataclass(frozen=True)
class Result:
    """The result of a statement: its rows as tuples and as Arrow, or the affected rows and insert id of a write."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    arrow: pa.Table | None
    affected: int
    last_insert_id: int
    warnings: tuple[tuple[str, int, str], ...]

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


def tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """Return the rows of an Arrow table as tuples."""
    return list(zip(*map(python_values, table.columns), strict=True)) if table.num_columns else []


def _result(answer: StatementAnswer) -> Result:
    rows = answer.rows
    return Result(tuple(rows.column_names) if rows is not None else (), tuples(rows) if rows is not None else [],
                  rows, answer.affected, answer.last_insert_id, answer.warnings)


@dataclass(frozen=True)
class Changes:
    """Some changes of a feed.

    `kind`: `rows` (some of the first rows), `whole` (the end of the first rows), or `changes`.  `batch`: the columns,
    `_sign` (copies of the row that were added, negative: removed), `_watermark`, `_time`.  `watermark`: where to
    continue, as `since` of another call; None within a tick.
    """

    kind: str
    batch: pa.RecordBatch
    watermark: str | None

    def __iter__(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield (sign, row)."""
        *columns, signs, _, _ = map(python_values, self.batch.columns)
        return zip(signs, zip(*columns, strict=True), strict=True)


def _shown(messages: Iterator[tuple[pa.RecordBatch, dict[str, str]]]) -> Iterator[Changes]:
    for batch, about in messages:
        if about["kind"] == "gone":
            error = json.loads(about["error"])["error"]
            raise SqlError(error["code"], error["sqlstate"], error["message"])
        if about["kind"] != "alive":
            yield Changes(about["kind"], batch, about.get("watermark"))


class Database:
    """A database in this process or on a server.  As a context manager, it closes itself.

    `transport`: carries its requests.  Of a database in this process, it has the parts (`client/embedded.py`).
    """

    def __init__(self, transport: Transport):
        self.transport = transport

    def __repr__(self) -> str:
        return f"<noria database {self.transport.place}>"

    def sql(self, text: str, parameters: Sequence[Any] = (), *, found_rows: bool = False) -> Result:
        """Run one statement; each `?` stands for the next parameter.  Raises SqlError.

        found_rows: a row that a write finds but does not change counts as affected.
        """
        return _result(self.transport.sql(text, list(parameters), found_rows))

    @contextmanager
    def transaction(self, isolation: str | None = None, read_only: bool = False) -> Iterator[Transaction]:
        """Begin a transaction; commit it at the end of the block, or roll it back if the block raises.

            with db.transaction() as tx:
                tx.sql("UPDATE accounts SET balance = balance - ? WHERE id = ?", [5, 1])

        isolation: READ COMMITTED, REPEATABLE READ or SERIALIZABLE; by default the session's.  Raises SqlError: 1213 if
        the transaction was rolled back because of others (`transact` repeats it then)."""
        tx = self.begin(isolation, read_only)
        try:
            yield tx
        except BaseException:
            with suppress(ConnectionError):  # the server rolls it back by itself
                tx.rollback()
            raise
        tx.commit()

    def begin(self, isolation: str | None = None, read_only: bool = False) -> Transaction:
        """Begin a transaction that `commit` or `rollback` ends.  Prefer `transaction`, which never leaves it open."""
        return Transaction(TransactionTransport(self.transport, begun_by(isolation, read_only)))

    def transact(self, work: Callable[[Transaction], T], isolation: str | None = None, read_only: bool = False,
                 tries: int = 10) -> T:
        """Run `work(tx)` in a transaction, and return what it returns.  If the transaction was rolled back because of
        others (1213), or waited for a lock for too long (1205), run it again, at most `tries` times."""
        for left in reversed(range(tries)):
            try:
                with self.transaction(isolation, read_only) as tx:
                    return work(tx)
            except SqlError as e:
                if e.code not in REPEATED or not left:
                    raise
        raise ValueError(f"tries is a number from 1, not {tries}")

    def use(self, database: str) -> None:
        """Read names without a database in this one from now on, also in tables and views made before.  Raises SqlError
        1049."""
        self.transport.sql(f"SHOW CREATE DATABASE {quote_identifier(database)}", [])
        self.transport.database = database

    def table(self, name: str) -> Table:
        """Return the table with this name, or `database.name`.  Only its methods send requests."""
        return Table(self.transport, name)

    def view(self, name: str) -> View:
        """Return the view with this name, or `database.name`.  Only its methods send requests."""
        return View(self.transport, name)

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
                 ) -> None:
        self.close()


class Transaction:
    """An open transaction.  Its requests see its own changes; one runs at a time."""

    def __init__(self, transport: TransactionTransport):
        self._transport, self._savepoints = transport, 0

    def __repr__(self) -> str:
        return f"<noria transaction of {self._transport.place}>"

    def sql(self, text: str, parameters: Sequence[Any] = (), *, found_rows: bool = False) -> Result:
        """Run one statement within the transaction, as `Database.sql` does."""
        return _result(self._transport.sql(text, list(parameters), found_rows))

    def table(self, name: str) -> Table:
        return Table(self._transport, name)

    def view(self, name: str) -> View:
        return View(self._transport, name)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Set a savepoint, and roll back to it if the block raises."""
        self._savepoints += 1
        name = f"noria_{self._savepoints}"
        self.sql(f"SAVEPOINT {name}")
        try:
            yield
        except BaseException:
            with suppress(SqlError, ConnectionError):  # the transaction has ended
                self.sql(f"ROLLBACK TO SAVEPOINT {name}")
                self.sql(f"RELEASE SAVEPOINT {name}")
            raise
        self.sql(f"RELEASE SAVEPOINT {name}")

    @property
    def is_open(self) -> bool:
        """Whether requests are still within it: until it is committed or rolled back, or a definition commits it."""
        return self._transport.is_open

    def commit(self) -> None:
        """Commit now.  If the transaction has ended, this does nothing."""
        self._transport.commit()

    def rollback(self) -> None:
        """Roll back now.  If the transaction has ended, this does nothing."""
        self._transport.roll_back()


class _Relation:
    """The part that tables and views share."""

    _kind = ""

    def __init__(self, transport: Transport, name: str):
        self._transport, self.name = transport, name

    def __repr__(self) -> str:
        return f"<noria {self._kind} {self.name} of {self._transport.place}>"

    @cached_property
    def _about(self) -> dict[str, Any]:
        return self._transport.describe(f"{self._kind}s", self.name)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._about["columns"])

    def changes(self, since: str = "start") -> Iterator[Changes]:
        """Yield the changes of the table or view as they happen, without an end.

        since: `start` (all rows first), `now`, or an earlier watermark.  Raises SqlError 1236 if the changes after the
        watermark are no longer kept.
        """
        return _shown(self._transport.changes(self.name, since))


class Table(_Relation):
    """A base table."""

    _kind = "table"

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self._about["primary_key"])

    def insert(self, rows: Rows, columns: Sequence[str] | None = None, on_duplicate: str = "error") -> int:
        """Insert rows; returns how many were affected.

        rows: an Arrow table, a dictionary of columns by name, a list of tuples in the order of `columns` (all columns
        by default), or a list of dictionaries.  A column without values gets its default.
        `on_duplicate`: error, replace or ignore.  Raises ValueError or TypeError for an invalid row, before any is
        sent; SqlError if the server refuses the rows."""
        table = as_table(rows, columns, self.columns)
        affected = 0
        for start in range(0, max(table.num_rows, 1), INSERT_ROWS):
            affected += self._transport.insert(self.name, table.slice(start, INSERT_ROWS), on_duplicate)
        return affected

    def update(self, key: Any, **changes: Any) -> int:
        """Change columns of the row with this primary key.  Returns 1 if a row changed, else 0."""
        if not changes:
            return 0
        sets = ", ".join(f"{quote_identifier(c)} = ?" for c in changes)
        where, values = self._where(key)
        sql = f"UPDATE {self._full} SET {sets} WHERE {where}"
        return self._transport.sql(sql, [*changes.values(), *values]).affected

    def delete(self, key: Any) -> int:
        """Delete the row with this primary key.  Returns 1 if it existed, else 0."""
        where, values = self._where(key)
        return self._transport.sql(f"DELETE FROM {self._full} WHERE {where}", values).affected

    @property
    def _full(self) -> str:
        """Its name in SQL, with its database."""
        return f"{quote_identifier(self._about['database'])}.{quote_identifier(self._about['name'])}"

    def _where(self, key: Any) -> tuple[str, list[Any]]:
        if not self.primary_key:
            raise ValueError(f"table {self.name} has no primary key: use sql() with a WHERE of your own")
        values = _key(key, self.primary_key)
        return " AND ".join(f"{quote_identifier(c)} = ?" for c in self.primary_key), values


class View(_Relation):
    """A view, looked up by its key."""

    _kind = "view"

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns; empty for a view without parameters."""
        return tuple(self._about["key"])

    def lookup(self, key: Any = (), **columns: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a key: a value, or a tuple of values for a view with several parameters.

        The key columns can also be named: `lookup(author="ann", day=3)`.  Raises TypeError if these are not the key's.
        """
        if columns:
            key = self._named(key, columns)
        return tuples(self._transport.lookup(self.name, self._keys([key])).drop_columns("__key"))

    def lookup_many(self, keys: pa.Table | pa.Array | Sequence[Any]) -> pa.Table:
        """Return the rows of many keys.  The last column, `__key`, is the ordinal of the row's key, from 0."""
        return self._transport.lookup(self.name, self._keys(keys))

    def attach(self) -> SharedView:
        """Return an object that reads the view from this host's shared memory, and requests only missing keys."""
        return SharedView(self._transport, self.name, self._keys)

    def _named(self, key: Any, columns: dict[str, Any]) -> tuple[Any, ...]:
        if key != () or {c.lower() for c in columns} != {c.lower() for c in self.key}:
            raise TypeError(f"view {self.name} is looked up by {', '.join(self.key) or 'nothing'}, "
                            f"not by {', '.join(columns)}{' beside a key' if key != () else ''}")
        values = {c.lower(): v for c, v in columns.items()}
        return tuple(values[c.lower()] for c in self.key)

    def _keys(self, keys: Any) -> pa.Table:
        if isinstance(keys, pa.Table):
            return keys
        try:
            return self._key_table(keys)
        except ValueError:
            self.__dict__.pop("_about", None)  # the view may have been redefined with another key
            return self._key_table(keys)

    def _key_table(self, keys: Any) -> pa.Table:
        names = [f"key{i}" for i in range(len(self.key))]
        if isinstance(keys, (pa.Array, pa.ChunkedArray)):
            return pa.Table.from_arrays([keys], names=names)
        if not names:  # the only key is (): a row without columns for each
            return pa.table({"": pa.nulls(len(keys))})
        if len(names) == 1:
            return pa.Table.from_arrays([array([_key(k, self.key)[0] for k in keys])], names=names)
        values = zip(*(_key(k, self.key) for k in keys), strict=True)
        return pa.Table.from_arrays([array(list(v)) for v in values] or [pa.array([])] * len(names), names=names)


def _key(key: Any, columns: Sequence[str]) -> list[Any]:
    values = list(key) if isinstance(key, (tuple, list)) else [key]
    if len(values) != len(columns):
        raise ValueError(f"the key has {len(values)} values and needs {len(columns)}: {', '.join(columns) or 'none'}")
    return values
