"""The privileges, and at which levels each can be granted.

Keeps true: `ALL` at a level is every privilege of that level but GRANT OPTION.  A privilege of `UNUSED` can be granted
and revoked, and guards nothing, because Noria has no such statements.
"""

from __future__ import annotations

from noria.core.errors import SqlError, not_supported
from noria.core.errors.codes import ILLEGAL_GRANT_FOR_TABLE, WRONG_USAGE

SERVER, DATABASE, TABLE, COLUMN = "server", "database", "table", "column"
GRANT_OPTION = "GRANT OPTION"
USAGE = "USAGE"
ALL = "ALL"

_COLUMNS = ("SELECT", "INSERT", "UPDATE", "REFERENCES")
_TABLES = (*_COLUMNS, "DELETE", "CREATE", "DROP", "ALTER", "INDEX", "CREATE VIEW", "SHOW VIEW", "TRIGGER", GRANT_OPTION)
_DATABASES = (*_TABLES, "CREATE TEMPORARY TABLES", "LOCK TABLES", "EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE", "EVENT")
_SERVER = (
    "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "RELOAD", "SHUTDOWN", "PROCESS", "FILE", "REFERENCES",
    "INDEX", "ALTER", "SHOW DATABASES", "SUPER", "CREATE TEMPORARY TABLES", "LOCK TABLES", "EXECUTE",
    "REPLICATION SLAVE", "REPLICATION CLIENT", "CREATE VIEW", "SHOW VIEW", "CREATE ROUTINE", "ALTER ROUTINE",
    "CREATE USER", "EVENT", "TRIGGER", "CREATE TABLESPACE", "CREATE ROLE", "DROP ROLE", GRANT_OPTION)
DYNAMIC = ("BACKUP_ADMIN", "CONNECTION_ADMIN", "ROLE_ADMIN", "SYSTEM_VARIABLES_ADMIN")
OF_LEVEL = {SERVER: (*_SERVER, *DYNAMIC), DATABASE: _DATABASES, TABLE: _TABLES, COLUMN: _COLUMNS}
UNUSED = frozenset(("TRIGGER", "EXECUTE", "CREATE ROUTINE", "ALTER ROUTINE", "EVENT", "CREATE TABLESPACE",
                    "REPLICATION SLAVE", "REPLICATION CLIENT", "SHUTDOWN"))
KNOWN = frozenset(OF_LEVEL[SERVER])


def all_of(level: str) -> frozenset[str]:
    """What ALL PRIVILEGES grants at a level."""
    return frozenset(OF_LEVEL[level]) - {GRANT_OPTION}


def checked(privilege: str, level: str) -> frozenset[str]:
    """The privileges that a word of GRANT or REVOKE means at a level.  Raises SqlError."""
    if privilege == USAGE:
        return frozenset()
    if privilege == ALL:
        return all_of(level)
    if privilege not in KNOWN:
        raise not_supported(f"the privilege {privilege}", "the reference of SQL lists those that can be granted")
    if privilege in OF_LEVEL[level]:
        return frozenset((privilege,))
    if level == DATABASE:
        raise SqlError(*WRONG_USAGE, "Incorrect usage of DB GRANT and GLOBAL PRIVILEGES")
    if level == COLUMN:
        raise SqlError(*WRONG_USAGE, "Incorrect usage of COLUMN GRANT and NON-COLUMN PRIVILEGES")
    raise SqlError(*ILLEGAL_GRANT_FOR_TABLE,
                   "Illegal GRANT/REVOKE command; please consult the manual to see which privileges can be used")


def listed(privileges: frozenset[str], level: str) -> str:
    """The privileges as SHOW GRANTS lists them."""
    granted = privileges - {GRANT_OPTION}
    if not granted:
        return USAGE
    if granted == all_of(level):
        return "ALL PRIVILEGES"
    return ", ".join(p for p in OF_LEVEL[level] if p in granted)


__all__ = ["ALL", "COLUMN", "DATABASE", "DYNAMIC", "GRANT_OPTION", "KNOWN", "OF_LEVEL", "SERVER", "TABLE", "UNUSED",
           "USAGE", "all_of", "checked", "listed"]
