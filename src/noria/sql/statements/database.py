"""Checks names of databases: there is only one.

Keeps true: the name of another database is error 1049 wherever it occurs; it never refers to this one's tables.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from noria.core.errors import SqlError, unknown_table
from noria.core.errors.codes import DB_CREATE_EXISTS, DB_DROP_EXISTS, DBACCESS_DENIED, PARSE_ERROR
from noria.sql.text.the_database import DATABASE, ONE, check_database

_CATALOGS = ("information_schema", "performance_schema", "mysql", "sys")  # MySQL's own; empty here


def check_parts(nodes: Iterable[exp.Expr]) -> None:
    """Raise a syntax error for a table like `..t`, for which sqlglot reads an empty database."""
    for node in nodes:
        if isinstance(node, exp.Table) and any(node.args.get(part) == "" for part in ("catalog", "db")):
            raise SqlError(*PARSE_ERROR, "You have an error in your SQL syntax: a name lacks a part, near "
                                         f"'..{node.name}'")


def check_names(nodes: Iterable[exp.Expr]) -> None:
    """Check the database of every table and column that is written with one."""
    for node in nodes:
        if not isinstance(node, (exp.Table, exp.Column)):
            continue
        if node.args.get("catalog"):
            raise SqlError(*PARSE_ERROR, "You have an error in your SQL syntax: a name of more than two parts, near "
                                         f"'{node.sql(dialect='mysql')}'")
        if node.args.get("db"):
            check_qualified(node.args["db"].name, node.name)


def check_qualified(database: str, name: str) -> None:
    """Check the database of `database.name`.  Raises 1146 for a name in MySQL's own databases, 1049 for others."""
    if database.lower() in _CATALOGS:
        raise unknown_table(f"{database}.{name}")
    check_database(database)


def not_created(name: str) -> SqlError:
    """The error of CREATE DATABASE: 1007 for the one database, 1044 for another."""
    if name.lower() == DATABASE:
        return SqlError(*DB_CREATE_EXISTS, f"Can't create database '{name}'; database exists")
    return SqlError(*DBACCESS_DENIED, f"Access denied: database '{name}' cannot be created: {ONE}; start a server with "
                                      "another data directory for another one")


def not_dropped(name: str) -> SqlError:
    """The error of DROP DATABASE for a database that does not exist."""
    return SqlError(*DB_DROP_EXISTS, f"Can't drop database '{name}'; database doesn't exist; {ONE}")


__all__ = ["DATABASE", "check_database", "check_names", "check_parts", "check_qualified", "not_created", "not_dropped"]
