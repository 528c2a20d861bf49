"""What a session may do: the privileges of its account and its active roles together.

Keeps true: a privilege at a higher level holds at all lower ones.  A pattern of a database with % or _ holds for each
database that it matches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from noria.accounts.grants import EVERYTHING, NONE, Grants, TableName
from noria.accounts.names import AccountName, covers, like
from noria.accounts.privileges import SERVER, all_of
from noria.accounts.registry import Accounts

SHOWN = ("information_schema",)  # everybody may read these, and sees his own


@dataclass(frozen=True)
class Rights:
    """The privileges of these grants together."""

    grants: tuple[Grants, ...]

    @cached_property
    def server(self) -> frozenset[str]:
        return NONE.union(*(g.server for g in self.grants))

    @cached_property
    def everything(self) -> bool:
        """True if no statement needs a check."""
        return all_of(SERVER) <= self.server and "GRANT OPTION" in self.server

    def on_database(self, database: str) -> frozenset[str]:
        """The privileges that hold for all of a database."""
        name = database.lower()
        held = (p for g in self.grants for pattern, p in g.databases.items() if pattern == name or like(pattern, name))
        return self.server.union(*held)

    def on_databases(self, pattern: str) -> frozenset[str]:
        """The privileges that hold for all of each database that a pattern of GRANT matches."""
        key = pattern.lower()
        held = (p for g in self.grants for own, p in g.databases.items() if own == key or covers(own, key))
        return self.server.union(*held)

    def on_table(self, table: TableName) -> frozenset[str]:
        """The privileges that hold for all of a table."""
        key = table[0].lower(), table[1].lower()
        return self.on_database(key[0]).union(*(g.tables.get(key, NONE) for g in self.grants))

    def columns(self, privilege: str, table: TableName) -> frozenset[str]:
        """The columns for which a privilege was granted by their names."""
        key = table[0].lower(), table[1].lower()
        return frozenset(c for g in self.grants for c, held in g.columns.get(key, {}).items() if privilege in held)

    def anywhere(self, privilege: str) -> bool:
        """Whether the account has a privilege for anything."""
        held = (p for g in self.grants for p in (*g.databases.values(), *g.tables.values()))
        return privilege in self.server.union(*held) or any(
            privilege in p for g in self.grants for columns in g.columns.values() for p in columns.values())

    # ------------------------------------------------------------ what is shown
    def sees_database(self, database: str) -> bool:
        """Whether the account has any privilege for anything in the database."""
        if database.lower() in SHOWN or "SHOW DATABASES" in self.server:
            return True
        name = database.lower()
        return bool(self.on_database(name) & _DATA) or any(
            name == key[0] for g in self.grants for key in (*g.tables, *g.columns))

    def sees_table(self, table: TableName) -> bool:
        key = table[0].lower(), table[1].lower()
        return bool(self.on_table(key) & _DATA) or any(key in g.columns for g in self.grants)

    def sees_column(self, table: TableName, column: str) -> bool:
        if self.on_table(table) & _DATA:
            return True
        key = table[0].lower(), table[1].lower()
        return any(column.lower() in g.columns.get(key, {}) for g in self.grants)


_DATA = frozenset(("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "REFERENCES", "INDEX", "ALTER",
                   "CREATE TEMPORARY TABLES", "LOCK TABLES", "CREATE VIEW", "SHOW VIEW", "TRIGGER", "EVENT", "EXECUTE",
                   "CREATE ROUTINE", "ALTER ROUTINE"))
UNLIMITED = Rights((EVERYTHING,))


def rights_of(accounts: Accounts, name: AccountName, roles: Iterable[AccountName]) -> Rights:
    """The rights of an account with these active roles; none of an account that was dropped."""
    own = accounts.get(name)
    if own is None:
        return Rights(())
    active = accounts.active(frozenset(roles) & frozenset(own.roles))
    return Rights((own.grants, *(accounts.known[r].grants for r in sorted(active))))


__all__ = ["UNLIMITED", "Rights", "rights_of"]
