"""Prints a running program as a text that makes it again in an empty database.  Call `program_text`.

The tables come first, then the views in the order of their creation.  Keeps true: each view means what it meant when
it was written.  If its tables have changed since, so that its text would mean something else, the text is printed with
current names (`current_names`).  If that fails, the program is printed in stages: the tables as they were then, their
views, an ALTER TABLE, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from noria.core.errors import not_supported
from noria.core.identifiers import quote_identifier
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.program.alteration import alteration, lost
from noria.sql.program.current_names import with_current_names
from noria.sql.program.definition_text import table_text
from noria.sql.program.difference import current_view
from noria.sql.program.view_plans import StaticCatalog, planned
from noria.sql.text.databases import HOME, Database, Databases


@dataclass(frozen=True)
class ExportedView:
    """A running view: its CREATE VIEW, and the number of column changes before it was written."""

    name: str
    text: str
    as_of: int


def program_text(tables: Iterable[TableDef], views: Sequence[ExportedView], counters: Mapping[str, int],
                 databases: Databases | None = None) -> str:
    """Print the program.  `counters`: the next AUTO_INCREMENT number by table name.  Raises SqlError if an older view's
    meaning cannot be printed."""
    databases = Databases() if databases is None else databases
    known = [replace(t, first_id=counters.get(t.name, 1)) for t in tables]
    first = [made_text(d) for d in databases if d.name.lower() != HOME or not d.is_plain]
    if (texts := _current_texts(known, views)) is not None:
        return _text([*first, *(_table(t, databases) for t in known), *texts])
    return _text(first) + _staged(known, views, max([0, *(c.added for t in known for c in t.columns)]), databases)


def _table(table: TableDef, databases: Databases) -> str:
    name = table.name
    return table_text(table, table.first_id, databases.written(name), databases.table_options(name),
                      databases.written)


def made_text(database: Database) -> str:
    return f"CREATE DATABASE IF NOT EXISTS {quote_identifier(database.name)} {database.options}".rstrip()


def _staged(tables: Sequence[TableDef], views: Sequence[ExportedView], last: int, databases: Databases) -> str:
    said, stage, made = list[str](), 0, dict[str, TableDef]()

    def until(change: int) -> None:
        for table in tables:
            then, was = table.as_of(change), made.get(table.name)
            if was is None:
                said.append(_table(then, databases))
            else:
                parts, wrong = alteration(was, then, False, databases.written)
                if wrong or lost(was, then):
                    raise not_supported(f"the text of a program with views that are older than changes of the table "
                                        f"{table.name}, and that mean something else since,",
                                        "say what they mean now: CREATE OR REPLACE VIEW")
                said.extend([f"ALTER TABLE {databases.written(table.name)} {', '.join(parts)}"] if parts else [])
            made[table.name] = then

    until(stage)
    for view in views:
        if min(view.as_of, last) > stage:
            stage = min(view.as_of, last)
            until(stage)
        said.append(view.text)
    until(last)
    return _text(said)


def _current_texts(tables: Sequence[TableDef], views: Sequence[ExportedView]) -> list[str] | None:
    """The views' texts over the current tables; None if one cannot be printed with current names."""
    texts, known, there = list[str](), dict[str, ViewDef](), {t.name.lower(): t for t in tables}
    for view in views:
        text = current_text(view, there, known)
        if text is None:
            return None
        texts.append(text)
        known[view.name.lower()] = planned(text, StaticCatalog(there, known))
    return texts


def current_text(view: ExportedView, tables: Mapping[str, TableDef], views: Mapping[str, ViewDef]) -> str | None:
    """The CREATE VIEW with the view's meaning over the current tables: its own text if that has it, else
    the one with current names.  None if neither has it."""
    if current_view(view.text, view.as_of, tables, views) is not None:
        return view.text
    return with_current_names(view.text, view.as_of, tables, views)


def _text(statements: Iterable[str]) -> str:
    return "".join(f"{s.rstrip().rstrip(';')};\n\n" for s in statements)
