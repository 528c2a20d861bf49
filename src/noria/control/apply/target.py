"""Turns a difference of programs into definitions with their ids, in the order in which they are made.

Keeps true: new views follow those that stay.  Among them, those that need nothing new are first; each group has the new
program's order.  So the column changes that texts are as of (`recipe.py`) never decrease from one view to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.control.catalog.names import fold
from noria.control.catalog.recipe import HistoricalCatalog, stored, with_change_numbers
from noria.core.errors import SqlError
from noria.core.errors.codes import NOT_SUPPORTED_YET
from noria.core.identifiers import quote_identifier
from noria.core.types import TableDef
from noria.plan.mir import tables_of
from noria.plan.view import ViewDef
from noria.sql.commands import AlterTable, CreateView
from noria.sql.parse import parse
from noria.sql.program.definition_text import table_text
from noria.sql.program.difference import ProgramDifference
from noria.sql.program.outline import Outline, OutlineView
from noria.sql.text.databases import Database


@dataclass(frozen=True)
class NewView:
    """A view to make.  early: it can be made before the tables change; lent: it is read through another view.

    at_once: it gets its reader now, whether it is read or not.
    """

    view: ViewDef
    text: str
    as_of: int
    used: frozenset[str]
    early: bool
    at_once: bool = False
    lent: bool = False

    @property
    def without_reader(self) -> bool:
        """True if it gets no reader (see `readers`)."""
        return self.lent or not (self.view.internal or self.view.key or self.at_once)

    @property
    def recipe(self) -> str:
        return stored(self.text, self.as_of, self.without_reader)


@dataclass(frozen=True)
class TargetProgram:
    difference: ProgramDifference
    created: tuple[TableDef, ...]
    altered: tuple[AlterTable, ...]
    views: tuple[NewView, ...]
    databases: tuple[Database, ...] = ()  # made first, each by itself

    @property
    def text(self) -> str:
        """The statements that would make the change one after the other."""
        d = self.difference
        said = [*(table_text(t, t.first_id) for t in self.created),
                *(f"ALTER TABLE {quote_identifier(name)} {', '.join(parts)}" for name, parts in d.altered),
                *(f"DROP VIEW {quote_identifier(name)}" for name in d.views_dropped), *(v.text for v in self.views),
                *(f"DROP TABLE {quote_identifier(name)}" for name in d.tables_dropped)]
        return ";\n".join(said)


@dataclass
class TransitionalCatalog:
    """The catalog during the change: the later tables, and the views made so far."""

    known: dict[str, TableDef]
    views: dict[str, ViewDef]

    def table(self, name: str) -> TableDef | None:
        return self.known.get(fold(name))

    def tables(self) -> Iterable[TableDef]:
        return self.known.values()

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(fold(name))


def target_of(d: ProgramDifference, want: Outline, running: TransitionalCatalog, schema: int, last_id: int,
              as_of: Sequence[int]) -> TargetProgram:
    """Compute the target of a difference.

    running: the current program; schema: its number of column changes so far; last_id: its greatest table id.

    as_of: for each of its views, the number of column changes when it was written.
    """
    created = tuple(_created(want.tables[fold(n)], schema, last_id + i) for i, n in enumerate(d.created, 1))
    altered = tuple(_altered(n, parts, want.tables[fold(n)], running, schema, as_of) for n, parts in d.altered)
    tables = dict(running.known) | {fold(t.name): t for t in (*created, *(a.table for a in altered))}
    gone = {fold(n) for n in (*d.replaced, *d.views_dropped)}
    becoming = TransitionalCatalog(tables, {n: v for n, v in running.views.items() if n not in gone})
    then = max([schema, *(n for t in tables.values() for c in t.columns for n in (c.added, c.dropped))])
    new, early = {fold(n) for n in (*d.made, *d.replaced)}, {fold(n) for n in d.early}
    views = []
    for name in sorted((n for n in want.views if n in new), key=lambda n: n not in early):
        made = _view(want.views[name], becoming, _changes(want, name, name in early, schema, then), name in early)
        becoming.views[name] = made.view
        views.append(made)
    return TargetProgram(d, created, altered, tuple(views))


def _created(table: TableDef, schema: int, table_id: int) -> TableDef:
    columns = tuple(replace(c, added=schema + c.added) if c.added else c for c in table.columns)
    return replace(table, columns=columns, table_id=table_id, made=schema)


def _altered(name: str, parts: Iterable[str], want: TableDef, running: TransitionalCatalog, schema: int,
             as_of: Iterable[int]
             ) -> AlterTable:
    (command,) = parse(f"ALTER TABLE {quote_identifier(name)} {', '.join(parts)}", running)
    assert isinstance(command, AlterTable)
    later = [want.columns[want.position(c.name)].added for c in command.table.columns[len(command.was.columns):]]
    return AlterTable(command.was, with_change_numbers(command.was, command.table, schema + max([1, *later]), as_of))


def _changes(want: Outline, name: str, early: bool, schema: int, then: int) -> Iterable[int]:
    """The numbers of column changes as of which the text may mean what it means in the new program."""
    if early:
        return (schema,)
    return (then,) if want.views[name].stage == want.stage else range(schema, then + 1)


def _view(wanted: OutlineView, becoming: TransitionalCatalog, changes: Iterable[int], early: bool) -> NewView:
    for change in changes:
        (command,) = parse(wanted.text, HistoricalCatalog(becoming, change))
        assert isinstance(command, CreateView)
        if early or _widths(command.view) == _widths(wanted.definition):
            return NewView(command.view, wanted.text, change, wanted.used, early, command.materialized)
    raise SqlError(*NOT_SUPPORTED_YET,
                   f"View '{wanted.definition.name}' stands before an ALTER TABLE, and means columns "
                   "that the tables never had alone here: write its columns out")


def _widths(view: ViewDef) -> Mapping[str, int]:
    """How many columns each of its tables has for the view."""
    return {fold(name): len(t.shown) for name, t in tables_of(view.plan).items()}
