"""Turns looked-up rows into a client's rows: order, limit, the row of an empty aggregate, conditions after the lookup.

Keeps true: a `ResultFinish` needs only the rows of one lookup, from shared memory or from a worker.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.core.errors.codes import WRONG_ARGUMENTS
from noria.core.expressions import evaluate
from noria.core.expressions.expr import Expr
from noria.core.limits import AFTER_SYMBOL_BYTES
from noria.core.order import sort_rows
from noria.core.types import Field
from noria.core.values import arrow_type, from_arrow, to_arrow
from noria.plan.after import LookedUpRows, filter_of, found_fields, mask_columns, run
from noria.plan.lookups import Parameter
from noria.plan.mir import Base, Filter, Join, Mir, Project, UnionAll
from noria.plan.view import ViewDef
from noria.runtime.link.result_memory import MemoryLease
from noria.server.answering.after_values import rows_of_few
from noria.server.outcomes import ResultSet
from noria.server.rows import LargeRows, is_large, off_loop, python_rows
from noria.sql import commands as sql
from noria.state.symbols.symbols import SymbolTable


@dataclass(frozen=True)
class ResultFinish:
    """The operations on the rows of one lookup.  First the plan `after` filters or groups them.  The client sees the
    first `visible` columns.  `order` has (column, descending) pairs.  `empty_row`: an aggregate's row over no rows.
    `columns`: the fields that the client sees, with their origins; empty: the first of `fields`."""

    fields: Sequence[Field]
    visible: int
    order: Sequence[tuple[int, bool]] = ()
    limit: int | None = None
    offset: int = 0
    empty_row: Sequence[Any] | None = None
    after: Mir | None = None
    columns: tuple[Field, ...] = ()

    @staticmethod
    def of(view: ViewDef, columns: tuple[Field, ...]) -> ResultFinish:
        return ResultFinish(view.result.fields, view.visible, view.order, view.limit, view.offset, view.empty_row,
                            view.after, columns)

    @cached_property
    def shown(self) -> Sequence[Field]:
        """The fields that the client sees."""
        return self.columns or tuple(self.fields[: self.visible])

    @cached_property
    def changes_rows(self) -> bool:
        """True if the shape does more than hide columns."""
        return (bool(self.order) or self.limit is not None or self.offset > 0 or self.empty_row is not None
                or self.after is not None)

    def rows_of(self, found: pa.Table, lease: MemoryLease | None = None) -> Sequence[Any]:
        """Return the answer from the rows of all keys of a lookup.

        found: the view's columns by position, then `__key`.  lease: the memory of many rows.
        """
        predicate = None if self.after is None else filter_of(self.after)
        if self.after is not None and predicate is None:
            few = rows_of_few(self.after, found)
            return self.apply(after_rows(self.after, found) if few is None else few)
        if self.after is not None and predicate is not None:
            found = found.filter(after_mask(predicate, found, self.after.fields)).select(range(len(self.fields)))
        else:
            found = found.select(range(found.num_columns - 1))
        if not is_large(found):
            return self.apply(python_rows(found, found.num_columns))
        return LargeRows(self._cut(found), self.visible, lease)

    async def result_of(self, found: pa.Table, lease: MemoryLease | None = None) -> ResultSet:
        """As `rows_of`, with a thread for many rows."""
        return ResultSet(self.shown, await off_loop(lambda rows: self.rows_of(rows, lease), found))

    def _cut(self, found: pa.Table) -> pa.Table:
        """Order and limit many rows."""
        end = None if self.limit is None else self.offset + self.limit
        if not self.order:
            return found.slice(self.offset, self.limit)
        columns = [c for c, _ in self.order]
        values = zip(*(LargeRows(found.select([c]), 1) for c in columns), strict=True)
        keys = [(*(v for (v,) in row), n) for n, row in enumerate(values)]
        order = [(n, descending) for n, (_, descending) in enumerate(self.order)]
        sorted_keys = sort_rows(keys, order, [self.fields[c] for c in columns])
        return found.take(pa.array([key[-1] for key in sorted_keys[self.offset:end]], pa.int64()))

    def apply(self, rows: list[Any]) -> list[Any]:
        """Return the answer from rows as tuples.  This does not run `after`."""
        if not rows and self.empty_row is not None:
            rows = [tuple(self.empty_row)]  # it has no hidden columns of an order
        elif self.order:
            rows = sort_rows(rows, self.order, self.fields)
        if self.offset or self.limit is not None:
            rows = rows[self.offset : None if self.limit is None else self.offset + self.limit]
        if rows and len(rows[0]) > self.visible:
            rows = [r[: self.visible] for r in rows]
        return rows


def no_rows(fields: Sequence[Field]) -> pa.Table:
    """Return the table of a lookup without rows: the fields by position, then `__key`."""
    arrays = [pa.array([], arrow_type(f.type)) for f in fields]
    return pa.Table.from_arrays([*arrays, pa.array([], pa.int64())], names=[f"c{i}" for i in range(len(arrays) + 1)])


def is_of_rows(view: ViewDef) -> bool:
    """True if the rows of several keys together are one right answer.  They are if the view's plan neither groups nor
    ranks rows by key, or if `after` groups them again over all keys."""
    def every(plan: Mir, kinds: tuple[type[Mir], ...]) -> bool:
        return isinstance(plan, kinds) and all(every(i, kinds) for i in plan.inputs)

    again = view.after is not None and not every(view.after, (LookedUpRows, Filter, Project))
    return again or every(view.plan, (Base, Filter, Project, Join, UnionAll))


def of_all(view: ViewDef, columns: int) -> sql.Select:
    """Return the SELECT of all columns of a view by its parameters.  Raises SqlError 1210 if it has not `columns`."""
    if view.asks is None:
        if columns != max(len(view.key), 1):
            raise SqlError(*WRONG_ARGUMENTS, f"the keys have {columns} columns and the view has {len(view.key)} "
                                             "parameters")
        return sql.Select(view, tuple(map(Parameter, range(len(view.key)))))
    if columns != len(view.asks.names):
        raise SqlError(*WRONG_ARGUMENTS, f"the keys have {columns} columns and the view has {len(view.asks.names)} "
                                         f"parameters: {', '.join(view.asks.names)}")
    return sql.Select(view, view.asks.lookups, limit=view.asks.limit, offset=view.asks.offset)


def as_named(view: ViewDef, rows: pa.Table) -> pa.Table:
    """Return rows, perhaps from another view's reader, with this view's columns and names, and `__key`."""
    names = [*(f.name for f in view.fields), "__key"]
    if rows.column_names == names:
        return rows
    return rows.select([*range(view.visible), rows.num_columns - 1]).rename_columns(names)


class _ThreadSymbols(threading.local):
    """A symbol table for each thread.  It holds the texts that conditions after a lookup compare."""

    table: SymbolTable | None = None


_OWN = _ThreadSymbols()


def _symbols() -> SymbolTable:
    if _OWN.table is None or _OWN.table.memory() > AFTER_SYMBOL_BYTES:
        _OWN.table = SymbolTable(None)
    return _OWN.table


def _codes(found: pa.Table, fields: Sequence[Field], wanted: Sequence[int], symbols: SymbolTable) -> Batch:
    """Return a batch with the wanted columns as codes.  The other columns are 0."""
    out = np.zeros((len(fields), found.num_rows), np.int64)
    for i in wanted:
        out[i] = from_arrow(found.column(i), fields[i].type, symbols)
    return Batch.of(out)


def after_mask(predicate: Expr, found: pa.Table, fields: Sequence[Field]) -> pa.Array:
    """Return the mask of the rows for which a predicate is true.  Raises SqlError 1690 if it cannot be evaluated."""
    symbols = _symbols()
    rows = _codes(found, fields, mask_columns(predicate), symbols)
    return pa.array(evaluate.certain(predicate)(rows, symbols))


def after_rows(after: Mir, found: pa.Table) -> list[Any]:
    """Run the plan `after` on the rows of a lookup and return its rows as tuples."""
    symbols, fields = _symbols(), found_fields(after)
    rows = run(after, _codes(found, fields, range(len(fields)), symbols), symbols)
    times = np.repeat(np.arange(len(rows)), rows.weights)
    columns = [to_arrow(np.ascontiguousarray(c[times]), f.type, symbols)
               for c, f in zip(rows.columns, after.fields, strict=True)]
    return python_rows(pa.Table.from_arrays(columns, names=[str(i) for i in range(len(columns))]), len(columns))
