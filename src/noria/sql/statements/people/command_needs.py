"""The needs of commands that are read without sqlglot: SHOW, SET, LOCK TABLES, databases, upkeep.

Keeps true: a command of a kind that is not listed needs no privilege.  Statements about accounts are not here: their
changes check the privileges themselves (`accounts/changes.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from noria.accounts.checks import Need
from noria.sql import session_commands as said
from noria.sql.commands import Command, RenameTables
from noria.sql.text.databases import Databases, Names

_UPKEEP = {"analyze": ("SELECT", "INSERT"), "optimize": ("SELECT", "INSERT"), "repair": ("SELECT", "INSERT"),
           "check": ("SELECT",), "checksum": ("SELECT",), "alter": ("ALTER",)}
_RELOAD = Need(("RELOAD",))
_SETTING = Need(("SYSTEM_VARIABLES_ADMIN", "SUPER"))
_PROCESS = Need(("PROCESS",))
_OF_DATABASE = ("tables", "views", "table status", "open tables", "triggers", "events", "create database")


def needs_of_command(command: Command, names: Names) -> list[Need]:
    """The needs of a command that `session.command` has read."""
    databases = names.databases or Databases()
    found = _OF.get(type(command))
    return [] if found is None else found(command, databases)


def _rename(command: RenameTables, databases: Databases) -> list[Need]:
    return [Need((privilege,), databases.split(name), kept=True) for old, new in command.names
            for name, needed in ((old, ("ALTER", "DROP")), (new, ("CREATE", "INSERT"))) for privilege in needed]


def _lock(command: said.LockTables, databases: Databases) -> list[Need]:
    return [need for name, _ in command.tables for need in (
        Need(("LOCK TABLES",), (databases.split(name)[0], "")), Need(("SELECT",), databases.split(name), frozenset()))]


def _show(command: said.Show, databases: Databases) -> list[Need]:
    what = command.what
    if what.startswith("noria ") or what in ("binary logs", "master status", "slave status", "replica status"):
        return [_PROCESS]
    if what in _OF_DATABASE:
        return [Need((), (command.target, ""), sees=True)] if command.target else []
    if what == "create view":
        table = databases.split(command.target)
        return [Need(("SHOW VIEW",), table, kept=True), Need(("SELECT",), table, kept=True)]
    if what in ("create table", "columns", "index") and command.target:
        word = "SELECT" if what == "columns" else "SHOW"
        return [Need((), databases.split(command.target), command=word, sees=True)]
    return []


def _no_op(command: said.NoOp, databases: Databases) -> list[Need]:
    if command.what == "flush":
        return [_RELOAD]
    return [Need((privilege,), databases.split(name)) for name in command.tables
            for privilege in _UPKEEP.get(command.what, ())]


def _load(command: said.LoadData, databases: Databases) -> list[Need]:
    table = databases.split(command.table)
    columns = None if command.columns is None else frozenset(filter(None, command.columns))
    return [Need(("INSERT",), table, columns), *[Need(("DELETE",), table)] * (command.on_duplicate == "replace")]


def _set(command: said.SetVariable, databases: Databases) -> list[Need]:
    return [_SETTING] if any(a.scope == "global" for a in command.assignments) else []


_OF: dict[type, Callable[..., list[Need]]] = {
    RenameTables: _rename, said.LockTables: _lock, said.Show: _show, said.NoOp: _no_op,
    said.LoadData: _load, said.SetVariable: _set,
    said.FlushHosts: lambda command, databases: [_RELOAD],
    said.Use: lambda command, databases: [Need((), (command.database, ""), sees=True)],
    said.CreateDatabase: lambda command, databases: [Need(("CREATE",), (command.database.name, ""))],
    said.AlterDatabase: lambda command, databases: [Need(("ALTER",), (command.database.name, ""))],
    said.DropDatabase: lambda command, databases: [Need(("DROP",), (command.name, ""))],
}

__all__ = ["needs_of_command"]
