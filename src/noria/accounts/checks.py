"""Compares what a statement needs with what a session may do.

Keeps true: the errors are MySQL's, and a refused table is refused alike whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from noria.accounts.grants import TableName
from noria.accounts.rights import Rights
from noria.core.errors import SqlError
from noria.core.errors.codes import (
    COLUMNACCESS_DENIED,
    DBACCESS_DENIED,
    SPECIFIC_ACCESS_DENIED,
    TABLEACCESS_DENIED,
)


@dataclass(frozen=True)
class Need:
    """One of these privileges is needed.

    table: for this table; without its name for a whole database, and None for the server.

    columns: for these columns only.  An empty set is satisfied by any column; None needs the whole table.

    command: its word in errors.

    sees: any privilege for the table or database is enough.  star: the columns are written as `*`, or not at all.

    named: the statement has another privilege on the table, so that the error names the first column.

    of_view: only if the table is a view.

    kept: for the table or view of the catalog, even if the session has a temporary table of its name.
    """

    privileges: tuple[str, ...]
    table: TableName | None = None
    columns: frozenset[str] | None = None
    command: str = ""
    sees: bool = False
    star: bool = False
    named: bool = False
    kept: bool = False
    of_view: bool = False


_ON_DUPLICATE = {"replace": ("INSERT", "DELETE"), "update": ("INSERT", "UPDATE"), "delete": ("DELETE",)}


def writes(table: TableName, on_duplicate: str) -> list[Need]:
    """The needs of a write of rows that no statement has.  on_duplicate: what it does to rows that exist."""
    return [Need((privilege,), table) for privilege in _ON_DUPLICATE.get(on_duplicate, ("INSERT",))]


def check(needs: Iterable[Need], rights: Rights, who: str) -> None:
    """Raise the SqlError of the first need that the rights do not satisfy.  who: 'user'@'address'."""
    for need in needs:
        if need.table is None:
            if not rights.server.intersection(need.privileges):
                raise lacks(" or ".join(need.privileges))
        elif not need.table[1]:
            _check_database(need, need.table[0], rights, who)
        else:
            _check_table(need, need.table, rights, who)


def lacks(privileges: str) -> SqlError:
    return SqlError(*SPECIFIC_ACCESS_DENIED, f"Access denied; you need (at least one of) the {privileges} privilege(s) "
                                             "for this operation")


def database_denied(who: str, database: str) -> SqlError:
    return SqlError(*DBACCESS_DENIED, f"Access denied for user {who} to database '{database}'")


def table_denied(command: str, who: str, table: str) -> SqlError:
    return SqlError(*TABLEACCESS_DENIED, f"{command} command denied to user {who} for table '{table}'")


def _check_database(need: Need, database: str, rights: Rights, who: str) -> None:
    allowed = rights.sees_database(database) if need.sees else rights.on_database(database).intersection(
        need.privileges)
    if not allowed:
        raise database_denied(who, database)


def _check_table(need: Need, table: TableName, rights: Rights, who: str) -> None:
    command = need.command or need.privileges[0]
    if need.sees:
        if not rights.sees_table(table):
            raise table_denied(command, who, table[1])
        return
    if rights.on_table(table).intersection(need.privileges):
        return
    granted = frozenset(c for p in need.privileges for c in rights.columns(p, table))
    if need.columns is None or not (granted or (need.named and need.columns)):
        raise table_denied(command, who, table[1])
    for column in sorted(need.columns):
        if column.lower() not in granted:
            if need.star:
                raise table_denied(command, who, table[1])
            raise SqlError(*COLUMNACCESS_DENIED, f"{command} command denied to user {who} for column '{column}' in "
                                                 f"table '{table[1]}'")


__all__ = ["Need", "check", "database_denied", "lacks", "table_denied", "writes"]
