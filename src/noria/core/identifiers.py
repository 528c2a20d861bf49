"""Names of tables, views and columns in SQL texts and messages."""

from __future__ import annotations

from collections.abc import Sequence

from noria.core.errors import duplicate_column


def quote_identifier(name: str) -> str:
    """Return a name of a table, view or column in backticks.

    >>> quote_identifier("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"


def without_database(name: str) -> str:
    """Return a table's name in the catalog without its database, as messages and names of constraints have it.

    >>> without_database("shop.t"), without_database("t")
    ('t', 't')
    """
    return name.partition(".")[2] or name


def repeated(names: Sequence[str]) -> str | None:
    """Return the first name that occurs before, whatever its case."""
    known = set[str]()
    for name in names:
        if name.lower() in known:
            return name
        known.add(name.lower())
    return None


def refuse_repeated_columns(names: Sequence[str]) -> None:
    if (twice := repeated(names)) is not None:
        raise duplicate_column(twice)
