"""The name of the one database, for modules that do not parse."""

from __future__ import annotations

from noria.core.errors import SqlError
from noria.core.errors.codes import BAD_DB

DATABASE = "noria"
ONE = f"there is one database, named '{DATABASE}'"


def check_database(name: str) -> None:
    """Raise error 1049 for a name that is not the database's; case does not matter."""
    if name.lower() != DATABASE:
        raise SqlError(*BAD_DB, f"Unknown database '{name}'; {ONE}")
