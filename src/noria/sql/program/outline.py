"""Reads a text to the program that it makes in an empty database.  Call `read`.

Keeps true: all errors of a text are reported together, each with its line, except those that only follow from others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from noria.core.errors import SqlError, not_supported, table_exists
from noria.core.errors.codes import NET_PACKET_TOO_LARGE, NO_SUCH_TABLE
from noria.core.limits import PROGRAM_BYTES, PROGRAM_ERRORS
from noria.core.types import TableDef
from noria.plan.view import ViewDef
from noria.sql.commands import AlterTable, Command, CreateDatabase, CreateTable, CreateView, NoOp
from noria.sql.parse import parse
from noria.sql.query.relations.context import Recorder
from noria.sql.text.comments import SHOWN
from noria.sql.text.databases import Databases, Names, database_exists
from noria.sql.text.syntax import statements_of, tokenize


@dataclass(frozen=True)
class OutlineView:
    """A view of a text.  `used`: the folded names of the views that it reads.  `stage`: the number of column changes
    (ALTER TABLE) before it."""

    definition: ViewDef
    text: str
    used: frozenset[str]
    stage: int


@dataclass
class Outline:
    """A catalog of tables and views by folded name, in the order of their creation.  `stage`: the number of column
    changes so far.  `databases`: those that were there, and those of the text."""

    tables: dict[str, TableDef] = field(default_factory=dict)
    views: dict[str, OutlineView] = field(default_factory=dict)
    stage: int = 0
    databases: Databases = field(default_factory=Databases)

    def table(self, name: str) -> TableDef | None:
        return self.tables.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        found = self.views.get(name.lower())
        return None if found is None else found.definition

    def take(self, text: str) -> None:
        """Add the definitions of one statement."""
        recorder = Recorder(self)
        for command in parse(text, recorder, names=Names("", self.databases)):
            self._add(command, frozenset(recorder.views))

    def _add(self, command: Command, used: frozenset[str]) -> None:
        if isinstance(command, CreateTable):
            self._free(command.table.name)
            self.tables[command.table.name.lower()] = command.table
        elif isinstance(command, CreateView):
            self._free(command.view.name)
            self.views[command.view.name.lower()] = OutlineView(command.view, command.text, used, self.stage)
        elif isinstance(command, AlterTable):
            self.tables[command.was.name.lower()] = self._altered(command)
        elif isinstance(command, CreateDatabase):
            if self.databases.get(command.database.name) is None:
                self.databases = self.databases.having(command.database)
            elif not command.if_not_exists:
                raise database_exists(command.database.name)
        elif not isinstance(command, NoOp):
            raise not_supported("this statement in a program", "a program is made of CREATE TABLE, CREATE VIEW, CREATE "
                                "INDEX, ALTER TABLE and CREATE DATABASE")

    def _free(self, name: str) -> None:
        if self.table(name) is not None or self.view(name) is not None:
            raise table_exists(name)

    def _altered(self, command: AlterTable) -> TableDef:
        """The altered table.  Refuses to drop, rename or move columns: a program declares the final table instead."""
        known, table = len(command.was.columns), command.table
        moved = list(table.shown) != sorted(table.shown) or any(c.dropped for c in table.columns)
        if table.name != command.was.name or moved or [
                c.name for c in table.columns[:known]] != [c.name for c in command.was.columns]:
            raise not_supported("ALTER TABLE that drops, renames or moves in a program", "write the CREATE TABLE as "
                                "the table is to be")
        added = command.table.columns[known:]
        self.stage += bool(added)
        later = tuple(replace(c, added=self.stage) for c in added)
        return replace(command.table, columns=(*command.table.columns[:known], *later), order=())


@dataclass(frozen=True)
class OutlineStatement:
    """One statement and its line in the text, from 1."""

    line: int
    text: str


def statements(text: str) -> Iterator[OutlineStatement]:
    for tokens in statements_of(tokenize(text)):
        yield OutlineStatement(text.count("\n", 0, tokens[0].start) + 1, text[tokens[0].start : tokens[-1].end + 1])


def read(text: str, databases: Databases | None = None) -> Outline:
    """Read the program of a text.  `databases`: those that are there.

    Raises one SqlError with all errors, at most PROGRAM_ERRORS of them in full.
    """
    if len(text.encode()) > PROGRAM_BYTES:
        raise SqlError(*NET_PACKET_TOO_LARGE, f"Got a program bigger than {PROGRAM_BYTES:,} bytes")
    outline = Outline() if databases is None else Outline(databases=databases)
    errors, missing = list[tuple[int, SqlError, str]](), set[str]()
    for statement in statements(text):
        try:
            outline.take("\n" * (statement.line - 1) + statement.text)
        except SqlError as error:
            if not _follows(error, missing):
                errors.append((statement.line, error, statement.text))
            missing |= _named(statement.text)
    if errors:
        raise _all(errors)
    return outline


def _follows(error: SqlError, missing: set[str]) -> bool:
    """Whether a table or view is unknown only because its own statement has an error."""
    return error.code == NO_SUCH_TABLE.number and any(f"'{name}'" in error.message.lower() for name in missing)


def _named(text: str) -> set[str]:
    """The folded name that a failed CREATE statement would have made; empty for other statements."""
    words = [t.text for t in tokenize(text)[:8]]
    upper = [w.upper() for w in words]
    at = next((i for i, w in enumerate(upper) if w in ("TABLE", "VIEW")), None)
    if upper[:1] != ["CREATE"] or at is None:
        return set()
    rest = [w for w in words[at + 1 :] if w.upper() not in ("IF", "NOT", "EXISTS")]
    return {rest[0].lower()} if rest else set()


def _all(errors: list[tuple[int, SqlError, str]]) -> SqlError:
    messages = [f"line {line}: {e.message} (in: {_first(text)})" for line, e, text in errors[:PROGRAM_ERRORS]]
    if len(errors) > PROGRAM_ERRORS:
        messages.append(f"and {len(errors) - PROGRAM_ERRORS} more")
    return SqlError(errors[0][1].code, errors[0][1].state, "\n".join(messages))


def _first(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[:SHOWN] + "…"
