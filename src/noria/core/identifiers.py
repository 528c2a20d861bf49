"""Names of tables, views and columns in SQL texts and messages."""

from __future__ import annotations


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
