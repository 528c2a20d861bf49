"""Bound write statements and their results: what the front end sends to the worker that owns the rows.

Names are resolved, expressions are typed; values are still Python's, because conversion to a column's type
(range, length, format) belongs to the table and reports MySQL's errors per row.  Named tuples, because there is
one of each for every write: they are made and sent in a third of a dataclass's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from noria.core.errors import SqlError
from noria.core.expressions.expr import Expr, columns_of
from noria.core.limits import MAX_COLUMNS

NEW = MAX_COLUMNS
DEFAULT = object  # sentinel type: a value position that says DEFAULT holds the class itself


class Insert(NamedTuple):
    """INSERT, REPLACE, INSERT IGNORE, INSERT ... ON DUPLICATE KEY UPDATE.

    rows: a sequence of tuples of Python values (int, float, Decimal, str, bytes, date, datetime, bool, None,
    or `DEFAULT`; an expression if it needs the `clock`, put in before a worker
    sees it), or a pyarrow RecordBatch with one column per entry of `columns`.
    assignments: (column, expression) for ON DUPLICATE KEY UPDATE; the expression's columns from 0 are the existing row,
    from NEW the row that was to be inserted (VALUES(col)): wherever the table's columns end by then.
    numbered: the rows whose AUTO_INCREMENT value was given where they were placed, ascending.
    """

    table: str
    columns: tuple[int, ...]
    rows: Any
    on_duplicate: str = "error"  # error | replace | ignore | update
    assignments: tuple[tuple[int, Expr], ...] = ()
    clock: bool = False
    numbered: Sequence[int] = ()


class Update(NamedTuple):
    """UPDATE ... SET ... WHERE any condition over the table's columns; assignments see the old row."""

    table: str
    assignments: tuple[tuple[int, Expr], ...]
    where: Expr | None
    clock: bool = False


class Delete(NamedTuple):
    table: str
    where: Expr | None
    clock: bool = False


class Clear(NamedTuple):
    """TRUNCATE of a table of at most so many rows (else error 3024): they go, and AUTO_INCREMENT begins anew."""

    table: str
    most: int


class Move(NamedTuple):
    """What a statement comes to at one of several workers.  gone: the keys of rows that go; came: rows that come; both
    as the store packs them."""

    table: str
    gone: tuple[bytes, ...]
    came: tuple[bytes, ...]


class Load(NamedTuple):
    """What one of several workers takes of a bulk load: files by column family (as `packets.Ingest` has them), how many
    rows are in them, and the AUTO_INCREMENT mark.  Always alone in its group."""

    table: str
    files: tuple[tuple[str, tuple[str, ...]], ...]
    rows: int
    auto_increment: int = 0


ClientWrite = Insert | Update | Delete
Statement = ClientWrite | Clear | Move | Load


def named_columns(statement: ClientWrite) -> set[int]:
    """The columns of the table that the statement reads or writes by name."""
    exprs = [e for _, e in statement.assignments] if not isinstance(statement, Delete) else []
    if not isinstance(statement, Insert) and statement.where is not None:
        exprs.append(statement.where)
    named = {c for e in exprs for c in columns_of(e)} | {c - NEW for e in exprs for c in columns_of(e)}
    named.update(statement.columns if isinstance(statement, Insert) else ())
    named.update(() if isinstance(statement, Delete) else (at for at, _ in statement.assignments))
    return named


class WriteResult(NamedTuple):
    """The content of MySQL's OK packet.

    affected: as MySQL counts (REPLACE: 2 for a replaced row; ON DUPLICATE KEY UPDATE: 1 inserted, 2 updated, 0
    unchanged). matched: the rows that an UPDATE found, or that ON DUPLICATE KEY UPDATE conflicted with.

    last_insert_id: what LAST_INSERT_ID() returns from now on: the first AUTO_INCREMENT value that was generated for an
    inserted row; 0: none was.  row_id: that of the last row, however it got it: inserted, updated or ignored.
    """

    affected: int = 0
    last_insert_id: int = 0
    matched: int = 0
    error: SqlError | None = None
    row_id: int = 0

    @property
    def insert_id(self) -> int:
        """The OK packet's own: mysql_insert_id()."""
        return self.last_insert_id or (self.row_id if self.affected else 0)


class WorkedOut(NamedTuple):
    """What a statement would do, and what that is by worker."""

    result: WriteResult
    parts: dict[int, tuple[Move]]
