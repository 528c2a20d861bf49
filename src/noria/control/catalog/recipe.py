"""The recipe: the statements that make the views, as the store keeps them beside the tables.

Each begins with the number of changes of columns that there were when it was written, if there were any: `SELECT *`
means the columns of then, and a name that was clear then is clear.  A view without a reader, as nobody has read it, is
noted as such: one that has been read keeps its reader across restarts.  One that is only its text comes with its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from noria.core.expressions.coerce import coerce
from noria.core.types import NOW, Column, Past, TableDef
from noria.plan.view import ViewDef
from noria.sql.query.context import Catalog
from noria.sql.statements.text_views import TextView
from noria.sql.whole.written import quoted

_TEXT = re.compile(r"TEXT `((?:[^`]|``)*)`: ")
_STORED = re.compile(r"(?:AS OF (\d+): )?(UNREAD: )?", re.ASCII)


class Stored(NamedTuple):
    """A statement of the recipe: its text, as of which change it is, whether its view has no reader."""

    text: str
    as_of: int
    unread: bool


def stored(text: str, as_of: int, unread: bool) -> str:
    return (f"AS OF {as_of}: " if as_of else "") + "UNREAD: " * unread + text


def read(statement: str) -> Stored:
    found = _STORED.match(statement)
    assert found is not None
    return Stored(statement[found.end():], int(found[1] or 0), found[2] is not None)


def stored_text(name: str, text: str) -> str:
    return f"TEXT {quoted(name)}: {text}"


def read_text(statement: str) -> TextView | None:
    """Of a view that is only its text."""
    found = _TEXT.match(statement)
    return found and TextView(found[1].replace("``", "`"), statement[found.end():])


def stamped(was: TableDef, table: TableDef, change: int, views: Iterable[int]) -> TableDef:
    """The table with the number of this change on what it changes, and with how it was called and ordered before, as
    far back as there are views: after how many changes each was written.  Rows that are there have the time of now in a
    new column that has that for its default."""
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
    return column


class Tables(Catalog, Protocol):
    """A catalog that tells all its tables."""

    def tables(self) -> Iterable[TableDef]: ...


class Instead:
    """A catalog with other tables."""

    def __init__(self, catalog: Catalog, tables: Iterable[TableDef]):
        self._catalog, self._tables = catalog, list(tables)

    def table(self, name: str) -> TableDef | None:
        return next((t for t in self._tables if t.name.lower() == name.lower()), None)

    def tables(self) -> Iterable[TableDef]:
        return self._tables

    def view(self, name: str) -> ViewDef | None:
        return self._catalog.view(name)


class AsOf:
    """A catalog as it was after so many changes of columns and of names."""

    def __init__(self, catalog: Tables, change: int):
        self._catalog, self._change = catalog, change

    def table(self, name: str) -> TableDef | None:
        for table in self._catalog.tables():
            then = table.then(self._change)
            called = table.name if then is None else then.name
            if called.lower() == name.lower() and table.made <= self._change:
                return table.as_of(self._change)
        return None

    def view(self, name: str) -> ViewDef | None:
        return self._catalog.view(name)
