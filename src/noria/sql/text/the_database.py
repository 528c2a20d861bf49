"""The name of the one database that there is, for who parses nothing."""

from __future__ import annotations

from noria.core.errors import SqlError

DATABASE = "noria"
ONE = f"there is one database, named '{DATABASE}'"


def check_database(name: str) -> None:
    """SqlError 1049 for a name that is not the database's.  Names ignore case."""
    if name.lower() != DATABASE:
        raise SqlError(1049, "42000", f"Unknown database '{name}'; {ONE}")
