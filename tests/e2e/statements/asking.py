"""What a connection of PyMySQL answers: the rows of a statement, or its error's number."""

from __future__ import annotations

from typing import Any

import pymysql


def rows(c: Any, text: str) -> list[tuple[Any, ...]]:
    with c.cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall())


def code(c: Any, text: str) -> int:
    """The error's number, 0 for none."""
    try:
        rows(c, text)
    except pymysql.err.MySQLError as e:
        return int(e.args[0])
    return 0
