"""The recipe: the statements that make the views, as the store keeps them beside the tables.

A statement begins with the number of column changes when it was written, if there were any.  `SELECT *` means the
columns of that time, and a name that was unambiguous then remains so.  A view that has no reader because nobody has
read it is marked; a view that was read keeps its reader across restarts.  A placeholder view is stored with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from noria.core.expressions.coerce import coerce
from noria.core.expressions.evaluate import constant
from noria.core.expressions.functions import at_time
from noria.core.identifiers import quote_identifier
from noria.core.types import NOW, Column, Past, TableDef
from noria.plan.view import ViewDef
from noria.sql.query.relations.context import Catalog
from noria.sql.statements.placeholder_views import PlaceholderView
from noria.storage.tables.computed import time_default

_TEXT = re.compile(r"TEXT `((?:[^`]|``)*)`: ")
_STORED = re.compile(r"(?:AS OF (\d+): )?(UNREAD: )?", re.ASCII)


class StoredStatement(NamedTuple):
    """A statement of the recipe: its text, as of which column change it is, whether its view has no reader."""

    text: str
    as_of: int
    without_reader: bool


def stored(text: str, as_of: int, without_reader: bool) -> str:
    return (f"AS OF {as_of}: " if as_of else "") + "UNREAD: " * without_reader + text


def read(statement: str) -> StoredStatement:
    found = _STORED.match(statement)
    assert found is not None
    return StoredStatement(statement[found.end():], int(found[1] or 0), found[2] is not None)


def stored_placeholder(name: str, text: str) -> str:
    return f"TEXT {quote_identifier(name)}: {text}"


def read_placeholder(statement: str) -> PlaceholderView | None:
    """The placeholder view that a statement of the recipe stores, or None."""
    found = _TEXT.match(statement)
    return found and PlaceholderView(found[1].replace("``", "`"), statement[found.end():])


def with_change_numbers(was: TableDef, table: TableDef, change: int, views: Iterable[int]) -> TableDef:
    """The altered table, with the number of this change on each column that it adds or drops.

    The table's former name and column order are kept as far back as `views` needs them: the change as of which each
    view was written.  Existing rows get the current time in a new column with that default.
    """
    known = len(was.columns)
    columns = [replace(c, dropped=change) if c.dropped == NOW else c for c in table.columns[:known]]
    columns += [replace(_timed(c), added=change) for c in table.columns[known:]]
    past = table.past
    if (was.name, was.shape) != (table.name, table.shape):
        past = (*past, Past(change, was.name, was.shape))
    oldest = min(views, default=change)
    order = () if list(table.shown) == sorted(table.shown) else table.order
    return replace(table, columns=tuple(columns), past=tuple(p for p in past if p.before > oldest), order=order)


def _timed(column: Column) -> Column:
    if column.default_now:
        now = datetime.now(UTC).replace(tzinfo=None)
        column = replace(column, initial=coerce(now, column, 1))
    if column.computed == "time":
        value = constant(at_time(time_default(column), datetime.now(UTC).replace(tzinfo=None), timedelta()))
        column = replace(column, initial=None if value is None else coerce(value, column, 1))
    return column


class TableCatalog(Catalog, Protocol):
    """A catalog that can list all its tables."""

    def tables(self) -> Iterable[TableDef]: ...


class SubstituteCatalog:
    """A catalog with other tables."""

    def __init__(self, catalog: Catalog, tables: Iterable[TableDef]):
        self._catalog, self._tables = catalog, list(tables)

    def table(self, name: str) -> TableDef | None:
        return next((t for t in self._tables if t.name.lower() == name.lower()), None)

    def tables(self) -> Iterable[TableDef]:
        return self._tables

    def view(self, name: str) -> ViewDef | None:
        return self._catalog.view(name)


class HistoricalCatalog:
    """A catalog as it was after so many changes of columns and of names."""

    def __init__(self, catalog: TableCatalog, change: int):
        self._catalog, self._change = catalog, change

    def table(self, name: str) -> TableDef | None:
        now = self._catalog.table(name)
        if now is not None and now.made <= self._change and now.then(self._change) is None:
            return now.as_of(self._change)  # it had this name then, so no other table had it
        for table in self._catalog.tables():
            then = table.then(self._change)
            called = table.name if then is None else then.name
            if called.lower() == name.lower() and table.made <= self._change:
                return table.as_of(self._change)
        return None

    def view(self, name: str) -> ViewDef | None:
        return self._catalog.view(name)
