"""The commands that concern a session or a database: SHOW, SET, PREPARE, transactions, locks, KILL.

`commands.py` lists them in its union `Command`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from noria.sql.text.databases import Database


@dataclass(frozen=True)
class Show:
    """SHOW and DESCRIBE.  `what`: in lower case with single spaces, without FULL, GLOBAL and SESSION ("tables",
    "columns", "create table", "variables", "warnings", …).  `target`: the named table, view or database."""

    what: str
    target: str = ""
    like: str | None = None
    full: bool = False
    scope: str = ""
    where: str = ""  # the condition of WHERE as written, over the answer's columns
    limit: tuple[int, int] | None = None  # OFFSET and LIMIT, of warnings and errors


@dataclass(frozen=True)
class Assignment:
    """One assignment of SET.  `scope`: "session", "global", "user" (@x), or "" if not written.  `name`: in lower case.
    `value`: a Python value, or an `OutputColumn` that reads another variable."""

    scope: str
    name: str
    value: Any


@dataclass(frozen=True)
class SetVariable:
    """SET.  SET NAMES is an assignment to `names`; SET [SESSION] TRANSACTION is one to `transaction`."""

    assignments: tuple[Assignment, ...]


@dataclass(frozen=True)
class FileFormat:
    """How LOAD DATA reads a file: what ends fields and lines, encloses fields, escapes characters and begins lines."""

    fields: str
    enclosed: str
    escaped: str
    starting: str
    lines: str


@dataclass(frozen=True)
class LoadData:
    """LOAD DATA LOCAL INFILE.  skipped: lines at the beginning.  columns: None for all; "" for a field to skip."""

    table: str
    on_duplicate: str  # ignore | replace
    form: FileFormat
    skipped: int
    columns: tuple[str, ...] | None


@dataclass(frozen=True)
class PrepareText:
    """PREPARE name FROM a text, or FROM @variable."""

    name: str
    text: str | None
    variable: str = ""


@dataclass(frozen=True)
class ExecutePrepared:
    """EXECUTE name USING variables."""

    name: str
    variables: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeallocatePrepared:
    name: str


@dataclass(frozen=True)
class Use:
    database: str


@dataclass(frozen=True)
class CreateDatabase:
    database: Database
    if_not_exists: bool = False


@dataclass(frozen=True)
class AlterDatabase:
    """ALTER DATABASE: the database with its new options."""

    database: Database


@dataclass(frozen=True)
class DropDatabase:
    name: str
    if_exists: bool = False
    foreign_key_checks: bool = field(default=True, repr=False)


@dataclass(frozen=True)
class Transaction:
    """BEGIN, COMMIT, ROLLBACK, and the statements about savepoints.  `name`: of the savepoint."""

    what: Literal["begin", "commit", "rollback", "savepoint", "rollback to", "release"]
    name: str = ""
    read_only: bool | None = None  # None: as SET TRANSACTION or the session says
    chain: bool = False  # COMMIT AND CHAIN: the next transaction begins at once
    release: bool = False  # COMMIT RELEASE: the connection ends
    snapshot: bool = False  # WITH CONSISTENT SNAPSHOT: the snapshot is of this moment


@dataclass(frozen=True)
class Kill:
    """KILL [CONNECTION | QUERY] number."""

    number: int
    connection: bool


@dataclass(frozen=True)
class FlushHosts:
    """FLUSH HOSTS: addresses that were blocked after broken connections may connect again."""


@dataclass(frozen=True)
class NoOp:
    """A statement without effect: FLUSH PRIVILEGES, ANALYZE, OPTIMIZE, a comment.  `what`: its word.  `tables`: those
    that it names."""

    what: str
    tables: tuple[str, ...] = ()


@dataclass(frozen=True)
class LockTables:
    """LOCK TABLES, with (table, whether for WRITE); UNLOCK TABLES if `tables` is empty."""

    tables: tuple[tuple[str, bool], ...] = ()
