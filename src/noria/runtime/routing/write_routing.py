"""Decides which workers a write statement concerns, and each worker's part (design/decisions.md, 7). Pure.

Call `routed`.

Keeps true: a row is sent to the worker that has all rows of its key. A row without a valid place is rejected here
and sent nowhere. AUTO_INCREMENT values are assigned here, because they may determine the worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.batch import Codes
from noria.core.errors import SqlError, auto_increment_exhausted, generated_value
from noria.core.errors.codes import WRONG_VALUE_COUNT_ON_ROW
from noria.core.expressions.coerce import integer_bounds
from noria.core.expressions.column_ranges import bounded
from noria.core.expressions.expr import Col, Expr
from noria.core.integers import span
from noria.core.keys import shard_of
from noria.core.limits import NULL_CODE
from noria.core.plain_symbols import PlainSymbols
from noria.core.statements import (
    NEW,
    Clear,
    Delete,
    Insert,
    Load,
    Move,
    Staged,
    Statement,
    Update,
    WriteResult,
)
from noria.core.types import TableDef
from noria.core.values import convert, default_code, encode
from noria.storage.tables.computed import computed_of, sources

Key = tuple[Any, ...]  # the values of a primary key


@dataclass
class AutoIncrementValues:
    """The last AUTO_INCREMENT value of each table, by its id. `expected`: the values that statements under way
    bring themselves."""

    last: dict[int, int] = field(default_factory=dict)
    expected: dict[int, list[int]] = field(default_factory=dict)

    def reached(self, table: TableDef, value: int) -> None:
        self.last[table.table_id] = max(self.last.get(table.table_id, 0), value)

    def begin_anew(self, table: TableDef, value: int) -> None:
        self.last[table.table_id] = value

    def expect(self, table: TableDef, value: int) -> None:
        """Record that a statement with this value is under way."""
        self.expected.setdefault(table.table_id, []).append(value)

    def ended(self, table: TableDef, value: int, done: bool) -> None:
        """Record that a statement with this value is over."""
        self.expected[table.table_id].remove(value)
        if not self.expected[table.table_id]:
            del self.expected[table.table_id]
        if done:
            self.reached(table, value)

    def next(self, table: TableDef, count: int, above: int = 0) -> int:
        """Assign `count` new values; returns the first, which is greater than `above`. SqlError 1467 if the
        column has none left. Values of statements under way are avoided if others are free."""
        column = table.columns[table.auto_increment or 0]
        most, last = integer_bounds(column)[1], max(self.last.get(table.table_id, 0), above)
        ahead = max((last, *self.expected.get(table.table_id, ())))
        if ahead + count <= most:
            last = ahead
        if last + count > most:
            raise auto_increment_exhausted(column.name)
        self.last[table.table_id] = last + count
        return last + 1


@dataclass(frozen=True)
class RoutedWrite:
    """A statement split by worker.

    * `last`: the position, by ascending worker, of the part with the last row.
    * `brings`: the greatest AUTO_INCREMENT value in the statement itself; 0: none.
    * `split_insert`: the INSERT before the split and its table, if each worker has only some rows.
    * `moves`: rows may move between workers.
    * `unique`: rows may get values that exist at other workers only. `assigns`: also by an assignment.
    * `values`: numbers of such UNIQUE indexes, and hashes of an INSERT's values for them. `distinct`: no two of
      its rows have the same.
    * `spread`: the columns of such indexes.
    * `few`: each row is looked up by its key.
    * `renumbers`: it may set an AUTO_INCREMENT column to values not assigned here.
    """

    parts: dict[int, Statement]
    last: int = 0
    brings: int = 0
    split_insert: tuple[Insert, TableDef] | None = None
    moves: bool = False
    unique: bool = False
    assigns: bool = False
    values: frozenset[tuple[int, int]] = frozenset()
    distinct: bool = False
    spread: tuple[tuple[int, ...], ...] = ()
    few: bool = False
    renumbers: bool = False

    def result(self, results: Sequence[WriteResult]) -> WriteResult:
        """The result of the original statement. `results`: of all its workers, or of the one that planned it."""
        error = next((r.error for r in results if r.error is not None), None)
        if error is not None:
            wrong_value = None if self.split_insert is None else _wrong(*self.split_insert)
            return WriteResult(error=wrong_value or error)
        first = min((r.last_insert_id for r in results if r.last_insert_id), default=0)  # they ascend with the rows
        last = results[self.last] if len(results) == len(self.parts) else results[-1]
        return WriteResult(sum(r.affected for r in results), first, sum(r.matched for r in results), row_id=last.row_id)


def routed(statement: Statement, table: TableDef, workers: int, numbers: AutoIncrementValues, turn: int) -> RoutedWrite:
    """Split a statement by worker. `turn`: distributes rows that may be at any worker. SqlError if a value that
    determines a row's worker is invalid."""
    if table.sharded_by == ():
        return RoutedWrite({0: statement})
    spread = tuple(i.columns for i in table.spread_unique)
    if isinstance(statement, Insert):
        write, unique = _insert(statement, table, workers, numbers, turn), bool(table.spread_unique)
        if unique:
            insert = write.split_insert[0] if write.split_insert is not None else next(iter(write.parts.values()))
            assert isinstance(insert, Insert)
            values, distinct = _values(insert, table)
            write = replace(write, split_insert=(insert, table), values=values, distinct=distinct)
        return replace(write, moves=_moves(statement, table), unique=unique,
                       assigns=_assigns_unique(statement, table), spread=spread, few=True,
                       renumbers=renumbers(statement, table))
    concerned = _concerned(statement.where, table, workers) if isinstance(statement, Update | Delete) else None
    unique = _assigns_unique(statement, table)
    return RoutedWrite(dict.fromkeys(range(workers) if concerned is None else concerned, statement),
                  moves=_moves(statement, table), unique=unique, assigns=unique, spread=spread,
                  few=concerned is not None, renumbers=renumbers(statement, table))


def by_worker(table: TableDef, keys: Sequence[Key], workers: int, columns: tuple[int, ...] | None = None
              ) -> dict[int, list[Key]]:
    """The keys, by the worker that may have their rows. If a key does not determine the worker, it is listed for
    all. `columns`: of the keys; by default those of the primary key."""
    columns = table.primary_key if columns is None else columns
    by = table.sharded_by
    if by == () or workers == 1:
        return {0: list(keys)}
    if by is None or not set(by) <= set(columns):
        return {w: list(keys) for w in range(workers)}
    places, symbols = [columns.index(c) for c in by], PlainSymbols()
    codes = [convert([key[at] for key in keys], table.columns[c], 1, symbols) for at, c in zip(places, by, strict=True)]
    keys_of: dict[int, list[Key]] = {}
    owners = shard_of(codes, [table.columns[c].type for c in by], workers, symbols)
    for key, w in zip(keys, owners.tolist(), strict=True):
        keys_of.setdefault(w, []).append(key)
    return keys_of


def renumbers(statement: Statement, table: TableDef) -> bool:
    """Whether the statement may set an AUTO_INCREMENT column to values not assigned here."""
    if table.auto_increment is None or isinstance(statement, Delete):
        return False
    if isinstance(statement, Clear | Move | Load | Staged):
        return True
    return any(c == table.auto_increment and not _stays(c, e) for c, e in statement.assignments)


def rows_stay(statement: Update | Delete, table: TableDef) -> bool:
    """Whether each row stays at its worker, which alone can check the UNIQUE indexes."""
    return not (_moves(statement, table) or _assigns_unique(statement, table))


def _concerned(where: Expr | None, table: TableDef, workers: int) -> list[int] | None:
    """The workers that may have rows for which the condition holds; None: any."""
    by, types = table.sharded_by or (), [c.type for c in table.columns]
    points = bounded(where, types)
    if not by or not all(c in points for c in by):
        return None
    symbols = PlainSymbols()
    values = list(product(*(points[c] for c in by)))
    if not values:
        return [0]
    codes = [np.array([encode(v[i], types[c], symbols) for v in values], np.int64) for i, c in enumerate(by)]
    return sorted(set(map(int, shard_of(codes, [types[c] for c in by], workers, symbols))))


def _moves(statement: Statement, table: TableDef) -> bool:
    """Whether a row may get other values in the columns that determine its worker."""
    by = sources(table, table.sharded_by or ())
    return isinstance(statement, Insert | Update) and any(
        c in by and not _stays(c, e) for c, e in statement.assignments)


def _assigns_unique(statement: Statement, table: TableDef) -> bool:
    """Whether a row may get other values in a UNIQUE index whose values several workers have."""
    columns = sources(table, [c for i in table.spread_unique for c in i.columns])
    return isinstance(statement, Insert | Update) and any(
        c in columns and not (isinstance(e, Col) and e.index == c) for c, e in statement.assignments)


def _stays(column: int, value: Expr) -> bool:
    return isinstance(value, Col) and value.index in (column, NEW + column)


# ------------------------------------------------------------------ INSERT
def _insert(statement: Insert, table: TableDef, workers: int, numbers: AutoIncrementValues, turn: int) -> RoutedWrite:
    brings = 0
    try:
        if table.auto_increment is not None:
            statement, brings = _numbered(statement, table, numbers)
        if table.sharded_by is None:
            return RoutedWrite({turn % workers: statement}, brings=brings)
        whose = _owners(statement, table, workers)
    except SqlError as e:
        raise _wrong(statement, table) or e from None
    first = int(whose[0]) if len(whose) else 0
    if len(whose) < 2 or (whose == first).all():
        return RoutedWrite({first: statement}, brings=brings)
    owners = np.unique(whose).tolist()
    parts: dict[int, Statement] = {w: _part(statement, np.flatnonzero(whose == w)) for w in owners}
    return RoutedWrite(parts, owners.index(whose[-1]), brings, (statement, table))


def _wrong(statement: Insert, table: TableDef) -> SqlError | None:
    """The error of an invalid value, with its row's number in the original statement."""
    try:
        positions = {c for c in table.sharded_by or () if c != table.auto_increment}
        for position in sorted(positions.union(statement.columns)):
            _codes(statement, table, position, PlainSymbols())
    except SqlError as e:
        return e
    return None


def _part(statement: Insert, places: Codes) -> Insert:
    """The INSERT with some of its rows."""
    numbered = statement.numbered
    if numbered:
        all_are = len(numbered) == len(statement.rows)
        numbered = range(len(places)) if all_are else np.flatnonzero(np.isin(places, numbered)).tolist()
    return statement._replace(rows=_select_rows(statement.rows, places), numbered=numbered)


def _select_rows(rows: Any, places: Codes) -> Any:
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        return rows.take(pa.array(places))
    return [rows[i] for i in places.tolist()]


def _owners(statement: Insert, table: TableDef, workers: int) -> Codes:
    """The worker of each row."""
    by, symbols = table.sharded_by or (), PlainSymbols()
    codes = [_codes(statement, table, c, symbols) for c in by]
    return shard_of(codes, [table.columns[c].type for c in by], workers, symbols)


def _values(statement: Insert, table: TableDef) -> tuple[frozenset[tuple[int, int]], bool]:
    """Hashes of the rows' values for UNIQUE indexes that several workers have, with the index's number. And
    whether all are known and distinct."""
    symbols, hashed = PlainSymbols(), list[tuple[int, int]]()
    try:
        for n, index in enumerate(table.spread_unique):
            codes, types = [_codes(statement, table, c, symbols) for c in index.columns], table.columns
            there = np.flatnonzero(np.logical_and.reduce([c != NULL_CODE for c in codes]))
            hashes = shard_of([c[there] for c in codes], [types[c].type for c in index.columns], 1 << 31, symbols)
            hashed += [(n, h) for h in hashes.tolist()]
    except SqlError:
        return frozenset(), False  # its worker reports it
    return frozenset(hashed), len(set(hashed)) == len(hashed)


def _codes(statement: Insert, table: TableDef, position: int, symbols: PlainSymbols) -> Codes:
    """A column's values as stored codes."""
    column, rows = table.columns[position], statement.rows
    if column.generated:
        return _generated(statement, table, position, symbols)
    if column.computed == "default":
        column = replace(column, nullable=True)  # its worker knows the value
    if position not in statement.columns:
        return np.full(len(rows), default_code(column, symbols), np.int64)
    place = statement.columns.index(position)
    values = rows.column(place) if isinstance(rows, (pa.RecordBatch, pa.Table)) else [_value(r, place) for r in rows]
    return convert(values, column, 1, symbols)


def _generated(statement: Insert, table: TableDef, position: int, symbols: PlainSymbols) -> Codes:
    """A generated column's codes.  Raises error 3105 if the statement has values for it."""
    if position in statement.columns:
        raise generated_value(table.columns[position].name, table.name)
    computed = next(c for c in computed_of(table) if c.at == position)
    codes = np.zeros((len(table.columns), len(statement.rows)), np.int64)
    for c in computed.reads:
        codes[c] = _codes(statement, table, c, symbols)
    return computed.codes(codes, symbols)


def _value(row: Sequence[Any], place: int) -> Any:
    if place >= len(row):
        raise SqlError(*WRONG_VALUE_COUNT_ON_ROW, "Column count doesn't match value count")
    return row[place]


def _numbered(statement: Insert, table: TableDef, numbers: AutoIncrementValues) -> tuple[Insert, int]:
    """The statement with assigned values, and the greatest value that it had itself."""
    at = table.auto_increment
    assert at is not None
    codes = _codes(statement, table, at, PlainSymbols())
    wanted = statement.is_numbered(codes)
    unnumbered, numbered_codes = np.flatnonzero(wanted), codes[~wanted]
    brings = max(int(numbered_codes.max()), 0) if len(numbered_codes) else 0
    if not len(unnumbered):
        return statement, brings
    if len(unnumbered) == len(codes):
        first = numbers.next(table, len(codes))
        numbered_codes = span(first, len(codes))
        return _with_column(statement, at, numbered_codes)._replace(numbered=range(len(codes))), 0
    codes = codes.copy()
    above = 0
    for row, code in enumerate(codes.tolist()):  # in row order: a greater value raises the following ones
        if wanted[row]:
            codes[row] = numbers.next(table, 1, above)
        else:
            above = max(above, code)
    return _with_column(statement, at, codes)._replace(numbered=unnumbered.tolist()), brings


def _with_column(statement: Insert, position: int, codes: Codes) -> Insert:
    """The statement with these integers as a column."""
    rows, columns = statement.rows, statement.columns
    place = columns.index(position) if position in columns else len(columns)
    columns = columns if position in columns else (*columns, position)
    if isinstance(rows, (pa.RecordBatch, pa.Table)):
        arrays = [*rows.columns[:place], pa.array(codes), *rows.columns[place + 1:]]
        rows = pa.RecordBatch.from_arrays([a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays],
                                          [str(c) for c in columns])
    else:
        rows = [(*row[:place], code, *row[place + 1:]) for row, code in zip(rows, codes.tolist(), strict=True)]
    return statement._replace(columns=columns, rows=rows)
