"""Writes names into SQL texts."""

from __future__ import annotations


def quote_identifier(name: str) -> str:
    """Return a name of a table, view or column in backticks.

    >>> quote_identifier("a`b")
    '`a``b`'
    """
    return "`" + name.replace("`", "``") + "`"
